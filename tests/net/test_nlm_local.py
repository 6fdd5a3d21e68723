#!/usr/bin/env python3
"""local_locks: clients' locks and those of processes on the server's host are in each other's way, both ways, through
waits, crashes and restarts."""

import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from local import LocalProcess, held_in_kernel
from play import each, main

ON = ("{{path: {base}/data, name: /data, squash: none, local_locks: on}}",)
AUTO_ON = "{{path: {base}/auto, name: /auto, squash: none, local_locks: on}}"


class Local(Exported):
    exports = ("{{path: {base}/data, name: /data, squash: none}}",)  # auto is on here

    def setUp(self):
        super().setUp()
        self.local = LocalProcess(self.path)
        self.addCleanup(self.local.close)

    def more_local(self):
        process = LocalProcess(self.path)
        self.addCleanup(process.close)
        return process

    def ours(self):
        """What the daemon holds in the kernel."""
        return [(mode, start, end) for kind, mode, start, end in held_in_kernel(self.path) if kind == "OFDLCK"]

    def reload(self, exports):
        """Until the test ends."""
        self.load_again(exports)
        self.addCleanup(self.load_again, self.exports)

    def load_again(self, exports):
        before = self.daemon.log.count("configuration loaded again")
        self.write_config(exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.daemon.log.count("configuration loaded again") > before, "it has reloaded")


