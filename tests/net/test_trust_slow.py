#!/usr/bin/env python3
"""Calls that take the kernel seconds, as many as there are threads for files, and an honest client beside them. The slow
calls are READs of a disk that does not answer before the test lets it: no other slow call occupies a thread for longer."""

import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import fusedisk
from exported import Exported, nfs
from play import main
from rpc import PATIENCE, auth_sys, call_message, result_of
from xdr import In, Out

N_SLOW = 20  # calls of each attacker
N_WRITES = 20
SLOW = ("data", "slow")


class Slow(Exported):
    folders = SLOW
    exports = tuple(f"{{{{path: {{base}}/{name}, name: /{name}, squash: none}}}}" for name in SLOW)
    n_hosts = 3

    @classmethod
    def setUpClass(cls):
        cls.disk = None
        super().setUpClass()

    @classmethod
    def write_config(cls, exports):
        """The disk is there before the daemon starts."""
        if not cls.disk:
            cls.disk = fusedisk.FuseDisk(os.path.join(cls.base, "slow"))
            cls.addClassCleanup(cls.disk.close)
        super().write_config(exports)

    def setUp(self):
        super().setUp()
        self.slow = self.handle_of(os.path.join(self.base, "slow", "f"), "/slow", "slow")
        with self.network.server, nfs.Client(2049) as client:
            self.root = client.root("/data")
        self.disk.die()
        self.addCleanup(self.disk.live)

    def send(self, host, n, procedure, args):
        """@n calls, all of which have come when this returns. How to have their replies."""
        message = call_message(nfs.NFS, 3, procedure, args, cred=auth_sys())
        caller = host.caller()
        caller.send_together([struct.pack(">I", 1 + i) + message[4:] for i in range(n)] + [call_message(nfs.NFS, 3, nfs.NULL)])
        caller.receive()

        def receive():
            for _ in range(n):
                self.assertEqual(In(result_of(caller.receive())).u32(), nfs.OK)

        return receive

    def read_slowly(self, host, n=N_SLOW):
        receive = self.send(host, n, nfs.READ, Out().opaque(self.slow).u64(0).u32(4).bytes())
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        return receive

    def write(self):
        args = Out().opaque(self.fh).u64(0).u32(4).u32(nfs.FILE_SYNC).opaque(b"data").bytes()
        begun = time.monotonic()
        self.assertEqual(In(self.a.call(nfs.WRITE, args, version=3, program=nfs.NFS)).u32(), nfs.OK)
        return time.monotonic() - begun

    def create_args(self, name):
        return Out().opaque(self.root).opaque(name).u32(nfs.UNCHECKED).fixed(nfs.sattr()).bytes()

    def create(self, name):
        self.assertEqual(In(self.a.call(nfs.CREATE, self.create_args(name), version=3, program=nfs.NFS)).u32(), nfs.OK)

    def assert_writes_are_served(self):
        waits = [self.write() for _ in range(N_WRITES)]
        print(f"the longest wait of {N_WRITES} WRITEs {1000 * max(waits):.0f} ms", file=sys.stderr)

    def test_m4_slow_calls_of_an_address_hold_no_write_up(self):
        """All of its calls are under way until the last WRITE is answered."""
        receive = self.read_slowly(self.b)
        self.assert_writes_are_served()
        self.disk.live()
        receive()

    def test_m4_nor_do_slow_calls_of_two_addresses(self):
        both = [self.read_slowly(host) for host in (self.b, self.c)]
        self.assert_writes_are_served()
        self.disk.live()
        for receive in both:
            receive()

    def test_m4_nor_a_change_of_a_directory(self):
        """A change leaves its sync to the next one in the queue. Here the next one is not run for long."""
        read = self.read_slowly(self.b, self.n_threads)
        created = self.send(self.b, 5, nfs.CREATE, self.create_args(b"by-b"))
        for name in (b"one", b"two", b"three"):
            self.create(name)
        self.disk.live()
        read()
        created()


class OneThread(Slow):
    n_threads = 1
    settings = ("server.threads=1", "log.level=warn")


class TwoThreads(Slow):
    n_threads = 2
    settings = ("server.threads=2", "log.level=warn")


del Slow  # it is played by its children only

if __name__ == "__main__":
    main(fusedisk.why_not)
