#!/usr/bin/env python3
"""READDIRPLUS tells the truth at once, though it keeps what it has told: any process may change a file, in any way.

HF_SEED and HF_PAGES_STEPS change the random part.
"""

import mmap
import os
import random
import unittest

import nfs
import server
from until import until

STEPS = int(os.environ.get("HF_PAGES_STEPS", "400"))
SEED = int(os.environ.get("HF_SEED", "1"))
SETTLED_MS = 25  # nothing is kept of a directory that has just changed


class Pages(server.Case):
    def listed(self, client=None, fh=None):
        answer = self.ok((client or self.nfs).readdirplus(fh or self.dir, 0, 0, 8192, 32768))
        self.assertTrue(answer.eof)
        return {entry.name.decode(): entry for entry in answer.entries if entry.name not in (b".", b"..")}

    def settle(self, path=None):
        """Waits until the directory's last change is so old that a listing is kept; then it is, twice over."""
        server.until_unchanged_for(path or self.local, SETTLED_MS)
        self.listed()
        return self.listed()

    def assert_true_now(self, fh=None):
        """What is listed is what the kernel says."""
        listed = self.listed(fh=fh)
        found = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(self.local)}
        self.assertEqual(set(listed), set(found))
        for name, st in found.items():
            attr = listed[name].attr
            self.assertEqual(
                (attr.fileid, attr.size, attr.mode, attr.nlink, attr.uid, attr.mtime, attr.ctime),
                (st.st_ino, st.st_size, st.st_mode & 0o7777, st.st_nlink, st.st_uid,
                 divmod(st.st_mtime_ns, 10**9), divmod(st.st_ctime_ns, 10**9)), name)  # fmt: skip
            self.assertEqual(listed[name].fh, self.nfs.lookup(self.dir, name.encode()).fh, name)

    def setUp(self):
        super().setUp()
        for i in range(10):
            self.write_local(f"f{i}", b"x" * i)
        os.mkdir(self.path("d"))
        os.symlink("f1", self.path("l"))
        self.write_local("linked")
        os.mkdir(self.server.path("data", "beside-" + os.path.basename(self.local)))
        self.beside = self.server.path("data", "beside-" + os.path.basename(self.local))
        os.link(self.path("linked"), os.path.join(self.beside, "other"))
        self.settle()

    def test_nothing_has_changed(self):
        for _ in range(3):
            self.assert_true_now()

    def cpu_ticks(self):
        with open(f"/proc/{self.server.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def ticks_of(self, n, before_each=lambda: None):
        """The server's processor time for @n times the same call."""
        args = nfs.Out().opaque(self.dir).u64(0).u64(0).u32(32768).u32(32768).bytes()
        before = self.cpu_ticks()
        for _ in range(n):
            before_each()
            self.nfs.call(nfs.NFS, 3, nfs.READDIRPLUS, args)
        return self.cpu_ticks() - before

    @unittest.skipIf(os.environ.get("HF_TEST_DISK") == "overlay", "nothing is kept where the kernel gives no handles")
    def test_what_is_kept_costs_less(self):
        for i in range(200):
            self.write_local(f"name-{i}")
        os.rmdir(self.path("d"))  # what changes without a word is asked for each time
        os.unlink(self.path("linked"))
        server.until_unchanged_for(self.local, SETTLED_MS)
        kept = self.ticks_of(500)
        anew = self.ticks_of(500, lambda: os.utime(self.path("f1")))
        self.assertLess(3 * kept, anew, "as much as if nothing were kept")

    def test_a_local_process_writes(self):
        with open(self.path("f3"), "ab") as out:
            out.write(b"more")
            out.flush()
            self.assertEqual(self.listed()["f3"].attr.size, 7)
            self.listed()
            out.write(b"and more")
            out.flush()
            self.assertEqual(self.listed()["f3"].attr.size, 15)
        self.assert_true_now()

    def test_a_local_process_changes_attributes(self):
        os.chmod(self.path("f3"), 0o611)
        self.assert_true_now()
        self.settle()
        os.utime(self.path("f4"), (1, 2))
        self.assert_true_now()
        self.settle()
        os.truncate(self.path("f5"), 3)
        self.assert_true_now()
        self.settle()
        os.chmod(self.path("d"), 0o700)
        self.assert_true_now()

    def test_a_client_writes(self):
        fh = self.find("f3")
        self.ok(self.nfs.write(fh, b"12345", 3))
        self.assertEqual(self.listed()["f3"].attr.size, 8)
        self.settle()
        self.ok(self.nfs.write(fh, b"12345", 8, nfs.UNSTABLE))
        self.assertEqual(self.listed()["f3"].attr.size, 13)
        self.assert_true_now()

    def test_a_client_writes_by_a_handle_from_before_a_restart(self):
        """Then the kernel has the file open by its id, and may not know the directory that it is in."""
        fh = self.find("f3")
        self.server.crash()
        self.server.start()
        self.nfs = self.client()
        self.ok(self.nfs.write(fh, b"12345", 3))
        self.settle()
        self.ok(self.nfs.write(fh, b"12345", 8))
        self.assertEqual(self.listed()["f3"].attr.size, 13)
        self.settle()
        self.ok(self.nfs.setattr(fh, mode=0o601))
        self.assertEqual(self.listed()["f3"].attr.mode, 0o601)

    def test_a_client_changes_attributes(self):
        self.ok(self.nfs.setattr(self.find("f3"), mode=0o601))
        self.assert_true_now()
        self.settle()
        self.ok(self.nfs.setattr(self.find("f3"), size=1))
        self.assert_true_now()

    def test_a_client_links(self):
        other = self.ok(self.nfs.mkdir(self.data, b"links-" + os.path.basename(self.local).encode())).fh
        self.ok(self.nfs.link(self.find("f3"), other, b"x"))
        self.assertEqual(self.listed()["f3"].attr.nlink, 2)
        self.assert_true_now()

    def test_names_come_and_go(self):
        self.write_local("new")
        self.assert_true_now()
        self.settle()
        os.rename(self.path("new"), self.path("newer"))
        self.assert_true_now()
        self.settle()
        os.unlink(self.path("newer"))
        self.assert_true_now()
        self.settle()
        self.write_local("f1.new", b"another file")
        os.rename(self.path("f1.new"), self.path("f1"))
        self.assert_true_now()
        self.settle()
        self.ok(self.nfs.remove(self.dir, b"f1"))
        self.assert_true_now()

    def test_something_happens_in_a_subdirectory(self):
        self.write_local("d/x")
        self.assert_true_now()
        self.settle()
        os.mkdir(self.path("d/y"))
        self.assert_true_now()

    def test_a_file_is_changed_by_its_other_name(self):
        with open(os.path.join(self.beside, "other"), "wb") as out:
            out.write(b"by another name")
        self.assertEqual(self.listed()["linked"].attr.size, 15)
        self.assert_true_now()
        self.settle()
        os.unlink(os.path.join(self.beside, "other"))
        self.assert_true_now()

    def test_a_mapped_write_is_seen_soon(self):
        """The kernel does not report mapped writes."""
        with open(self.path("f9"), "r+b") as out, mmap.mmap(out.fileno(), 0) as memory:
            before = self.listed()["f9"].attr.mtime
            memory[0] = 65
            until(lambda: self.listed()["f9"].attr.mtime, "it is seen", passes=lambda seen: seen != before, pause=0.05)
        self.assert_true_now()

    def test_rights_are_asked_for_each_caller(self):
        stranger = self.client(uid=5, gid=5)
        self.assertIsNotNone(self.listed(stranger)["f1"].fh)
        os.chmod(self.local, 0o744)
        self.settle()
        self.assertIsNone(self.listed(stranger)["f1"].fh, "uid 5 may not search it")
        os.chmod(self.local, 0o700)
        self.settle()
        self.refused(nfs.ACCES, stranger.readdirplus(self.dir, 0, 0, 8192, 32768))

    def test_other_sizes_are_other_pages(self):
        for count in (600, 1200, 2400, 8192):
            answer = self.ok(self.nfs.readdirplus(self.dir, 0, 0, count, count))
            again = self.ok(self.nfs.readdirplus(self.dir, 0, 0, count, count))
            self.assertEqual([entry.name for entry in answer.entries], [entry.name for entry in again.entries])
            self.assertEqual(answer.eof, again.eof)

    def test_random_changes(self):
        print(f"seed {SEED}")
        draw = random.Random(SEED)
        names = [f"f{i}" for i in range(10)]
        for _ in range(STEPS):
            name = draw.choice(names)
            what = draw.randrange(9)
            if what == 0:
                with open(self.path(name), "ab") as out:
                    out.write(b"y")
            elif what == 1:
                os.chmod(self.path(name), draw.choice((0o600, 0o644, 0o666)))
            elif what == 2:
                self.ok(self.nfs.write(self.find(name), b"z" * draw.randrange(1, 50), 0, draw.randrange(3)))
            elif what == 3:
                self.ok(self.nfs.setattr(self.find(name), size=draw.randrange(100)))
            elif what == 4:
                self.write_local(name + ".new", bytes(draw.randrange(10)))
                os.rename(self.path(name + ".new"), self.path(name))
            elif what == 5:
                self.ok(self.nfs.setattr(self.find("d"), mode=draw.choice((0o700, 0o755))))
            elif what == 6:
                self.write_local(f"d/{draw.randrange(100)}")
            else:
                self.settle()
            self.assert_true_now()


if __name__ == "__main__":
    server.main()
