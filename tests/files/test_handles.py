#!/usr/bin/env python3
"""Handles: they hold as long as the file does, and lead nowhere else."""

import concurrent.futures
import os
import random
import shutil
import struct
import subprocess
import time
import unittest

import nfs
import server


class Stable(server.Case):
    def restart(self):
        self.nfs.close()
        self.server.crash()
        self.server.start()
        self.nfs = self.server.client()
        self.addCleanup(self.nfs.close)

    def test_over_restart_and_rename(self):
        os.makedirs(self.path("a/b"))
        self.write_local("a/b/f", b"content")
        a = self.find("a")
        b = self.nfs.lookup(a, "b").fh
        f = self.nfs.lookup(b, "f").fh
        self.ok(self.nfs.rename(self.dir, "a", self.dir, "c"))
        os.rename(self.path("c/b/f"), self.path("g"))  # behind the server's back
        self.restart()
        self.assertEqual(self.ok(self.nfs.read(f)).data, b"content")
        self.assertEqual(self.ok(self.nfs.lookup(a, "b")).fh, b)
        self.assertEqual(self.ok(self.nfs.lookup(self.dir, "g")).fh, f)
        self.assertEqual(self.nfs.root("/data"), self.data)
        self.assertLessEqual(len(f), 64)

    def test_gone(self):
        self.write_local("f")
        f = self.find("f")
        os.unlink(self.path("f"))
        self.refused(nfs.STALE, self.nfs.getattr(f))
        self.write_local("f")
        self.refused(nfs.STALE, self.nfs.getattr(f))
        self.restart()
        self.refused(nfs.STALE, self.nfs.getattr(f))
        self.refused(nfs.STALE, self.nfs.read(f))

    def test_inode_numbers_come_again_but_not_their_handles(self):
        handles = []
        for _ in range(50):
            self.write_local("f")
            handles.append((os.lstat(self.path("f")).st_ino, self.find("f")))
            os.unlink(self.path("f"))
        self.assertEqual(len({fh for _, fh in handles}), len(handles))
        for _, fh in handles:
            self.refused(nfs.STALE, self.nfs.getattr(fh))

    def test_write_verifier_is_of_this_start(self):
        fh = self.ok(self.nfs.create(self.dir, "f")).fh
        before = self.ok(self.nfs.write(fh, b"x", stable=nfs.UNSTABLE)).verifier
        self.restart()
        self.assertNotEqual(self.ok(self.nfs.commit(fh)).verifier, before)

    def test_exclusive_create_over_restart(self):
        verifier = os.urandom(8)
        first = self.ok(self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=verifier)).fh
        self.restart()
        self.assertEqual(self.ok(self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=verifier)).fh, first)
        self.refused(nfs.EXIST, self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=os.urandom(8)))


class Order(unittest.TestCase):
    def test_handles_do_not_hang_on_the_order_of_exports(self):
        exports = {"a": "/a,squash=none", "b": "/b,squash=none", "c": "/c,squash=none"}
        held = server.Server(server.Case.program, exports)
        self.addCleanup(held.close)
        handles = {}
        held.start()
        with held.client() as client:
            for name in "abc":
                handles[name] = client.create(client.root("/" + name), "f").fh
        held.crash()
        held.exports = dict(reversed(exports.items()))
        del held.exports["b"]
        held.start()
        with held.client() as client:
            self.assertEqual(client.getattr(handles["a"]).stat, nfs.OK)
            self.assertEqual(client.getattr(handles["c"]).stat, nfs.OK)
            self.assertEqual(client.getattr(handles["b"]).stat, nfs.STALE)
        held.stop()

    def test_another_key_is_another_server(self):
        held = server.Server(server.Case.program, {"a": "/a"})
        self.addCleanup(held.close)
        held.start()
        with held.client() as client:
            fh = client.root("/a")
        held.crash()
        key = held.path("state", "handle.key")
        self.assertEqual((os.stat(key).st_mode & 0o777, os.stat(key).st_size), (0o600, 16))
        os.unlink(key)
        held.start()
        with held.client() as client:
            self.assertEqual(client.getattr(fh).stat, nfs.BADHANDLE)
        held.crash()
        with open(key, "wb") as out:
            out.write(b"short")
        with self.assertRaises(AssertionError):
            held.start()
        self.assertIn("damaged", held.log)


