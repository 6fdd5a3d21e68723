#!/usr/bin/env python3
"""One file is one for the lock manager, by whichever export, name or link it was reached."""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from play import main

NAMES = {"/data": "data", "/again": "data", "/inner": "data/inner", "/beside": "beside"}


class Aliases(Exported):
    """/data and /again are one directory, /inner is within it, /beside is another one of the same file system."""

    folders = ("data", "data/inner", "beside")
    # What is within comes first: the lock manager's own name for a file is then often not that of its client.
    exports = tuple(
        f"{{{{path: {{base}}/{path}, name: {name}, squash: none, local_locks: off}}}}"
        for name, path in sorted(NAMES.items(), reverse=True)
    )
    settings = (
        "store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=3600", "api.listen=127.0.0.1:0"
    )  # fmt: skip

    def setUp(self):
        super().setUp()
        self.path = self.make_file("data/inner")
        self.handles = {
            name: self.handle_of(self.path, name, folder) for name, folder in NAMES.items() if name != "/beside"
        }
        self.fh = self.handles["/data"]

    def through(self, name, host, *range_, **more):
        return self.lock_of(host, *range_, fh=self.handles[name], **more)

    def test_the_handles_are_different(self):
        self.assertEqual(len(set(self.handles.values())), 3)

    def test_a_lock_through_one_is_in_the_way_of_all(self):
        for name in self.handles:
            with self.subTest(held=name):
                lock = self.through(name, self.a)
                self.assert_granted(self.a, lock)
                for other in self.handles:
                    self.assert_denied(self.b, self.through(other, self.b))
                    self.assertEqual(self.b.test(self.through(other, self.b)).holder.svid, lock.svid)
                self.release(lock)

    def test_an_owner_is_one_and_unlocks_through_any(self):
        self.assert_granted(self.a, self.through("/data", self.a, 0, 10))
        self.assert_granted(self.a, self.through("/again", self.a, 5, 10))
        self.release(self.through("/inner", self.a, 0, 0))
        self.assert_granted(self.b, self.through("/again", self.b))

    def test_granted_names_the_handle_that_was_asked_with(self):
        for name in self.handles:
            for held in self.handles:
                with self.subTest(held=held, waits=name):
                    lock = self.through(held, self.a)
                    self.assert_granted(self.a, lock)
                    wanted = self.waits(self.b, fh=self.handles[name])
                    self.release(lock)
                    self.b.wait_granted(wanted)
                    self.release(wanted, self.b)
                    self.b.grants.items.clear()

    def test_one_owner_waits_through_two(self):
        """What it holds came by one export, what it waits for by another: each GRANTED fits its LOCK."""
        self.assert_granted(self.b, self.through("/data", self.b, 0, 10))
        held = self.through("/inner", self.a, 100, 0)
        self.assert_granted(self.a, held)
        first = self.waits(self.b, 100, 10, fh=self.handles["/again"])
        second = self.waits(self.b, 200, 10, fh=self.handles["/inner"])
        self.release(held)
        self.b.wait_granted(first)
        self.b.wait_granted(second)

    def test_cancel_through_another(self):
        self.assert_granted(self.a, self.through("/data", self.a))
        self.waits(self.b, fh=self.handles["/data"])
        self.assertEqual(self.b.cancel(self.through("/inner", self.b, block=True)), nlm.S_GRANTED)
        self.release(self.through("/again", self.a))
        self.assert_granted(self.c, self.through("/data", self.c))

    def test_a_hard_link_from_another_export(self):
        beside = os.path.join(self.base, "beside", os.path.basename(self.path))
        os.link(self.path, beside)
        self.assert_granted(self.a, self.through("/data", self.a))
        self.assert_denied(self.b, self.lock_of(self.b, fh=self.handle_of(beside, "/beside", "beside")))

    def test_files_stay_apart(self):
        other = self.make_file("beside")
        self.assert_granted(self.a, self.through("/data", self.a))
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.handle_of(other, "/beside", "beside")))

    def test_shares_are_of_the_file(self):
        deny_all = self.through("/data", self.a, access=3, deny=3)
        self.assertEqual(self.a.share(deny_all), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.through("/inner", self.b, access=3)), nlm.S_DENIED)
        self.assertEqual(self.a.unshare(deny_all.but(fh=self.handles["/again"])), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.through("/inner", self.b, access=3)), nlm.S_GRANTED)

    def test_an_operator_sees_the_export_that_was_used(self):
        for name, fh in self.handles.items():
            lock = self.through(name, self.a)
            self.assert_granted(self.a, lock)
            locks = self.rest.get("/api/v1/locks").json["locks"]
            self.assertEqual([(row["share"], row["handle"], row["file"]) for row in locks], [(name, fh.hex(), self.path)])
            self.release(lock)

    def test_an_export_that_is_taken_away(self):
        """A reload takes it away. A client that uses a handle of it gets no new lock, and can give back those it has."""
        for gone in self.handles:
            with self.subTest(gone=gone):
                held = self.through(gone, self.a, 0, 10)
                waiting = self.through(gone, self.b, 0, 10, block=True, svid=9)
                self.assert_granted(self.a, held)
                self.assert_blocked(self.b, waiting)
                try:
                    self.reload([line for line in self.exports if f"name: {gone}," not in line])
                    self.until(
                        lambda: self.c.lock(self.through(gone, self.c, 20, 5)), "its handles are stale",
                        passes=lambda stat: stat == nlm.S_STALE_FH,
                    )  # fmt: skip
                    rest = next(name for name in self.handles if name != gone)
                    self.assert_denied(self.c, self.through(rest, self.c, 0, 10))
                    self.assertEqual(self.b.cancel(waiting), nlm.S_GRANTED)
                    self.release(held)
                    self.assert_granted(self.c, self.through(rest, self.c, 0, 10))
                    self.release(self.through(rest, self.c, 0, 10), self.c)
                    self.assertEqual(self.rest.get("/api/v1/waiters").json["waiters"], [])
                finally:
                    self.reload(self.exports)

    def bar(self, host, name):
        """A reload takes @host off one of the exports."""
        others = ", ".join([h.address for h in self.hosts if h is not host] + ["127.0.0.0/8"])
        self.reload([line.replace("squash", f"rules: [{{{{clients: [{others}]}}}}], squash") if f"name: {name}," in line else line
                     for line in self.exports])  # fmt: skip

    def test_a_reload_judges_a_waiter_by_the_export_of_its_own_call(self):
        """b has a lock by one export, and waits by another. It may use one of them only."""
        for barred, is_granted in (("/data", True), ("/again", False)):
            with self.subTest(barred=barred):
                held = self.through("/inner", self.a, 10, 10)
                self.assert_granted(self.a, held)
                self.assert_granted(self.b, self.through("/data", self.b, 0, 10))
                wanted = self.waits(self.b, 10, 10, fh=self.handles["/again"])
                try:
                    self.bar(self.b, barred)
                    self.until(lambda: len(self.rest.get("/api/v1/waiters").json["waiters"]) == is_granted, "it is judged")
                    self.release(held)
                    if is_granted:
                        self.b.wait_granted(wanted)
                    else:
                        self.assert_granted(self.c, self.through("/inner", self.c, 10, 10))
                finally:
                    self.reload(self.exports)
                for host in (self.b, self.c):
                    self.release(self.through("/inner", host), host)
                self.b.grants.items.clear()

    def reload(self, exports):
        before = self.daemon.log.count("configuration loaded again")
        self.write_config(exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.daemon.log.count("configuration loaded again") > before, "it has reloaded")

    def test_after_a_restart(self):
        """What is stored came by one export and is reclaimed by another, or in the way of another; also when the
        list of exports is another one by then."""
        self.assert_granted(self.a, self.through("/again", self.a))
        try:
            self.write_config([line for line in self.exports if "name: /inner" not in line])
            self.restart()
            self.assertEqual(
                self.b.lock(self.through("/data", self.b, reclaim=True)), nlm.S_GRACE, "B never held it")
            self.assert_granted(self.a, self.through("/data", self.a, reclaim=True))
            self.await_granted(self.c, self.through("/data", self.c).but(fh=self.handle_of(
                self.make_file("beside"), "/beside", "beside")))  # grace is over: all is reclaimed
            self.assert_denied(self.b, self.through("/again", self.b))
            self.release(self.through("/data", self.a))
            self.assert_granted(self.b, self.through("/again", self.b))
        finally:
            self.write_config(self.exports)
            self.restart()


class GoesOn(Exported):
    """The same directory as /data and /again, in a server that goes on after a crash."""

    settings = ("store.backend=lmdb", "recovery.after_crash=continue")
    exports = tuple(f"{{{{path: {{base}}/data, name: {name}, squash: none, local_locks: off}}}}" for name in ("/data", "/again"))

    def test_granted_names_the_handle_that_was_asked_with(self):
        again = self.handle_of(self.path, "/again")
        held = self.lock_of(self.a, 10, 10)
        self.assert_granted(self.a, held)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 10))
        wanted = self.waits(self.b, 10, 10, fh=again)
        self.restart()
        self.assertIn("stored waiters wait again", self.daemon.log)
        self.release(held)
        self.b.wait_granted(wanted)


if __name__ == "__main__":
    main()