class BothWays(Local):
    @each()
    def test_a_client_keeps_local_processes_out(self, how):
        self.fh = self.handle_of(self.path)
        lock = self.lock_of(self.a, 10, 10)
        self.assert_granted(self.a, lock, **how)
        for start, length, free in ((0, 10, True), (9, 2, False), (15, 1, False), (19, 0, False), (20, 0, True)):
            self.assertEqual(self.local.lock(start, length), free, (start, length))
            self.local.unlock()
        self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
        self.assertTrue(self.local.lock())
        self.local.unlock()

    @each()
    def test_a_local_process_keeps_clients_out(self, how):
        self.fh = self.handle_of(self.path)
        self.assertTrue(self.local.lock(10, 10))
        self.assert_denied(self.a, self.lock_of(self.a, 15, 1), **how)
        self.assert_granted(self.a, self.lock_of(self.a, 20, 0), **how)
        self.local.unlock()
        self.assert_granted(self.a, self.lock_of(self.a), **how)
        self.release(self.lock_of(self.a))

    def test_shared_beside_shared(self):
        self.assertTrue(self.local.lock(mode="shared"))
        self.assert_granted(self.a, self.lock_of(self.a, exclusive=False))
        self.assert_granted(self.b, self.lock_of(self.b, exclusive=False))
        self.assert_denied(self.a, self.lock_of(self.a))
        self.assertFalse(self.more_local().lock())
        self.local.unlock()
        self.release(self.lock_of(self.a))
        self.assertFalse(self.local.lock(), "b has it still")
        self.release(self.lock_of(self.b), self.b)
        self.assertTrue(self.local.lock())

    def test_the_kernel_has_the_union_and_no_more(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10, exclusive=False))
        self.assert_granted(self.b, self.lock_of(self.b, 5, 10, exclusive=False))
        self.assertEqual(self.ours(), [("READ", 0, 14)])
        self.assert_granted(self.a, self.lock_of(self.a, 100, 10))
        self.assertEqual(self.ours(), [("READ", 0, 14), ("WRITE", 100, 109)])
        self.release(self.lock_of(self.a, 0, 50))
        self.assertEqual(self.ours(), [("READ", 5, 14), ("WRITE", 100, 109)])
        self.assert_granted(self.a, self.lock_of(self.a, 104, 2, exclusive=False))
        self.assertEqual(self.ours(), [("READ", 104, 105), ("READ", 5, 14), ("WRITE", 100, 103), ("WRITE", 106, 109)])
        self.a.free_all()
        self.assertEqual(self.ours(), [("READ", 5, 14)])
        self.b.free_all()
        self.assertEqual(self.ours(), [])

    def test_upgrade_and_downgrade(self):
        self.assert_granted(self.a, self.lock_of(self.a, exclusive=False))
        self.assertTrue(self.local.lock(5, 1, mode="shared"))
        self.assert_denied(self.a, self.lock_of(self.a))
        self.assertEqual(self.ours(), [("READ", 0, None)], "as before")
        self.local.unlock()
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assertFalse(self.local.lock(5, 1, mode="shared"))
        self.assert_granted(self.a, self.lock_of(self.a, exclusive=False))
        self.assertTrue(self.local.lock(5, 1, mode="shared"))

    def test_a_part_that_is_refused_leaves_nothing_behind(self):
        """A shared lock over several gaps, of which the last is taken."""
        self.assert_granted(self.b, self.lock_of(self.b, 10, 10, exclusive=False))
        self.assertTrue(self.local.lock(50, 10))
        self.assert_denied(self.a, self.lock_of(self.a, 0, 100, exclusive=False))
        self.assertEqual(self.ours(), [("READ", 10, 19)])

    @each()
    def test_test_shows_the_local_holder(self, how):
        self.fh = self.handle_of(self.path)
        self.assertTrue(self.local.lock(10, 10))
        holder = self.a.test(self.lock_of(self.a), **how).holder
        self.assertEqual((holder.svid, holder.offset, holder.length, holder.exclusive), (self.local.pid, 10, 10, True))
        self.assertEqual(self.a.test(self.lock_of(self.a, 20, 5), **how).stat, nlm.S_GRANTED)
        self.local.unlock()
        self.assertEqual(self.a.test(self.lock_of(self.a), **how).stat, nlm.S_GRANTED)

    def test_another_client_is_shown_before_a_local_process(self):
        self.assert_granted(self.b, self.lock_of(self.b, 0, 10, svid=77))
        self.assertTrue(self.local.lock(10, 10))
        self.assertEqual(self.a.test(self.lock_of(self.a)).holder.svid, 77)

    def test_nm_lock(self):
        lock = self.lock_of(self.a)
        self.assertEqual(self.a.ask(nlm.NM_LOCK, lock).stat, nlm.S_GRANTED)
        self.assertFalse(self.local.lock())
        self.release(lock)
        self.assertTrue(self.local.lock())
        self.assertEqual(self.a.ask(nlm.NM_LOCK, lock).stat, nlm.S_DENIED)

    def test_a_file_that_was_removed(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        os.unlink(self.path)
        self.assertFalse(self.local.lock())
        self.release(lock)
        self.assertTrue(self.local.lock())

    def test_a_read_only_handle_of_the_kernel_is_enough_for_shared(self):
        os.chmod(self.path, 0o444)
        self.assert_granted(self.a, self.lock_of(self.a, exclusive=False))
        self.assertFalse(self.local.lock())


class Waits(Local):
    settings = ("api.listen=127.0.0.1:0",)

    @each()
    def test_a_client_waits_for_a_local_process(self, how):
        self.fh = self.handle_of(self.path)
        self.assertTrue(self.local.lock())
        wanted = self.lock_of(self.a, 0, 10, block=True)
        self.assert_blocked(self.a, wanted, **how)
        self.local.unlock()
        self.a.wait_granted(wanted)
        self.assertFalse(self.local.lock(5, 1))
        self.release(wanted)
        self.a.grants.items.clear()

    def test_until_the_local_process_dies(self):
        self.assertTrue(self.local.lock())
        wanted = self.waits(self.a)
        self.local.kill()
        self.a.wait_granted(wanted)

    def test_after_a_long_while(self):
        """The gaps between tries have an upper bound, of 0.1 s: growing on, the next one would be as long as all before."""
        self.assertTrue(self.local.lock())
        wanted = self.waits(self.a)
        with self.assertRaises(AssertionError):
            self.a.grants.wait(timeout=2.6)
        self.local.unlock()
        began = time.monotonic()
        self.assertLess(self.a.wait_granted(wanted).call.when - began, 1.8)

    def test_waiters_are_served_in_order_and_a_newcomer_does_not_pass(self):
        self.assertTrue(self.local.lock(0, 10))
        first, second = self.waits(self.a, 0, 20), self.waits(self.b, 10, 20)
        self.assert_denied(self.c, self.lock_of(self.c, 15, 1))
        self.local.unlock()
        self.a.wait_granted(first)
        self.assertEqual(self.b.grants.items, [])
        self.release(first)
        self.b.wait_granted(second)

    def test_one_behind_another_client_and_a_local_process(self):
        held = self.hold(length=10)
        self.assertTrue(self.local.lock(10, 10))
        wanted = self.waits(self.b, 0, 20)
        self.release(held)
        self.assertEqual(self.b.grants.items, [])
        self.local.unlock()
        self.b.wait_granted(wanted)

    def test_cancelled(self):
        self.assertTrue(self.local.lock())
        wanted = self.waits(self.a)
        self.assertEqual(self.a.cancel(wanted), nlm.S_GRANTED)
        self.local.unlock()
        self.assertTrue(self.more_local().lock())
        self.assertEqual(self.a.grants.items, [])

    def test_a_dead_client_does_not_get_it(self):
        self.assertTrue(self.local.lock())
        self.waits(self.a)
        self.a.free_all()
        self.local.unlock()
        self.assertTrue(self.more_local().lock())

    def test_a_refused_grant_is_given_back(self):
        self.a.script = nlm.S_DENIED
        self.assertTrue(self.local.lock())
        wanted = self.waits(self.a)
        self.local.unlock()
        self.a.wait_granted(wanted)
        self.until(self.local.lock, "it is free for a local process")

    def test_a_local_process_sleeps_for_a_client(self):
        held = self.hold()
        self.local.wait()
        self.release(held)
        self.assertTrue(self.local.got())
        self.assert_denied(self.a, self.lock_of(self.a))

    def test_from_client_to_client_without_a_gap(self):
        """What one gives back the next one gets, though a local process sleeps for it."""
        held = self.hold()
        self.local.wait()
        wanted = self.waits(self.b)
        self.release(held)
        self.b.wait_granted(wanted)
        self.release(wanted, self.b)
        self.assertTrue(self.local.got())

    def test_an_operator_sees_who_is_in_the_way(self):
        self.assertTrue(self.local.lock())
        self.waits(self.a)
        waiters = self.rest.get("/api/v1/waiters").json["waiters"]
        self.assertEqual([row["blocked_by"] for row in waiters], [[f"local:{self.local.pid}"]])


class Crashes(Local):
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=60", "recovery.early_end=true")

    def test_a_client_that_crashed_lets_go(self):
        self.hold()
        self.assertFalse(self.local.lock())
        self.a.free_all()
        self.assertTrue(self.local.lock())

    def test_a_killed_daemon_takes_it_again(self):
        lock = self.hold(length=10)
        self.restart()
        self.assertIn("stored locks are taken in the kernel again locks=1 not_taken=0", self.daemon.log)
        self.assertFalse(self.local.lock(), "not reclaimed yet, but kept for its owner")
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertFalse(self.local.lock())
        self.await_granted(self.b, self.lock_of(self.b, 50, 1))  # grace has ended
        self.assertEqual(self.ours(), [("WRITE", 0, 9), ("WRITE", 50, 50)])
        self.release(lock)
        self.assertTrue(self.local.lock(0, 10))

    def test_what_is_not_reclaimed_is_let_go_of_with_grace(self):
        self.hold(length=10)
        self.daemon.settings.append("recovery.nlm_grace_seconds=3")
        self.addCleanup(self.daemon.settings.remove, "recovery.nlm_grace_seconds=3")
        self.restart()
        self.assertFalse(self.local.lock())
        self.until(self.local.lock, "grace ends")

    def test_a_local_process_that_was_faster_keeps_it(self):
        """While the server was dead the kernel gave the lock to the process. The client that held it must not believe that
        it still does."""
        lock = self.hold()
        other = self.make_file()
        self.daemon.crash()
        self.assertTrue(self.local.lock())
        self.restart()
        self.assertIn("a local process took a client's lock", self.daemon.log)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_DENIED)
        self.release(lock)
        self.await_granted(self.b, self.lock_of(self.b, fh=self.handle_of(other)))  # grace has ended

    def test_reclaimed_when_the_local_process_has_gone(self):
        lock = self.hold()
        self.daemon.crash()
        self.assertTrue(self.local.lock())
        self.restart()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_DENIED)
        self.local.unlock()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertFalse(self.local.lock())

    def test_killed_again_and_again(self):
        locks = [self.lock_of(self.a, 10 * i, 5, svid=i) for i in range(20)]
        for lock in locks:
            self.assert_granted(self.a, lock)
        for _ in range(3):
            self.restart()
            self.assertEqual(len(self.ours()), 20)
            for lock in locks[::2]:
                self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        for lock in locks[1::2]:
            self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertFalse(any(self.local.lock(10 * i, 5) for i in range(20)))
        self.assertTrue(all(self.local.lock(10 * i + 5, 5) for i in range(20)))


