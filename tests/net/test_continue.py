#!/usr/bin/env python3
"""recovery.after_crash: continue. The server is killed, and the next run goes on: once for each store.

No client hears of the restart, no lock is reclaimed, and every waiter gets the call that it was promised.
"""

import os
import signal
import sys
import threading
import time
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from nsm import Host, state_of
from play import main
from recovering import OverPostgres
from rest import Rest

GOES_ON = "going on where the last run ended"
STARTS_OVER = "cannot go on where the last run ended"


class Base(Exported):
    backend = ("store.backend=lmdb",)
    host_class = Host

    @classmethod
    def setUpClass(cls):
        cls.settings = (*cls.backend, "recovery.after_crash=continue", "recovery.grace=auto", "recovery.window_seconds=3600",
                        "api.listen=127.0.0.1:0", "log.level=debug")  # fmt: skip
        super().setUpClass()
        cls.rest = Rest(cls.daemon)

    def setUp(self):
        super().setUp()
        self.log_restarted = len(self.daemon.log)
        self.settle()
        for host in self.hosts:
            host.script = nlm.S_GRANTED
            host.told.items.clear()

    def restart(self, *settings):
        """Killed and started again; the log of the new run begins here."""
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.log_restarted = len(self.daemon.log)
        self.daemon.start(*settings)

    @property
    def log(self):
        return self.daemon.log[self.log_restarted :]

    def state(self):
        return state_of(self.network.server)

    def settle(self):
        """No client is to be told any more, and the store has all that this run knows of its clients and of itself."""

        def is_quiet():
            notices = self.rest.get("/api/v1/status").json["notifications"]
            return notices["waiting"] == notices["in_flight"] == 0

        self.until(is_quiet, "no client is to be told")
        self.stage.settle()
        self.await_stored()

    def await_stored(self):
        """A client that is new is registered before its lock is granted. The store writes registrations in the order in
        which they come, and with them the mark that the next run may go on."""
        newcomer = self.lock_of(self.c, fh=self.handle_of(self.make_file()), name=f"newcomer{self.n_files}")
        self.assert_granted(self.c, newcomer)
        answer = self.rest.call("DELETE", f"/api/v1/clients/{quote(f'nlm:{self.c.address}:{newcomer.name}')}", token=True)
        self.assertEqual(answer.status, 200)

    def assert_goes_on(self):
        self.assertIn(GOES_ON, self.log)
        self.assertEqual([host.name for host in self.hosts if host.told.items], [], "no client is told")
        self.assertFalse(self.rest.get("/api/v1/grace").json["active"])

    def assert_starts_over(self):
        self.assertIn(STARTS_OVER, self.log)


