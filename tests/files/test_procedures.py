#!/usr/bin/env python3
"""Every procedure of NFSv3: what it does, what it refuses, and its edges."""

import os
import shutil
import socket
import stat
import struct
import time
import unittest

import nfs
import server
from rpc import Refused, call_message
from xdr import Out


class Attributes(server.Case):
    def test_null(self):
        self.nfs.call(nfs.NFS, 3, nfs.NULL).end()

    def test_getattr_of_every_type(self):
        self.write_local("reg", b"x" * 5000)
        os.mkdir(self.path("dir"))
        os.symlink("target", self.path("lnk"))
        os.mkfifo(self.path("fifo"))
        os.mknod(self.path("chr"), 0o600 | stat.S_IFCHR, os.makedev(5, 300))
        os.mknod(self.path("blk"), 0o600 | stat.S_IFBLK, os.makedev(7, 1))
        with socket.socket(socket.AF_UNIX) as sock:
            os.chdir(self.local)
            sock.bind("sock")
            os.chdir("/")
        kinds = {"reg": nfs.REG, "dir": nfs.DIR, "lnk": nfs.LNK, "fifo": nfs.FIFO, "chr": nfs.CHR, "blk": nfs.BLK,
                 "sock": nfs.SOCK}  # fmt: skip
        for name, kind in kinds.items():
            attr = self.ok(self.nfs.getattr(self.find(name))).attr
            st = os.lstat(self.path(name))
            self.assertEqual(attr.type, kind, name)
            self.assertEqual((attr.mode, attr.nlink, attr.uid, attr.gid), (st.st_mode & 0o7777, st.st_nlink, 0, 0))
            self.assertEqual((attr.size, attr.used, attr.fileid), (st.st_size, st.st_blocks * 512, st.st_ino))
            self.assertEqual(attr.mtime, (st.st_mtime_ns // 10**9, st.st_mtime_ns % 10**9))
            self.assertEqual(attr.ctime, (st.st_ctime_ns // 10**9, st.st_ctime_ns % 10**9))
            self.assertEqual(attr.rdev, (os.major(st.st_rdev), os.minor(st.st_rdev)))
        self.assertEqual(self.nfs.getattr(self.find("chr")).attr.rdev, (5, 300))

    def test_setattr_each(self):
        self.write_local("f", b"hello world")
        fh = self.find("f")
        self.ok(self.nfs.setattr(fh, mode=0o4751))
        self.ok(self.nfs.setattr(fh, uid=1234, gid=4321))
        self.ok(self.nfs.setattr(fh, size=5))
        self.ok(self.nfs.setattr(fh, atime=(1000000000, 5), mtime=(1100000000, 999999999)))
        st = os.lstat(self.path("f"))
        self.assertEqual((st.st_uid, st.st_gid, st.st_size), (1234, 4321, 5))
        self.assertEqual(st.st_mode & 0o777, 0o751)
        self.assertEqual((st.st_atime_ns, st.st_mtime_ns), (1000000000 * 10**9 + 5, 1100000000 * 10**9 + 999999999))
        before = time.time()
        self.ok(self.nfs.setattr(fh, mtime=nfs.NOW))
        st = os.lstat(self.path("f"))
        self.assertGreater(st.st_mtime, before - 1)
        self.assertEqual(st.st_atime_ns, 1000000000 * 10**9 + 5)

    def test_setattr_owner_and_mode_together_keep_the_mode(self):
        self.write_local("f")
        self.ok(self.nfs.setattr(self.find("f"), mode=0o4755, uid=1, gid=1))
        self.assertEqual(os.lstat(self.path("f")).st_mode & 0o7777, 0o4755)

    def test_setattr_grows_sparse(self):
        self.write_local("f", b"abc")
        fh = self.find("f")
        self.ok(self.nfs.setattr(fh, size=6 << 30))
        attr = self.nfs.getattr(fh).attr
        self.assertEqual(attr.size, 6 << 30)
        self.assertLess(attr.used, 1 << 20)
        answer = self.ok(self.nfs.read(fh, (5 << 30) + 1, 10))
        self.assertEqual(answer.data, bytes(10))
        self.assertFalse(answer.eof)

    def test_setattr_guard(self):
        self.write_local("f")
        fh = self.find("f")
        ctime = self.nfs.getattr(fh).attr.ctime
        answer = self.refused(nfs.NOT_SYNC, self.nfs.setattr(fh, guard=(ctime[0] - 1, ctime[1]), mode=0o600))
        self.assertIsNotNone(answer.wcc.before)
        self.assertNotEqual(os.lstat(self.path("f")).st_mode & 0o777, 0o600)
        self.ok(self.nfs.setattr(fh, guard=ctime, mode=0o600))
        self.assertEqual(os.lstat(self.path("f")).st_mode & 0o777, 0o600)

    def test_setattr_wcc(self):
        self.write_local("f", b"12345")
        fh = self.find("f")
        before = self.nfs.getattr(fh).attr
        wcc = self.ok(self.nfs.setattr(fh, size=3)).wcc
        self.assertEqual(wcc.before, (5, before.mtime, before.ctime))
        self.assertEqual(wcc.after.size, 3)
        self.assertEqual(wcc.after.__dict__, self.nfs.getattr(fh).attr.__dict__)

    def test_setattr_refusals(self):
        self.write_local("f")
        os.chown(self.path("f"), 1000, 1000)
        other = self.client(uid=2000, gid=2000)
        fh = self.find("f")
        self.refused(nfs.PERM, other.setattr(fh, mode=0o777))
        self.refused(nfs.PERM, other.setattr(fh, uid=2000))
        self.refused(nfs.ACCES, other.setattr(fh, size=0))
        self.refused(nfs.ISDIR, self.nfs.setattr(self.dir, size=0))
        self.refused(nfs.FBIG, self.nfs.setattr(fh, size=2**63))
        with self.assertRaises(Refused):  # garbage: a time_how of 3
            self.nfs.call(nfs.NFS, 3, nfs.SETATTR, Out().opaque(fh).u32(0).u32(0).u32(0).u32(0).u32(3).u32(0).u32(0).bytes())

    def test_setattr_of_no_owner(self):
        """To chown(2), 2^32 - 1 means to change nothing."""
        self.write_local("f", b"12345")
        for ids in ({"uid": 2**32 - 1}, {"gid": 2**32 - 1}, {"uid": 5, "gid": 2**32 - 1, "size": 0}):
            self.refused(nfs.INVAL, self.nfs.setattr(self.find("f"), **ids))
        st = os.lstat(self.path("f"))
        self.assertEqual((st.st_uid, st.st_gid, st.st_size), (0, 0, 5))

    def test_owner_cuts_a_file_that_is_read_only(self):
        self.write_local("f", b"12345")
        os.chown(self.path("f"), 1000, 1000)
        os.chmod(self.path("f"), 0o444)
        self.ok(self.client(uid=1000, gid=1000).setattr(self.find("f"), size=1))
        self.assertEqual(self.read_local("f"), b"1")

    def test_who_may_write_cuts_and_touches(self):
        """What a Linux client sends for `> file`: the size, and the server's time for the last change alone."""
        self.write_local("f", b"12345")
        os.chown(self.path("f"), 1000, 500)
        os.chmod(self.path("f"), 0o664)
        fh, member, other = self.find("f"), self.client(uid=2000, gid=500), self.client(uid=7, gid=7)
        for attrs in ({"size": 0}, {}):  # one that is empty already has no size to be set
            os.utime(self.path("f"), (1000, 2000))
            self.refused(nfs.ACCES, other.setattr(fh, mtime=nfs.NOW, **attrs))
            self.assertEqual(os.lstat(self.path("f")).st_mtime, 2000)
            self.ok(member.setattr(fh, mtime=nfs.NOW, **attrs))
            st = os.lstat(self.path("f"))
            self.assertEqual((st.st_size, st.st_atime), (0, 1000))
            self.assertGreater(st.st_mtime, 2000)
        os.utime(self.path("f"), (1000, 2000))
        self.ok(member.setattr(fh, atime=nfs.NOW))
        st = os.lstat(self.path("f"))
        self.assertEqual(st.st_mtime, 2000)
        self.assertGreater(st.st_atime, 2000)
        self.refused(nfs.PERM, member.setattr(fh, mtime=(5, 0)))
        self.refused(nfs.PERM, member.setattr(fh, mode=0o666, mtime=nfs.NOW))

    def test_access(self):
        self.write_local("f")
        os.chown(self.path("f"), 1000, 1000)
        os.chmod(self.path("f"), 0o640)
        fh = self.find("f")
        owner, group, member, other = (
            self.client(uid=1000, gid=5), self.client(uid=7, gid=1000), self.client(uid=7, gid=5, gids=(3, 1000)),
            self.client(uid=7, gid=5))  # fmt: skip
        self.assertEqual(self.ok(owner.access(fh)).bits, 0x01 | 0x04 | 0x08)
        self.assertEqual(group.access(fh).bits, 0x01)
        self.assertEqual(member.access(fh).bits, 0x01)
        self.assertEqual(other.access(fh).bits, 0)
        self.assertEqual(self.nfs.access(fh).bits, 0x01 | 0x04 | 0x08)
        os.chmod(self.path("f"), 0o755)
        self.assertEqual(other.access(fh).bits, 0x01 | 0x20)
        self.assertEqual(other.access(fh, 0x20).bits, 0x20)
        os.chmod(self.path("f"), 0o000)  # at once, however often it was asked before
        for _ in range(3):
            self.assertEqual(other.access(fh).bits, 0)
        os.mkdir(self.path("d"))
        os.chmod(self.path("d"), 0o755)
        self.assertEqual(other.access(self.find("d")).bits, 0x01 | 0x02)
        os.chmod(self.path("d"), 0o777)
        self.assertEqual(other.access(self.find("d")).bits, 0x1F)

    def test_access_sees_every_change_of_mode(self):
        self.write_local("f")
        fh = self.find("f")
        other = self.client(uid=7, gid=7)
        for mode in (0o604, 0o600, 0o604):
            os.chmod(self.path("f"), mode)
            server.until_unchanged_for(self.path("f"), 50)  # old enough to be remembered
            for _ in range(2):
                self.assertEqual(other.access(fh).bits, 1 if mode == 0o604 else 0)
        for i in range(200):
            os.chmod(self.path("f"), 0o604 if i % 2 else 0o600)
            self.assertEqual(other.access(fh).bits, i % 2)


class Names(server.Case):
    def test_lookup(self):
        self.write_local("f")
        answer = self.ok(self.nfs.lookup(self.dir, "f"))
        self.assertEqual(answer.attr.fileid, os.lstat(self.path("f")).st_ino)
        self.assertEqual(answer.dir.fileid, os.lstat(self.local).st_ino)
        self.assertEqual(self.nfs.lookup(self.dir, ".").fh, self.dir)
        self.assertEqual(self.nfs.lookup(self.dir, "..").fh, self.data)
        self.assertEqual(self.nfs.lookup(self.data, "..").fh, self.data)
        self.assertEqual(self.nfs.lookup(self.data, "../..").stat, nfs.ACCES)

    def assert_leads_to(self, name, directory=None):
        """What the kernel says of the @name, and the same the next time."""
        path = self.path(f"{directory}/{name}" if directory else name)
        above = self.find(directory) if directory else self.dir
        answers = [self.ok(self.nfs.lookup(above, name)) for _ in range(3)]
        st = os.lstat(path)
        for answer in answers:
            self.assertEqual((answer.attr.fileid, answer.attr.size), (st.st_ino, st.st_size))
            self.assertEqual(self.ok(self.nfs.getattr(answer.fh)).attr.fileid, st.st_ino)
        self.assertEqual(len({answer.fh for answer in answers}), 1)
        return answers[0].fh

    def test_a_name_that_was_looked_up_leads_elsewhere(self):
        """Local processes change what a name leads to while the server has the files open."""
        os.mkdir(self.path("d"))
        for name, text in (("f", b"1"), ("g", b"22"), ("d/f", b"333")):
            self.write_local(name, text)
        f, g, deep = self.assert_leads_to("f"), self.assert_leads_to("g"), self.assert_leads_to("f", "d")
        self.assertEqual(len({f, g, deep}), 3)
        os.rename(self.path("g"), self.path("f"))
        self.assertEqual(self.assert_leads_to("f"), g)
        self.refused(nfs.NOENT, self.nfs.lookup(self.dir, "g"))
        os.rename(self.path("d/f"), self.path("g"))
        self.assertEqual(self.assert_leads_to("g"), deep)
        os.link(self.path("g"), self.path("d/f"))
        self.assertEqual(self.assert_leads_to("f", "d"), deep)
        self.write_local("g", b"4444")  # it has two names now
        self.assertEqual(self.assert_leads_to("f", "d"), deep)
        os.unlink(self.path("g"))
        os.symlink("f", self.path("g"))
        self.assertNotIn(self.assert_leads_to("g"), (f, g, deep))
        os.unlink(self.path("g"))
        os.mkdir(self.path("g"))
        self.assert_leads_to("g")
        for i in range(100):
            os.unlink(self.path("f"))
            self.write_local("f", bytes(i))
            self.assert_leads_to("f")

    def test_lookup_refusals(self):
        self.write_local("f")
        self.assertIsNotNone(self.refused(nfs.NOENT, self.nfs.lookup(self.dir, "none")).dir)
        self.refused(nfs.NOTDIR, self.nfs.lookup(self.find("f"), "x"))
        self.refused(nfs.NAMETOOLONG, self.nfs.lookup(self.dir, "n" * 256))
        self.refused(nfs.NOENT, self.nfs.lookup(self.dir, "n" * 255))
        self.refused(nfs.INVAL, self.nfs.lookup(self.dir, ""))
        self.refused(nfs.INVAL, self.nfs.lookup(self.dir, b"a\0b"))
        self.refused(nfs.ACCES, self.nfs.lookup(self.dir, "a/b"))
        os.mkdir(self.path("closed"), 0o700)
        self.write_local("closed/x")
        self.refused(nfs.ACCES, self.client(uid=5, gid=5).lookup(self.find("closed"), "x"))
        self.refused(nfs.ACCES, self.client(uid=5, gid=5).lookup(self.find("closed"), "none"))

    def test_any_bytes_are_a_name(self):
        for name in (b"\xff\xfe", "ümläut".encode(), b"new\nline", b" ", b"-rf", b"...", bytes(range(1, 47)), b"n" * 255):
            fh = self.ok(self.nfs.create(self.dir, name)).fh
            self.assertEqual(self.nfs.lookup(self.dir, name).fh, fh)
            self.assertIn(name, os.listdir(self.local.encode()))
            self.ok(self.nfs.remove(self.dir, name))

    def test_readlink(self):
        longest = 1023 if os.environ.get("HF_TEST_DISK") == "xfs" else 4095
        for text in (b"t", b"/etc/passwd", b"../" * 300, b"x" * longest):
            os.symlink(text, self.path("l").encode())
            self.assertEqual(self.ok(self.nfs.readlink(self.find("l"))).text, text)
            os.unlink(self.path("l"))
        self.write_local("f")
        self.refused(nfs.INVAL, self.nfs.readlink(self.find("f")))

    def test_create_modes(self):
        self.make_old(self.local)
        made = self.ok(self.nfs.create(self.dir, "f", nfs.GUARDED, mode=0o640, uid=5, gid=6, mtime=(5, 0)))
        st = os.lstat(self.path("f"))
        self.assertEqual((st.st_mode & 0o7777, st.st_uid, st.st_gid, st.st_mtime), (0o640, 5, 6, 5.0))
        self.assertEqual(made.attr.fileid, st.st_ino)
        self.assertLess(made.wcc.before[1], made.wcc.after.mtime)
        self.refused(nfs.EXIST, self.nfs.create(self.dir, "f", nfs.GUARDED))
        self.write_local("f", b"content")
        self.assertEqual(self.ok(self.nfs.create(self.dir, "f", nfs.UNCHECKED, mode=0o777)).fh, made.fh)
        self.assertEqual((os.lstat(self.path("f")).st_mode & 0o777, self.read_local("f")), (0o640, b"content"))
        self.ok(self.nfs.create(self.dir, "f", nfs.UNCHECKED, size=0))
        self.assertEqual(self.read_local("f"), b"")
        self.assertEqual(self.ok(self.nfs.create(self.dir, "g", mode=0o6755, size=10)).attr.size, 10)
        self.assertEqual(os.lstat(self.path("g")).st_mode & 0o7777, 0o6755)

    def test_create_refusals(self):
        os.mkdir(self.path("d"))
        self.refused(nfs.ISDIR, self.nfs.create(self.dir, "d"))
        os.symlink("/etc/hf-must-not-be-made", self.path("l"))
        self.refused(nfs.EXIST, self.nfs.create(self.dir, "l"))
        self.assertFalse(os.path.exists("/etc/hf-must-not-be-made"))
        for name in (".", ".."):
            self.refused(nfs.EXIST, self.nfs.create(self.dir, name, nfs.GUARDED))
        self.refused(nfs.ACCES, self.nfs.create(self.dir, "a/b"))
        self.refused(nfs.NAMETOOLONG, self.nfs.create(self.dir, "n" * 256))
        os.chmod(self.local, 0o755)
        answer = self.refused(nfs.ACCES, self.client(uid=5, gid=5).create(self.dir, "x"))
        self.assertIsNotNone(answer.wcc.before)
        self.assertIsNotNone(answer.wcc.after)

    def test_caller_owns_what_it_makes(self):
        caller = self.client(uid=1000, gid=1001)
        self.ok(caller.create(self.dir, "f", mode=0o600))
        self.ok(caller.mkdir(self.dir, "d", mode=0o700))
        self.ok(caller.symlink(self.dir, "l", "t"))
        self.ok(caller.mknod(self.dir, "p", nfs.FIFO, mode=0o600))
        self.ok(caller.create(self.dir, "e", nfs.EXCLUSIVE, verifier=b"12345678"))
        for name in "fdlpe":
            st = os.lstat(self.path(name))
            self.assertEqual((st.st_uid, st.st_gid), (1000, 1001), name)
        os.chmod(self.local, 0o2777)
        os.chown(self.local, 0, 777)
        self.ok(caller.create(self.dir, "g"))
        self.assertEqual(os.lstat(self.path("g")).st_gid, 777)

    def mode_of(self, name):
        return os.lstat(self.path(name)).st_mode & 0o7777

    def test_special_bits_leave_the_directory_its_say(self):
        """The set-group-id that a new directory inherits stays, also for a caller that is not in the group."""
        os.chown(self.local, 0, 777)
        os.chmod(self.local, 0o2777)
        caller = self.client(uid=1000, gid=1001)
        self.ok(caller.mkdir(self.dir, "sticky", mode=0o1777))
        self.assertEqual(self.mode_of("sticky"), 0o3777)
        self.ok(self.nfs.mkdir(self.dir, "given", mode=0o1755, uid=9, gid=9))
        self.assertEqual(self.mode_of("given"), 0o3755)
        self.ok(caller.create(self.dir, "f", mode=0o4751))
        self.assertEqual(self.mode_of("f"), 0o4751)

    def test_special_bits_do_not_widen_a_default_acl(self):
        """Modes are as if made here."""
        entries = [(1, 7, -1), (2, 7, 12345), (4, 7, -1), (0x10, 5, -1), (0x20, 7, -1)]  # the mask is r-x
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
        try:
            os.setxattr(self.local, "system.posix_acl_default", acl)
        except OSError as error:
            self.skipTest(f"no access lists: {error}")
        self.ok(self.nfs.mkdir(self.dir, "d", mode=0o1777))
        self.ok(self.nfs.mkdir(self.dir, "given", mode=0o1777, uid=9))
        self.ok(self.nfs.create(self.dir, "f", mode=0o4777))
        self.ok(self.nfs.create(self.dir, "given_f", mode=0o4777, uid=9))
        self.ok(self.nfs.mknod(self.dir, "p", nfs.FIFO, mode=0o1777))
        for name, mode in {"d": 0o1757, "given": 0o1757, "f": 0o4757, "given_f": 0o4757, "p": 0o1757}.items():
            self.assertEqual(oct(self.mode_of(name)), oct(mode), name)

    def test_create_exclusive(self):
        verifier = os.urandom(8)
        first = self.ok(self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=verifier))
        again = self.ok(self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=verifier))
        self.assertEqual(first.fh, again.fh)
        self.refused(nfs.EXIST, self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=os.urandom(8)))
        self.ok(self.nfs.setattr(first.fh, atime=nfs.NOW, mtime=nfs.NOW, mode=0o644))
        self.refused(nfs.EXIST, self.nfs.create(self.dir, "f", nfs.EXCLUSIVE, verifier=verifier))
        os.mkdir(self.path("d"))
        self.refused(nfs.EXIST, self.nfs.create(self.dir, "d", nfs.EXCLUSIVE, verifier=verifier))

    def test_mkdir(self):
        made = self.ok(self.nfs.mkdir(self.dir, "d", mode=0o2751, uid=9, gid=9))
        st = os.lstat(self.path("d"))
        self.assertEqual((st.st_mode & 0o7777, st.st_uid, st.st_ino), (0o2751, 9, made.attr.fileid))
        self.refused(nfs.EXIST, self.nfs.mkdir(self.dir, "d"))
        self.refused(nfs.EXIST, self.nfs.mkdir(self.dir, ".."))
        self.write_local("f")
        self.refused(nfs.EXIST, self.nfs.mkdir(self.dir, "f"))
        self.refused(nfs.NOTDIR, self.nfs.mkdir(self.find("f"), "x"))
        self.refused(nfs.STALE, self.nfs.mkdir(self._removed_dir(), "x"))

    def _removed_dir(self):
        os.mkdir(self.path("gone"))
        fh = self.find("gone")
        os.rmdir(self.path("gone"))
        return fh

    def test_symlink(self):
        self.ok(self.nfs.symlink(self.dir, "l", b"/anything/at all"))
        self.assertEqual(os.readlink(self.path("l")), "/anything/at all")
        self.refused(nfs.EXIST, self.nfs.symlink(self.dir, "l", b"x"))
        self.refused(nfs.INVAL, self.nfs.symlink(self.dir, "m", b""))
        self.refused(nfs.INVAL, self.nfs.symlink(self.dir, "m", b"a\0b"))

    def test_mknod(self):
        for name, kind, mode in (("f", nfs.FIFO, stat.S_IFIFO), ("s", nfs.SOCK, stat.S_IFSOCK)):
            self.ok(self.nfs.mknod(self.dir, name, kind, mode=0o640))
            self.assertEqual(os.lstat(self.path(name)).st_mode, mode | 0o640)
        self.ok(self.nfs.mknod(self.dir, "c", nfs.CHR, (4, 70000), mode=0o600))
        self.ok(self.nfs.mknod(self.dir, "b", nfs.BLK, (259, 3), mode=0o600))
        self.assertEqual(os.lstat(self.path("c")).st_rdev, os.makedev(4, 70000))
        self.assertEqual(os.lstat(self.path("b")).st_rdev, os.makedev(259, 3))
        for kind in (nfs.REG, nfs.DIR, nfs.LNK, 99):
            self.refused(nfs.BADTYPE, self.nfs.mknod(self.dir, "x", kind))
        self.refused(nfs.PERM, self.client(uid=5, gid=5).mknod(self.dir, "x", nfs.CHR, (1, 3)))
        self.refused(nfs.INVAL, self.nfs.read(self.find("c")))  # never opened

    def test_remove(self):
        self.write_local("f")
        fh = self.find("f")
        self.make_old(self.local)
        wcc = self.ok(self.nfs.remove(self.dir, "f")).wcc
        self.assertLess(wcc.before[1], wcc.after.mtime)
        self.refused(nfs.STALE, self.nfs.getattr(fh))
        self.refused(nfs.NOENT, self.nfs.remove(self.dir, "f"))
        os.mkdir(self.path("d"))
        self.refused(nfs.ISDIR, self.nfs.remove(self.dir, "d"))
        for name in (".", ".."):
            self.refused(nfs.ISDIR, self.nfs.remove(self.dir, name))

    def test_remove_sticky(self):
        self.write_local("f")
        os.chmod(self.local, 0o1777)
        self.refused(nfs.PERM, self.client(uid=5, gid=5).remove(self.dir, "f"))
        self.assertTrue(os.path.exists(self.path("f")))

    def test_remove_keeps_other_links(self):
        self.write_local("f", b"data")
        fh = self.find("f")
        self.ok(self.nfs.link(fh, self.dir, "g"))
        self.ok(self.nfs.remove(self.dir, "f"))
        self.assertEqual(self.ok(self.nfs.read(fh)).data, b"data")

    def test_remove_gives_the_space_back(self):
        self.ok(self.nfs.write(self.ok(self.nfs.create(self.dir, "f")).fh, b"x" * 100000))
        inode = os.lstat(self.path("f")).st_ino
        self.ok(self.nfs.remove(self.dir, "f"))
        held = [os.stat(f"/proc/{self.server.process.pid}/fd/{fd}").st_ino
                for fd in os.listdir(f"/proc/{self.server.process.pid}/fd")
                if os.path.exists(f"/proc/{self.server.process.pid}/fd/{fd}")]  # fmt: skip
        self.assertNotIn(inode, held)

    def test_rmdir(self):
        os.mkdir(self.path("d"))
        self.write_local("d/x")
        self.refused(nfs.NOTEMPTY, self.nfs.rmdir(self.dir, "d"))
        os.unlink(self.path("d/x"))
        fh = self.find("d")
        self.ok(self.nfs.rmdir(self.dir, "d"))
        self.refused(nfs.STALE, self.nfs.getattr(fh))
        self.refused(nfs.STALE, self.nfs.lookup(fh, ".."))
        self.refused(nfs.NOENT, self.nfs.rmdir(self.dir, "d"))
        self.write_local("f")
        self.refused(nfs.NOTDIR, self.nfs.rmdir(self.dir, "f"))
        self.refused(nfs.INVAL, self.nfs.rmdir(self.dir, "."))
        self.refused(nfs.EXIST, self.nfs.rmdir(self.dir, ".."))

    def test_rename(self):
        self.write_local("a", b"a")
        os.mkdir(self.path("d"))
        fh, to = self.find("a"), self.find("d")
        self.make_old(self.local)
        self.make_old(self.path("d"))
        answer = self.ok(self.nfs.rename(self.dir, "a", to, "b"))
        self.assertLess(answer.wcc.before[1], answer.wcc.after.mtime)
        self.assertLess(answer.to_wcc.before[1], answer.to_wcc.after.mtime)
        self.assertEqual(self.nfs.lookup(to, "b").fh, fh)
        self.assertEqual(self.ok(self.nfs.read(fh)).data, b"a")
        self.write_local("c", b"c")
        victim = self.find("c")
        self.ok(self.nfs.rename(to, "b", self.dir, "c"))
        self.refused(nfs.STALE, self.nfs.getattr(victim))
        self.assertEqual(self.read_local("c"), b"a")

    def test_rename_refusals(self):
        self.write_local("f")
        os.mkdir(self.path("d"))
        os.mkdir(self.path("e"))
        self.write_local("e/x")
        d = self.find("d")
        self.refused(nfs.NOENT, self.nfs.rename(self.dir, "none", self.dir, "x"))
        self.refused(nfs.ISDIR, self.nfs.rename(self.dir, "f", self.dir, "d"))
        self.refused(nfs.NOTDIR, self.nfs.rename(self.dir, "d", self.dir, "f"))
        # xfs says EXIST, as POSIX allows and RFC 1813 has it (3.3.14).
        self.assertIn(self.nfs.rename(self.dir, "d", self.dir, "e").stat, (nfs.NOTEMPTY, nfs.EXIST))
        self.refused(nfs.INVAL, self.nfs.rename(self.dir, "d", d, "inside"))
        for name in (".", ".."):
            self.refused(nfs.INVAL, self.nfs.rename(self.dir, name, self.dir, "x"))
            self.refused(nfs.INVAL, self.nfs.rename(self.dir, "f", self.dir, name))
        self.refused(nfs.NOTDIR, self.nfs.rename(self.find("f"), "f", self.dir, "x"))
        self.ok(self.nfs.rename(self.dir, "f", self.dir, "f"))

    def test_link(self):
        self.write_local("f")
        fh = self.find("f")
        answer = self.ok(self.nfs.link(fh, self.dir, "g"))
        self.assertEqual(answer.attr.nlink, 2)
        self.assertEqual(self.find("g"), fh)
        self.refused(nfs.EXIST, self.nfs.link(fh, self.dir, "g"))
        self.refused(nfs.ISDIR, self.nfs.link(self.dir, self.dir, "h"))
        os.symlink("nowhere", self.path("l"))
        self.ok(self.nfs.link(self.find("l"), self.dir, "m"))  # the link itself, not what it points to
        self.assertEqual(os.readlink(self.path("m")), "nowhere")

    def test_link_of_what_is_gone(self):
        """It is the file that is not there, not the directory or the new name."""
        self.write_local("f")
        fh = self.find("f")
        os.unlink(self.path("f"))
        answer = self.refused(nfs.STALE, self.nfs.link(fh, self.dir, "g"))
        self.assertIsNotNone(answer.wcc.before)
        self.assertIsNotNone(answer.wcc.after)


class Data(server.Case):
    def test_read(self):
        content = os.urandom(3000001)
        self.write_local("f", content)
        fh = self.find("f")
        for offset, count in ((0, 0), (0, 1), (0, 1 << 20), (1, 1000003), (2999990, 100), (3000001, 10), (2**40, 10)):
            answer = self.ok(self.nfs.read(fh, offset, count))
            self.assertEqual(answer.data, content[offset : offset + count])
            self.assertEqual(answer.count, len(answer.data))
            self.assertEqual(answer.eof, offset + count >= len(content))
            self.assertEqual(answer.attr.size, len(content))
        self.assertEqual(len(self.ok(self.nfs.read(fh, 0, 1 << 30)).data), 1 << 20)
        answer = self.ok(self.nfs.read(fh, 2**64 - 1, 10))
        self.assertEqual((answer.data, answer.eof), (b"", True))

    def test_read_refusals(self):
        self.write_local("f", b"x")
        os.chmod(self.path("f"), 0o600)
        self.assertIsNotNone(self.refused(nfs.ACCES, self.client(uid=5, gid=5).read(self.find("f"))).attr)
        self.refused(nfs.ISDIR, self.nfs.read(self.dir))
        os.symlink("f", self.path("l"))
        self.refused(nfs.INVAL, self.nfs.read(self.find("l")))
        os.chmod(self.path("f"), 0o711)
        self.ok(self.client(uid=5, gid=5).read(self.find("f")))  # who may execute a file must load it
        os.chown(self.path("f"), 5, 5)
        os.chmod(self.path("f"), 0o000)
        self.ok(self.client(uid=5, gid=5).read(self.find("f")))  # it was open before it was closed to its owner

    def test_write(self):
        fh = self.ok(self.nfs.create(self.dir, "f")).fh
        content = bytearray()
        for offset, size, stable in ((0, 10, 0), (5, 10, 1), (100, 1, 2), (1 << 20, 1 << 20, 0), (0, 0, 2), (3, 777777, 2)):
            data = os.urandom(size)
            answer = self.ok(self.nfs.write(fh, data, offset, stable))
            self.assertEqual((answer.count, answer.committed), (size, stable))
            if len(content) < offset:
                content += bytes(offset - len(content))
            if size:
                content[offset : offset + size] = data
            self.assertEqual(answer.wcc.after.size, len(content))
            self.assertEqual(self.read_local("f"), bytes(content))

    def test_write_far(self):
        fh = self.ok(self.nfs.create(self.dir, "f")).fh
        self.ok(self.nfs.write(fh, b"far", 5 << 30))
        self.assertEqual(self.ok(self.nfs.read(fh, (5 << 30) - 1, 10)).data, b"\0far")
        self.refused(nfs.FBIG, self.nfs.write(fh, b"x", 2**63))
        self.refused(nfs.FBIG, self.nfs.write(fh, b"xy", 2**63 - 2))

    def test_write_wcc(self):
        fh = self.ok(self.nfs.create(self.dir, "f")).fh
        last = self.nfs.getattr(fh).attr
        for i in range(20):
            wcc = self.ok(self.nfs.write(fh, b"x" * 10, i * 10, nfs.UNSTABLE)).wcc
            self.assertEqual(wcc.before, (last.size, last.mtime, last.ctime))
            last = wcc.after

    def test_write_refusals(self):
        self.write_local("f", b"12345")
        os.chown(self.path("f"), 1000, 1000)
        os.chmod(self.path("f"), 0o444)
        fh = self.find("f")
        self.assertIsNotNone(self.refused(nfs.ACCES, self.client(uid=5, gid=5).write(fh, b"x")).wcc.after)
        self.ok(self.client(uid=1000, gid=1000).write(fh, b"X"))  # cp of a read-only file writes after its chmod
        self.refused(nfs.INVAL, self.nfs.write(fh, b"12", count=3))
        self.ok(self.nfs.write(fh, b"1234", count=2))
        self.assertEqual(self.read_local("f"), b"12345")
        self.refused(nfs.ISDIR, self.nfs.write(self.dir, b"x"))
        with self.assertRaises(Refused):
            self.nfs.write(fh, b"x", stable=3)

    def test_write_takes_set_user_id_away(self):
        self.write_local("f")
        os.chmod(self.path("f"), 0o4777)
        self.ok(self.client(uid=5, gid=5).write(self.find("f"), b"x"))
        self.assertEqual(os.lstat(self.path("f")).st_mode & 0o7777, 0o777)

    def test_commit(self):
        fh = self.ok(self.nfs.create(self.dir, "f")).fh
        first = self.ok(self.nfs.write(fh, b"x", 0, nfs.UNSTABLE)).verifier
        answer = self.ok(self.nfs.commit(fh, 0, 1))
        self.assertEqual(answer.verifier, first)
        self.assertIsNotNone(answer.wcc.before)
        self.ok(self.nfs.commit(fh, 2**63, 2**32 - 1))
        self.refused(nfs.ISDIR, self.nfs.commit(self.dir))

    def test_reading_does_not_keep_a_program_from_running(self):
        with open("/bin/true", "rb") as true:
            self.write_local("prog", true.read())
        os.chmod(self.path("prog"), 0o755)
        self.ok(self.nfs.read(self.find("prog")))
        self.assertEqual(os.spawnv(os.P_WAIT, self.path("prog"), ["prog"]), 0)


class OrdinaryUser(unittest.TestCase):
    """A server without root. What a mode closes to the server's own user is changed all the same, and answered so."""

    PREFIX = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")

    def setUp(self):
        if not shutil.which("setpriv"):
            self.skipTest("no setpriv")
        self.server = server.Server(server.Case.program, {"data": "/data,squash=none"}, prefix=self.PREFIX)
        self.addCleanup(self.server.close)
        for path in (self.server.base, self.server.path("data"), self.server.path("state")):
            os.chown(path, 1000, 1000)
        os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # it needs a right that the test took away
        self.addCleanup(os.environ.pop, "ASAN_OPTIONS")
        self.server.start()
        self.client = self.server.client(uid=1000, gid=1000)
        self.addCleanup(self.client.close)
        self.root = self.client.root("/data")

    def ok(self, answer):
        self.assertEqual(answer.stat, nfs.OK, answer)
        return answer

    def mode(self, name):
        return stat.S_IMODE(os.stat(self.server.path("data", name)).st_mode)

    def leave_mode(self, name, mode):
        """With none of its files open, as after a restart."""
        os.chmod(self.server.path("data", name), mode)
        self.server.stop()
        self.server.start()
        self.client.close()
        self.client = self.server.client(uid=1000, gid=1000)
        self.addCleanup(self.client.close)
        return self.ok(self.client.lookup(self.root, name)).fh

    def test_modes(self):
        self.ok(self.client.create(self.root, "f", mode=0o600))
        f = self.leave_mode("f", 0o600)
        self.ok(self.client.setattr(f, mode=0))
        self.assertEqual(self.mode("f"), 0)
        self.ok(self.client.create(self.root, "g", mode=0o200))
        self.ok(self.client.mkdir(self.root, "d", mode=0o300))
        self.assertEqual(self.mode("d"), 0o300)
        self.server.stop()

    def test_in_a_directory_without_read(self):
        self.ok(self.client.mkdir(self.root, "drop", mode=0o700))
        drop = self.leave_mode("drop", 0o300)
        self.ok(self.client.create(drop, "new"))
        self.ok(self.client.rename(drop, "new", drop, "other"))
        self.ok(self.client.remove(drop, "other"))
        self.assertEqual(os.listdir(self.server.path("data", "drop")), [])
        self.server.stop()

    def test_commit_of_a_file_without_read(self):
        self.ok(self.client.create(self.root, "f", mode=0o600))
        f = self.leave_mode("f", 0o200)
        self.ok(self.client.commit(f))
        self.server.stop()


class FileSystem(server.Case):
    def test_fsstat(self):
        answer = self.ok(self.nfs.fsstat(self.data))
        fs = os.statvfs(self.local)
        self.assertEqual((answer.tbytes, answer.tfiles), (fs.f_blocks * fs.f_frsize, fs.f_files))
        self.assertLess(abs(answer.fbytes - fs.f_bfree * fs.f_frsize), 1 << 32)
        self.assertLessEqual(answer.abytes, answer.fbytes)
        self.assertIsNotNone(answer.attr)

    def test_fsinfo(self):
        answer = self.ok(self.nfs.fsinfo(self.data))
        self.assertEqual((answer.rtmax, answer.wtmax), (1 << 20, 1 << 20))
        self.assertEqual(answer.rtmult % 512, 0)
        self.assertEqual(answer.properties, 0x1B)
        self.assertGreaterEqual(answer.maxfilesize, 1 << 43)
        self.assertEqual(answer.time_delta, (0, 1))
        udp = self.client(udp=True)
        self.assertEqual(udp.fsinfo(self.data).rtmax, 32768)

    def test_pathconf(self):
        answer = self.ok(self.nfs.pathconf(self.dir))
        self.assertEqual(answer.name_max, 255)
        self.assertEqual(answer.linkmax, os.pathconf(self.local, "PC_LINK_MAX"))
        self.assertEqual((answer.no_trunc, answer.chown_restricted, answer.case_insensitive, answer.case_preserving),
                         (True, True, False, True))  # fmt: skip


class Rpc(server.Case):
    def test_versions(self):
        for version in (2, 4):
            with self.assertRaises(Refused) as caught:
                self.nfs.call(nfs.NFS, version, 0)
            self.assertEqual((caught.exception.low, caught.exception.high), (3, 3))
        with self.assertRaises(Refused) as caught:
            self.nfs.call(100227, 3, 0)  # NFSACL: Linux asks
        self.assertEqual(caught.exception.stat, 1)
        with self.assertRaises(Refused):
            self.nfs.call(nfs.NFS, 3, 22)

    def test_short_arguments_are_garbage(self):
        for procedure in range(1, 22):
            for args in (b"", b"\0\0\0\x41" + bytes(65), b"\xff\xff\xff\xff", Out().opaque(self.dir).bytes()[:-1]):
                with self.assertRaises(Refused, msg=f"{procedure} {args}") as caught:
                    self.nfs.call(nfs.NFS, 3, procedure, args)
                self.assertEqual(caught.exception.stat, 4)

    def test_udp(self):
        udp = self.client(udp=True)
        fh = self.ok(udp.create(self.dir, "f")).fh
        data = os.urandom(30000)
        self.ok(udp.write(fh, data))
        self.assertEqual(self.ok(udp.read(fh, 0, 65536)).data, data)
        self.ok(self.nfs.write(fh, data, 30000))
        self.assertEqual(len(udp.read(fh, 0, 65536).data), 32768)
        self.assertTrue(udp.readdirplus(self.dir, 0, 0, 65536, 1 << 20).eof)

    def _memory(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) << 10

    def test_who_does_not_read_costs_little(self):
        """Two hundred megabytes are asked for, and none is taken: the server stops where its limit is. READ of what is
        in memory is served by the loop, a listing by a thread."""
        self.write_local("f", b"x" * (1 << 20))
        os.mkdir(self.path("d"))
        for i in range(3500):
            self.write_local(f"d/{i:0200}")
        f, d = self.find("f"), self.find("d")
        self._ask_and_wait(nfs.READ, Out().opaque(f).u64(0).u32(1 << 20).bytes())
        self._ask_and_wait(nfs.READDIRPLUS, Out().opaque(d).u64(0).u64(0).u32(1 << 20).u32(1 << 20).bytes())

    def _ask_and_wait(self, procedure, args, n=200):
        greedy = self.client()
        before = self._memory()
        for i in range(n):
            greedy.caller.send(call_message(nfs.NFS, 3, procedure, args, xid=i, cred=greedy.cred))
        for _ in range(300):  # it goes on serving others all the while
            self.ok(self.nfs.getattr(self.dir))
            self.ok(self.nfs.fsstat(self.dir))
        self.assertLess(self._memory() - before, 64 << 20)
        xids = set()
        for _ in range(n):
            reply = greedy.caller.receive()
            self.assertGreater(len(reply), 1000000)
            xids.add(reply[:4])
        self.assertEqual(len(xids), n)

    def test_repeats_get_the_same_answer(self):
        """A client that lost its connection asks again over another, with the same xid."""
        cases = [
            lambda client, xid: client.create(self.dir, "f", nfs.GUARDED, xid=xid),
            lambda client, xid: client.mkdir(self.dir, "d", xid=xid),
            lambda client, xid: client.remove(self.dir, "f", xid=xid),
        ]
        for i, case in enumerate(cases):
            first = self.ok(case(self.nfs, 7000 + i))
            again = self.ok(case(self.client(), 7000 + i))
            self.assertEqual(repr(first), repr(again))
        self.refused(nfs.NOENT, self.nfs.remove(self.dir, "f", xid=9000))


if __name__ == "__main__":
    server.main()
