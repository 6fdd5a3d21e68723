#!/usr/bin/env python3
"""A seeded mix of operations through libnfs on several connections, beside the same on local directories, while the
server is killed and started again; and the tools of libnfs and nfs-utils.

    test_integrity.py PATH/files_serve PATH/files_mix [unittest's own arguments]

HF_MIX_SEED, HF_MIX_OPERATIONS: which mix, and how long.
"""

import os
import random
import shutil
import subprocess
import sys
import unittest

import server
from until import lapse

SEED = int(os.environ.get("HF_MIX_SEED", "1"))
N_OPERATIONS = int(os.environ.get("HF_MIX_OPERATIONS", "1500"))
N_CLIENTS = 3


def snapshot(root):
    """Everything that can be seen of a tree, names sorted."""
    seen, inodes = [], {}
    for where, dirs, names in os.walk(root):
        for name in sorted(dirs + names):
            path = os.path.join(where, name)
            st = os.lstat(path)
            kind = (os.path.relpath(path, root), st.st_mode, st.st_nlink)
            if os.path.islink(path):
                kind += (os.readlink(path),)
            elif os.path.isfile(path):
                first = inodes.setdefault(st.st_ino, os.path.relpath(path, root))
                with open(path, "rb") as data:
                    kind += (st.st_size, first, hash(data.read()))
            seen.append(kind)
    return sorted(seen)


class Integrity(unittest.TestCase):
    mix = None

    def setUp(self):
        self.server = server.Server(server.Case.program, {"data": "/data,squash=none"}, ("lanes=2",))
        self.addCleanup(self.server.close)
        self.server.start()

    def url(self, path):
        return f"nfs://127.0.0.1{path}?nfsport={self.server.port}&mountport={self.server.port}"

    def start_clients(self):
        clients = []
        for i in range(N_CLIENTS):
            local, exported = self.server.path(f"local{i}"), self.server.path("data", f"{i}")
            os.mkdir(local)
            os.mkdir(exported)
            words = [self.mix, self.url(f"/data/{i}"), local, exported, str(SEED * 1000 + i), str(N_OPERATIONS)]
            clients.append(subprocess.Popen(words, stderr=subprocess.PIPE))
            self.addCleanup(self.end, clients[-1])
        return clients

    @staticmethod
    def end(client):
        """One that is left over asks a server that is gone for ever."""
        client.kill()
        client.wait()
        client.stderr.close()

    def finish(self, clients):
        for client in clients:
            _, error = client.communicate(timeout=300)
            self.assertEqual(client.returncode, 0, error.decode() + self.server.log[-2000:])
        for i in range(N_CLIENTS):
            self.assertEqual(snapshot(self.server.path("data", f"{i}")), snapshot(self.server.path(f"local{i}")))

    def test_undisturbed(self):
        self.finish(self.start_clients())
        self.server.stop()

    def test_killed_in_the_middle(self):
        random.seed(SEED)
        clients = self.start_clients()
        n_kills = 0
        while any(client.poll() is None for client in clients) and n_kills < 12:
            lapse(random.uniform(0.05, 0.4))  # at any moment: that is the point
            self.server.crash()
            self.server.start()
            n_kills += 1
        self.assertGreater(n_kills, 1)
        self.finish(clients)
        self.server.stop()


class Tools(unittest.TestCase):
    def setUp(self):
        self.server = server.Server(server.Case.program, {"data": "/data,squash=none", "ro": "/ro,ro"})
        self.addCleanup(self.server.close)
        self.server.start()

    def run_tool(self, *words):
        done = subprocess.run(words, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    @unittest.skipUnless(shutil.which("nfs-ls"), "libnfs-utils is not here")
    def test_libnfs(self):
        end = f"?nfsport={self.server.port}&mountport={self.server.port}"
        data = os.urandom(5000000)
        with open(self.server.path("big"), "wb") as out:
            out.write(data)
        self.run_tool("nfs-cp", self.server.path("big"), f"nfs://127.0.0.1/data/big{end}")
        self.assertEqual(self.run_tool("nfs-cat", f"nfs://127.0.0.1/data/big{end}"), data)
        self.run_tool("nfs-cp", f"nfs://127.0.0.1/data/big{end}", self.server.path("back"))
        with open(self.server.path("back"), "rb") as back:
            self.assertEqual(back.read(), data)
        os.mkdir(self.server.path("data/dir"))
        listing = self.run_tool("nfs-ls", f"nfs://127.0.0.1/data{end}").decode()
        self.assertIn("5000000 big", listing)
        self.assertIn(" dir", listing)


if __name__ == "__main__":
    Integrity.mix = os.path.abspath(sys.argv.pop(2))
    server.main()
