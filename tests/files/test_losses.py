#!/usr/bin/env python3
"""A disk that loses what it was given. The kernel reports the loss to one descriptor only. The verifier of writes changes
for all clients, so that each sends its data again."""

import os
import threading

import failing
import nfs
import server
from until import until


class Losses(failing.Audited):
    exports = {"data": "/data,squash=none", "async": "/async,squash=none,async"}

    def lose(self, fh):
        self.begin("fsync")
        self.refused(nfs.IO, self.nfs.setattr(fh, mode=0o600))
        self.end("fsync")

    def test_nothing_is_lost(self):
        f = self.made("f")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        self.ok(self.nfs.setattr(f, mode=0o600))
        self.assertEqual(self.ok(self.nfs.commit(f)).verifier, written.verifier)

    def test_commit_hears_of_it(self):
        f = self.made("f")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        self.begin("fsync")
        self.refused(nfs.IO, self.nfs.commit(f))
        self.end("fsync")
        self.assertNotEqual(self.ok(self.nfs.commit(f)).verifier, written.verifier)

    def test_another_call_hears_of_it(self):
        """The kernel's word of the lost data went to SETATTR; the next fsync finds nothing wrong."""
        f = self.made("f")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        self.lose(f)
        self.assertNotEqual(self.ok(self.nfs.commit(f)).verifier, written.verifier)

    def test_an_idle_file_is_not_closed_unsynced(self):
        """Once it is closed, the kernel may forget that it lost the data."""
        f = self.made("f")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        self.begin_nth(1)
        until(lambda: os.path.getsize(os.path.join(self.failing, "nth")) > 4, "the idle file is synced")
        self.end_nth()
        self.assertNotEqual(self.ok(self.nfs.commit(f)).verifier, written.verifier)

    def test_closing_an_idle_file_hears_of_it(self):
        f = self.made("hung")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        self.begin("flush")
        until(lambda: self.has("flushed"), "the idle file is closed")
        self.end("flush")
        until(lambda: self.ok(self.nfs.commit(f)).verifier, "the loss is known", passes=lambda now: now != written.verifier)

    def test_lost_before_the_answer(self):
        """Data that was lost between its writing and the answer must not have the verifier of what came after."""
        f, other = self.made("f"), self.made("other")
        answers = []
        self.begin("write")
        client = self.client()
        writer = threading.Thread(target=lambda: answers.append(client.write(f, b"data", stable=nfs.UNSTABLE)))
        writer.start()
        try:
            until(lambda: self.has("written"), "the data is written")
            self.lose(other)
        finally:
            self.end("write")
            writer.join()
        self.assertNotEqual(self.ok(self.nfs.commit(f)).verifier, self.ok(answers[0]).verifier)

    def test_a_full_disk_has_lost_nothing(self):
        """A client that is out of space or of its quota tries again and again. It must not keep others from committing."""
        f = self.made("f")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        other = self.made("other")
        self.begin("full")
        self.refused(nfs.NOSPC, self.nfs.write(other, b"data"))
        self.end("full")
        self.assertEqual(self.ok(self.nfs.commit(f)).verifier, written.verifier)

    def test_a_disk_that_became_full_may_have_lost_something(self):
        """What it had no room for may be what it took before: then the next sync says so, too."""
        f = self.made("f")
        written = self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        other = self.made("other")
        self.begin("full")
        self.begin("fsync")
        self.refused(nfs.NOSPC, self.nfs.write(other, b"data"))
        self.end("fsync")
        self.end("full")
        self.assertNotEqual(self.ok(self.nfs.commit(f)).verifier, written.verifier)

    def test_an_export_that_does_not_sync(self):
        """Names and attributes are answered before they are on the disk; stable data waits for it all the same."""
        d = self.nfs.root("/async")
        self.begin("fsync")
        f = self.ok(self.nfs.create(d, "f", mode=0o644)).fh
        self.ok(self.nfs.setattr(f, mode=0o600))
        sub = self.ok(self.nfs.mkdir(d, "sub", mode=0o755)).fh
        self.ok(self.nfs.link(f, d, "g"))
        self.ok(self.nfs.rename(d, "g", sub, "h"))
        self.ok(self.nfs.remove(sub, "h"))
        self.ok(self.nfs.rmdir(d, "sub"))
        self.ok(self.nfs.write(f, b"data", stable=nfs.UNSTABLE))
        self.refused(nfs.IO, self.nfs.commit(f))

    def audited(self):
        """What the audit log says of the names that this test made: its directory is among them."""
        mine = [line for line in self.audit_lines() if line.get("path", "").startswith(self.local)]
        return [(line["op"], line.get("name"), line["result"]) for line in mine]

    def test_a_change_whose_sync_failed_is_audited(self):
        """The name is there, or gone, though the client is told of an error. A change of times alone is not written, as ever."""
        f = self.made("f")
        self.begin("fsync")
        self.refused(nfs.IO, self.nfs.create(self.dir, "g", mode=0o644))
        self.assertTrue(os.path.exists(self.path("g")))
        self.refused(nfs.IO, self.nfs.setattr(f, mtime=(1, 0)))
        self.refused(nfs.IO, self.nfs.setattr(f, mode=0o600))
        self.refused(nfs.IO, self.nfs.commit(f))
        self.refused(nfs.NOENT, self.nfs.remove(self.dir, "none"))
        self.refused(nfs.IO, self.nfs.remove(self.dir, "f"))
        self.assertFalse(os.path.exists(self.path("f")))
        self.end("fsync")
        until(self.audited, "it is written", passes=lambda seen: seen and seen[-1] == ("remove", "f", "IO"))
        expected = [("create", "f", "OK"), ("create", "g", "IO"), ("setattr", None, "IO"), ("remove", "f", "IO")]
        self.assertEqual(self.audited(), expected)

    # Several syncs for one answer

    def begin_nth(self, n):
        with open(os.path.join(self.failing, "nth"), "w", encoding="ascii") as out:
            out.write(f"{n:04}")
        self.addCleanup(self.end, "nth")

    def end_nth(self):
        """How many syncs there were."""
        n = os.path.getsize(os.path.join(self.failing, "nth")) - 4
        self.end("nth")
        return n

    def each_sync_counts(self, act, at_least=1):
        """@act is given a name that is new, and makes a call. Whichever of its syncs fails, the client hears of it."""
        self.begin_nth(9999)
        self.ok(act(b"all"))
        n_syncs = self.end_nth()
        self.assertGreaterEqual(n_syncs, at_least)
        for n in range(1, n_syncs + 1):
            self.begin_nth(n)
            answer = act(b"nth%d" % n)
            self.end_nth()
            self.assertEqual(answer.stat, nfs.IO, f"the sync number {n} of {n_syncs} has failed")

    def test_each_sync_of_a_rename(self):
        """Both directories: where one is not safe, after a crash the file may be in neither of them."""
        there, back = (self.ok(self.nfs.mkdir(self.dir, name)).fh for name in (b"there", b"back"))
        for source, target in ((there, back), (back, there)):  # they are not always synced in the same order
            names = {name: b"%d-%s" % (source is back, name) for name in (b"all", b"nth1", b"nth2")}
            for name in names.values():
                self.ok(self.nfs.create(source, name))
            self.each_sync_counts(
                lambda name, names=names, source=source, target=target: self.nfs.rename(
                    source, names[name], target, names[name]
                ),
                at_least=2,
            )

    def test_each_sync_of_what_is_made(self):
        """With an attribute that is set afterwards, so that the file is synced by itself everywhere."""
        when = {"mtime": (1000, 0)}
        for kind, make in {
            b"create": lambda name: self.nfs.create(self.dir, name, **when),
            b"mkdir": lambda name: self.nfs.mkdir(self.dir, name, **when),
            b"symlink": lambda name: self.nfs.symlink(self.dir, name, b"target", **when),
            b"mknod": lambda name: self.nfs.mknod(self.dir, name, nfs.FIFO, **when),
        }.items():
            with self.subTest(kind):
                self.each_sync_counts(lambda name, kind=kind, make=make: make(kind + name), at_least=2)

    def test_each_sync_of_what_is_changed(self):
        f = self.made("f")
        for name in (b"all", b"nth1", b"nth2"):
            self.made(b"removed" + name)
            self.ok(self.nfs.mkdir(self.dir, b"rmdir" + name))
        for kind, change in {
            "link": lambda name: self.nfs.link(f, self.dir, b"link" + name),
            "remove": lambda name: self.nfs.remove(self.dir, b"removed" + name),
            "rmdir": lambda name: self.nfs.rmdir(self.dir, b"rmdir" + name),
            "setattr": lambda name: self.nfs.setattr(f, mode=0o640),
        }.items():
            with self.subTest(kind):
                self.each_sync_counts(change)

    def test_half_of_a_change_is_synced(self):
        """A later step fails. What was made before waits for the disk, as each change does."""
        f, user = self.made("f"), self.client(uid=1234, gid=567)
        self.ok(self.nfs.setattr(f, mode=0o666))
        for kind, stat, change in (
            ("create", nfs.FBIG, lambda name: self.nfs.create(self.dir, name, size=1 << 63)),
            ("setattr", nfs.PERM, lambda name: user.setattr(f, size=0, atime=(1, 0))),
        ):
            with self.subTest(kind):
                self.refused(stat, change(b"synced"))
                self.begin_nth(1)
                self.refused(nfs.IO, change(b"unsynced"))
                self.end_nth()

    def test_the_log_says_so(self):
        f = self.made("f")
        self.lose(f)
        self.lose(f)
        self.assertEqual(self.server.log.count("may have lost written data"), 1)
        self.assertIn("error=EIO", self.server.log)


if __name__ == "__main__":
    server.main()
