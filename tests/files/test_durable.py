#!/usr/bin/env python3
"""What was answered is on the disk: after each call the image beneath the file system is copied, as a power cut would
leave it, and what the file system makes of the copy must hold what the answer said.

    test_durable.py PATH/files_serve KIND
"""

import concurrent.futures
import os
import stat
import subprocess
import sys
import tempfile
import time

import disk
import nfs
import server

N_AT_ONCE = 8
N_EACH = 8
TICKS_NS = 20_000_000  # some ticks of any kernel's clock


def is_same(image, to):
    return subprocess.run(["cmp", "-s", image, to], check=False).returncode == 0


def copy(image, to):
    """Until nothing was written meanwhile: a copy of two moments is no power cut. Of a second write within a tick of the
    kernel's clock the time says nothing, so then the bytes are compared."""
    while True:
        before = os.stat(image).st_mtime_ns
        is_fresh = time.time_ns() - before < TICKS_NS
        subprocess.run(["cp", "--sparse=always", image, to], check=True)
        if os.stat(image).st_mtime_ns == before and (not is_fresh or is_same(image, to)):
            return


class Cuts:
    """Calls, each with a copy of the disk as it was at its answer and a check of what must be found there."""

    def __init__(self, base, image):
        self.base = base
        self.image = image
        self.all = []

    def after(self, what, answer, check):
        assert answer.stat == nfs.OK, (what, answer)
        to = os.path.join(self.base, f"cut-{len(self.all)}")
        copy(self.image, to)
        self.all.append((what, to, check))

    def after_all(self, what, answers, check):
        failed = [answer for each in answers for answer in each if answer.stat != nfs.OK]
        self.after(what, failed[0] if failed else answers[-1][-1], check)

    def verify(self, kind):
        where, failed = os.path.join(self.base, "cut"), []
        for what, image, check in self.all:
            if kind == "ext4-nojournal":  # as an operator has to
                subprocess.run(["e2fsck", "-fy", image], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            disk.mount(image, where, "loop,nouuid" if kind == "xfs" else "loop")
            try:
                is_there = check(os.path.join(where, "tests", "data"))
            except OSError as error:
                is_there = error
            disk.unmount(where)
            print(f"{what}: {'there' if is_there is True else is_there}", flush=True)
            if is_there is not True:
                failed.append(what)
        return failed


def at_once(served, call):
    """The answers of some clients that all @call(client, number) at the same time: what they do is synced together."""
    clients = [served.client() for _ in range(N_AT_ONCE)]
    try:
        with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as threads:
            return list(threads.map(call, clients, range(N_AT_ONCE)))
    finally:
        for client in clients:
            client.close()


def content(path):
    with open(path, "rb") as data:
        return data.read()


def make_calls(client, cuts):
    root = client.root("/data")
    d = client.mkdir(root, "d", mode=0o755)
    cuts.after("MKDIR", d, lambda at: os.path.isdir(f"{at}/d"))
    f = client.create(d.fh, "f", nfs.GUARDED, mode=0o640)
    cuts.after("CREATE", f, lambda at: stat.S_IMODE(os.lstat(f"{at}/d/f").st_mode) == 0o640)
    owned = client.create(d.fh, "owned", nfs.UNCHECKED, mode=0o4755, uid=7, gid=8)
    cuts.after("CREATE with owner", owned, lambda at: os.lstat(f"{at}/d/owned").st_uid == 7)
    cuts.after("CREATE exclusive", client.create(d.fh, "x", nfs.EXCLUSIVE, verifier=b"verifier"),
               lambda at: os.lstat(f"{at}/d/x").st_size == 0)  # fmt: skip
    cuts.after("SYMLINK", client.symlink(d.fh, "l", "to"), lambda at: os.readlink(f"{at}/d/l") == "to")
    cuts.after("MKNOD", client.mknod(d.fh, "p", nfs.FIFO, mode=0o600),
               lambda at: stat.S_ISFIFO(os.lstat(f"{at}/d/p").st_mode))  # fmt: skip
    cuts.after("LINK", client.link(f.fh, d.fh, "f2"), lambda at: os.lstat(f"{at}/d/f2").st_nlink == 2)
    cuts.after("SETATTR", client.setattr(f.fh, mode=0o604), lambda at: os.lstat(f"{at}/d/f").st_mode & 0o777 == 0o604)
    cuts.after("WRITE", client.write(f.fh, b"data"), lambda at: content(f"{at}/d/f") == b"data")
    client.write(f.fh, b"more", offset=4, stable=nfs.UNSTABLE)
    cuts.after("COMMIT", client.commit(f.fh), lambda at: content(f"{at}/d/f") == b"datamore")
    e = client.mkdir(root, "e", mode=0o755)
    cuts.after("RENAME", client.rename(d.fh, "f", e.fh, "moved"),
               lambda at: content(f"{at}/e/moved") == b"datamore" and not os.path.lexists(f"{at}/d/f"))  # fmt: skip
    cuts.after("REMOVE", client.remove(d.fh, "f2"), lambda at: not os.path.lexists(f"{at}/d/f2"))
    g = client.mkdir(d.fh, "g", mode=0o755)
    assert g.stat == nfs.OK
    cuts.after("RMDIR", client.rmdir(d.fh, "g"), lambda at: not os.path.lexists(f"{at}/d/g"))


def make_many_calls(served, cuts):
    with served.client() as client:
        d = client.mkdir(client.root("/data"), "many", mode=0o755).fh
    names = {f"{i}-{j}" for i in range(N_AT_ONCE) for j in range(N_EACH)}

    def create(client, i):
        return [client.create(d, f"{i}-{j}", nfs.GUARDED, mode=0o640) for j in range(N_EACH)]

    def create_and_remove(client, i):
        client.create(d, f"{i}-more", nfs.GUARDED, mode=0o640)
        return [client.remove(d, f"{i}-{j}") for j in range(N_EACH)]

    def are_made(at):
        return {name for name in os.listdir(f"{at}/many") if stat.S_ISREG(os.lstat(f"{at}/many/{name}").st_mode)} == names

    cuts.after_all("CREATE, many at once", at_once(served, create), are_made)
    cuts.after_all("REMOVE and CREATE, many at once", at_once(served, create_and_remove),
                   lambda at: set(os.listdir(f"{at}/many")) == {f"{i}-more" for i in range(N_AT_ONCE)})  # fmt: skip


def main():
    disk.enter_namespace()
    program, kind = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="hf-durable-") as base:
        held = disk.Disk(kind, base)
        cuts = Cuts(base, held.image)
        try:
            served = server.Server(program, {})
            os.mkdir(os.path.join(held.path, "data"))
            served.exports = {os.path.join(held.path, "data"): "/data,squash=none"}
            os.sync()
            served.start()
            try:
                with served.client() as client:
                    make_calls(client, cuts)
                make_many_calls(served, cuts)
                served.stop()
            finally:
                served.close()
        finally:
            held.close()
        if kind == "btrfs":  # the copies have its identity
            subprocess.run(["btrfs", "device", "scan", "--forget"], check=False)
        failed = cuts.verify(kind)
    if failed:
        sys.exit(f"not on the disk after the answer, on {kind}: {', '.join(failed)}")


main()
