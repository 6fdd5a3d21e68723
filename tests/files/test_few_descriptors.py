#!/usr/bin/env python3
"""More files than the server has descriptors for. It closes some to make room, and refuses no call for want of one."""

import os
import random
import signal
import threading

import nfs
import server

N_FDS = 300
N_CLIENTS = 6
N_CALLS = 400
N_RELOADS = 12
N_WRITTEN = 800  # unstable, so that each must be synced before it is closed


class FewDescriptors(server.Case):
    exports = {name: f"/{name},squash=none" for name in ("data", "b", "c")}
    prefix = ("prlimit", f"--nofile={N_FDS}:{N_FDS}")

    def count_fds(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def test_written_files_make_room(self):
        for i in range(N_WRITTEN):
            self.ok(self.nfs.write(self.ok(self.nfs.create(self.dir, f"f{i}", mode=0o644)).fh, b"data", stable=nfs.UNSTABLE))
            if i % 50 == 0:
                self.assertLess(self.count_fds(), N_FDS * 3 // 4)
        self.ok(self.nfs.commit(self.ok(self.nfs.lookup(self.dir, "f0")).fh))

    def play(self, client, seed):
        """Creates, writes, links, removes; each call has a reply."""
        rng, roots, made = random.Random(seed), {name: client.root(f"/{name}") for name in self.exports}, {}
        for _ in range(N_CALLS):
            where, name = rng.choice(list(roots)), f"w{seed}_{rng.randrange(60)}"
            handle, call = made.get((where, name)), rng.choice(("write", "write", "commit", "read", "link", "remove"))
            if not handle:
                made[where, name] = self.ok(client.create(roots[where], name, mode=0o644)).fh
            elif call == "write":
                self.ok(client.write(handle, b"data", stable=rng.choice((nfs.UNSTABLE, nfs.FILE_SYNC))))
            elif call == "commit":
                self.ok(client.commit(handle))
            elif call == "read":
                self.ok(client.read(handle))
            elif call == "link":
                self.ok(client.link(handle, roots[where], f"{name}x"))
                self.ok(client.remove(roots[where], f"{name}x"))
            else:
                self.ok(client.remove(roots[where], name))
                del made[where, name]

    def test_many_clients_and_reloads(self):
        failures = []

        def run(seed):
            try:
                self.play(self.client(), seed)
            except Exception as error:  # pylint: disable=broad-exception-caught
                failures.append(error)

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(N_CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(N_RELOADS):
            threads[0].join(0.3)
            self.server.process.send_signal(signal.SIGHUP)
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    server.main()
