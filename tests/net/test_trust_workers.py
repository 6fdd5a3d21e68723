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
from rpc import TcpCaller, auth_sys, call_message, result_of
from xdr import In, Out

N_ENTRIES = 5000
N_CONNECTIONS = 100
N_CALLS = 8  # under way on each
N_PIPES = 16  # connections with LOCKs of one owner
N_LOCKS = 256  # on each of them: as many as a connection may have under way


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


class Owners(Exported):
    """Calls of one owner about one file are served in turn."""

    exports = ("{{path: {base}/data, name: /data, squash: none, local_locks: off}}",)
    settings = ("server.threads=2", "log.level=warn")

    def used(self):
        """Seconds of the daemon's processor time."""
        with open(f"/proc/{self.daemon.process.pid}/stat", encoding="ascii") as stat:
            return sum(int(word) for word in stat.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")

    def cost(self, svid_of):
        """Processor time for LOCKs that are all under way at once, and whether the replies came in the order of the calls.
        Each call is of another user, so the disk is asked for it."""
        path = self.make_file()
        os.chmod(path, 0o666)
        lock = self.lock_of(self.a, fh=self.handle_of(path), exclusive=False)
        pipes = [TcpCaller((self.a.server, 2049), (self.a.address, 0), self.a.namespace) for _ in range(N_PIPES)]
        calls = [
            call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.but(svid=svid_of(i)).args(nlm.LOCK), xid=1 + i, cred=auth_sys(uid=100000 + i))
            for i in range(N_PIPES * N_LOCKS)
        ]
        before = self.used()
        for i, pipe in enumerate(pipes):
            pipe.send_together(calls[i * N_LOCKS : (i + 1) * N_LOCKS])
        replies = [[pipe.receive() for _ in range(N_LOCKS)] for pipe in pipes]
        used = self.used() - before
        for pipe, came in zip(pipes, replies):
            pipe.close()
            self.assertEqual({nlm.res_of(nlm.LOCK, result_of(reply)).stat for reply in came}, {nlm.S_GRANTED})
        return used, all(came == sorted(came) for came in replies)

    def test_m4_many_calls_of_one_owner_cost_about_as_much_as_of_many_owners(self):
        """They queue behind each other. What a call costs does not depend on how many are behind it."""
        (many, _), (one, is_in_order) = self.cost(lambda i: 1000 + i), self.cost(lambda i: 7)
        print(f"{N_PIPES * N_LOCKS} LOCKs of many owners {many:.2f} s, of one {one:.2f} s", file=sys.stderr)
        self.assertLess(one, 4 * many + 0.2)
        self.assertTrue(is_in_order)


if __name__ == "__main__":
    main()
