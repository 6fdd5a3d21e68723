"""A play: one holdfastd and a few fake hosts on a wire of their own; each test uses files that no other one uses.

    test_x.py PATH/holdfastd [unittest's own arguments]
"""

import functools
import itertools
import os
import sys
import unittest

import netns
import nlm
from daemon import Daemon
from fakehost import FakeHost
from rest import Rest
from rpc import Stage
from until import PATIENCE, until

SKIPPED = 77  # meson's word for it

SETTINGS = (
    "server.portmap=embedded",
    "server.name=server",
    "store.backend=memory",
    "recovery.grace=never",
    "api.listen=",
    "log.level=debug",
)


def each(versions=nlm.VERSIONS, transports=("tcp", "udp")):
    """A test that is played in every version over every transport, each time with a file of its own."""

    def wrap(test):
        @functools.wraps(test)
        def play(self):
            for version, transport in itertools.product(versions, transports):
                with self.subTest(version=version, transport=transport):
                    self.fh = os.urandom(32)
                    test(self, {"version": version, "transport": transport})

        return play

    return wrap


class Play(unittest.TestCase):
    settings = ()  # over those above
    flags = ()
    n_hosts = 3
    program = None
    daemon_class = Daemon
    host_class = FakeHost

    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(setattr, cls, "hosts", [])
        cls.network = netns.Network()
        cls.addClassCleanup(cls.network.close)
        cls.stage = Stage()
        cls.addClassCleanup(cls.stage.close)
        cls.daemon = cls.make_daemon([*SETTINGS, *cls.settings])
        cls.addClassCleanup(cls.daemon.close)
        cls.rest = Rest(cls.daemon)  # for those whose daemon has one
        cls.hosts = []
        cls.addClassCleanup(lambda: [host.close() for host in cls.hosts])
        for _ in range(cls.n_hosts):
            cls.add_host()
        cls.daemon.start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    @classmethod
    def make_daemon(cls, settings):
        return cls.daemon_class(cls.program, cls.network.server, settings, cls.flags)

    @classmethod
    def add_host(cls, **how):
        namespace, number = cls.network.add_client()
        cls.hosts.append(cls.host_class(cls.stage, namespace, number, cls.network.SERVER[0], **how))
        return cls.hosts[-1]

    def setUp(self):
        self.fh = os.urandom(28)
        self.a, self.b, self.c = (self.hosts + [None] * 3)[:3]
        for host in self.hosts:
            host.script = nlm.S_GRANTED

    def tearDown(self):
        # What is left of one test could stand in the way of the next: owners that wait are part of a deadlock.
        if self.daemon.process.poll() is None:
            for host in self.hosts:
                host.free_all()
        self.assertEqual(self.stage.broken, [], "a fake service failed")
        self.assertIsNone(self.daemon.process.poll(), "holdfastd is gone")

    def id_of(self, host):
        """The server's name for it."""
        return f"nlm:{host.address}:{host.name}"

    def lock_of(self, host, offset=0, length=0, **more):
        """A lock of @host's in this test's own file."""
        return host.lock_of(**{"fh": self.fh, "offset": offset, "length": length, **more})

    def until(self, look, what, timeout=PATIENCE, **how):
        """until(), which shows the end of the daemon's log where it was in vain."""
        return until(look, what, timeout, more=lambda: f"the log ends:\n{self.daemon.log[-2000:]}", **how)

    # What most tests say

    def assert_granted(self, host, lock, **how):
        self.assertEqual(host.lock(lock, **how), nlm.S_GRANTED)

    def assert_blocked(self, host, lock, **how):
        self.assertEqual(host.lock(lock.but(block=True), **how), nlm.S_BLOCKED)

    def assert_denied(self, host, lock, **how):
        self.assertEqual(host.lock(lock, **how), nlm.S_DENIED)

    def assert_held(self, lock, by=None):
        """A client holds (part of) @lock, as a stranger sees it; @by: with this svid."""
        holder = self.holder_of(lock)
        self.assertIsNotNone(holder, "no client holds it")
        if by is not None:
            self.assertEqual(holder.svid, by)
        return holder

    def assert_free(self, lock):
        self.assertIsNone(self.holder_of(lock), "a client holds it")

    def holder_of(self, lock):
        stranger = lock.but(name="stranger", svid=2**31 - 1, oh=b"", exclusive=True)
        return self.hosts[-1].test(stranger).holder

    def held_bytes(self, upto, host=None):
        """Which of the bytes 0 to @upto of the test's file are held: {byte: (svid, exclusive)}."""
        held = {}
        for byte in range(upto):
            holder = self.holder_of(nlm.Lock(fh=self.fh, offset=byte, length=1))
            if holder:
                held[byte] = (holder.svid, holder.exclusive)
        return held


def main(why_not=lambda: None):
    """@why_not: None, or why the play is not possible here; asked as root."""
    reason = netns.is_possible() or why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    if "HOLDFASTD" not in os.environ and len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} PATH/holdfastd [unittest's own arguments], or HOLDFASTD in the environment")
    Play.program = os.path.abspath(os.environ.get("HOLDFASTD") or sys.argv.pop(1))
    unittest.main(verbosity=2, module="__main__")
