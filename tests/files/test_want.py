#!/usr/bin/env python3
"""Memory or descriptors run out when a new object has its name. It is made, so the client hears that: told to try again, it
would find its own object and fail.
"""

import os

import failing
import nfs
import server
from until import until


class Want(failing.Audited):
    def audited(self):
        """The last line of the audit log"""
        found = self.audit_lines()
        return found[-1] if found else {}

    def calls(self):
        return {
            nfs.DIR: lambda name: self.nfs.mkdir(self.dir, name, mode=0o755),
            nfs.LNK: lambda name: self.nfs.symlink(self.dir, name, b"target", mode=0o777),
            nfs.FIFO: lambda name: self.nfs.mknod(self.dir, name, nfs.FIFO, mode=0o644),
            nfs.REG: lambda name: self.nfs.create(self.dir, name, how=nfs.GUARDED, mode=0o640, size=0),
        }

    def test_what_was_made_is_told_without_its_handle(self):
        for kind, make in self.calls().items():
            with self.subTest(kind):
                self.begin("want")
                answer = self.ok(make(f"made-{kind}"))
                self.end("want")
                self.assertIsNone(answer.fh)
                self.assertIsNone(answer.attr)
                self.assertIsNotNone(answer.wcc.after)
                self.assertEqual(self.ok(self.nfs.getattr(self.find(f"made-{kind}"))).attr.type, kind)

    def test_an_exclusive_create_can_be_repeated(self):
        self.begin("want")
        self.assertIsNone(self.ok(self.nfs.create(self.dir, "f", how=nfs.EXCLUSIVE, verifier=b"verifier")).fh)
        self.end("want")
        again = self.ok(self.nfs.create(self.dir, "f", how=nfs.EXCLUSIVE, verifier=b"verifier"))
        self.assertEqual(again.fh, self.find("f"))

    def test_it_is_on_the_disk_before_the_reply(self):
        for kind, make in self.calls().items():
            with self.subTest(kind):
                self.begin("want")
                self.begin("fsync")
                self.refused(nfs.IO, make(f"lost-{kind}"))
                self.end("fsync")
                self.end("want")

    def test_attributes_that_were_not_set_are_not_confirmed(self):
        self.begin("want")
        self.refused(nfs.JUKEBOX, self.nfs.mkdir(self.dir, "d", mode=0o755, uid=12345))
        self.refused(nfs.JUKEBOX, self.nfs.create(self.dir, "f", how=nfs.GUARDED, mode=0o644, size=5))

    def test_what_was_made_in_part_is_synced_and_audited(self):
        for name, fails, stat, result in ((b"d", "want", nfs.JUKEBOX, "JUKEBOX"), (b"e", "fsync", nfs.IO, "IO")):
            with self.subTest(result):
                self.begin("want")
                self.begin(fails)
                self.refused(stat, self.nfs.mkdir(self.dir, name, mode=0o755, uid=12345))
                self.end(fails)
                self.end("want")
                line = until(self.audited, "it is written", passes=lambda seen, name=name: seen.get("name") == name.decode())
                self.assertEqual((line["op"], line["result"], "made" in line), ("mkdir", result, result == "JUKEBOX"))

    def test_an_existing_file_is_not_confirmed(self):
        self.made("f")
        self.begin("want")
        self.refused(nfs.JUKEBOX, self.nfs.create(self.dir, "f", mode=0o644))


if __name__ == "__main__":
    os.environ.pop("HF_TEST_PATIENCE", None)  # the first reply counts
    server.main()
