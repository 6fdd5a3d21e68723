#!/usr/bin/env python3
"""One address that asks the files' workers for all they can do, and an honest client beside it."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported, nfs
from flood import Flood
from play import main
from rpc import auth_sys, call_message
from xdr import In, Out

N_ENTRIES = 5000
N_CONNECTIONS = 100
N_CALLS = 8  # under way on each


def readdir(fh, plus=False):
    args = Out().opaque(fh).u64(0).fixed(bytes(8)).u32(1 << 20)
    if plus:
        args.u32(1 << 20)
    return call_message(nfs.NFS, 3, nfs.READDIRPLUS if plus else nfs.READDIR, args.bytes(), cred=auth_sys())


class Workers(Exported):
    settings = ("server.threads=2", "api.listen=127.0.0.1:0", "log.level=warn")
    n_hosts = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = os.path.join(cls.base, "data", "huge")
        os.mkdir(folder)
        for i in range(N_ENTRIES):
            os.close(os.open(f"{folder}/a-name-of-some-length-{i}", os.O_CREAT | os.O_WRONLY))

    def n_listed(self):
        """READDIRs that were answered until now."""
        return sum(n for key, n in self.rest.metrics().items() if key.startswith('nfs_requests_total{procedure="READDIR'))

    def write(self):
        args = Out().opaque(self.fh).u64(0).u32(4).u32(nfs.FILE_SYNC).opaque(b"data").bytes()
        stat = In(self.a.call(nfs.WRITE, args, version=3, program=nfs.NFS)).u32()
        self.assertEqual(stat, nfs.OK)

    def lock(self):
        """A file that the server does not know yet."""
        self.assert_granted(self.a, self.lock_of(self.a, fh=self.locked.pop()))

    def listing(self):
        args = Out().opaque(self.huge).u64(0).fixed(bytes(8)).u32(1 << 20).bytes()
        self.assertEqual(In(self.a.call(nfs.READDIR, args, version=3, program=nfs.NFS)).u32(), nfs.OK)

    def play(self, act, plus=False):
        """@act ten times beside the flood: how many READDIRs were answered meanwhile, and the longest wait."""
        self.huge = self.handle_of(os.path.join(self.base, "data", "huge"))
        self.locked = [self.handle_of(self.make_file()) for _ in range(10)]
        act()
        flood = Flood(self.b, readdir(self.huge, plus), N_CONNECTIONS, N_CALLS)
        before = self.n_listed()
        waits = []
        for _ in range(9):
            begun = time.monotonic()
            act()
            waits.append(time.monotonic() - begun)
        n = self.n_listed() - before
        flood.close()
        print(f"{n:.0f} READDIRs meanwhile, the longest wait {1000 * max(waits):.0f} ms", file=sys.stderr)
        return n

    def test_m4_a_write_does_not_wait_for_the_listings_of_another_address(self):
        """In order of arrival each of the nine would wait for 800 of them."""
        self.assertLess(self.play(self.write), N_CONNECTIONS * N_CALLS)

    def test_m4_nor_does_a_lock(self):
        self.assertLess(self.play(self.lock), N_CONNECTIONS * N_CALLS)

    def test_m4_nor_does_another_listing(self):
        self.assertLess(self.play(self.listing), N_CONNECTIONS * N_CALLS)

    def test_m4_nor_beside_listings_that_the_loop_answers(self):
        """They leave no call without a turn; how many of them are answered meanwhile is up to the machine."""
        self.play(self.lock, plus=True)


if __name__ == "__main__":
    main()
