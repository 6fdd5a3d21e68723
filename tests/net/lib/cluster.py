"""A PostgreSQL of the test's own: a private cluster in a temporary directory, reached by its Unix socket."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile

from until import PATIENCE, until


def programs():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    return found[-1] if found and os.path.exists(os.path.join(found[-1], "initdb")) else None


class Cluster:
    settings = ()  # more of them, KEY=VALUE

    def __init__(self):
        self.bin = programs()
        self.path = tempfile.mkdtemp(prefix="hf-pg-")
        self.user = self._user()
        if self.user:
            os.chown(self.path, self.user.pw_uid, self.user.pw_gid)
        self.server = None
        self._make()

    def _make(self):
        self._run("initdb", "-A", "trust", "-U", "postgres", "-N", "--locale=C", "-E", "UTF8").wait()

    @staticmethod
    def _user():
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        return None

    @property
    def connection(self):
        return f"host={self.path} user=postgres dbname=postgres"

    def _run(self, program, *words):
        as_user = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        with open(os.path.join(self.path, "log"), "ab") as log:
            return subprocess.Popen(
                [os.path.join(self.bin, program), "-D", os.path.join(self.path, "data"), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.path, **as_user,
            )  # fmt: skip

    def start(self):
        """Again where it ends at once: a child that outlives a killed server for a moment keeps the next one out."""
        self._launch()
        until(self._is_ready, "PostgreSQL has started", more=self._last_lines)
        return self

    def _is_ready(self):
        if self.server.poll() is not None:
            self._launch()
        ask = [os.path.join(self.bin, "pg_isready"), "-h", self.path, "-q"]
        return subprocess.run(ask, check=False).returncode == 0

    def _last_lines(self):
        with open(os.path.join(self.path, "log"), encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-10:])

    def _launch(self):
        """Without fsync, which matters to no process that dies: it would sync a thousand files at every start."""
        settings = ("listen_addresses=", "shared_buffers=16MB", "fsync=off", *self.settings)
        self.server = self._run("postgres", "-k", self.path, *(word for s in settings for word in ("-c", s)))

    def query(self, text):
        """What psql shows, without ornaments; its error where it has one."""
        words = [os.path.join(self.bin, "psql"), "-X", "-q", "-A", "-t", "-d", self.connection, "-c", text]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        return (done.stdout if done.returncode == 0 else done.stderr).strip()

    def signal(self, number):
        """To all its processes. It stands still first: a child that it forked meanwhile would be left out. That child outlives
        the killed server, waiting for its client's first words or for a lock that a killed child held, and keeps the next
        server out."""
        self._send(self.server.pid, signal.SIGSTOP)
        children = subprocess.run(["pgrep", "-P", str(self.server.pid)], check=False, capture_output=True).stdout
        for pid in (*map(int, children.split()), self.server.pid):
            self._send(pid, number)

    @staticmethod
    def _send(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        """SIGKILL for all its processes, as the kernel does when memory is short."""
        self.signal(signal.SIGKILL)
        self.server.wait()

    def close(self):
        if self.server and self.server.poll() is None:
            self.server.terminate()  # ends at once: it has no clients left
            try:
                self.server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.path, ignore_errors=True)
