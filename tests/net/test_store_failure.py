#!/usr/bin/env python3
"""A store that cannot write: nothing new is promised, nothing promised is lost, and service goes on when it can again.

The store is made to fail under a running daemon: by a limit on the size of its files, by a full disk, and by a
database that hangs and is killed while a commit is on its way.
"""

import collections
import contextlib
import ctypes
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from daemon import Daemon
from play import main
from recovering import OverPostgres, Recovering
from rpc import call_message, record, result_of

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
CANNOT = "the store cannot write; no lock is granted and no client registered until it can"
NOT_YET = "the store still cannot write"
BACK = "the store can write again; all locks and registrations are stored"
LONG = b"x" * 1000  # an owner handle: a few locks with it do not fit into what is left of a page


class PipedDaemon(Daemon):
    """Its log goes through a pipe, which no limit on files concerns."""

    def start(self, *more, flags=()):
        with open(self.log_path, "ab") as log:
            self.writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        try:
            return super().start(*more, flags=flags)
        finally:
            self.writer.stdin.close()

    def open_log(self):
        return os.fdopen(os.dup(self.writer.stdin.fileno()), "wb")

    def reap(self):
        super().reap()
        self.writer.wait()


class Failing(Recovering):
    """break_store() and mend_store() are the children's business."""

    daemon_class = PipedDaemon
    stays_broken = True  # until it is mended
    is_complete = True  # what is found after a crash in the outage

    def tearDown(self):
        self.mend_store()
        super().tearDown()

    def break_store(self):
        """From now on it cannot write."""

    def pull(self):
        """Where break_store() alone makes it wait, not fail: now it fails."""

    def mend_store(self):
        """Again and again harmless."""

    def in_one_go(self, host, *calls):
        """(procedure, lock) in one write, so in one turn and one commit, which fails: their answers, in order."""
        messages = self.messages_of(*calls)
        caller = host.caller()
        self.break_store()
        self.send(caller, messages)
        self.pull()
        return self.hear(caller, messages)

    @staticmethod
    def messages_of(*calls):
        """(procedure, message) of each (procedure, lock); one that is sent again is the same call."""
        return [(procedure, call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure))) for procedure, lock in calls]

    @staticmethod
    def send(caller, messages):
        caller.sock.sendall(b"".join(record(message) for _, message in messages))

    @staticmethod
    def hear(caller, messages):
        procedures = {message[:4]: procedure for procedure, message in messages}
        replies = [caller.receive() for _ in messages]
        by_xid = {reply[:4]: nlm.res_of(procedures[reply[:4]], result_of(reply)).stat for reply in replies}
        return [by_xid[message[:4]] for _, message in messages]

    def assert_silent(self, caller):
        """No reply to an earlier call comes, and the connection goes on."""
        ping = call_message(nlm.PROGRAM, 4, 0)
        caller.sock.sendall(record(ping))
        self.assertEqual(caller.receive()[:4], ping[:4], "no other reply")

    def results(self):
        """{PROCEDURE_RESULT: how many calls of LOCK and UNLOCK the server has counted}"""
        pattern = re.compile(r'nlm_requests_total{procedure="(LOCK|UNLOCK)",result="(.*)"}')
        found = ((pattern.fullmatch(key), value) for key, value in self.rest.metrics().items())
        return collections.Counter({f"{match[1]}_{match[2]}": value for match, value in found if match})

    @contextlib.contextmanager
    def counts_results(self, **wanted):
        """What follows is counted as @wanted, and as nothing else."""
        before = self.results()
        yield
        after = self.results()
        after.subtract(before)
        self.assertEqual({key: n for key, n in after.items() if n}, wanted)

    def usage_of(self, host):
        """(calls about locks, errors) of the host, in the metrics."""
        metrics, of_host = self.rest.metrics(), f'{{client="{host.address}",'
        return [sum(value for key, value in metrics.items() if key.startswith(name + of_host))
                for name in ("holdfast_client_calls_total", "holdfast_client_errors_total")]  # fmt: skip

    def bulky(self, host):
        """Locks that do not fit anywhere any more, and go first."""
        return [self.lock_of(host, 1000 + i, 1, svid=100 + i, oh=LONG) for i in range(6)]

    def fail_with(self, host, lock, procedure=nlm.LOCK):
        """@lock, asked for in the turn whose commit fails; it must not be granted."""
        answers = self.in_one_go(host, *((nlm.LOCK, other) for other in self.bulky(host)), (procedure, lock))
        self.assertEqual(answers, [nlm.S_NOLOCKS] * 7)
        for other in self.bulky(host):
            self.assert_free(other)

    def assert_in_outage(self, answer, wanted):
        """@wanted was answered, unless the outage has ended by itself meanwhile, as short ones do."""
        if answer != wanted and not self.stays_broken:
            self.until(lambda: BACK in self.log, f"it has come back by itself; until then {wanted} is right")
        else:
            self.assertEqual(answer, wanted)

    def back(self):
        self.mend_store()
        self.until(lambda: 0 < self.log.count(CANNOT) <= self.log.count(BACK), "it comes back from the last outage, too")

    # What was promised stays

    def test_repeat_of_a_held_range(self):
        lock = self.held(self.a, 0, 5)
        self.fail_with(self.a, lock)
        self.assert_held(lock, by=lock.svid)
        self.back()
        self.assert_held(lock, by=lock.svid)
        self.restart()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_wider_repeat(self):
        lock = self.held(self.a, 0, 5)
        self.fail_with(self.a, lock.but(length=8))
        self.assert_held(lock, by=lock.svid)
        self.back()
        self.assertEqual(self.a.unlock(lock.but(length=8)), nlm.S_GRANTED)
        self.assert_free(lock.but(length=8))

    def test_other_mode_of_a_held_range(self):
        lock = self.held(self.a, 0, 5, exclusive=False)
        self.fail_with(self.a, lock.but(exclusive=True))
        self.assert_held(lock, by=lock.svid)

    def test_new_range_beside_a_held_one(self):
        lock = self.held(self.a, 0, 5)
        self.fail_with(self.a, lock.but(offset=20))
        self.assert_held(lock)
        self.assert_free(lock.but(offset=20))

    def test_new_range_that_touches_held_ones(self):
        """In the table they are one; what is undone is the new part alone."""
        before, after = self.held(self.a, 0, 5), self.held(self.a, 10, 5)
        between = before.but(offset=5)
        self.fail_with(self.a, between)
        self.assert_free(between)
        self.assert_held(before)
        self.assert_held(after)
        self.back()
        self.assert_granted(self.b, between.but(name=self.b.name))

    def test_blocked_upgrade_keeps_the_shared_lock(self):
        mine, theirs = self.held(self.a, 0, 5, exclusive=False), self.held(self.b, 0, 5, exclusive=False)
        self.fail_with(self.a, mine.but(exclusive=True, block=True))
        self.assertEqual(self.b.unlock(theirs), nlm.S_GRANTED)
        holder = self.assert_held(mine, by=mine.svid)
        self.assertFalse(holder.exclusive, "no request waits for the upgrade")
        self.back()
        self.assert_granted(self.b, theirs)
        self.assertEqual(self.a.grants.matching(lambda heard: heard.grant.fh == self.fh), [])

    def test_reclaim(self):
        """The store fails with it, and does not know the lock. A client takes a refusal for final, and repeats a reclaim
        that is not answered, perhaps after grace: so the lock stays its own."""
        self.restart("--clear-store", store__lock_durability="none", recovery__grace="always", recovery__early_end="false")
        lock = self.lock_of(self.a, 0, 5)
        reclaim = self.messages_of((nlm.LOCK, lock.but(reclaim=True)))
        caller = self.a.caller()
        self.break_store()
        self.send(caller, reclaim)
        self.pull()
        self.until(lambda: CANNOT in self.log, "it fails")
        self.assert_silent(caller)
        self.back()
        self.assertEqual(self.rest.call("POST", "/api/v1/grace/end", token=True).status, 200)
        self.assertEqual(self.b.lock(self.lock_of(self.b, 0, 5)), nlm.S_DENIED)
        self.send(caller, reclaim)
        self.assertEqual(self.hear(caller, reclaim), [nlm.S_GRANTED])

    def test_reclaims_in_an_outage(self):
        lock, share = self.held(self.a, 0, 5), self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        self.break_store()
        self.pull()
        self.until(lambda: self.c.mon("server", transport="tcp")[0] == 1 and CANNOT in self.log, "it fails")
        caller = self.a.caller()
        reclaims = self.messages_of((nlm.LOCK, lock.but(reclaim=True)), (nlm.SHARE, share.but(reclaim=True)))
        self.send(caller, reclaims)
        self.assert_silent(caller)
        self.back()
        self.send(caller, reclaims)
        self.assertEqual(self.hear(caller, reclaims), [nlm.S_GRANTED] * 2)
        self.until(lambda: self.b.lock(self.lock_of(self.b, 0, 5)) == nlm.S_DENIED, "grace has ended, and A has its lock")
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_DENIED)

    def test_share_reservation(self):
        share = self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.fail_with(self.a, self.lock_of(self.a, 0, 5))
        self.assert_in_outage(self.a.share(share), nlm.S_NOLOCKS)
        self.back()
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_DENIED)

    # Nothing new is

    def test_who_hangs_up_before_the_answer(self):
        self.held(self.a, 0, 5)
        locks = [*self.bulky(self.a), self.lock_of(self.a, 20, 5)]
        caller = self.a.caller()
        self.break_store()
        caller.sock.sendall(b"".join(record(call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))) for lock in locks))
        caller.sock.shutdown(socket.SHUT_RDWR)
        self.pull()
        self.until(lambda: CANNOT in self.log, "it fails")
        for lock in locks:
            self.assert_free(lock)
        self.back()
        self.held(self.b, 20, 5)

    def test_unlock_and_lock_in_one_turn(self):
        """The UNLOCK is done, whatever becomes of the store. The LOCK behind it gets nothing."""
        lock = self.held(self.a, 0, 5)
        answers = self.in_one_go(self.a, *((nlm.LOCK, other) for other in self.bulky(self.a)),
                                 (nlm.UNLOCK, lock), (nlm.LOCK, self.lock_of(self.a, 30, 5)))
        self.assertEqual(answers, [nlm.S_NOLOCKS] * 6 + [nlm.S_GRANTED, nlm.S_NOLOCKS])
        self.assert_free(lock)
        self.assert_free(lock.but(offset=30))

    def test_share_that_was_refused(self):
        """The client was told that it does not have the reservation, so it never gives it back."""
        mine, theirs = self.lock_of(self.a, access=2, deny=1), self.lock_of(self.b, access=1)
        self.held(self.a, 0, 5)
        self.fail_with(self.a, mine, nlm.SHARE)
        self.back()
        self.assertEqual(self.b.share(theirs), nlm.S_GRANTED)

    def test_second_share_that_was_refused(self):
        """The client keeps the reservation that it had before."""
        share = self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.fail_with(self.a, share, nlm.SHARE)
        self.back()
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_DENIED)
        self.assertEqual(self.a.unshare(share), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_GRANTED)

    def test_repeat_of_a_lock_that_was_downgraded(self):
        """The reply to the LOCK that downgraded it may be lost: a refusal would say that it is still exclusive."""
        shared = self.held(self.a, 0, 5).but(exclusive=False)
        self.assertEqual(self.a.lock(shared), nlm.S_GRANTED)
        answers = self.in_one_go(self.a, *((nlm.LOCK, other) for other in self.bulky(self.a)), (nlm.LOCK, shared))
        self.assertEqual(answers, [nlm.S_NOLOCKS] * 6 + [nlm.S_GRACE])
        self.assert_in_outage(self.a.lock(shared), nlm.S_GRACE)
        self.assert_in_outage(self.a.lock(shared.but(exclusive=True)), nlm.S_NOLOCKS)
        self.back()
        self.assertEqual(self.a.lock(shared), nlm.S_GRANTED)

    # The metrics have what was answered

    def test_locks_are_counted_as_they_were_answered(self):
        self.held(self.a, 0, 5)
        with self.counts_results(LOCK_DENIED_NOLOCKS=7):
            self.fail_with(self.a, self.lock_of(self.a, 20, 5))

    def test_a_downgraded_lock_is_counted_as_it_was_answered(self):
        shared = self.held(self.a, 0, 5).but(exclusive=False)
        self.assertEqual(self.a.lock(shared), nlm.S_GRANTED)
        with self.counts_results(LOCK_DENIED_NOLOCKS=6, LOCK_DENIED_GRACE_PERIOD=1):
            answers = self.in_one_go(self.a, *((nlm.LOCK, other) for other in self.bulky(self.a)), (nlm.LOCK, shared))
        self.assertEqual(answers, [nlm.S_NOLOCKS] * 6 + [nlm.S_GRACE])

    def test_a_release_is_counted_as_it_was_answered(self):
        """The next run would have the lock again: so the client is told to ask again."""
        self.restart("--clear-store", recovery__after_crash="continue")
        lock = self.held(self.a, 0, 5)
        with self.counts_results(LOCK_DENIED_GRACE_PERIOD=6, UNLOCK_DENIED_GRACE_PERIOD=1):
            answers = self.in_one_go(self.a, *((nlm.LOCK, other) for other in self.bulky(self.a)), (nlm.UNLOCK, lock))
        self.assertEqual(answers, [nlm.S_GRACE] * 7)

    def test_errors_of_a_client(self):
        self.restart("--clear-store", metrics__per_client="true")
        lock = self.held(self.a, 0, 5)
        before = self.usage_of(self.a)
        answers = self.in_one_go(self.a, *((nlm.LOCK, other) for other in self.bulky(self.a)), (nlm.UNLOCK, lock))
        self.assertEqual(answers, [nlm.S_NOLOCKS] * 6 + [nlm.S_GRANTED])
        after = self.usage_of(self.a)
        self.assertEqual([now - then for now, then in zip(after, before)], [7, 6])

    def test_errors_of_a_client_whose_release_failed(self):
        self.restart("--clear-store", metrics__per_client="true", recovery__after_crash="continue")
        lock = self.held(self.a, 0, 5)
        before = self.usage_of(self.a)
        answers = self.in_one_go(self.a, *((nlm.LOCK, other) for other in self.bulky(self.a)), (nlm.UNLOCK, lock))
        self.assertEqual(answers, [nlm.S_GRACE] * 7)
        after = self.usage_of(self.a)
        self.assertEqual([now - then for now, then in zip(after, before)], [7, 7])

    def test_waiter_is_told_when_it_is_back(self):
        """Before that it would be told of a lock that nothing but memory knows."""
        lock = self.held(self.a, 0, 5)
        self.assert_blocked(self.b, self.lock_of(self.b, 0, 5))
        self.fail_with(self.a, self.lock_of(self.a, 20, 5))
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.until(lambda: self.holder_of(lock) is None, "a grant that cannot be told is taken back")
        self.assertEqual(self.b.lock(self.lock_of(self.b, 0, 5)), nlm.S_NOLOCKS)
        self.assertEqual(self.b.grants.matching(lambda heard: heard.grant.fh == self.fh), [])
        self.back()
        self.b.wait_granted(lock)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 5))

    def test_poll_that_was_refused(self):
        """Linux hands DENIED_NOLOCKS to the program, and the program waits no more. So the server grants it nothing, and
        the waiters behind it do not wait for it."""
        lock = self.held(self.a, 0, 5)
        self.assert_blocked(self.b, self.lock_of(self.b, 0, 5))
        self.assert_blocked(self.c, self.lock_of(self.c, 0, 5))
        self.fail_with(self.a, self.lock_of(self.a, 20, 5))
        self.assertEqual(self.b.lock(self.lock_of(self.b, 0, 5, block=True)), nlm.S_NOLOCKS)
        self.assertEqual(self.rest.get("/api/v1/status").json["waiters"], 1)
        self.back()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.c.wait_granted(lock)
        self.assertEqual(self.b.grants.matching(lambda heard: heard.grant.fh == self.fh), [])

    def test_registration(self):
        """A client that is not registered yet gets nothing at all."""
        self.held(self.a, 0, 5)
        self.fail_with(self.b, self.lock_of(self.b, 20, 5))
        self.assert_in_outage(self.c.mon("server", transport="tcp")[0], 1)
        self.back()
        self.assertEqual(self.c.mon("server", transport="tcp")[0], 0)

    def test_outage(self):
        kept, gone = self.held(self.a, 0, 5), self.held(self.a, 10, 5)
        self.assertEqual(self.rest.get("/readyz").status, 200)
        self.fail_with(self.a, self.lock_of(self.a, 20, 5))
        answer = self.rest.get("/readyz")
        self.assert_in_outage((answer.status, answer.json.get("error", {}).get("code")), (503, "store_failed"))
        self.assert_in_outage(self.rest.get("/healthz").status, 503)
        self.assert_in_outage(self.b.lock(self.lock_of(self.b, 30, 5)), nlm.S_NOLOCKS)
        self.assertEqual(self.a.unlock(gone), nlm.S_GRANTED, "what frees is served")
        self.assertEqual(self.a.test(self.lock_of(self.a, 50, 5)).stat, nlm.S_GRANTED)
        self.until(lambda: not self.stays_broken or self.log.count(NOT_YET) >= 2, "it tries again")
        self.back()
        self.assertEqual(self.rest.get("/readyz").status, 200)
        outages = 1 if self.stays_broken else self.log.count(CANNOT)
        self.assertEqual((self.log.count(CANNOT), self.log.count(BACK)), (outages, outages), "one line each")
        new = self.held(self.b, 30, 5)
        self.restart()
        self.assertEqual(self.a.lock(kept.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.c.lock(self.lock_of(self.c, 40, 5)), nlm.S_GRACE)
        self.assertEqual(self.b.lock(new.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: self.c.lock(self.lock_of(self.c, 40, 5)) == nlm.S_GRANTED, "there was nothing else")

    def test_restart_of_a_client(self):
        """It gets its reply when the store has the number: else the number in its next LOCK would tell of a restart after a crash."""
        old = self.held(self.a, 0, 5, state=3, access=1, deny=3)
        new = old.but(state=5)
        caller, ping = self.a.caller(), call_message(nlm.PROGRAM, 4, 0)
        self.break_store()
        caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, nlm.FREE_ALL, new.args(nlm.FREE_ALL))))
        self.pull()
        self.until(lambda: CANNOT in self.log, "that cannot be stored")
        caller.sock.sendall(record(ping))
        self.assertEqual(caller.receive()[:4], ping[:4], "FREE_ALL has no answer")
        self.back()
        self.a.free_all(state=5)
        self.assert_free(old)
        self.assertEqual(self.a.share(new), nlm.S_GRANTED)
        self.restart()
        self.assertEqual(self.a.share(new.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: self.a.lock(new) == nlm.S_GRANTED, "there was nothing else")
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_DENIED)

    def test_killed_in_the_outage(self):
        kept = self.held(self.a, 0, 5)
        undone = self.lock_of(self.a, 20, 5)
        self.fail_with(self.a, undone)
        self.daemon.crash()
        self.mend_store()
        self.restart()
        self.assertEqual(self.a.lock(kept.but(reclaim=True)), nlm.S_GRANTED)
        if self.is_complete:
            self.assertEqual(self.a.lock(undone.but(reclaim=True)), nlm.S_GRACE, "A never held it")


