#!/usr/bin/env python3
"""Grace: what is answered while clients reclaim, and what they get back. The restart story as a whole has its own
plays (test_recovery_*.py)."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from play import Play, each, main


class InGrace(Play):
    """A grace that does not end by itself, over a store that knows nothing of before: any reclaim may be true."""

    settings = ("recovery.grace=always", "recovery.window_seconds=3600", "recovery.early_end=false")

    def reclaims(self, host, offset=0, length=0, **more):
        lock = self.lock_of(host, offset, length, reclaim=True, **more)
        self.assertEqual(host.lock(lock), nlm.S_GRANTED)
        return lock

    @each()
    def test_new_locks_are_refused(self, how):
        for block in (False, True):
            self.assertEqual(self.a.lock(self.lock_of(self.a, block=block), **how), nlm.S_GRACE)

    @each((3, 4))
    def test_nm_lock_is_refused(self, how):
        self.assertEqual(self.a.ask(nlm.NM_LOCK, self.lock_of(self.a), **how).stat, nlm.S_GRACE)

    @each()
    def test_test_is_refused(self, how):
        self.assertEqual(self.a.test(self.lock_of(self.a), **how).stat, nlm.S_GRACE)

    @each((3, 4))
    def test_share_is_refused(self, how):
        self.assertEqual(self.a.share(self.lock_of(self.a, access=1), **how), nlm.S_GRACE)

    @each()
    def test_reclaim_is_granted(self, how):
        lock = self.lock_of(self.a, 10, 10, reclaim=True)
        self.assert_granted(self.a, lock, **how)
        self.assert_granted(self.a, lock, **how)

    @each((3, 4))
    def test_reclaim_of_a_share_is_granted(self, how):
        self.assertEqual(self.a.share(self.lock_of(self.a, access=1, deny=2, reclaim=True), **how), nlm.S_GRANTED)

    def test_conflicting_reclaim_is_denied_never_blocked(self):
        self.reclaims(self.a, 0, 10)
        for block in (False, True):
            answer = self.b.lock(self.lock_of(self.b, 5, 10, reclaim=True, block=block))
            self.assertEqual(answer, nlm.S_DENIED)

    @each()
    def test_unlock_is_served(self, how):
        lock = self.reclaims(self.a)
        self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
        self.reclaims(self.b)

    @each()
    def test_cancel_is_served(self, how):
        self.assertEqual(self.a.cancel(self.lock_of(self.a, block=True), **how), nlm.S_GRANTED)

    @each((3, 4))
    def test_unshare_is_served(self, how):
        lock = self.lock_of(self.a, access=3, deny=3, reclaim=True)
        self.assertEqual(self.a.share(lock), nlm.S_GRANTED)
        self.assertEqual(self.a.unshare(lock, **how), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.lock_of(self.b, access=3, deny=3, reclaim=True)), nlm.S_GRANTED)

    @each((3, 4))
    def test_free_all_is_served(self, how):
        self.reclaims(self.a)
        self.assertEqual(self.a.free_all(**how), b"")
        self.reclaims(self.b)

    def test_granted_res_is_served(self):
        self.assertEqual(self.a.call(nlm.GRANTED_RES, nlm.put_res(b"12345678", nlm.S_GRANTED)), b"")

    def test_null_is_served(self):
        self.assertEqual(self.a.call(nlm.NULL, b""), b"")

    def test_state_0_in_a_reclaim_is_no_reboot(self):
        """Linux sends 0 there."""
        lock = self.reclaims(self.a, 0, 5, state=7)
        self.reclaims(self.a, 10, 5, state=0, svid=2)
        self.assertEqual(self.b.lock(lock.but(name=self.b.name)), nlm.S_DENIED)


class StandsStill(Play):
    """A process that stands still hears no reclaim. That time is no part of grace."""

    window = 3
    settings = ("recovery.grace=always", f"recovery.window_seconds={window}", "recovery.early_end=false")

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            host.drop_callers()
        self.daemon.crash()
        self.daemon.start()
        self.mine, self.other = self.lock_of(self.a, 0, 10), self.lock_of(self.b, 0, 10)
        self.assertEqual(self.b.lock(self.other), nlm.S_GRACE)

    def stand_still(self, seconds):
        self.daemon.process.send_signal(signal.SIGSTOP)
        over = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > over, "it has stood still for long enough")
        self.daemon.process.send_signal(signal.SIGCONT)

    def assert_reclaims(self):
        self.assert_granted(self.a, self.mine.but(reclaim=True))
        self.until(lambda: self.b.lock(self.other) == nlm.S_DENIED, "grace ends", pause=0.1)

    def test_i3_reclaimable_lock_is_no_other_clients(self):
        self.stand_still(2 * self.window)
        for _ in range(3):
            self.assertEqual(self.b.lock(self.other), nlm.S_GRACE)
        self.assert_reclaims()

    def test_i3_short_standstills_count(self):
        for _ in range(2 * self.window):
            self.stand_still(0.9)
            self.assertEqual(self.b.lock(self.other), nlm.S_GRACE)
        self.assert_reclaims()


class AfterCrash(Play):
    """The daemon is killed and started again; the store survives."""

    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=3600")

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            host.notices.items.clear()

    def restart(self):
        for host in self.hosts:
            host.drop_callers()
        self.daemon.crash()
        self.daemon.start()

    def tearDown(self):
        """Everything goes, and grace with it."""
        for host in self.hosts:
            host.free_all()
        self.until(lambda: self.c.test(self.lock_of(self.c)).stat == nlm.S_GRANTED, "grace has ended")
        super().tearDown()

    def test_a_host_that_was_renamed_reclaims(self):
        """DHCP, cloud-init: what it held under its old name is still its own."""
        lock = self.lock_of(self.a, 0, 10, name="before", svid=31)
        self.assert_granted(self.a, lock)
        self.restart()
        renamed = lock.but(name="after", reclaim=True)
        self.assert_granted(self.a, renamed)
        self.assertNotEqual(self.a.lock(renamed.but(svid=32)), nlm.S_GRANTED)
        self.assertNotEqual(self.b.lock(renamed), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(renamed), nlm.S_GRANTED)
        self.a.free_all("before")

    def test_a_host_that_was_renamed_reclaims_by_the_number_of_its_locks(self):
        """Its notice had a newer number than its LOCKs say, and the server knows its new name as well."""
        lock = self.lock_of(self.a, 0, 10, name="before", svid=31, state=3)
        self.assert_granted(self.a, lock)
        self.a.free_all("before", state=5)
        self.assert_free(lock)
        self.assert_granted(self.a, lock)
        renamed = lock.but(name="after", reclaim=True)
        self.assert_granted(self.a, lock.but(name="after", offset=20, svid=32))
        self.restart()
        self.assert_granted(self.a, renamed)
        self.assert_granted(self.a, renamed.but(offset=20, svid=32))
        self.assertEqual(self.a.unlock(renamed), nlm.S_GRANTED)
        for name in ("before", "after"):
            self.a.free_all(name)

    def test_a_lock_is_reclaimed_and_no_other_client_gets_it(self):
        lock = self.lock_of(self.a, 0, 10, state=3)
        self.assert_granted(self.a, lock)
        self.restart()
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        self.assertNotEqual(self.b.lock(self.lock_of(self.b, reclaim=True)), nlm.S_GRANTED)
        self.assert_granted(self.a, lock.but(reclaim=True, state=0))
        self.until(lambda: self.b.lock(self.lock_of(self.b)) == nlm.S_DENIED, "grace has not ended early")
        self.assert_held(lock, by=1)

    def test_the_second_lock_survives_an_early_end_of_grace(self):
        """dittofs: a client counted as done with its first lock."""
        first, second = (self.lock_of(self.a, offset, 5) for offset in (0, 10))
        self.assert_granted(self.a, first)
        self.assert_granted(self.a, second)
        self.restart()
        self.a.notices.wait()
        self.assert_granted(self.a, first.but(reclaim=True))
        for _ in range(3):
            self.assertEqual(self.b.lock(self.lock_of(self.b, 10, 5)), nlm.S_GRACE)
        self.assert_granted(self.a, second.but(reclaim=True))
        self.until(lambda: self.b.lock(self.lock_of(self.b, 10, 5)) == nlm.S_DENIED, "grace has not ended early")

    def test_a_lock_after_grace_is_granted(self):
        """nfs-ganesha 834"""
        lock = self.lock_of(self.a, 0, 5)
        self.assert_granted(self.a, lock)
        self.restart()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.until(lambda: self.b.lock(self.lock_of(self.b)) == nlm.S_GRANTED, "denied after grace")

    def test_restart_in_grace_loses_nothing(self):
        locks = [self.lock_of(self.a, offset, 5) for offset in (0, 10, 20)]
        for lock in locks:
            self.assert_granted(self.a, lock)
        self.restart()
        self.assert_granted(self.a, locks[0].but(reclaim=True))
        self.restart()
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        for lock in locks:
            self.assert_granted(self.a, lock.but(reclaim=True))
        self.until(lambda: self.b.lock(self.lock_of(self.b)) == nlm.S_DENIED, "grace has not ended early")

    def test_a_waiter_asks_again(self):
        """Waiters are not kept: the poll gets GRACE, and then its place."""
        lock, wanted = self.lock_of(self.a), self.lock_of(self.b, block=True)
        self.assert_granted(self.a, lock)
        self.assert_blocked(self.b, wanted)
        self.restart()
        self.assertEqual(self.b.lock(wanted), nlm.S_GRACE)
        self.assert_granted(self.a, lock.but(reclaim=True))
        self.until(lambda: self.b.lock(wanted) == nlm.S_BLOCKED, "grace has not ended early")
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.b.wait_granted(wanted)

    def test_nm_locks_are_not_kept(self):
        lock = self.lock_of(self.a)
        self.assertEqual(self.a.ask(nlm.NM_LOCK, lock).stat, nlm.S_GRANTED)
        self.restart()
        self.until(lambda: self.b.lock(self.lock_of(self.b)) == nlm.S_GRANTED, "it is still there")

    def test_a_granted_waiters_lock_is_kept(self):
        lock, wanted = self.lock_of(self.a), self.lock_of(self.b, block=True)
        self.assert_granted(self.a, lock)
        self.assert_blocked(self.b, wanted)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.b.wait_granted(wanted)
        self.restart()
        self.assertEqual(self.a.lock(lock), nlm.S_GRACE)
        self.assert_granted(self.b, wanted.but(reclaim=True, block=False))

    def test_each_client_with_a_lock_is_notified(self):
        for host in self.hosts:
            self.assert_granted(host, self.lock_of(host, fh=os.urandom(20)))
        self.restart()
        for host in self.hosts:
            [(_, state)] = host.notices.wait(test=lambda notice: notice[0] == "server")  # its address comes, too
            self.assertEqual(state % 2, 1)


class OutsideGrace(Play):
    def test_reclaim_of_what_was_never_held_is_refused(self):
        """As Linux' own server does: the server cannot know whether another client held it in between."""
        self.assertEqual(self.a.lock(self.lock_of(self.a, reclaim=True)), nlm.S_GRACE)
        self.assert_free(self.lock_of(self.a))

    def test_reclaim_of_what_is_held_is_granted(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_granted(self.a, lock.but(reclaim=True))


if __name__ == "__main__":
    main()