class ExportedAgain(Local):
    """The server starts without a directory, and a reload in grace exports it again: its locks are loaded only then."""

    folders = ("data", "other")
    other = "{{path: {base}/other, name: /other, squash: none}}"
    exports = (*Local.exports, other)
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=60", "recovery.early_end=true")

    def setUp(self):
        super().setUp()
        self.lock = self.hold(length=10)
        other = self.make_file("other")
        self.hold(fh=self.handle_of(other, "/other", "other"))  # grace lasts while this is not reclaimed
        self.write_config((self.other,))
        self.addCleanup(self.write_config, self.exports)
        self.restart()

    def test_its_locks_are_taken_in_the_kernel(self):
        self.assertEqual(self.ours(), [])
        self.load_again(self.exports)
        self.until(self.ours, "the kernel has it", passes=lambda ours: ours == [("WRITE", 0, 9)])
        self.assertFalse(self.local.lock(9, 1))
        self.assertEqual(self.a.lock(self.lock.but(reclaim=True)), nlm.S_GRANTED)
        self.release(self.lock)
        self.assertTrue(self.local.lock())

    def test_a_local_process_was_faster(self):
        self.assertTrue(self.local.lock(5, 1))
        self.load_again(self.exports)
        self.until(lambda: "took a client's lock while the directory was not exported" in self.daemon.log, "the log says so")
        self.assertEqual(self.a.lock(self.lock.but(reclaim=True)), nlm.S_DENIED)


