#!/usr/bin/env python3
"""A disk that does not answer: a call that needs it waits, and no other call does."""

import os
import re
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import cluster
import fusedisk
import nlm
import nsm
from dbwire import DatabaseWire
from exported import Exported, nfs
from play import Play, main
from rpc import PATIENCE, NoReply, auth_sys, call_message, record, result_of
from until import lapse
from xdr import Out

MOUNT, MNT = 100005, 1
AGAIN = "configuration loaded again"
NOT_LOADED = "configuration not loaded"
LIVING = "{{path: {base}/data, name: /data, squash: none}}"
DYING = "{{path: {base}/disk, name: /disk, squash: none}}"


class DeadDisk(Exported):
    folders = ("data", "disk")
    exports = (LIVING,)
    settings = ("store.backend=lmdb", "recovery.grace=auto")
    n_hosts = 2
    keeps_root = False

    def setUp(self):
        super().setUp()
        self.disk = fusedisk.FuseDisk(os.path.join(self.base, "disk"), self.keeps_root)
        self.addCleanup(self.disk.close)
        self.log_began = len(self.daemon.log)

    def count(self, words):
        return self.daemon.log[self.log_began :].count(words)

    def assert_locks_are_served(self):
        """In files that it has never seen, so that it has to ask for them, and in one that it knows."""
        for _ in range(5):
            lock = self.lock_of(self.a, fh=self.handle_of(self.make_file()))
            for _ in range(20):
                self.assert_granted(self.a, lock)
                self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)


class Reload(DeadDisk):
    def begin(self):
        """A reload that waits for the disk."""
        self.disk.die()
        self.write_config((LIVING, DYING))
        self.addCleanup(self.write_config, self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))

    def test_locks_go_on(self):
        self.begin()
        self.assert_locks_are_served()
        self.assertEqual((self.count(AGAIN), self.count(NOT_LOADED)), (0, 0))
        self.disk.close()
        self.until(lambda: self.count(NOT_LOADED), "the reload has failed")
        self.assert_locks_are_served()

    def test_asked_again_meanwhile(self):
        """What was written after the first was begun is not missed."""
        self.begin()
        os.makedirs(os.path.join(self.base, "third"))
        third = LIVING.replace("data", "third")
        self.write_config((LIVING, third))
        self.daemon.process.send_signal(signal.SIGHUP)
        self.assert_locks_are_served()
        self.disk.close()
        self.until(lambda: self.count(AGAIN), "it was read again")
        self.assertEqual(self.count(NOT_LOADED), 1)
        fh = self.handle_of(self.make_file("third"), "/third", "third")
        self.assert_granted(self.a, self.lock_of(self.a, fh=fh))


class Shared(DeadDisk):
    """The disk is shared, and then it dies."""

    def setUp(self):
        super().setUp()
        self.write_config((LIVING, DYING))
        self.addCleanup(self.write_config, self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.count(AGAIN), "the disk is shared")
        self.files = [self.handle_of(self.make_file()) for _ in range(5)]
        self.of_disk = self.handle_of(os.path.join(self.base, "disk", "f"), "/disk", "disk")
        self.disk.die()


class OneThread(Shared):
    """server.threads: 1. What is asked of the dead disk takes that thread for ever; locks have their own."""

    settings = (*DeadDisk.settings, "server.threads=1")

    def ask_disk(self, ask):
        """By ask(), which has no answer until the disk is closed."""

        def run():
            try:
                ask()
            except (OSError, NoReply):
                pass  # the disk is gone by then, and the server may be

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.disk.close)  # before that
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))

    def read(self):
        with self.network.server, nfs.Client(2049) as client:
            client.read(self.of_disk)

    def assert_locks_are_served(self):
        for fh in self.files:
            lock = self.lock_of(self.a, fh=fh)
            for _ in range(20):
                self.assert_granted(self.a, lock)
                self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)

    def test_locks_go_on_while_files_do_not(self):
        self.ask_disk(self.read)
        self.assert_locks_are_served()

    def test_locks_go_on_while_some_do_not(self):
        """Those of the disk itself wait for it, however many there are."""
        caller = self.b.caller()
        for svid in range(200):
            lock = self.lock_of(self.b, fh=self.of_disk, svid=svid)
            caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))))
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        self.assert_locks_are_served()
        self.disk.close()
        for _ in range(200):
            caller.receive()


