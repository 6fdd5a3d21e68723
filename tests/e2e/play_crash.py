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

    def assert_the_lock_stays(self, waiters=1):
        """Neither its silence nor broken connections free it: new askers come to the server, and are refused there."""
        self.server.breaks_connections_of(self.a)
        refused = self.server.answers("DENIED")
        for _ in range(3):
            asker = self.b.opens("f")
            asker.is_denied(5, 1)
            asker.closes()
        self.assertEqual(self.server.answers("DENIED"), refused + 3, "the client decided by itself")
        self.server.has(waiters=waiters)
        self.assertIn("clienta", [lock for lock in self.server.locks if lock["file"].endswith("f")][0]["owner"])
        self.bob.still_waits()

    def test_its_reboot_frees_them(self):
        self.a.crashes()
        self.assert_the_lock_stays()
        booted = time.monotonic()
        self.a.boots()
        self.bob.gets()
        self.report(f"the waiter had its grant {time.monotonic() - booted:.1f} s after power-on")
        self.server.has(locks=1, waiters=0)

    def reboots_with_statd_first(self, is_mounted):
        """As Debian may have it: that statd says the number of the last boot for all of this one."""
        self.a.crashes()
        self.assert_the_lock_stays()
        self.a.boots(statd=False)
        self.a.does("rpc.statd --no-notify")
        if is_mounted:  # so its lock manager is there
            self.a.mounts()
        began = time.monotonic()
        self.a.does("sm-notify")
        self.bob.gets(timeout=20)  # by GRANTED: it asks again after 30 seconds
        self.report(f"the waiter had its grant {time.monotonic() - began:.2f} s after sm-notify was started")
        self.server.has(locks=1, waiters=0)

    def test_its_reboot_frees_them_with_statd_before_sm_notify(self):
        self.reboots_with_statd_first(is_mounted=False)

    def test_its_reboot_frees_them_with_statd_and_a_mount_before_sm_notify(self):
        self.reboots_with_statd_first(is_mounted=True)

    def test_an_operator_frees_them(self):
        self.a.crashes()
        self.assert_the_lock_stays()
        self.assertEqual(self.server.declares_dead(self.a), 1)
        self.bob.gets(timeout=20)  # by GRANTED: it asks again after 30 seconds
        self.server.has(locks=1, waiters=0)

    def test_a_grant_that_fails_is_no_evidence(self):
        """Its machine does not answer, which may have other reasons."""
        eve = self.b.opens("g")
        eve.locks()
        self.a.opens("g").waits()
        self.server.has(locks=2, waiters=2)
        self.a.crashes()
        eve.unlocks()
        self.server.wait("the server tries to tell the dead one again",
                         lambda server: server.rest.metrics()['nlm_grants_total{result="retried"}'] > 1)  # fmt: skip
        self.assert_the_lock_stays(waiters=1)

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
        self.bob.gets(timeout=20)
        self.server.has(locks=2, waiters=0)
        heard = self.server.answers("OK", "nsm", "NOTIFY")
        self.a.does("killall -CONT sm-notify")
        self.a.has_no("sm-notify")
        self.assertGreater(self.server.answers("OK", "nsm", "NOTIFY"), heard, "there was no notice")
        self.server.has(locks=2, waiters=0)
        self.b.opens("g").is_denied(0, 5)

    def test_the_client_and_then_the_server_die(self):
        self.a.crashes()
        self.server.is_killed_and_starts("recovery.window_seconds=3600")
        self.server.refuses_for_grace()
        self.bob.still_waits()
        self.a.boots()
        self.bob.gets()
        self.server.has(locks=1, waiters=0)
