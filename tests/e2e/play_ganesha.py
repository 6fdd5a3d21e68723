"""Beside nfs-ganesha with its default grace: how long a kill of the server keeps its clients from working on."""

import time

import ganesha
from stage import Play


class FirstNewLock(Play):
    """One client holds a lock and reclaims it; the other one asks for a new one right after the restart."""

    is_long = True
    is_mounted = False
    settings = ()  # all of the defaults: 90 seconds, as ganesha has

    def measure(self, server, name):
        for client in (self.a, self.b):
            client.mounts()
        ada, bob = self.a.opens("f"), self.b.opens("g")
        ada.locks(timeout=300)  # ganesha begins its first life with grace, too
        bob.locks()
        bob.unlocks()  # so that all connections are there
        server.is_killed()
        server.starts()
        up = time.monotonic() - server.killed_at
        bob.locks(timeout=300)
        seconds = time.monotonic() - server.killed_at
        self.b.opens("f").is_denied()
        self.report(f"{name}: serves {up:.1f} s after the kill, first new lock {seconds:.1f} s after it")
        for client in (self.a, self.b):
            for process in client.processes:
                process.closes()
            client.processes.clear()
            client.unmounts()
        return seconds

    def test_beside_ganesha(self):
        reason = ganesha.why_not()
        if reason:
            self.skipTest(reason)
        ours = self.measure(self.server, "holdfast")
        self.server.stops()
        try:
            other = ganesha.Ganesha(self.stage.network.server, self.note)
            self.addCleanup(other.close)
            other.starts()
            theirs = self.measure(other, "nfs-ganesha")
            other.is_killed()
        finally:
            self.server.starts()
        self.assertLess(ours, theirs)
