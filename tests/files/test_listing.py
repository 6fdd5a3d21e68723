#!/usr/bin/env python3
"""READDIR and READDIRPLUS: every name once, however large the directory and whatever happens to it meanwhile.

HF_LISTING_NAMES: how many names the large directory has (20000; a million takes a minute).
"""

import os

import nfs
import server

N_NAMES = int(os.environ.get("HF_LISTING_NAMES", "20000"))


class Listing(server.Case):
    def walk(self, fh, plus=False, count=8192, between=lambda entries: None):
        """All entries, call after call; @between is called with those of each."""
        cookie = verifier = 0
        found = []
        while True:
            if plus:
                answer = self.ok(self.nfs.readdirplus(fh, cookie, verifier, count, 4 * count))
            else:
                answer = self.ok(self.nfs.readdir(fh, cookie, verifier, count))
            found += answer.entries
            if answer.eof:
                return found
            self.assertTrue(answer.entries)
            cookie, verifier = answer.entries[-1].cookie, answer.verifier
            between(answer.entries)

    def test_small(self):
        for name in "abc":
            self.write_local(name)
        answer = self.ok(self.nfs.readdir(self.dir))
        self.assertTrue(answer.eof)
        self.assertEqual({entry.name for entry in answer.entries}, {b".", b"..", b"a", b"b", b"c"})
        inodes = {os.fsencode(entry.name): entry.inode() for entry in os.scandir(self.local)}
        inodes.update({b".": os.lstat(self.local).st_ino, b"..": os.lstat(self.server.path("data")).st_ino})
        self.assertEqual({entry.name: entry.fileid for entry in answer.entries}, inodes)
        self.assertEqual(answer.dir.fileid, inodes[b"."])

    def test_what_is_above_the_root_is_not_told(self):
        answer = self.ok(self.nfs.readdir(self.data))
        ids = {entry.name: entry.fileid for entry in answer.entries}
        self.assertEqual(ids[b".."], ids[b"."])

    def test_plus(self):
        self.write_local("f", b"12345")
        os.symlink("x", self.path("l"))
        os.mkfifo(self.path("p"))
        os.mkdir(self.path("d"))
        for entry in self.walk(self.dir, plus=True):
            if entry.name in (b".", b".."):
                continue
            looked = self.nfs.lookup(self.dir, entry.name)
            self.assertEqual(entry.fh, looked.fh)
            self.assertEqual(entry.attr.__dict__, looked.attr.__dict__)
            self.assertEqual(entry.fileid, looked.attr.fileid)

    def test_every_size_of_reply(self):
        names = {b"n" * (1 + i * 7 % 250) + b"%d" % i for i in range(60)}
        for name in names:
            self.write_local(os.fsdecode(name))
        for count in (400, 512, 1000, 4096, 1 << 20):
            found = [entry.name for entry in self.walk(self.dir, count=count)]
            self.assertEqual(len(found), len(set(found)))
            self.assertEqual(set(found) - {b".", b".."}, names)
        for count in (512, 4096, 1 << 20):
            found = [entry.name for entry in self.walk(self.dir, plus=True, count=count)]
            self.assertEqual((len(found), set(found) - {b".", b".."}), (62, names))

    def test_replies_keep_to_the_size_asked_for(self):
        for i in range(500):
            self.write_local(f"name{i}")
        for count in (200, 513, 2000, 8192):
            data = self.nfs.call(nfs.NFS, 3, nfs.READDIR, nfs.Out().opaque(self.dir).u64(0).u64(0).u32(count).bytes())
            self.assertLessEqual(len(data.data), count)

    def test_too_small(self):
        self.refused(nfs.TOOSMALL, self.nfs.readdir(self.dir, count=0))
        self.refused(nfs.TOOSMALL, self.nfs.readdir(self.dir, count=120))
        self.write_local("n" * 250)
        cookie = self.ok(self.nfs.readdir(self.dir, count=4096)).entries
        self.refused(nfs.TOOSMALL, self.nfs.readdirplus(self.dir, 0, 0, 100, 200))
        self.assertTrue(cookie)

    def test_refusals(self):
        self.write_local("f")
        self.refused(nfs.NOTDIR, self.nfs.readdir(self.find("f")))
        os.mkdir(self.path("closed"), 0o700)
        self.refused(nfs.ACCES, self.client(uid=5, gid=5).readdir(self.find("closed")))
        cookie = self.ok(self.nfs.readdir(self.dir)).entries[0].cookie
        self.refused(nfs.BAD_COOKIE, self.nfs.readdir(self.dir, cookie, 12345))
        self.refused(nfs.BAD_COOKIE, self.nfs.readdir(self.dir, 2**64 - 1))
        self.ok(self.nfs.readdir(self.dir, cookie, 0))  # some clients send no verifier

    def test_names_that_may_be_read_but_not_searched(self):
        os.mkdir(self.path("d"))
        self.write_local("d/f")
        os.chmod(self.path("d"), 0o744)
        entries = self.ok(self.client(uid=5, gid=5).readdirplus(self.find("d"))).entries
        entry = [one for one in entries if one.name == b"f"][0]
        self.assertIsNone(entry.fh)

    def test_large_while_it_changes(self):
        """Names that are there from the beginning to the end come exactly once."""
        os.mkdir(self.path("d"))
        where = self.path("d")
        for i in range(N_NAMES):
            os.close(os.open(f"{where}/stays{i}", os.O_CREAT | os.O_WRONLY))
        for i in range(1000):
            os.close(os.open(f"{where}/goes{i}", os.O_CREAT | os.O_WRONLY))
        state = {"turn": 0}

        def meddle(_):
            state["turn"] += 1
            if state["turn"] < 1000:
                os.unlink(f"{where}/goes{state['turn']}")
                os.close(os.open(f"{where}/new{state['turn']}", os.O_CREAT | os.O_WRONLY))

        for plus in (False, True):
            state["turn"] = 0 if not plus else 1000
            names = [entry.name for entry in self.walk(self.find("d"), plus, 32768, meddle)]
            stays = [name for name in names if name.startswith(b"stays")]
            self.assertEqual(len(stays), N_NAMES)
            self.assertEqual(len(set(stays)), N_NAMES)
            self.assertEqual(len(names), len(set(names)))

    def test_cookies_hold_over_a_restart(self):
        for i in range(2000):
            self.write_local(f"n{i}")
        first = self.ok(self.nfs.readdir(self.dir, count=4096))
        self.server.crash()
        self.server.start()
        self.nfs = self.client()
        cookie, verifier = first.entries[-1].cookie, first.verifier
        names = [entry.name for entry in first.entries]
        while True:
            answer = self.ok(self.nfs.readdir(self.dir, cookie, verifier, 8192))
            names += [entry.name for entry in answer.entries]
            if answer.eof:
                break
            cookie = answer.entries[-1].cookie
        self.assertEqual((len(names), len(set(names))), (2002, 2002))


if __name__ == "__main__":
    server.main()