class SlowCalls(Shared):
    """log.slow_ms, which a reload changes: a call that takes long is in the log, with its client and procedure, and an NFS call
    with its file."""

    slow_ms = 0

    @classmethod
    def write_config(cls, exports):
        super().write_config(exports)
        with open(cls.config, "a", encoding="ascii") as out:
            out.write(f"log: {{slow_ms: {cls.slow_ms}}}\n")

    def setUp(self):
        type(self).slow_ms = 300
        super().setUp()

    def ask_slowly(self, ask):
        thread = threading.Thread(target=ask, daemon=True)
        began = time.monotonic()
        thread.start()
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        self.until(lambda: time.monotonic() - began, "it takes long", passes=lambda passed: passed > 0.5)
        self.disk.live()
        thread.join(PATIENCE)

    def lines(self, words):
        return [l for l in self.daemon.log[self.log_began :].splitlines() if words in l]

    def test_a_slow_call_is_logged(self):
        self.ask_slowly(self.read)
        line = self.until(lambda: [l for l in self.lines("a slow NFS call") if "procedure=READ " in l], "it is in the log")[0]
        self.assertRegex(line, r"peer=127\.0\.0\.1 procedure=READ ms=\d{3,} result=\S+ ")
        self.assertIn(f"handle={self.of_disk.hex()}", line)
        self.assertEqual(self.lines("a slow call"), [], "it is there once")

    def test_a_slow_lock_is_logged(self):
        self.ask_slowly(lambda: self.b.lock(self.lock_of(self.b, fh=self.of_disk)))
        line = self.until(lambda: self.lines("a slow call"), "it is in the log")[0]
        self.assertRegex(line, rf"peer={re.escape(self.b.address)} program=nlockmgr procedure=LOCK ms=\d{{3,}} more=0")

    def test_a_slow_mount_is_logged(self):
        self.ask_slowly(lambda: self.b.call(MNT, Out().string("/disk/f").bytes(), version=3, program=MOUNT))
        line = self.until(lambda: self.lines("a slow call"), "it is in the log")[0]
        self.assertRegex(line, rf"peer={re.escape(self.b.address)} program=mountd procedure=MNT ms=\d{{3,}} more=0")

    def test_none_is_logged_after_a_reload_without_it(self):
        type(self).slow_ms = 0
        self.write_config((LIVING, DYING))
        self.disk.live()
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.count(AGAIN) == 2, "it is loaded again")
        self.disk.die()
        self.ask_slowly(self.read)
        self.disk.die()
        self.ask_slowly(lambda: self.b.lock(self.lock_of(self.b, fh=self.of_disk)))
        self.assertEqual((self.lines("a slow NFS call"), self.lines("a slow call")), ([], []))

    def test_a_fast_call_is_not(self):
        with self.network.server, nfs.Client(2049) as client:
            self.assertEqual(client.getattr(self.files[0]).stat, nfs.OK)
        self.assertNotIn(self.files[0].hex(), self.daemon.log)

    def test_a_wait_for_a_lock_is_not(self):
        lock = self.lock_of(self.a, fh=self.files[0])
        wanted = lock.but(name=self.b.name, svid=2)
        self.assert_granted(self.a, lock)
        began = time.monotonic()
        self.assert_blocked(self.b, wanted)
        took = time.monotonic() - began
        lapse(0.5)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.b.wait_granted(wanted)
        if took < 0.3:  # else this machine is slow
            self.assertEqual([l for l in self.lines("a slow call") if f"peer={self.b.address} " in l], [])

    def read(self):
        with self.network.server, nfs.Client(2049) as client:
            client.read(self.of_disk)


class SlowStore(Play):
    n_hosts = 1

    @classmethod
    def setUpClass(cls):
        if not cluster.programs():
            raise unittest.SkipTest("no PostgreSQL here")
        database = cluster.Cluster().start()
        cls.addClassCleanup(database.close)
        cls.wire = DatabaseWire(database.path)
        cls.addClassCleanup(cls.wire.close)
        cls.settings = ("store.backend=postgres", f"store.postgres={cls.wire.connection}", "log.slow_ms=300")
        super().setUpClass()

    def test_replies_that_wait_for_the_store_are_logged(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 1))
        began = len(self.daemon.log)
        self.wire.slow_down(0.5)
        self.addCleanup(self.wire.mend)
        self.assert_granted(self.a, self.lock_of(self.a, 10, 1))
        line = re.compile(rf"slow replies: .* peer={re.escape(self.a.address)} ms=\d{{3,}} more=0")
        self.until(lambda: line.search(self.daemon.log[began:]), "it is in the log")


