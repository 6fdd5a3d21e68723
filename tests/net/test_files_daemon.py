#!/usr/bin/env python3
"""The file service in the whole daemon, as real programs see it across a wire: showmount, the tools of libnfs,
rules by address, a reload.

    HOLDFASTD=PATH test_files_daemon.py [unittest's own arguments]
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

import netns  # noqa: E402
from until import until  # noqa: E402

SKIPPED = 77
PATIENCE = 60
LOADED = "configuration loaded again"

CONFIG = """
server: {{name: server, portmap: embedded, state_dir: {base}/state}}
store: {{backend: memory}}
api: {{listen: ""}}
exports:
  - {{path: {base}/data, name: /data, squash: none}}
  - {{path: {base}/ro, name: /ro, access: ro}}
  - {{path: {base}/one, name: /one, clients: [10.98.0.10]}}
"""


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp(prefix="hf-net-files-")
        cls.addClassCleanup(shutil.rmtree, cls.base, True)
        os.chmod(cls.base, 0o755)
        for name in ("data", "ro", "one", "more", "state"):
            os.mkdir(os.path.join(cls.base, name))
        cls.config = os.path.join(cls.base, "holdfast.yaml")
        cls.write_config(CONFIG.format(base=cls.base))
        cls.network = netns.Network()
        cls.addClassCleanup(cls.network.close)
        cls.hosts = [cls.network.add_client()[0] for _ in range(2)]
        cls.log_path = os.path.join(cls.base, "log")
        with open(cls.log_path, "wb") as log, cls.network.server:
            cls.daemon = subprocess.Popen([os.environ["HOLDFASTD"], "--config", cls.config], stdout=log, stderr=log)
        cls.addClassCleanup(cls.end)
        cls.until(lambda: os.path.exists(os.path.join(cls.base, "state", "ports.json")), "it has started")

    @classmethod
    def end(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        code = cls.daemon.wait(PATIENCE)
        assert code == 0, cls.log()

    @classmethod
    def log(cls):
        with open(cls.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    @classmethod
    def write_config(cls, text):
        with open(cls.config, "w", encoding="ascii") as out:
            out.write(text)

    @classmethod
    def until(cls, is_so, what):
        def look():
            assert cls.daemon.poll() is None, cls.log()
            return is_so()

        until(look, what, PATIENCE, more=cls.log)

    def run_tool(self, *words, host=0, code=0):
        with self.hosts[host]:
            done = subprocess.run(words, capture_output=True, timeout=60, check=False)
        if code is not None:
            self.assertEqual(done.returncode, code, done)
        return (done.stdout + done.stderr).decode()

    @unittest.skipUnless(shutil.which("showmount"), "nfs-common is not here")
    def test_showmount(self):
        told = self.run_tool("showmount", "-e", "--no-headers", "10.98.0.1").split("\n")
        self.assertEqual([line.split() for line in told if line],
                         [["/data", "private"], ["/ro", "private"], ["/one", "10.98.0.10"]])  # fmt: skip
        self.run_tool("nfs-ls", "nfs://10.98.0.1/data")
        self.assertIn("10.98.0.10:/data", self.run_tool("showmount", "-a", "--no-headers", "10.98.0.1"))
        self.assertIn("/data", self.run_tool("showmount", "-d", "--no-headers", "10.98.0.1"))

    def test_copy_there_and_back(self):
        data = os.urandom(3000000)
        with open(os.path.join(self.base, "big"), "wb") as out:
            out.write(data)
        self.run_tool("nfs-cp", os.path.join(self.base, "big"), "nfs://10.98.0.1/data/big")
        self.run_tool("nfs-cp", "nfs://10.98.0.1/data/big", os.path.join(self.base, "back"))
        with open(os.path.join(self.base, "back"), "rb") as back:
            self.assertEqual(back.read(), data)
        self.run_tool("nfs-cp", os.path.join(self.base, "big"), "nfs://10.98.0.1/ro/big", code=None)
        self.assertEqual(os.listdir(os.path.join(self.base, "ro")), [])

    def test_address_rule(self):
        self.run_tool("nfs-ls", "nfs://10.98.0.1/one", host=0)
        self.assertIn("ACCES", self.run_tool("nfs-ls", "nfs://10.98.0.1/one", host=1, code=None).upper())
        self.assertRegex(self.log(), r"peer=10\.98\.0\.11:\d+ export=/one rule=clients program=mount")

    def reload(self):
        before = self.log().count(LOADED)
        self.daemon.send_signal(signal.SIGHUP)
        self.until(lambda: self.log().count(LOADED) > before, "the exports were read again")

    def test_reload(self):
        self.assertNotIn("/more", self.run_tool("showmount", "-e", "10.98.0.1"))
        self.write_config(CONFIG.format(base=self.base) + f"  - {{path: {self.base}/more, name: /more}}\n")
        self.reload()
        self.assertIn("/more", self.run_tool("showmount", "-e", "10.98.0.1"))
        self.run_tool("nfs-ls", "nfs://10.98.0.1/more")
        self.write_config(CONFIG.format(base=self.base))
        self.reload()
        self.assertIn("NOENT", self.run_tool("nfs-ls", "nfs://10.98.0.1/more", code=None).upper())


if __name__ == "__main__":
    reason = netns.is_possible() or (None if shutil.which("nfs-ls") else "libnfs-utils is not here")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