class Many(Local):
    """Every call walks the kernel's list of locks: the server's part must stay short, however many there are."""

    N = 2000

    def test_many_locks_in_one_file(self):
        for i in range(self.N):
            self.assert_granted(self.a, self.lock_of(self.a, 10 * i, 5))
        self.assertLessEqual(len(self.ours()), 256)
        self.assertFalse(self.local.lock(10 * self.N - 10, 5))
        self.until(lambda: self.local.lock(10 * self.N, 0), "the file is not covered any more")
        for i in range(self.N - 100):
            self.release(self.lock_of(self.a, 10 * i, 5))
        self.assertEqual(len(self.ours()), 100, "few again: just what is held")
        self.assertTrue(self.local.lock(0, 10 * (self.N - 100)))
        self.release(self.lock_of(self.a))
        self.assertEqual(self.ours(), [])

    def test_many_locks_around_a_local_one(self):
        """The server takes what is on both sides of it. No owner gets bytes that another one holds."""
        self.assertTrue(self.local.lock(10 * self.N // 2 + 7, 1))
        for i in range(self.N):
            self.assert_granted(self.a, self.lock_of(self.a, 10 * i, 5))
        self.assertLessEqual(len(self.ours()), 256)
        self.assert_denied(self.a, self.lock_of(self.a, 10 * self.N // 2 + 7, 1))
        self.assertFalse(self.more_local().lock(10, 1))
        self.local.unlock()
        self.assert_granted(self.a, self.lock_of(self.a, 10 * self.N // 2 + 7, 1))
        self.release(self.lock_of(self.a))
        self.assertEqual(self.ours(), [])


class Off(Local):
    exports = ("{{path: {base}/data, name: /data, squash: none, local_locks: off}}",)

    def test_clients_and_local_processes_do_not_see_each_other(self):
        self.assertTrue(self.local.lock())
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assertEqual(self.ours(), [])
        self.assertEqual(self.b.test(self.lock_of(self.b)).holder.svid, 1)

    def test_a_waiter_of_before_gets_its_lock_after_a_reload_to_on(self):
        """Without a call that would open the file."""
        held, wanted = self.hold(), self.waits(self.b)
        self.reload(ON)
        self.release(held)
        self.b.wait_granted(wanted)
        self.assertEqual(self.ours(), [("WRITE", 0, None)])
        self.assertNotIn("a lock could not be taken in the kernel", self.daemon.log)

    def test_a_waiter_of_before_waits_for_local_processes_after_a_reload_to_on(self):
        held, wanted = self.hold(), self.waits(self.b)
        self.assertTrue(self.local.lock())
        self.reload(ON)
        self.release(held)
        self.until(lambda: self.is_open(self.path), "the server opens it for the waiter")
        self.assertEqual(self.b.lock(wanted.but(cookie=b"poll")), nlm.S_BLOCKED)
        self.assertEqual(self.b.grants.items, [])
        self.local.unlock()
        self.b.wait_granted(wanted)
        self.assertEqual(self.ours(), [("WRITE", 0, None)])

    def is_open(self, path):
        """By the daemon, for more than its handle."""
        folder = f"/proc/{self.daemon.process.pid}/fdinfo"
        inode = os.stat(path).st_ino
        for fd in os.listdir(folder):
            try:
                with open(f"{folder}/{fd}", encoding="ascii") as info:
                    fields = dict(line.split(":", 1) for line in info.read().splitlines() if ":" in line)
            except OSError:
                continue  # closed meanwhile
            if int(fields["ino"]) == inode and not int(fields["flags"], 8) & os.O_PATH:
                return True
        return False


class Limited(Local):
    """Each locked file is an open one. With 256 descriptors there can be 64 of them."""

    exports = (
        "{{path: {base}/data, name: /data, squash: none, local_locks: on}}",
        "{{path: {base}/auto, name: /auto, squash: none}}",
    )
    folders = ("data", "auto")
    soft, hard = 256, 256

    @classmethod
    def setUpClass(cls):
        program = cls.program
        cls.addClassCleanup(setattr, cls, "program", program)
        with tempfile.NamedTemporaryFile("w", prefix="hf-net-", suffix=".sh", delete=False) as script:
            script.write(f'#!/bin/sh\nulimit -Sn {cls.soft} && ulimit -Hn {cls.hard} && exec {program} "$@"\n')
            os.fchmod(script.fileno(), 0o755)
        cls.addClassCleanup(os.unlink, script.name)
        cls.program = script.name
        super().setUpClass()


class FewDescriptors(Limited):
    settings = ("api.listen=127.0.0.1:0",)

    def lock_files(self, n, share="/data"):
        paths = [self.make_file(share[1:]) for _ in range(n)]
        return [self.a.lock(self.lock_of(self.a, fh=self.handle_of(path, share, share[1:]))) for path in paths]

    def test_no_more_than_there_are(self):
        stats = self.lock_files(80)
        self.assertEqual(stats.count(nlm.S_GRANTED), 64)
        self.assertEqual(stats.count(nlm.S_NOLOCKS), 16)
        limit = {l["name"]: l for l in self.rest.get("/api/v1/limits").json["limits"]}
        self.assertEqual([limit["local_files"][key] for key in ("used", "max", "refused")], [64, 64, 16])
        self.assertEqual([limit["name_lookups"][key] for key in ("used", "max", "refused")], [0, 256, 0])
        self.assertNotIn("group_lookups", limit, "they are not looked up here")
        self.a.free_all()
        self.assertEqual(set(self.lock_files(64)), {nlm.S_GRANTED}, "files without a lock are closed first")

    def test_auto_goes_on_without(self):
        self.assertEqual(set(self.lock_files(80, "/auto")), {nlm.S_GRANTED})
        self.assertIn("a lock could not be taken in the kernel", self.daemon.log)


class AllDescriptors(FewDescriptors):
    """The daemon raises its limit of descriptors to the hard limit before it computes how many files it may open."""

    hard = 4096

    def test_no_more_than_there_are(self):
        self.assertEqual(set(self.lock_files(80)), {nlm.S_GRANTED})

    def test_auto_goes_on_without(self):
        self.assertEqual(set(self.lock_files(80, "/auto")), {nlm.S_GRANTED})
        self.assertNotIn("a lock could not be taken in the kernel", self.daemon.log, "it need not")


class DescriptorsAgain(Limited):
    def fill(self):
        """Locks in as many files as may be open. How to unlock them."""
        locks = [self.lock_of(self.c, fh=self.handle_of(self.make_file())) for _ in range(64)]
        for lock in locks:
            self.assert_granted(self.c, lock)
        return lambda: [self.release(lock, self.c) for lock in locks]

    def in_auto(self):
        self.path = self.make_file("auto")
        self.fh = self.handle_of(self.path, "/auto", "auto")

    def test_a_waiter_of_auto_gets_its_lock_after_a_reload_to_on(self):
        """The holder's lock is not in the kernel. The file is opened when a descriptor is free again."""
        empty = self.fill()
        self.in_auto()
        held, wanted = self.hold(), self.waits(self.b)
        self.reload((self.exports[0], AUTO_ON))
        self.release(held)
        self.assertEqual(self.b.grants.items, [])
        empty()
        self.b.wait_granted(wanted)
        self.assertEqual(self.ours(), [("WRITE", 0, None)])

    def test_a_file_that_could_not_be_opened_is_tried_again(self):
        """Also while a lock that is not in the kernel keeps what is known of it."""
        empty = self.fill()
        self.in_auto()
        self.hold(length=10)
        self.assertEqual(self.ours(), [])
        empty()
        self.reload((self.exports[0], AUTO_ON))
        other = self.lock_of(self.b, 10, 10)
        self.until(lambda: self.b.lock(other.but(cookie=os.urandom(4))) == nlm.S_GRANTED, "it is opened again")
        self.assertEqual(self.ours(), [("WRITE", 10, 19)])


class TwoExports(Local):
    """One file by two ways is one holder for the kernel."""

    exports = (
        "{{path: {base}/data, name: /data, squash: none, local_locks: on}}",
        "{{path: {base}/data, name: /again, squash: none, local_locks: on}}",
    )

    def test_one_union(self):
        again = self.handle_of(self.path, "/again")
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10, exclusive=False))
        self.assert_granted(self.b, self.lock_of(self.b, 5, 10, fh=again, exclusive=False))
        self.assertEqual(self.ours(), [("READ", 0, 14)])
        self.release(self.lock_of(self.a))
        self.assertEqual(self.ours(), [("READ", 5, 14)])


if __name__ == "__main__":
    main()
