"""A process of its own on the server's host that locks files as programs do, with fcntl(2): a pipe leads it."""

import os
import subprocess
import sys

MAX_READS = 100

SCRIPT = """
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
print("ready", flush=True)
for line in sys.stdin:
    verb, mode, start, length = line.split()
    kind = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX}.get(mode)
    try:
        if verb == "lock":
            fcntl.lockf(fd, kind | fcntl.LOCK_NB, int(length), int(start))
        elif verb == "wait":
            print("waits", flush=True)
            fcntl.lockf(fd, kind, int(length), int(start))
        elif verb == "test":
            asked = struct.pack("hhqqi", fcntl.F_WRLCK, 0, int(start), int(length), 0)
            found = struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
            print("free" if found[0] == fcntl.F_UNLCK else "held", flush=True)
            continue
        else:
            fcntl.lockf(fd, fcntl.LOCK_UN, int(length), int(start))
        print("ok", flush=True)
    except BlockingIOError:
        print("busy", flush=True)
"""


class LocalProcess:
    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    @property
    def pid(self):
        return self.process.pid

    def _ask(self, verb, mode="-", start=0, length=0):
        self.process.stdin.write(f"{verb} {mode} {start} {length}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def lock(self, start=0, length=0, mode="exclusive"):
        """True: it has it."""
        return self._ask("lock", mode, start, length) == "ok"

    def wait(self, start=0, length=0, mode="exclusive"):
        """It is about to sleep for it; got() returns when it has it."""
        assert self._ask("wait", mode, start, length) == "waits"

    def got(self):
        return self.process.stdout.readline().strip() == "ok"

    def unlock(self, start=0, length=0):
        assert self._ask("unlock", "-", start, length) == "ok"

    def sees(self, start=0, length=0):
        """Whether another process or client holds any of it."""
        return self._ask("test", "-", start, length) == "held"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def close(self):
        if self.process.poll() is None:
            self.kill()


def read_kernel_list(key):
    """The list is longer than one read() gives. If another process locks or unlocks something meanwhile, an entry is
    there twice, or is missing."""
    held = []
    with open("/proc/locks", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words[1] != "->" and words[5] == key:
                held.append((words[1], words[3], int(words[6]), None if words[7] == "EOF" else int(words[7])))
    return sorted(held, key=str)


def held_in_kernel(path):
    """All locks of the file, by the kernel's own list: [(kind, mode, start, end or None)]."""
    found = os.stat(path)
    key = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    seen = []
    for _ in range(MAX_READS):
        seen = seen[-2:] + [read_kernel_list(key)]
        if len(seen) == 3 and seen[0] == seen[1] == seen[2]:
            return seen[0]
    raise AssertionError(f"the kernel's list of locks is another one each time; last seen: {seen}")