class Slow(Shared):
    """A disk that answers late, when the client that asked may have been restarted."""

    host_class = nsm.Host

    def setUp(self):
        super().setUp()
        self.b.name = self.id().rsplit(".", 1)[-1]  # a new client

    def ask(self, uid, *calls, state=3, is_known=True):
        """By b, which holds a lock already if it is known. Each as another user: answers are good for a second."""
        if is_known:
            self.assert_granted(self.b, self.lock_of(self.b, fh=self.files[0], state=state))
        caller = self.b.caller()
        asked = []  # the numbers of the calls: a reply that waits for the store comes later than one that does not
        for procedure, how in calls:
            args = self.lock_of(self.b, fh=self.of_disk, **how).args(procedure)
            message = call_message(nlm.PROGRAM, 4, procedure, args, cred=auth_sys(uid=uid))
            asked.append((procedure, message[:4]))
            caller.sock.sendall(record(message))
        caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, nlm.NULL)))
        self.assertEqual(result_of(caller.receive()), b"")  # so all have come
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))

        def answers():
            replies = {reply[:4]: reply for reply in (caller.receive() for _ in asked)}
            return [nlm.res_of(procedure, result_of(replies[number])).stat for procedure, number in asked]

        return answers

    def assert_lost(self, answers, *expected):
        self.disk.live()
        self.assertEqual(answers(), list(expected) or [nlm.S_GRACE])
        self.assert_granted(self.a, self.lock_of(self.a, fh=self.of_disk))

    def test_client_died_meanwhile(self):
        answers = self.ask(1, (nlm.LOCK, {"state": 3}))
        self.b.free_all(state=5, transport="udp")
        self.assert_lost(answers)

    def test_client_without_a_number_died(self):
        answers = self.ask(5, (nlm.LOCK, {}), (nlm.UNLOCK, {}), (nlm.LOCK, {}), state=0)
        self.b.free_all(transport="udp")
        self.assert_lost(answers, nlm.S_GRACE, nlm.S_GRANTED, nlm.S_GRACE)

    def test_client_with_the_same_number_died(self):
        """Some say one number all their life."""
        answers = self.ask(6, (nlm.LOCK, {"state": 3}))
        self.b.free_all(state=3, transport="udp")
        self.assert_lost(answers)

    def test_unknown_client_died(self):
        """The server had nothing of the client when it asked."""
        answers = self.ask(7, (nlm.LOCK, {"state": 3}), is_known=False)
        self.b.free_all(state=5, transport="udp")
        self.assert_lost(answers)

    def test_unknown_client_died_and_told_statd(self):
        answers = self.ask(9, (nlm.LOCK, {"state": 3}), is_known=False)
        self.b.notify(name=self.b.name, state=5, transport="udp")
        self.assert_lost(answers)

    def test_unknown_client_died_and_only_locks(self):
        """Its next LOCK, of a file that can be asked for, has another state number."""
        answers = self.ask(10, (nlm.LOCK, {"state": 3}), is_known=False)
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.files[1], svid=2, state=5))
        self.assert_lost(answers)

    def ask_after_a_guess(self, uid):
        """The server has nothing of the client but a call that waits, when a forger says the next number: by a reclaim,
        which takes nothing outside of grace. Then the client asks once more."""
        first = self.lock_of(self.b, fh=self.of_disk, svid=2, state=3)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, first.args(nlm.LOCK), cred=auth_sys(uid=uid))
        self.b.caller("udp").send(message)
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        guess = self.lock_of(self.b, fh=self.files[2], svid=3, state=5, reclaim=True)
        self.assertEqual(self.b.lock(guess, transport="udp"), nlm.S_GRACE)
        return self.ask(uid + 1, (nlm.LOCK, {"state": 3}), is_known=False)

    def test_unknown_client_died_and_a_forger_had_guessed_its_number(self):
        answers = self.ask_after_a_guess(15)
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.files[1], svid=4, state=5))
        self.assert_lost(answers)

    def test_client_did_not_die_and_a_forger_had_guessed_its_number(self):
        answers = self.ask_after_a_guess(17)
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.files[1], svid=4, state=3))
        self.disk.live()
        self.assertEqual(answers(), [nlm.S_GRANTED])
        self.assertEqual(self.a.lock(self.lock_of(self.a, fh=self.of_disk)), nlm.S_DENIED)

    def test_another_client_died_behind_the_call_of_one(self):
        """At one address, with one process number, and each has its own life."""
        other = {"name": "other", "length": 10}
        self.addCleanup(self.b.free_all, name="other")
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.files[1], state=3, **other))
        answers = self.ask(8, (nlm.LOCK, {"state": 3, "offset": 10}), (nlm.LOCK, {"state": 3, **other}))
        self.b.free_all(name="other", state=5, transport="udp")
        self.disk.live()
        self.assertEqual(answers(), [nlm.S_GRANTED, nlm.S_GRACE])
        self.assert_granted(self.a, self.lock_of(self.a, fh=self.of_disk, length=10))

    def test_client_died_behind_its_first_call(self):
        """Those that follow it are as old."""
        answers = self.ask(2, (nlm.LOCK, {"state": 3}), (nlm.UNLOCK, {}), (nlm.LOCK, {"state": 3}))
        self.b.free_all(state=5, transport="udp")
        self.assert_lost(answers, nlm.S_GRACE, nlm.S_GRANTED, nlm.S_GRACE)

    def test_restart_is_said_by_the_call_itself(self):
        """What follows it is of that life, too, though UNLOCK and CANCEL do not say so."""
        answers = self.ask(
            11, (nlm.LOCK, {"state": 7}), (nlm.UNLOCK, {}), (nlm.LOCK, {"state": 7}), (nlm.CANCEL, {}), (nlm.UNLOCK, {})
        )
        granted = [nlm.S_GRANTED] * 3
        self.assert_lost(answers, *granted, nlm.S_DENIED, nlm.S_GRANTED)

    def test_call_is_of_the_new_life(self):
        answers = self.ask(3, (nlm.LOCK, {"state": 5}))
        self.b.free_all(state=5, transport="udp")
        self.disk.live()
        self.assertEqual(answers(), [nlm.S_GRANTED])
        self.assertEqual(self.a.lock(self.lock_of(self.a, fh=self.of_disk)), nlm.S_DENIED)

    def test_reclaim_may_be_of_the_new_life(self):
        """A SHARE says no number. It is not refused, because a client does not repeat a reclaim that is refused; the client
        sends it again."""
        caller = self.b.caller()
        self.ask(13, (nlm.SHARE, {"reclaim": True}))
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.files[1], svid=2, state=5))
        lives = self.lock_of(self.b, fh=self.of_disk, svid=3, state=5)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lives.args(nlm.LOCK), cred=auth_sys(uid=13))
        caller.sock.sendall(record(message))
        self.disk.live()
        reply = caller.receive()
        self.assertEqual(reply[:4], message[:4], "the reply to the LOCK behind it is the first")
        self.assertEqual(nlm.res_of(nlm.LOCK, result_of(reply)).stat, nlm.S_GRANTED)
        self.assertRaises(NoReply, caller.receive, 0.5)

    def test_call_is_of_the_life_after_the_next(self):
        """It was restarted twice, and the server hears of the first time later."""
        answers = self.ask(12, (nlm.LOCK, {"state": 7}))
        self.b.free_all(state=5, transport="udp")
        self.disk.live()
        self.assertEqual(answers(), [nlm.S_GRANTED])
        self.assertEqual(self.a.lock(self.lock_of(self.a, fh=self.of_disk)), nlm.S_DENIED)

    def test_client_did_not_die(self):
        answers = self.ask(4, (nlm.LOCK, {"state": 3}), (nlm.UNLOCK, {}), (nlm.LOCK, {"state": 3}))
        self.disk.live()
        self.assertEqual(answers(), [nlm.S_GRANTED] * 3)
        self.assertEqual(self.a.lock(self.lock_of(self.a, fh=self.of_disk)), nlm.S_DENIED)


