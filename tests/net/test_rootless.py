#!/usr/bin/env python3
"""holdfastd without root: in a user namespace with one user, as a rootless container has it, on ports above 1023; and with its
default ports, where the host lets users have them.

    HOLDFASTD=PATH test_rootless.py [unittest's own arguments]
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "files"))

import netns  # noqa: E402
import nfs  # noqa: E402
import nlm  # noqa: E402
from daemon import Daemon  # noqa: E402
from visitor import Visitor  # noqa: E402

SKIPPED = 77
USER = "nobody"
PORT, PORTMAP = 12049, 11111
ORDINARY = ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups"]
ROOTLESS = [*ORDINARY, "unshare", "--map-root-user"]
FIRST_PORT = "/proc/sys/net/ipv4/ip_unprivileged_port_start"


class Rootless(unittest.TestCase):
    settings = (f"server.port={PORT}", f"server.portmap_port={PORTMAP}")

    def setUp(self):
        self.base = tempfile.mkdtemp(prefix="hf-net-rootless-")
        self.addCleanup(shutil.rmtree, self.base, True)
        self.uid = pwd.getpwnam(USER).pw_uid
        self.data = os.path.join(self.base, "data")
        os.mkdir(self.data)
        for path in (self.base, self.data):
            os.chown(path, self.uid, -1)
        self.host = netns.Namespace("host")
        self.addCleanup(self.host.close)
        program = shutil.copy(os.environ["HOLDFASTD"], self.base)  # where that user may run it
        self.daemon = Daemon(program, self.host, self.settings, ["--export", f"{self.data}:/data"])
        self.addCleanup(self.daemon.close)
        self.daemon.launcher = ROOTLESS
        os.chown(self.daemon.state_dir, self.uid, -1)


class OtherPorts(Rootless):
    def test_files(self):
        """All clients act as the one user; handles outlast a restart, with no file open."""
        self.daemon.start()
        with self.host, nfs.Client(PORT, uid=1000, gid=1000) as client:
            made = client.create(client.root("/data"), b"file", mode=0o600)
            self.assertEqual(made.stat, 0)
            self.assertEqual(client.write(made.fh, b"text").stat, 0)
        self.assertEqual(os.stat(os.path.join(self.data, "file")).st_uid, self.uid)
        self.daemon.crash()
        self.daemon.start()
        with self.host, nfs.Client(PORT, uid=1001, gid=1001) as client:
            self.assertEqual(client.read(made.fh).data, b"text")
        self.assertIn("handles=finder", self.daemon.log)
        self.assertIn("walked an export to find a file by its inode number", self.daemon.log)
        self.assertIn("identity=own", self.daemon.log)
        self.daemon.stop()

    def stat(self, client, lock):
        answer = client.call(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        answer.opaque()  # the cookie
        return answer.u32()

    def test_locks(self):
        """They are stored and reclaimed as ever."""
        self.daemon.start("recovery.window_seconds=3600")
        with self.host, nfs.Client(PORT, uid=1000, gid=1000) as client:
            ada = nlm.Lock(fh=client.create(client.root("/data"), b"file", mode=0o600).fh, length=10)
            self.assertEqual(self.stat(client, ada), nlm.S_GRANTED)
            self.assertEqual(self.stat(client, ada.but(svid=2)), nlm.S_DENIED)
        self.daemon.crash()
        self.daemon.start("recovery.window_seconds=3600")
        with self.host, nfs.Client(PORT, uid=1000, gid=1000) as client:
            self.assertEqual(self.stat(client, ada.but(svid=2, offset=100)), nlm.S_GRACE)
            self.assertEqual(self.stat(client, ada.but(reclaim=True)), nlm.S_GRANTED)
        self.daemon.stop()


class DefaultPorts(Rootless):
    """After `sysctl net.ipv4.ip_unprivileged_port_start=111`; each network namespace has a value of its own."""

    settings = ()

    def lower(self):
        try:
            with self.host, open(FIRST_PORT, "w", encoding="ascii") as file:
                file.write("111")
        except OSError as error:
            self.skipTest(f"{FIRST_PORT} cannot be set here: {error.strerror}")

    def serves(self, launcher):
        self.lower()
        self.daemon.launcher = launcher
        visitor = Visitor(self, self.host, "/data")
        self.daemon.start()
        visitor.comes()
        self.assertEqual(visitor.port(), 2049)
        self.daemon.crash()
        self.daemon.start()
        visitor.comes_back()
        self.daemon.stop()

    def test_in_a_user_namespace(self):
        self.serves(ROOTLESS)

    def test_directly(self):
        self.serves(ORDINARY)

    def test_where_the_host_keeps_them(self):
        """As each host does that has not been told otherwise: it says that clients find no lock service."""
        self.daemon.start()
        self.assertIn("the portmap port needs privilege, and no rpcbind runs", self.daemon.log)
        self.daemon.stop()


if __name__ == "__main__":
    reason = netns.is_possible()
    if not reason and subprocess.run([*ROOTLESS, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        reason = "no user namespaces here for users without rights"
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
