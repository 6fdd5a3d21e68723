#!/usr/bin/env python3
"""The exports are loaded again while a call has found the first of its two handles."""

import os
import signal
import threading

import failing
import nfs
import server
from until import until

LOADED = "the exports were loaded again"


class Reload(failing.Case):
    exports = {"data": "/data,squash=none", "other": "/other,squash=none"}

    def setUp(self):
        super().setUp()
        if "handles=finder" in self.server.log:
            self.skipTest("the kernel opens no file by its handle here")
        self.from_dir = self.ok(self.nfs.mkdir(self.dir, "from", mode=0o755)).fh
        self.to_dir = self.ok(self.nfs.mkdir(self.dir, "to", mode=0o755)).fh
        self.file = self.ok(self.nfs.create(self.from_dir, "f", mode=0o644)).fh
        self.other = self.nfs.root("/other")
        self.server.crash()  # so that the server has none of them open
        self.server.start()

    def reload(self):
        n_loaded = self.server.log.count(LOADED)
        self.server.process.send_signal(signal.SIGHUP)
        until(lambda: self.server.log.count(LOADED) > n_loaded, "the exports are loaded again")

    def during(self, call):
        """The reply to @call. The exports are loaded again while it opens its first file."""
        client, replies = self.client(), []
        self.end("opening")
        self.begin("open")
        thread = threading.Thread(target=lambda: replies.append(call(client)))
        thread.start()
        try:
            until(lambda: self.has("opening"), "the first file is being opened")
            self.reload()
        finally:
            self.end("open")
            thread.join()
        return replies[0]

    def test_rename(self):
        self.ok(self.during(lambda client: client.rename(self.from_dir, "f", self.to_dir, "g")))
        self.assertEqual(os.listdir(self.path("to")), ["g"])

    def test_link(self):
        self.ok(self.during(lambda client: client.link(self.file, self.to_dir, "g")))
        self.assertEqual(os.lstat(self.path("to/g")).st_nlink, 2)

    def test_two_exports_stay_two(self):
        self.refused(nfs.XDEV, self.during(lambda client: client.rename(self.from_dir, "f", self.other, "g")))
        self.refused(nfs.XDEV, self.client().link(self.file, self.other, "g"))


if __name__ == "__main__":
    server.main()
