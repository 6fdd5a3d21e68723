#!/usr/bin/env python3
"""A disk that hangs: close(2) of a file there does not return. The other exports do not notice it."""

import os
import threading

import failing
import nfs
import server
from until import until

N_FDS = 1024
N_HUNG = 40
N_OTHERS = 1200  # more than may be open at a time


class Hung(failing.Case):
    exports = {"data": "/data,squash=none", "other": "/other,squash=none"}
    options = ("threads=2",)
    prefix = ("prlimit", f"--nofile={N_FDS}:{N_FDS}")

    def setUp(self):
        super().setUp()
        self.other = self.nfs.root("/other")

    def opened(self):
        """The names of all files that the server has open."""
        fds = f"/proc/{self.server.process.pid}/fd"
        names = []
        for fd in os.listdir(fds):
            try:
                names.append(os.path.basename(os.readlink(os.path.join(fds, fd))))
            except FileNotFoundError:  # closed meanwhile
                continue
        return names

    def until_closed(self, name):
        """All files whose names begin so."""
        left = lambda: [each for each in self.opened() if each.startswith(name)]
        until(left, f"{name} is closed", passes=lambda names: not names)

    def make_others(self, n, name):
        for i in range(n):
            with open(self.server.path("other", f"{name}{i}"), "wb"):
                pass

    def hang(self):
        """Files on the hung disk wait to be closed, and one does not come back."""
        self.end("closing")
        self.begin("close")
        self.ok(self.nfs.write(self.made("hung"), b"data", stable=nfs.UNSTABLE))
        until(lambda: self.has("closing"), "an idle file is being closed")

    def done(self, work, what):
        """@work, by a client of its own, ends."""
        client, ended = self.client(), threading.Event()

        def run():
            work(client)
            ended.set()

        threading.Thread(target=run, daemon=True).start()
        until(ended.is_set, what)

    def test_other_exports_are_swept(self):
        self.hang()
        self.make_others(1, "idle")
        self.ok(self.nfs.lookup(self.other, "idle0"))
        self.assertIn("idle0", self.opened())
        self.until_closed("idle")
        self.assertIn("hung", self.opened())
        self.end("close")
        self.until_closed("hung")

    def test_no_loop_and_no_worker_closes_what_hangs(self):
        """More files than may be open are looked up: those of the hung disk make room first, being the least used."""
        for i in range(N_HUNG):
            self.ok(self.nfs.write(self.made(f"hung{i}"), b"data"))
        self.begin("close")
        self.make_others(N_OTHERS, "f")

        def look_up(client):
            for i in range(N_OTHERS):
                self.ok(client.lookup(self.other, f"f{i}"))

        self.done(look_up, "another export was looked up")
        self.assertGreaterEqual(len([name for name in self.opened() if name.startswith("hung")]), N_HUNG)
        self.assertLess(len(self.opened()), N_FDS * 3 / 4)
        for i in range(4):
            self.done(lambda client: client.call(nfs.NFS, 3, nfs.NULL), "a new client is answered")
            self.done(lambda client, i=i: self.ok(client.create(self.other, f"new{i}", mode=0o644)), "a file is created")
        self.end("close")
        self.until_closed("hung")


if __name__ == "__main__":
    server.main()
