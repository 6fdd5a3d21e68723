"""Locks of the Linux client: who gets what, and when."""

import time

from stage import Play


class Fcntl(Play):
    def test_two_clients_conflict(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.is_denied(5, 1)
        bob.is_denied(5, 1, mode="r")
        bob.sees("held w 0 10", 9, 1)
        bob.locks(10, 10)
        ada.is_denied(15, 1)
        ada.unlocks(0, 10)
        bob.sees("free", 0, 10)
        bob.locks(0, 10)

    def test_two_processes_of_one_client_conflict(self):
        ada, eve = self.a.opens("f"), self.a.opens("f")
        ada.locks(0, 10)
        eve.is_denied(0, 1)
        eve.locks(10)
        ada.closes()
        eve.locks(0, 10)

    def test_readers_share(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10, mode="r")
        bob.locks(0, 10, mode="r")
        ada.is_denied(0, 10, mode="w")
        bob.unlocks(0, 10)
        ada.locks(0, 10, mode="w")

    def test_a_hole_in_a_range(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 100)
        ada.unlocks(40, 20)
        bob.locks(40, 20)
        bob.is_denied(39, 1)
        bob.is_denied(60, 1)
        self.server.has(locks=3)

    def test_the_end_of_the_file_and_far_beyond(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(2**40)
        bob.is_denied(2**62, 1)
        bob.locks(0, 2**40)

    def test_unlock_grants_the_waiter(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)
        bob.still_waits()
        ada.unlocks(0, 10)
        freed = time.monotonic()
        bob.gets()
        self.report(f"granted {1000 * (time.monotonic() - freed):.0f} ms after the unlock")
        self.assertLess(time.monotonic() - freed, 20, "the client had to ask again")
        ada.is_denied(0, 10)

    def test_waiters_have_their_turn_in_order(self):
        ada, bob, dan = self.a.opens("f"), self.b.opens("f"), self.b.opens("f")
        ada.locks()
        bob.waits()
        self.server.has(waiters=1)
        dan.waits()
        self.server.has(waiters=2)
        ada.unlocks()
        bob.gets()
        ada.waits()
        self.server.has(waiters=2)
        bob.unlocks()
        dan.gets()
        ada.still_waits()
        dan.unlocks()
        ada.gets()
        self.server.has(locks=1, waiters=0)

    def test_a_waiter_behind_a_neighbour_waits_in_the_server_afterwards(self):
        """Processes of one machine wait for each other there; the server sees them one by one."""
        ada, eve, bob = self.a.opens("f"), self.a.opens("f"), self.b.opens("f")
        ada.locks()
        eve.waits()
        bob.waits()
        self.server.has(waiters=1)
        ada.unlocks()
        bob.gets()
        self.server.has(locks=1, waiters=1)
        eve.still_waits()
        bob.unlocks()
        eve.gets()

    def test_an_interrupted_wait_leaves_nothing(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks()
        bob.waits()
        self.server.has(waiters=1)
        bob.interrupts()
        self.server.has(waiters=0)
        ada.unlocks()
        self.server.has(locks=0)
        ada.locks()

    def test_a_process_that_is_killed_while_it_waits(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks()
        bob.waits()
        self.server.has(waiters=1)
        bob.is_killed()
        self.server.has(waiters=0)
        ada.unlocks()
        self.server.has(locks=0)

    def test_close_releases_all(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        for start in range(0, 100, 10):
            ada.locks(start, 5)
        self.server.has(locks=10)
        bob.waits(0, 100)
        self.server.has(waiters=1)
        ada.closes()
        bob.gets()
        self.server.has(locks=1)

    def test_death_of_a_process_releases_all(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 5)
        bob.waits()
        self.server.has(waiters=1)
        ada.is_killed()
        bob.gets()

    def test_a_thousand_locks_on_a_file(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        self.assertEqual(ada.asks("many 1000", timeout=120), "granted")
        self.server.has(locks=1000)
        bob.is_denied(1998, 1)
        bob.locks(1999, 1)
        ada.closes()
        self.server.has(locks=1)

    def test_deadlock_of_two_clients(self):
        """The Linux client cannot see it; the server does, and one of the two is told."""
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 1)
        bob.locks(1, 1)
        ada.waits(1, 1)
        self.server.has(waiters=1)
        self.assertEqual(bob.asks("wait w 0 1"), "EDEADLK")
        bob.unlocks(1, 1)
        ada.gets()


class Flock(Play):
    def test_two_clients(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.flocks("x")
        bob.is_denied_flock("s")
        ada.unflocks()
        bob.flocks("s")
        ada.flocks("s")
        ada.is_denied_flock("x")

    def test_unlock_grants_the_waiter(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.flocks()
        bob.waits_flock()
        self.server.has(waiters=1)
        ada.unflocks()
        bob.gets()
