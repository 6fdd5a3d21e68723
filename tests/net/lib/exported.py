"""Plays about locks on real files: a holdfastd that exports directories of the test's own."""

import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "files"))

import nfs
from waiting import Waiting


class OneExport:
    """Beside a Play: a folder of its own is exported as /data, and self.nfs is a client of that."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="hf-export-")
        cls.addClassCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o777)
        cls.flags = (*cls.flags, "--export", f"{folder}:/data")
        super().setUpClass()
        with open(cls.daemon.ports_file, encoding="utf-8") as ports, cls.daemon.namespace:
            cls.nfs = nfs.Client(json.load(ports)["rpc"])
        cls.addClassCleanup(cls.nfs.close)


class Exported(Waiting):
    """@exports: lines of the configuration's list, with {base} for the test's directory; @folders: made in it."""

    folders = ("data",)
    exports = ("{{path: {base}/data, name: /data, squash: none}}",)

    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp(prefix="hf-net-exported-")
        cls.addClassCleanup(shutil.rmtree, cls.base, True)
        os.chmod(cls.base, 0o755)
        for name in cls.folders:
            os.makedirs(os.path.join(cls.base, name))
        cls.config = os.path.join(cls.base, "holdfast.yaml")
        cls.write_config(cls.exports)
        cls.flags = ("--config", cls.config)
        cls.n_files = 0
        super().setUpClass()

    @classmethod
    def write_config(cls, exports):
        with open(cls.config, "w", encoding="ascii") as out:
            out.write("exports:\n")
            for line in exports:
                out.write("  - " + line.format(base=cls.base) + "\n")

    def setUp(self):
        super().setUp()
        self.path = self.make_file()
        self.fh = self.handle_of(self.path)

    def make_file(self, folder=None):
        """A file of this test's own; its path."""
        type(self).n_files += 1
        path = os.path.join(self.base, folder or self.folders[0], f"file{self.n_files}")
        with open(path, "wb") as out:
            out.write(bytes(1000))
        return path

    def handle_of(self, path, share="/data", folder=None):
        """The handle that a client of @share has for it; the share is of @folder."""
        name = os.path.relpath(path, os.path.join(self.base, folder or self.folders[0]))
        with self.network.server, nfs.Client(2049) as client:
            fh = client.root(share)
            for part in name.split("/"):
                fh = client.lookup(fh, part.encode()).fh
        return fh

    @classmethod
    def restart(cls):
        """Killed and started again: clients connect anew."""
        cls.daemon.crash()
        for host in cls.hosts:
            host.drop_callers()
        cls.daemon.start()
