"""The server's host has an rpcbind of its own. An operator restarts it, and it forgets what was registered."""

import signal

from rpcbind import Rpcbind
from stage import Play

OURS = {100003, 100005, 100021, 100024}


class Restarted(Play):
    settings = ("server.portmap=system",)
    is_mounted = False

    def setUp(self):
        self.rpcbind = Rpcbind(self.stage.network.server, lambda text: self.note(text))
        self.addCleanup(self.rpcbind.is_killed)
        self.transcript, self.begun = [], 0
        self.rpcbind.starts()
        super().setUp()
        self.server.wait("registered", lambda _: OURS <= self.rpcbind.programs())
        self.a.mounts()
        self.ada = self.a.opens("f")
        self.ada.locks(0, 10)

    def is_restarted(self):
        self.rpcbind.is_killed()
        self.rpcbind.starts()
        self.assertFalse(OURS & self.rpcbind.programs(), "rpcbind has not forgotten")

    def test_registrations_come_back(self):
        """By themselves; a client with a lock notices nothing, and a client that has never called finds the server."""
        self.is_restarted()
        self.ada.locks(10, 10)
        self.server.wait("registered again", lambda _: OURS <= self.rpcbind.programs())
        self.b.mounts()
        bob = self.b.opens("f")
        bob.is_denied(5, 1)
        bob.waits(0, 10)
        self.server.has(waiters=1)
        self.ada.unlocks(0, 10)
        bob.gets()

    def test_an_operator_does_not_wait(self):
        """SIGHUP registers at once; and then clients survive a restart of the server as ever."""
        self.is_restarted()
        self.server.daemon.process.send_signal(signal.SIGHUP)
        self.server.wait("registered again", lambda _: OURS <= self.rpcbind.programs(), 20)
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=1)
        self.b.mounts()
        self.b.opens("f").is_denied(5, 1)

    def test_both_die(self):
        """As when the host's services are restarted in any order."""
        self.server.is_killed()
        self.rpcbind.is_killed()
        self.rpcbind.starts()
        self.server.starts()
        self.server.ends_grace()
        self.server.has(locks=1)
        self.b.mounts()
        self.b.opens("f").is_denied(5, 1)