class Removed(Shared):
    """A reload removes a client whose call waits for the disk: the call is answered by the exports as they are then."""

    settings = (*DeadDisk.settings, "api.listen=127.0.0.1:8049")
    keeps_root = True  # the reload does not wait for the disk

    def ask(self, procedure, **how):
        """By b, which the reload removes while the disk is dead; how the call is answered when the disk lives."""
        caller = self.b.caller()
        args = self.lock_of(self.b, fh=self.of_disk, **how).args(procedure)
        caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, procedure, args)))
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        n_reloads = self.count(AGAIN)
        self.write_config((LIVING, DYING.replace("squash: none", "squash: none, clients: [127.0.0.1, 10.98.0.10]")))
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.count(AGAIN) > n_reloads, "the client is removed")
        self.disk.live()
        return nlm.res_of(procedure, result_of(caller.receive())).stat

    def of(self, kind):
        """The clients of the locks, waiters or reservations of the disk's file."""
        entries = self.rest.get(f"/api/v1/{kind}").json[kind]
        return [entry["client"] for entry in entries if entry["handle"] == self.of_disk.hex()]

    def test_a_lock_is_refused(self):
        self.assertEqual(self.ask(nlm.LOCK), nlm.S_FAILED)
        self.assertEqual(self.of("locks"), [])

    def test_a_lock_does_not_wait(self):
        self.disk.live()
        lock = self.hold(fh=self.of_disk)
        self.disk.die()
        self.assertEqual(self.ask(nlm.LOCK, block=True), nlm.S_FAILED)
        self.assertEqual(self.of("waiters"), [])
        self.assertEqual(self.of("locks"), [self.id_of(self.a)])
        self.release(lock)
        self.assertEqual(self.of("locks"), [])

    def test_a_share_is_refused(self):
        self.assertEqual(self.ask(nlm.SHARE), nlm.S_FAILED)
        self.assertEqual(self.of("reservations"), [])


