#!/usr/bin/env python3
"""A disk that loses what it was given: the verifier of writes makes clients send it again, whoever it was that the
kernel told, since it tells one only."""

import os
import tempfile
import threading
import unittest

import nfs
import server
from until import until


class Losses(server.Case):
    @classmethod
    def setUpClass(cls):
        base = tempfile.TemporaryDirectory(prefix="hf-failing-")
        cls.addClassCleanup(base.cleanup)
        cls.failing = os.environ["HF_TEST_FAILING"] = base.name
        super().setUpClass()

    def begin(self, what):
        with open(os.path.join(self.failing, what), "wb"):
            self.addCleanup(self.end, what)

    def end(self, what):
        if self.has(what):
            os.unlink(os.path.join(self.failing, what))

    def has(self, what):
        return os.path.exists(os.path.join(self.failing, what))

    def made(self, name):
        return self.ok(self.nfs.create(self.dir, name, mode=0o644)).fh

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
        """Who is out of space or of his quota tries again and again, and must not keep others from committing."""
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

    def test_the_log_says_so(self):
        f = self.made("f")
        self.lose(f)
        self.lose(f)
        self.assertEqual(self.server.log.count("may not be on the disk"), 1)
        self.assertIn("error=EIO", self.server.log)


if __name__ == "__main__":
    server.main()
