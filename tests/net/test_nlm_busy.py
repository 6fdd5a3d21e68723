#!/usr/bin/env python3
"""local_locks in a busy file: the server takes the whole file for a moment. No local process gets what a client has, and
none is kept away from what no client has."""

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from local import LocalProcess, held_in_kernel
from play import main

COVER = ("OFDLCK", "WRITE", 0, None)
FIRST, N_RANGES, STEP = 100000, 120, 100  # where clients lock and unlock all the time


class Flood(threading.Thread):
    """A client that locks and unlocks many ranges, until it is stopped."""

    def __init__(self, host, fh, **how):
        super().__init__(daemon=True)
        locks = [host.lock_of(fh, FIRST + STEP * i, 10, svid=1000 + i, **how) for i in range(N_RANGES)]
        self.calls = [(procedure, lock) for lock in locks for procedure in (nlm.LOCK, nlm.UNLOCK)]
        self.host, self.is_over, self.n_wrong = host, threading.Event(), 0

    def once(self):
        self.n_wrong += sum(stat != nlm.S_GRANTED for stat in self.host.ask_together(self.calls))

    def run(self):
        while not self.is_over.is_set():
            self.once()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()


class Busy(Exported):
    exports = ("{{path: {base}/data, name: /data, squash: none}}",)  # local_locks: auto is on here

    def setUp(self):
        super().setUp()
        self.local = LocalProcess(self.path)
        self.addCleanup(self.local.close)
        self.mine = self.hold(length=10)

    def await_cover(self):
        self.until(lambda: COVER in held_in_kernel(self.path), "the server has the whole file", pause=0)

    def test_covered_while_it_is_busy_and_exact_afterwards(self):
        with Flood(self.b, self.fh) as flood:
            self.await_cover()
        self.assertEqual(flood.n_wrong, 0)
        self.until(lambda: held_in_kernel(self.path) == [("OFDLCK", "WRITE", 0, 9)], "only the lock is left")
        self.assertTrue(self.local.lock(10))
        self.assertFalse(self.local.lock(0, 10))

    def test_a_local_process_never_gets_what_a_client_has(self):
        with Flood(self.b, self.fh):
            self.await_cover()
            for _ in range(300):
                self.assertFalse(self.local.lock(5, 1, mode="shared"))

    def test_a_local_process_that_polls_gets_what_no_client_has(self):
        with Flood(self.b, self.fh):
            self.await_cover()
            for start in range(20, 40):
                self.until(lambda at=start: self.local.lock(at, 1), "a free byte can be locked", pause=0.002)

    def test_a_local_process_that_sleeps_gets_what_no_client_has(self):
        with Flood(self.b, self.fh):
            for start in range(20, 24):
                self.await_cover()
                self.local.wait(start, 1)
                self.assertTrue(self.local.got())
                self.local.unlock(start, 1)

    def test_clients_that_read_keep_no_reader_away(self):
        """A client that may only read a file takes shared locks. Many of them must not be a way to lock the file exclusively."""
        flood = Flood(self.b, self.fh, exclusive=False)
        with flood:
            for _ in range(300):
                self.assertNotIn(COVER, held_in_kernel(self.path))
            self.assertTrue(self.local.lock(20, mode="shared"))
        self.assertEqual(flood.n_wrong, 0)

    def test_a_lock_of_a_local_process_ends_the_cover(self):
        with Flood(self.b, self.fh):
            self.await_cover()
            self.until(lambda: self.local.lock(50, 10), "it has a free range", pause=0.002)
            for _ in range(100):
                self.assertNotIn(COVER, held_in_kernel(self.path))
                self.assert_denied(self.a, self.lock_of(self.a, 55, 1))
            self.local.unlock()
            self.assert_granted(self.a, self.lock_of(self.a, 55, 1))
            self.release(self.lock_of(self.a, 55, 1))
            self.await_cover()

    def test_a_waiter_gets_it_when_the_local_process_unlocks(self):
        self.assertTrue(self.local.lock(50, 10))
        waiting = self.waits(self.a, 55, 1)
        with Flood(self.b, self.fh):
            self.local.unlock()
            self.a.wait_granted(waiting)
            self.assertFalse(self.local.lock(55, 1))
            self.release(waiting)

    def test_a_file_that_is_not_busy_is_free_at_once(self):
        for i in range(200):
            lock = self.lock_of(self.a, 100 + i, 1)
            self.assert_granted(self.a, lock)
            self.release(lock)
            self.assertTrue(self.local.lock(100 + i, 1))
            self.local.unlock()

    def test_a_removed_file(self):
        with Flood(self.b, self.fh):
            self.await_cover()
            os.unlink(self.path)
        self.release(self.mine)
        self.until(self.local.lock, "it is free again")


if __name__ == "__main__":
    main()
