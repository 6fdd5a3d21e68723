"""The server dies and comes back while locks are held and waited for: no client loses one, and none steals one."""

import time

from stage import Play


class Kill(Play):
    def test_held_locks_are_reclaimed_and_none_is_stolen(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.locks(10, 10)
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=2)
        self.assertEqual({lock["state"] for lock in self.server.locks}, {"held"})
        bob.is_denied(0, 1)
        ada.is_denied(10, 1)

    def test_a_waiter_is_granted_afterwards(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks()
        bob.waits()
        self.server.has(waiters=1)
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=1, waiters=1)
        bob.still_waits()
        ada.unlocks()
        bob.gets()

    def test_time_to_the_first_new_lock(self):
        """Grace is 90 seconds; with everything accounted for it ends at once."""
        ada, bob = self.a.opens("f"), self.b.opens("g")
        ada.locks()
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        over = time.monotonic() - self.server.killed_at
        bob.locks()
        seconds = time.monotonic() - self.server.killed_at
        self.report(f"grace over {over:.1f} s after the kill, first new lock {seconds:.1f} s after it")
        self.assertLess(seconds, 80)

    def test_with_nothing_held_there_is_no_grace(self):
        ada = self.a.opens("f")
        self.server.is_killed_and_starts()
        self.assertFalse(self.server.status["grace"]["active"])
        ada.locks()
        self.report(f"first new lock {time.monotonic() - self.server.killed_at:.1f} s after the kill")

    def test_an_asker_during_grace_is_served_after_it(self):
        """A client that asks in grace for a lock that it did not hold is told to ask later, even if the range is free."""
        ada, bob, eve = self.a.opens("f"), self.b.opens("f"), self.b.opens("g")
        ada.locks(0, 10)
        self.server.is_killed_and_starts("recovery.early_end=false", "recovery.window_seconds=3600")
        bob.begins("set w 0 10")
        eve.begins("set w 0 10")
        self.server.wait("both are told to ask later", lambda server: server.answers("DENIED_GRACE_PERIOD") >= 2)
        self.server.wait("ada has reclaimed", lambda server: server.status["grace"]["unreclaimed"] == 0)
        bob.still_waits()
        eve.still_waits()
        self.server.is_told_to_end_grace()
        bob.gets("denied")
        eve.gets("granted")

    def test_a_lock_given_back_while_the_server_is_down(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks()
        self.server.is_killed()
        ada.begins("unset 0 0")
        self.server.starts()
        ada.gets("unlocked")
        self.server.ends_grace()
        bob.locks()

    def test_a_grant_whose_reply_is_lost(self):
        """The lock is stored, and its client repeats the request: to the server it is unreclaimed, to the client it is new.
        Both are served at the end of grace, which cannot be early then."""
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(20, 1)
        self.server.is_not_heard_by(self.a)
        ada.begins("set w 0 10")
        self.server.has(locks=2)
        self.server.is_killed()
        self.server.is_heard_again(self.a)
        self.server.starts("recovery.window_seconds=3600")
        bob.begins("set w 0 10")
        self.server.wait("both are told to ask later", lambda server: server.answers("DENIED_GRACE_PERIOD") >= 2)
        self.server.wait("the other lock is reclaimed", lambda server: server.status["grace"]["unreclaimed"] == 1)
        ada.still_waits()
        bob.still_waits()
        self.server.is_told_to_end_grace()
        answers = {ada.gets_any(), bob.gets_any()}
        self.assertEqual(answers, {"granted", "denied"})
        self.server.has(locks=2)


class KilledTwice(Play):
    def test_the_second_time_inside_grace(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)
        self.a.is_cut_off()
        self.server.is_killed_and_starts()
        self.server.refuses_for_grace()
        self.server.is_killed()
        self.a.is_back()
        self.server.starts()
        self.server.ends_grace()
        self.server.has(locks=1)
        bob.still_waits()
        self.b.opens("f").is_denied(5, 1)
        ada.unlocks(0, 10)
        bob.gets()


class CleanRestart(Play):
    def test_locks_are_reclaimed(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        self.server.stops()
        self.server.starts()
        self.server.ends_grace()
        self.server.has(locks=1)
        bob.is_denied(0, 1)
        bob.locks(10, 1)

    def test_with_nothing_held_there_is_no_grace(self):
        ada = self.a.opens("f")
        ada.locks()
        ada.unlocks()
        self.server.stops()
        self.server.starts()
        self.assertFalse(self.server.status["grace"]["active"])
        ada.locks()