class FileLimit(Failing):
    """No file may grow, nor be written beyond its first byte."""

    backend = ("store.backend=lmdb",)

    def set_limit(self, limit):
        if self.daemon.process.poll() is None:
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def break_store(self):
        self.set_limit(1)

    def mend_store(self):
        self.set_limit(resource.RLIM_INFINITY)


class FileLimitOfTheMachine(FileLimit):
    """The same, with locks that are synced."""

    backend = ("store.backend=lmdb", "store.lock_durability=machine")


class FullDisk(Failing):
    """A small disk in memory, which the test fills."""

    backend = ("store.backend=lmdb",)
    stays_broken = False  # what is already the files' own may be enough for all that is held, at the first look 0.1 s later

    test_reclaim = test_reclaims_in_an_outage = None  # one registration fits into what LMDB has already
    test_restart_of_a_client = None  # and so does a deletion
    # for as long as the outage lasts, which may be over
    test_waiter_is_told_when_it_is_back = test_poll_that_was_refused = None

    @classmethod
    def setUpClass(cls):
        # In a mount namespace of this thread's own, so that the disk goes with it, whatever happens.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) < 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) < 0:
            raise unittest.SkipTest("no mount namespaces here")
        super().setUpClass()

    @classmethod
    def make_daemon(cls, settings):
        daemon = super().make_daemon(settings)
        cls.state = os.path.join(daemon.state_dir, "state")
        os.mkdir(cls.state)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", cls.state], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", "-l", cls.state], check=True)
        return daemon

    @property
    def filler(self):
        return os.path.join(self.state, "filler")

    def break_store(self):
        with open(self.filler, "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass

    def mend_store(self):
        if os.path.exists(self.filler):
            os.unlink(self.filler)


class Postgres(OverPostgres, Failing):
    """The database's processes hang, and are killed while they have something of holdfastd."""

    is_complete = False  # the last commits of a database that crashed may be gone, unless they were synced

    def break_store(self):
        self.cluster.signal(signal.SIGSTOP)

    def pull(self):
        self.cluster.kill()

    def mend_store(self):
        if self.cluster.server.poll() is not None:
            self.cluster.start()


del Failing  # it is played by its children only

if __name__ == "__main__":
    main()
