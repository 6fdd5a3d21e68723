"""recovery.after_crash: continue. The server dies and goes on, and the kernels of its clients notice nothing but a
broken connection: no lock is reclaimed, no client is told, and waiters get the call that they wait for."""

import time

from stage import Play


class Continue(Play):
    settings = ("recovery.after_crash=continue", "log.level=debug")

    def act(self):
        """ada has the file, and bob waits for it."""
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks()
        bob.waits()
        self.server.has(waiters=1)
        return ada, bob

    def goes_on(self):
        """What only the log and the counters show: no notice, no grace, no reclaim."""
        log = self.server.daemon.log
        last = log[log.rindex("stored clients and locks loaded") :]
        self.assertIn("going on where the last run ended", last)
        self.assertNotIn("clients told of the server's restart", last)
        self.assertFalse(self.server.status["grace"]["active"])

    def test_held_locks_are_held(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.locks(10, 10)
        self.server.is_killed_and_starts()
        self.goes_on()
        self.server.has(locks=2)
        self.assertEqual({lock["state"] for lock in self.server.locks}, {"held"})
        bob.is_denied(0, 1)
        ada.is_denied(10, 1)
        self.assertEqual(self.server.answers("GRANTED"), 0, "no lock was reclaimed")
        ada.unlocks(0, 10)
        bob.locks(0, 10)

    def test_a_new_lock_at_once(self):
        ada, bob = self.a.opens("f"), self.b.opens("g")
        ada.locks()
        self.server.is_killed_and_starts()
        bob.locks()
        self.report(f"first new lock {time.monotonic() - self.server.killed_at:.1f} s after the kill")
        self.goes_on()

    def test_a_waiter_is_called(self):
        """The kernel polls only every 30 seconds: the call-back must come."""
        ada, bob = self.act()
        self.server.is_killed_and_starts()
        self.goes_on()
        self.server.has(locks=1, waiters=1)
        bob.still_waits()
        began = time.monotonic()
        ada.unlocks()
        bob.gets()
        self.assertLess(time.monotonic() - began, 15, "by call-back, not by a poll")

    def test_a_client_that_dies_later_loses_its_locks(self):
        _, bob = self.act()
        self.server.is_killed_and_starts()
        self.goes_on()
        self.a.crashes()
        self.a.boots()
        bob.gets()

    def test_killed_again_and_again(self):
        ada, bob = self.act()
        for _ in range(3):
            self.server.is_killed_and_starts()
        self.goes_on()
        ada.unlocks()
        bob.gets()
