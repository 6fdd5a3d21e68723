#!/usr/bin/env python3
"""Names of more than 255 bytes (long_names.c). A client hears that they exist, and cannot use them."""

import os

import nfs
import server

SETTLED_MS = 25  # of an older directory the server keeps what it listed
LENGTHS = (255, 256, 300, 1023)


class LongNames(server.Case):
    def setUp(self):
        super().setUp()
        for length in LENGTHS:
            os.mkdir(self.path(f"long-{length:04}"))  # directories: their attributes are read each time
        self.write_local("short")
        server.until_unchanged_for(self.local, SETTLED_MS)

    def listed(self, call, **room):
        """The lengths of all names but dots, page by page. No page is refused, and there is an end."""
        lengths, cookie, verifier = [], 0, 0
        for _ in range(20):
            answer = self.ok(call(self.dir, cookie, verifier, **room))
            lengths += [len(entry.name) for entry in answer.entries if entry.name not in (b".", b"..")]
            if answer.eof:
                return sorted(lengths)
            cookie, verifier = answer.entries[-1].cookie, answer.verifier
        raise AssertionError(f"the listing does not end: {lengths}")

    def test_readdirplus_lists_them_again_and_again(self):
        for _ in range(3):
            self.assertEqual(self.listed(self.nfs.readdirplus), [5, *LENGTHS])

    def test_pages_for_few_bytes_of_names(self):
        self.assertEqual(self.listed(self.nfs.readdirplus, dircount=200), [5, *LENGTHS])
        self.assertEqual(self.listed(self.nfs.readdir, count=1200), [5, *LENGTHS])

    def test_room_for_no_such_name(self):
        answer = self.nfs.readdir(self.dir, count=512)
        while answer.stat == nfs.OK:
            self.assertFalse(answer.eof)
            answer = self.nfs.readdir(self.dir, answer.entries[-1].cookie, answer.verifier, count=512)
        self.refused(nfs.TOOSMALL, answer)

    def test_no_client_can_use_one(self):
        name = b"long-0300" + b"x" * 291
        self.refused(nfs.NAMETOOLONG, self.nfs.lookup(self.dir, name))
        self.refused(nfs.NAMETOOLONG, self.nfs.rmdir(self.dir, name))


if __name__ == "__main__":
    server.main()
