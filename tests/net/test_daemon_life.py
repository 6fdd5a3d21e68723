#!/usr/bin/env python3
"""The daemon's life on unlike hosts: without IPv6, with many addresses.

    HOLDFASTD=PATH test_daemon_life.py [unittest's own arguments]
"""

import os
import shutil
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "files"))

import netns  # noqa: E402
import nfs  # noqa: E402
from daemon import Daemon  # noqa: E402

SKIPPED = 77
PORTMAP, NLM = 100000, 100021


class Life(unittest.TestCase):
    def setUp(self):
        self.base = tempfile.mkdtemp(prefix="hf-net-life-")
        self.addCleanup(shutil.rmtree, self.base, True)
        os.chmod(self.base, 0o755)
        self.data = os.path.join(self.base, "data")
        os.mkdir(self.data)
        self.host = netns.Namespace("host")
        self.addCleanup(self.host.close)

    def daemon(self, *settings, flags=None):
        flags = ["--export", f"{self.data}:/data"] if flags is None else flags
        daemon = Daemon(os.environ["HOLDFASTD"], self.host, ["api.listen=", *settings], flags)
        self.addCleanup(daemon.close)
        return daemon


class Addresses(Life):
    def netids(self):
        """Where our port mapper says that NLM 4 and itself are."""
        found = set()
        with self.host, nfs.Client(111) as client:
            answer = client.call(PORTMAP, 4, 4)
        while answer.bool():
            program, version, netid = answer.u32(), answer.u32(), answer.string()
            answer.string(), answer.string()  # address, owner
            if (program, version) in ((NLM, 4), (PORTMAP, 4)):
                found.add((program, netid))
        return found

    def test_host_without_ipv6(self):
        daemon = self.daemon()
        daemon.launcher = [sys.executable, os.path.join(HERE, "lib", "noipv6.py")]
        daemon.start()
        self.assertEqual(
            self.netids(), {(program, netid) for program in (NLM, PORTMAP) for netid in ("tcp", "udp")}
        )
        with self.host, nfs.Client(2049) as client:
            client.root("/data")
        daemon.stop()

    def test_many_addresses(self):
        addresses = [f"127.0.0.{i}" for i in range(1, 101)]
        daemon = self.daemon("server.listen=" + ",".join(addresses)).start()
        self.assertIn((NLM, "tcp"), self.netids())
        daemon.stop()


if __name__ == "__main__":
    reason = netns.is_possible()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
