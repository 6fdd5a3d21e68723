#!/usr/bin/env python3
"""A file system whose times have whole seconds. Two changes within a second have one ctime, and the server sees the second
one nevertheless.
"""

import os

import nfs
import server
from until import until

READ = 1  # of ACCESS


class Seconds(server.Case):
    def rights_after_chmod(self, name, chmod):
        """What a stranger may do after @chmod. None: the ctime shows the change."""
        self.write_local(name)
        os.chmod(self.path(name), 0o644)
        handle, stranger = self.find(name), self.client(uid=12345, gid=12345)
        server.until_unchanged_for(self.path(name), 100)  # so that the server trusts a ctime of nanoseconds
        self.assertEqual(self.ok(stranger.access(handle, READ)).bits, READ)
        before = os.stat(self.path(name)).st_ctime_ns
        chmod(name, handle)
        return self.ok(stranger.access(handle, READ)).bits if os.stat(self.path(name)).st_ctime_ns == before else None

    def is_seen(self, chmod):
        """In the same second, sooner or later."""
        tries = iter(range(10**6))
        rights = until(lambda: self.rights_after_chmod(f"f{next(tries)}", chmod), "two changes within one second",
                       passes=lambda bits: bits is not None)  # fmt: skip
        self.assertEqual(rights, 0)

    def test_a_local_chmod_in_the_same_second_is_seen(self):
        self.is_seen(lambda name, _: os.chmod(self.path(name), 0o600))

    def test_a_setattr_in_the_same_second_is_seen(self):
        self.is_seen(lambda _, handle: self.ok(self.nfs.setattr(handle, mode=0o600)))

    def test_a_right_that_was_given_back_is_seen(self):
        """The answer that was remembered after two seconds does not outlive the next change."""
        self.write_local("f")
        os.chmod(self.path("f"), 0o600)
        handle, stranger = self.find("f"), self.client(uid=12345, gid=12345)
        server.until_unchanged_for(self.path("f"), 2100)
        self.assertEqual(self.ok(stranger.access(handle, READ)).bits, 0)
        self.refused(nfs.ACCES, stranger.read(handle))
        os.chmod(self.path("f"), 0o644)
        self.assertEqual(self.ok(stranger.access(handle, READ)).bits, READ)
        self.ok(stranger.read(handle))


if __name__ == "__main__":
    server.main()