class Continuing(Base):
    # Locks

    def test_lock_is_held_without_a_reclaim(self):
        state = self.state()
        lock = self.hold()
        self.restart()
        self.assert_goes_on()
        self.assertEqual(self.state(), state, "the state number stays")
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_DENIED)
        free = self.lock_of(self.b, fh=self.handle_of(self.make_file()))
        self.assert_granted(self.b, free)
        self.release(lock)
        self.assert_granted(self.b, self.lock_of(self.b))

    def test_release_stays_released(self):
        lock = self.hold()
        self.release(lock)
        self.restart()
        self.assert_goes_on()
        self.assert_granted(self.b, self.lock_of(self.b))

    def test_clean_stop_goes_on_too(self):
        self.hold()
        self.daemon.stop()
        for host in self.hosts:
            host.drop_callers()
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.assert_goes_on()
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_DENIED)

    def test_reservation_is_held(self):
        mine = self.lock_of(self.a, deny=3, access=3)
        self.assertEqual(self.a.share(mine), nlm.S_GRANTED)
        self.restart()
        self.assert_goes_on()
        self.assertEqual(self.b.share(self.lock_of(self.b, deny=0, access=1)), nlm.S_DENIED)
        self.assertEqual(self.a.unshare(mine), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.lock_of(self.b, deny=0, access=1)), nlm.S_GRANTED)

    def test_client_that_dies_later_loses_its_locks(self):
        self.a.state = 3
        self.hold(state=3)
        waiter = self.waits(self.b)
        self.restart()
        self.a.state = 5
        self.a.notify(5)
        self.b.wait_granted(waiter)

    # Waiters

    def test_waiters_are_granted_in_their_order(self):
        lock = self.hold()
        waiters = [(host, self.waits(host)) for host in self.hosts[1:4]]
        self.restart()
        self.assert_goes_on()
        self.release(lock)
        for n, (host, waiter) in enumerate(waiters):
            host.wait_granted(waiter)
            for later, _ in waiters[n + 1 :]:
                self.assertEqual(later.granted_calls, [], f"{later.name} came after {host.name}")
            self.release(waiter, host)

    def test_waiter_is_called_the_way_it_came(self):
        lock = self.hold()
        waiter = self.lock_of(self.b, block=True)
        self.assertEqual(self.b.lock(waiter, version=3, transport="udp"), nlm.S_BLOCKED)
        self.restart()
        self.release(lock)
        heard = self.b.wait_granted(waiter)
        self.assertEqual((heard.call.version, heard.call.transport), (3, "udp"))

    def test_cancelled_waiter_stays_away(self):
        lock = self.hold()
        waiter = self.waits(self.b)
        self.assertEqual(self.b.cancel(waiter), nlm.S_GRANTED)
        behind = self.waits(self.c)
        self.restart()
        self.release(lock)
        self.c.wait_granted(behind)
        self.assertEqual(self.b.granted_calls, [])

    def test_unanswered_grant_is_called_again(self):
        """The client hears of its lock, and the server dies before the answer."""
        lock = self.hold()
        self.b.script = self.b.SILENT
        waiter = self.waits(self.b)
        self.release(lock)
        first = self.b.wait_granted(waiter)
        self.restart()
        self.b.script = nlm.S_GRANTED
        again = self.b.grants.wait(2, lambda heard: heard.grant.fh == waiter.fh)[-1]
        self.assertEqual(again.grant.cookie, first.grant.cookie)
        self.assertEqual(self.c.lock(self.lock_of(self.c)), nlm.S_DENIED)
        self.release(waiter, self.b)
        self.assert_granted(self.c, self.lock_of(self.c))

    def test_unlock_waits_while_its_owner_is_called_again(self):
        """The client has the lock from the first call. If it could unlock and ask anew at once, the second call might come while
        it waits for the next lock, and it would take that of another owner."""
        lock = self.hold()
        self.b.script = self.b.SILENT
        waiter = self.waits(self.b)
        self.release(lock)
        self.b.wait_granted(waiter)
        self.restart()
        again = self.b.grants.wait(2, lambda heard: heard.grant.fh == waiter.fh)[-1]
        answered = []

        def answer_late():
            answered.append(time.monotonic())
            self.b.answer(again, nlm.S_DENIED)

        timer = threading.Timer(0.5, answer_late)
        timer.start()
        self.addCleanup(timer.join)
        self.release(waiter, self.b)
        self.assertTrue(answered, "the client was still being called")
        self.assertLess(time.monotonic() - answered[0], 1, "the answer ends the wait")
        self.assert_granted(self.c, self.lock_of(self.c))

    def test_unlock_does_not_wait_for_ever(self):
        """The call is lost."""
        lock = self.hold()
        self.b.script = self.b.SILENT
        waiter = self.waits(self.b)
        self.release(lock)
        self.b.wait_granted(waiter)
        self.restart()
        self.b.grants.wait(2, lambda heard: heard.grant.fh == waiter.fh)
        self.release(waiter, self.b)
        self.assert_granted(self.c, self.lock_of(self.c))

    def test_refused_upgrade_leaves_the_shared_lock(self):
        """b holds a shared lock and is granted an exclusive one; it refuses only after the restart."""
        shared = self.lock_of(self.b, exclusive=False)
        self.assert_granted(self.b, shared)
        other = self.lock_of(self.c, exclusive=False)
        self.assert_granted(self.c, other)
        self.b.script = self.b.SILENT
        upgrade = self.waits(self.b)
        self.release(other, self.c)
        self.b.wait_granted(upgrade)
        self.restart()
        self.b.script = nlm.S_DENIED
        self.b.grants.wait(2, lambda heard: heard.grant.fh == upgrade.fh)
        self.assertEqual(self.c.lock(self.lock_of(self.c)), nlm.S_DENIED, "b holds it, at least shared")

    def test_twice_in_a_row(self):
        lock = self.hold()
        waiter = self.waits(self.b)
        self.restart()
        self.restart()
        self.assert_goes_on()
        self.release(lock)
        self.b.wait_granted(waiter)

    # Where the list is not known to be complete

    def test_run_that_stored_no_waiters_is_not_continued(self):
        lock = self.hold()
        self.restart("recovery.after_crash=reclaim")
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.rest.get("/api/v1/grace").json["active"], "grace ends")
        self.restart()
        self.assert_starts_over()
        self.a.told.wait()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.rest.get("/api/v1/grace").json["active"], "grace ends")
        self.release(lock)

    def test_waiters_of_a_run_that_is_not_continued_are_forgotten(self):
        """Their clients ask again after they have reclaimed."""
        lock = self.hold()
        waiter = self.waits(self.b)
        self.restart("recovery.after_crash=reclaim")
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.rest.get("/api/v1/grace").json["active"], "grace ends")
        self.release(lock)
        self.assertEqual(self.b.granted_calls, [])
        self.await_granted(self.b, waiter)

    def test_client_that_was_not_told_before_is_told(self):
        """It was deaf when a run started over. The next run goes on, and still owes it the notice."""
        lock = self.hold()
        self.restart("recovery.after_crash=reclaim")
        self.a.deaf = True
        self.addCleanup(setattr, self.a, "deaf", False)
        self.restart()
        self.assert_starts_over()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: self.rest.get("/api/v1/grace").json["unreclaimed"] == 0, "all is reclaimed")
        self.rest.call("POST", "/api/v1/grace/end", token=True)
        self.await_stored()
        self.a.deaf = False
        self.a.told.items.clear()
        self.restart()
        self.assertIn(GOES_ON, self.log)
        self.assertEqual(self.a.told.wait()[0].state, self.state())

    def test_grace_is_not_continued(self):
        """A run that dies while its clients reclaim leaves locks that are neither held nor free."""
        lock = self.hold()
        self.restart("recovery.after_crash=reclaim")
        self.restart()
        self.assertTrue(self.rest.get("/api/v1/grace").json["active"])
        self.restart()
        self.assert_starts_over()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.rest.get("/api/v1/grace").json["active"], "grace ends")
        self.release(lock)


