"""The file service (files_serve) with directories of its own, and what every test program of it begins with.

    test_x.py PATH/files_serve [unittest's own arguments]
"""

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import nfs  # which knows where until is
from until import until

SCARS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "WARNING: ThreadSanitizer", "Assertion")
PATIENCE = 60.0
SKIPPED = 77


def free_port():
    """That no socket is given which wants any port: so it is still free when the server is started again."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    while True:
        port = random.SystemRandom().randrange(max(1024, first - 20000), first)
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("0.0.0.0", port))
            return port
        except OSError:
            continue


class Server:
    """start() and crash() may be repeated: the directories stay. An export is (directory, "name,options")."""

    def __init__(self, program, exports, options=(), prefix=()):
        self.program = program
        self.exports = dict(exports)
        self.options = list(options)
        self.prefix = list(prefix)  # words before the program: to run it as another user
        self.base = tempfile.mkdtemp(prefix="hf-files-")
        os.chmod(self.base, 0o755)
        self.log_path = os.path.join(self.base, "log")
        self.port = free_port()
        self.process = None
        os.mkdir(os.path.join(self.base, "state"))
        for directory in self.exports:
            os.makedirs(self.path(directory), exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.base, *parts)

    @property
    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def start(self):
        words = [*self.prefix, self.program, self.path("state"), str(self.port), *self.options]
        words += [f"{self.path(directory)},{rest}" for directory, rest in self.exports.items()]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise AssertionError(f"files_serve does not start:\n{self.log}")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.stdout.close()
            raise AssertionError(f"files_serve did not start:\n{self.log}")
        self.port = int(line)
        return self

    def crash(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        log = self.log
        if code != 0 or any(scar in log for scar in SCARS):
            raise AssertionError(f"files_serve ended with {code}:\n{log}")

    def close(self):
        if self.process and self.process.poll() is None:
            self.crash()
        shutil.rmtree(self.base, ignore_errors=True)

    def client(self, **how):
        return nfs.Client(self.port, **how)


def until_unchanged_for(path, ms):
    """Waits until the last change of @path is so old."""
    age = lambda: (time.clock_gettime_ns(time.CLOCK_REALTIME) - os.lstat(path).st_ctime_ns) / 1e6
    until(age, f"{path} is unchanged for {ms} ms", passes=lambda seen: seen >= ms)


class Case(unittest.TestCase):
    """One server for all tests of the class; each test has a directory of its own in the export /data."""

    program = None
    exports = {"data": "/data,squash=none"}
    options = ()
    prefix = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.program, cls.exports, cls.options, cls.prefix)
        cls.addClassCleanup(cls.server.close)
        cls.server.start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    @staticmethod
    def make_old(path):
        """Whatever changes it makes it younger, and not only if the kernel's clock has moved on since it was made."""
        os.utime(path, (1000, 1000))

    def setUp(self):
        self.nfs = self.server.client()
        self.addCleanup(self.nfs.close)
        self.data = self.nfs.root("/data")
        name = self.id().rsplit(".", 1)[1]
        self.local = self.server.path("data", name)
        self.dir = self.nfs.mkdir(self.data, name, mode=0o777).fh

    def client(self, **how):
        client = self.server.client(**how)
        self.addCleanup(client.close)
        return client

    def path(self, name):
        return os.path.join(self.local, name)

    def write_local(self, name, data=b""):
        with open(self.path(name), "wb") as out:
            out.write(data)

    def read_local(self, name):
        with open(self.path(name), "rb") as data:
            return data.read()

    def find(self, name):
        """The handle of a name in the test's directory."""
        answer = self.ok(self.nfs.lookup(self.dir, name))
        return answer.fh

    def ok(self, answer):
        self.assertEqual(answer.stat, nfs.OK, answer)
        return answer

    def refused(self, stat, answer):
        self.assertEqual(answer.stat, stat, answer)
        return answer


def main():
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} PATH/files_serve [unittest's own arguments]")
    Case.program = os.path.abspath(sys.argv.pop(1))
    if os.geteuid() != 0:
        print("skipped: callers' identities are for the superuser to take on")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2, module="__main__")