class Stop(DeadDisk):
    def stop(self):
        self.daemon.stop()  # within ten seconds, with 0
        self.assertFalse(os.path.exists(self.daemon.ports_file))
        self.assertEqual(self.count("gave up calls that wait for a disk"), 1)
        self.disk.close()
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()
        self.assertIn("restart after a clean stop", self.daemon.log[self.log_began :])

    def hold(self):
        self.assert_granted(self.b, self.lock_of(self.b, state=3))

    def stop_with_a_lock_under_way(self, how_far):
        """A LOCK waits for the disk, which answers when the stop has come to @how_far; the caller that sent it."""
        self.write_config((LIVING, DYING))
        self.addCleanup(self.write_config, self.exports)
        n_reloads = self.count(AGAIN)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.count(AGAIN) > n_reloads, "the disk is shared")
        lock = self.lock_of(self.b, fh=self.handle_of(os.path.join(self.base, "disk", "f"), "/disk", "disk"))
        self.disk.die()
        caller = self.b.caller()
        caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys(uid=9))))
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        self.daemon.process.send_signal(signal.SIGTERM)
        self.until(lambda: self.count(how_far), "it stops")
        self.disk.live()
        self.daemon.stop()
        return caller

    def assert_loads(self, n_locks):
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()
        loaded = [line for line in self.daemon.log[self.log_began :].splitlines() if "stored clients and locks loaded" in line]
        self.assertIn(f" locks={n_locks} ", loaded[-1])

    def test_what_waits_for_it_is_not_taken(self):
        """The disk answers when the calls under way have had their time, and the server can send no reply any more."""
        self.stop_with_a_lock_under_way('to="stopping"')
        self.assert_loads(0)

    def test_what_waits_for_it_is_answered(self):
        """The disk answers in time: what is taken is answered before the end."""
        caller = self.stop_with_a_lock_under_way("stopping signal=")
        self.assertEqual(nlm.res_of(nlm.LOCK, result_of(caller.receive())).stat, nlm.S_GRANTED)
        self.assert_loads(1)

    def test_in_a_reload(self):
        self.hold()
        self.disk.die()
        self.write_config((LIVING, DYING))
        self.addCleanup(self.write_config, self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(self.disk.was_asked.wait(PATIENCE))
        self.write_config(self.exports)
        self.stop()


del DeadDisk, Shared  # they are played by their children only

if __name__ == "__main__":
    main(fusedisk.why_not)