class RemovedClient(Base):
    """The configuration of the next run leaves a client out: that run grants it nothing more."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.start_anew)

    def start_anew(self):
        self.write_config(self.exports)
        self.restart()
        for host in self.hosts:
            host.free_all()

    def restart_without_b(self):
        others = ", ".join(host.address for host in self.hosts if host is not self.b)
        self.write_config([self.exports[0].replace("squash: none", f"squash: none, clients: [127.0.0.1, {others}]")])
        self.restart()
        self.assert_goes_on()

    def test_waiter_leaves_the_queue(self):
        lock = self.hold()
        self.waits(self.b)
        behind = self.waits(self.c)
        self.restart_without_b()
        waiters = self.rest.get("/api/v1/waiters").json["waiters"]
        self.assertEqual([one["client"] for one in waiters], [self.id_of(self.c)])
        self.release(lock)
        self.c.wait_granted(behind)
        self.assertEqual(self.b.granted_calls, [])

    def test_i6_unanswered_grant_stays(self):
        """The client may know of its lock."""
        lock = self.hold()
        self.b.script = self.b.SILENT
        waiter = self.waits(self.b)
        self.release(lock)
        self.b.wait_granted(waiter)
        self.restart_without_b()
        self.b.script = nlm.S_GRANTED
        self.b.grants.wait(2, lambda heard: heard.grant.fh == waiter.fh)
        self.assertEqual(self.c.lock(self.lock_of(self.c)), nlm.S_DENIED)


class GoneExport(Base):
    """What is stored of a directory that is not exported is in no table, so a run cannot go on with it."""

    folders = ("data", "other")
    exports = ("{{path: {base}/data, name: /data, squash: none}}", "{{path: {base}/other, name: /other, squash: none}}")

    def test_clients_are_told(self):
        lock = self.hold()
        self.a.notices.items.clear()
        self.write_config(self.exports[1:])
        self.restart()
        # The log says it after the ports are there.
        self.until(lambda: "directories that are not exported now" in self.log, "it says why it starts over")
        self.a.told.wait()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.write_config(self.exports)
        self.restart()
        self.assert_starts_over()
        self.assertTrue(self.rest.get("/api/v1/grace").json["active"], "the lock is not held: no client reclaims it")


class ReturnedExport(Base):
    """A directory is taken out, and comes back by a reload: what is stored of it must not win over what is granted since."""

    folders, exports = GoneExport.folders, GoneExport.exports
    alias = "{{path: {base}/data, name: /renamed, squash: none}}"
    after_crash = "recovery.after_crash=continue"

    def setUp(self):
        super().setUp()
        self.addCleanup(self.start_anew)

    def start_anew(self):
        """The next test begins with all exports, without grace."""
        self.write_config(self.exports)
        self.restart()
        self.end_grace()
        for host in self.hosts:
            host.free_all()

    def grace(self):
        return self.rest.get("/api/v1/grace").json

    def end_grace(self):
        self.rest.call("POST", "/api/v1/grace/end", token=True)
        self.until(lambda: not self.grace()["active"], "grace is over")

    def hold_beside(self):
        """Something in a directory that stays, so that grace waits for c."""
        fh = self.handle_of(self.make_file("other"), "/other", "other")
        self.assert_granted(self.c, self.lock_of(self.c, fh=fh))

    def lose_export(self):
        """Until clients are told to reclaim."""
        self.hold_beside()
        self.write_config(self.exports[1:])
        self.restart(self.after_crash)
        self.until(lambda: "grace began" in self.log, "grace begins")

    def bring_back(self, *exports):
        self.write_config(exports or self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: "configuration loaded again" in self.log, "the export is back")

    def lose_and_bring_back(self):
        self.lose_export()
        self.end_grace()
        self.bring_back()

    def test_i3_lock_granted_since_is_there_after_a_restart(self):
        lock = self.hold()
        self.lose_and_bring_back()
        self.assertIn("stored locks of directories that are exported again unreclaimed=0 dropped=1", self.log)
        mine = self.lock_of(self.b)
        self.assert_granted(self.b, mine)
        self.assertNotEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.restart("recovery.after_crash=reclaim")
        self.assertEqual(self.b.lock(mine.but(reclaim=True)), nlm.S_GRANTED)
        self.assertNotEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def lose_and_bring_back_by_another_name(self):
        """The handle by that name."""
        self.lose_export()
        self.end_grace()
        self.bring_back(self.alias, *self.exports[1:])
        return self.handle_of(self.path, "/renamed")

    def restart_with_both_names(self):
        self.write_config((*self.exports, self.alias))
        self.restart("recovery.after_crash=reclaim")

    def test_i3_lock_granted_by_another_name_is_there_after_a_restart(self):
        lock = self.hold()
        mine = self.lock_of(self.b, fh=self.lose_and_bring_back_by_another_name())
        self.assert_granted(self.b, mine)
        self.restart_with_both_names()
        self.assertIn("deleted stored locks that cannot be true n=1", self.log)
        self.assertEqual(self.b.lock(mine.but(reclaim=True)), nlm.S_GRANTED)
        self.assertNotEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_reservation_made_since_is_there_after_a_restart(self):
        self.assertEqual(self.a.share(self.lock_of(self.a, deny=3, access=3)), nlm.S_GRANTED)
        self.lose_and_bring_back()
        mine = self.lock_of(self.b, deny=3, access=3)
        self.assertEqual(self.b.share(mine), nlm.S_GRANTED)
        self.restart("recovery.after_crash=reclaim")
        self.assertEqual(self.b.share(mine.but(reclaim=True)), nlm.S_GRANTED)

    def test_reservation_made_by_another_name_is_there_after_a_restart(self):
        other = self.lock_of(self.a, deny=3, access=3)
        self.assertEqual(self.a.share(other), nlm.S_GRANTED)
        mine = self.lock_of(self.b, deny=3, access=3, fh=self.lose_and_bring_back_by_another_name())
        for _ in range(2):
            self.assertEqual(self.b.share(mine), nlm.S_GRANTED)
        self.restart_with_both_names()
        self.assertEqual(self.b.share(mine.but(reclaim=True)), nlm.S_GRANTED)
        self.assertNotEqual(self.a.share(other.but(reclaim=True)), nlm.S_GRANTED)

    def test_i4_lock_is_reclaimed_in_grace(self):
        lock = self.hold()
        self.lose_export()
        before = self.grace()["unreclaimed"]
        self.bring_back()
        self.assertEqual(self.grace()["unreclaimed"], before + 1)
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.end_grace()
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_DENIED)

    def test_i4_reservation_is_reclaimed_in_grace(self):
        mine = self.lock_of(self.a, deny=3, access=3)
        self.assertEqual(self.a.share(mine), nlm.S_GRANTED)
        self.lose_export()
        self.bring_back()
        self.assertEqual(self.a.share(mine.but(reclaim=True)), nlm.S_GRANTED)
        self.end_grace()
        self.assertEqual(self.b.share(self.lock_of(self.b, deny=0, access=1)), nlm.S_DENIED)

    def test_i4_lock_is_reclaimed_when_a_restart_brings_the_export_back(self):
        lock = self.hold()
        self.lose_export()
        self.end_grace()
        self.write_config(self.exports)
        self.restart(self.after_crash)
        self.until(lambda: self.state() in [notice.state for notice in self.a.told.items], "a is told of this restart")
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_i8_lock_is_not_reclaimed_after_grace(self):
        lock = self.hold()
        self.lose_and_bring_back()
        self.assertNotEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assert_granted(self.b, self.lock_of(self.b))

    def test_i8_reservation_is_not_reclaimed_after_grace(self):
        mine = self.lock_of(self.a, deny=3, access=3)
        self.assertEqual(self.a.share(mine), nlm.S_GRANTED)
        self.lose_and_bring_back()
        self.assertNotEqual(self.a.share(mine.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.lock_of(self.b, deny=0, access=1)), nlm.S_GRANTED)

    def test_i8_lock_that_another_had_in_between_is_not_reclaimed(self):
        """By the second name, while the directory was not exported by the first one."""
        fh = self.lose_one_of_two_names()
        self.hold_beside()
        self.write_config((*self.exports[1:], self.alias))
        self.restart(self.after_crash)
        self.until(lambda: "grace began" in self.log, "grace begins")
        self.end_grace()
        between = self.lock_of(self.b, fh=fh)
        self.assert_granted(self.b, between)
        self.assertEqual(self.b.unlock(between), nlm.S_GRANTED)
        self.bring_back(*self.exports, self.alias)
        self.assertNotEqual(self.a.lock(self.lock_of(self.a, reclaim=True)), nlm.S_GRANTED)

    def lose_one_of_two_names(self):
        """a has locked by the name that is gone."""
        self.write_config((*self.exports, self.alias))
        self.restart()
        self.end_grace()
        self.hold()
        fh = self.handle_of(self.path, "/renamed")
        self.settle()
        return fh

    def test_i2_waiter_by_another_name_gets_nothing_before_grace(self):
        fh = self.lose_one_of_two_names()
        waiter = self.lock_of(self.b, fh=fh, block=True)
        self.assert_blocked(self.b, waiter)
        self.hold_beside()
        self.write_config((*self.exports[1:], self.alias))
        self.restart(self.after_crash)
        self.until(lambda: self.a.told.items, "clients are told")
        self.assertTrue(self.grace()["active"])
        self.assertEqual(self.b.granted_calls, [])
        self.assertEqual(self.b.lock(waiter), nlm.S_GRACE)

    def test_i5_client_that_died_gets_nothing_back(self):
        self.a.state = 3
        lock = self.hold(state=3)
        self.lose_export()
        self.a.state = 5
        self.a.notify(5)
        self.bring_back()
        self.assertNotEqual(self.a.lock(lock.but(reclaim=True, state=5)), nlm.S_GRANTED)
        self.end_grace()
        self.assert_granted(self.b, self.lock_of(self.b))

    def test_next_run_goes_on(self):
        self.hold()
        self.lose_and_bring_back()
        self.assert_granted(self.b, self.lock_of(self.b))
        self.settle()
        for host in self.hosts:
            host.told.items.clear()
        self.restart()
        self.assert_goes_on()
        self.assertEqual(self.a.lock(self.lock_of(self.a)), nlm.S_DENIED)


class ReturnedExportReclaimed(ReturnedExport):
    after_crash = "recovery.after_crash=reclaim"
    test_next_run_goes_on = None  # this run stores no waiters


class ContinuingOverPostgres(OverPostgres, Continuing):
    pass


class StoreAway(OverPostgres, Base):
    def test_release_that_cannot_be_stored(self):
        """The next run would have the lock again, so neither the client nor an operator is told that it is gone."""
        lock = self.hold()
        other = self.lock_of(self.b, fh=self.handle_of(self.make_file()))
        self.assert_granted(self.b, other)
        self.cluster.kill()
        path = f"/api/v1/clients/{quote(f'nlm:{self.b.address}:{self.b.name}')}"
        answer = self.rest.call("DELETE", path, token=True)
        self.assertEqual((answer.status, answer.code), (503, "not_stored"))
        self.assertEqual(self.a.unlock(lock), nlm.S_GRACE)
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.cluster.start()
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.until(lambda: self.a.unlock(lock), "it is unlocked", passes=lambda stat: stat == nlm.S_GRANTED)


if __name__ == "__main__":
    main()
