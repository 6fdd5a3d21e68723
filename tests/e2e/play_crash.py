"""A client machine dies while it holds locks: they stay until there is evidence, and then go at once."""

import time

from stage import Play


class Crash(Play):
    def setUp(self):
        super().setUp()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")
        self.ada.locks(0, 10)
        self.bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)

    def assert_the_lock_stays(self):
        """No silence of the dead machine frees it: new askers come to the server, and are refused."""
        for _ in range(3):
            asker = self.b.opens("f")
            asker.is_denied(5, 1)
            asker.closes()
        self.server.has(locks=1, waiters=1)
        self.bob.still_waits()

    def test_its_reboot_frees_them(self):
        self.a.crashes()
        self.assert_the_lock_stays()
        booted = time.monotonic()
        self.a.boots()
        self.bob.gets()
        self.report(f"the waiter had its grant {time.monotonic() - booted:.1f} s after power-on")
        self.server.has(locks=1, waiters=0)

    def test_an_operator_frees_them(self):
        self.a.crashes()
        self.assert_the_lock_stays()
        self.assertEqual(self.server.declares_dead(self.a), 1)
        self.bob.gets(timeout=5)
        self.server.has(locks=1, waiters=0)

    def test_a_waiter_that_dies_is_not_granted(self):
        self.b.crashes()
        self.ada.unlocks(0, 10)
        self.b.boots()
        self.server.has(locks=0, waiters=0)
        self.ada.locks(0, 10)

    def test_locks_of_the_new_boot_survive_the_late_notice_of_it(self):
        self.a.crashes()
        self.a.is_cut_off()
        self.a.boots()
        self.a.does("killall -STOP sm-notify")
        self.a.is_back()
        self.a.mounts()
        new = self.a.opens("g")
        new.locks(0, 5)
        # The new state number in that LOCK is evidence enough.
        self.bob.gets(timeout=5)
        self.server.has(locks=2, waiters=0)
        self.a.does("killall -CONT sm-notify; while pidof sm-notify >/dev/null; do sleep 0.1; done")
        self.server.has(locks=2, waiters=0)
        self.b.opens("g").is_denied(0, 5)

    def test_the_client_and_then_the_server_die(self):
        self.a.crashes()
        self.server.is_killed_and_starts("recovery.window_seconds=60")
        self.assertTrue(self.server.status["grace"]["active"])
        self.bob.still_waits()
        self.a.boots()
        self.bob.gets(timeout=80)
        self.server.has(locks=1, waiters=0)