class Escapes(server.Case):
    exports = {"data": "/data,squash=none", "other": "/other,squash=none"}

    def outside(self, name):
        path = self.server.path("outside", name)
        os.makedirs(self.server.path("outside"), exist_ok=True)
        return path

    def test_mutated_handles(self):
        self.write_local("f")
        good = self.find("f")
        random.seed(5)
        for i in range(len(good) * 8):
            bad = bytearray(good)
            bad[i // 8] ^= 1 << i % 8
            self.refused(nfs.BADHANDLE, self.nfs.getattr(bytes(bad)))
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(random.randrange(1, 6)):
                bad[random.randrange(len(bad))] = random.randrange(256)
            if bytes(bad) != good:
                self.refused(nfs.BADHANDLE, self.nfs.getattr(bytes(bad)))
        for length in range(0, 65):
            bad = (good + os.urandom(64))[:length]
            if bad != good:
                self.refused(nfs.BADHANDLE, self.nfs.getattr(bad))

    def test_handles_of_another_export_by_hand(self):
        """The export's number in a handle belongs to it."""
        self.write_local("f")
        good = self.find("f")
        other = self.nfs.root("/other")
        self.refused(nfs.BADHANDLE, self.nfs.getattr(good[:4] + other[4:12] + good[12:]))

    def test_a_handle_for_a_file_outside_cannot_be_made(self):
        st = os.stat("/etc/passwd")
        self.write_local("f")
        good = self.find("f")
        forged = good[:12] + struct.pack("<Q", st.st_ino) + good[20:28] + struct.pack("<II", st.st_ino & 0xFFFFFFFF, 0)
        self.refused(nfs.BADHANDLE, self.nfs.getattr(forged))

    def test_symlinks_are_not_followed(self):
        os.symlink("/etc", self.path("l"))
        fh = self.find("l")
        self.refused(nfs.NOTDIR, self.nfs.lookup(fh, "passwd"))
        self.refused(nfs.NOTDIR, self.nfs.create(fh, "hf-x"))
        self.refused(nfs.INVAL, self.nfs.read(fh))
        self.refused(nfs.INVAL, self.nfs.write(fh, b"x"))
        self.refused(nfs.INVAL, self.nfs.setattr(fh, size=0))
        self.ok(self.nfs.setattr(fh, mode=0o777))  # of a link: nothing happens, least of all to what it names
        self.assertEqual(os.stat("/etc").st_mode & 0o777, 0o755)

    def test_a_directory_moved_out(self):
        """One for each call, and all at once: where files are found by walks, one walk answers all of them."""
        calls = [lambda client, fh, name=name: client.lookup(fh, name) for name in ("..", ".", "e", "x")] + [
            lambda client, fh: client.create(fh, "x"),
            lambda client, fh: client.readdir(fh),
            lambda client, fh: client.mkdir(fh, "x"),
            lambda client, fh: client.rename(fh, "x", self.dir, "x"),
            lambda client, fh: client.rename(self.dir, "x", fh, "x"),
            lambda client, fh: client.getattr(fh),
            lambda client, fh: client.access(fh),
            lambda client, fh: client.setattr(fh, mode=0o707),
        ]
        tries = []
        for i, call in enumerate(calls):
            os.makedirs(self.path(f"d{i}/e"))
            d = self.find(f"d{i}")
            tries += [(call, self.client(), d), (call, self.client(), self.nfs.lookup(d, "e").fh)]
        for i in range(len(calls)):
            os.rename(self.path(f"d{i}"), self.outside(f"d{i}"))
        with concurrent.futures.ThreadPoolExecutor(len(tries)) as pool:
            for _ in range(2):  # open at first, then to be looked for
                for answer in pool.map(lambda it: it[0](*it[1:]), tries):
                    self.refused(nfs.STALE, answer)
        self.assertNotEqual(os.lstat(self.outside(f"d{len(calls) - 1}")).st_mode & 0o777, 0o707)
        for i in range(len(calls)):
            os.rename(self.outside(f"d{i}"), self.path(f"back{i}"))
        self.ok(self.nfs.lookup(tries[0][2], ".."))
        self.assertEqual(os.listdir(self.server.path("outside")), [])

    def test_a_directory_replaced_by_a_link(self):
        os.mkdir(self.path("d"))
        d = self.find("d")
        os.rename(self.path("d"), self.path("was"))
        os.symlink("/etc", self.path("d"))
        self.refused(nfs.NOENT, self.nfs.lookup(d, "passwd"))
        self.refused(nfs.NOTDIR, self.nfs.lookup(self.find("d"), "passwd"))

    def test_races_of_moving_and_looking_up(self):
        """While a directory moves in and out, no look-up ever sees what is above."""
        os.makedirs(self.path("d/e"))
        outside = self.outside("moving")
        mover = os.fork()
        if mover == 0:
            while True:
                try:
                    os.rename(self.path("d"), outside)
                    os.rename(outside, self.path("d"))
                except OSError:
                    pass
        try:
            self.ok_or_stale = {nfs.OK, nfs.STALE, nfs.NOENT}
            allowed = {os.lstat(self.local).st_ino, os.lstat(self.server.path("data")).st_ino}
            d = None
            end = time.monotonic() + 2
            while time.monotonic() < end:
                if not d:
                    answer = self.nfs.lookup(self.dir, "d")
                    d = answer.fh if answer.stat == nfs.OK else None
                    continue
                answer = self.nfs.lookup(d, "..")
                self.assertIn(answer.stat, self.ok_or_stale)
                if answer.stat == nfs.OK:
                    self.assertIn(answer.attr.fileid, allowed)
        finally:
            os.kill(mover, 9)
            os.waitpid(mover, 0)

    @unittest.skipUnless(os.geteuid() == 0, "mounting is for the superuser")
    def test_a_file_system_mounted_below_is_not_entered(self):
        os.mkdir(self.path("m"))
        self.write_local("m/covered")
        if subprocess.run(["mount", "-t", "tmpfs", "none", self.path("m")], capture_output=True).returncode:
            self.skipTest("no mount here")
        try:
            self.write_local("m/covering")
            self.ok(self.nfs.lookup(self.find("m"), "covered"))
            self.refused(nfs.NOENT, self.nfs.lookup(self.find("m"), "covering"))
        finally:
            subprocess.run(["umount", self.path("m")], check=True)


class Finder(unittest.TestCase):
    """Without the right to open by handle (a container's usual root), and as an ordinary user."""

    WAYS = {
        "root without CAP_DAC_READ_SEARCH": ("setpriv", "--bounding-set=-dac_read_search,-sys_admin",
                                             "--inh-caps=-dac_read_search,-sys_admin"),
        "an ordinary user": ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"),
    }  # fmt: skip

    def each(self):
        if not shutil.which("setpriv"):
            self.skipTest("no setpriv")
        for name, prefix in self.WAYS.items():
            with self.subTest(name):
                held = server.Server(server.Case.program, {"data": "/data,squash=none"}, prefix=prefix)
                for path in (held.base, held.path("data"), held.path("state")):
                    os.chown(path, 1000, 1000)
                os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # it needs a right that the test took away
                try:
                    held.start()
                    yield held
                    self.assertIn("handles=finder", held.log)
                    held.stop()
                finally:
                    del os.environ["ASAN_OPTIONS"]
                    held.close()

    def test_all_of_it(self):
        for held in self.each():
            with held.client(uid=1000, gid=1000) as client:
                root = client.root("/data")
                d = client.mkdir(root, "d", mode=0o755).fh
                e = client.mkdir(d, "e", mode=0o755).fh
                f = client.create(e, "f", mode=0o444).fh
                self.assertEqual(client.write(f, b"content").stat, nfs.OK)
                gone = client.create(e, "gone").fh
                self.assertEqual(client.rename(e, "f", d, "g").stat, nfs.OK)
                self.assertEqual(client.lookup(e, "..").fh, d)
                self.assertEqual(client.lookup(root, "..").fh, root)
            held.crash()
            os.unlink(held.path("data/d/e/gone"))
            os.close(os.open(held.path("data/d/e/gone"), os.O_CREAT, 0o644))  # with the same inode number, as a rule
            os.chown(held.path("data/d/e/gone"), 1000, 1000)
            os.rename(held.path("data/d/g"), held.path("data/h"))  # while it was down
            held.start()
            with held.client(uid=1000, gid=1000) as client:
                self.assertEqual(client.read(f).data, b"content")
                self.assertEqual(client.getattr(d).stat, nfs.OK)
                self.assertEqual(client.lookup(root, "h").fh, f)
                self.assertEqual(client.lookup(e, "..").fh, d)
                self.assertNotEqual(client.lookup(e, "gone").fh, gone)
                self.assertIn(client.getattr(gone).stat, (nfs.STALE, nfs.JUKEBOX))
                os.makedirs(held.path("out"))
                os.rename(held.path("data/d"), held.path("out/d"))
                self.assertEqual(client.lookup(d, "..").stat, nfs.STALE)
                self.assertEqual(client.lookup(e, "..").stat, nfs.STALE)


if __name__ == "__main__":
    server.main()
