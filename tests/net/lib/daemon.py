"""The real holdfastd, in a namespace, with a state directory of its own."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

from until import PATIENCE, until

# What a sanitizer or an assertion leaves behind.
SCARS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "WARNING: ThreadSanitizer", "Assertion")
SCAR_SHOWN = 3000  # characters of a report

LEAKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "leaks.supp")


class Failed(Exception):
    pass


def scar_in(log):
    """The begin of the first one, which says where it is from; "" if there is none."""
    found = [at for scar in SCARS if (at := log.find(scar)) >= 0]
    return log[min(found) :][:SCAR_SHOWN] if found else ""


class Daemon:
    """@program with `KEY=VALUE` @settings. start() and crash() may be repeated: the state directory stays."""

    def __init__(self, program, namespace, settings=(), flags=()):
        self.program = program
        self.namespace = namespace
        self.settings = list(settings)
        self.flags = list(flags)
        self.state_dir = tempfile.mkdtemp(prefix="hf-net-")
        self.log_path = os.path.join(self.state_dir, "log")
        self.over = {}  # paths that it is to see other files at
        self.process = None
        self.launcher = []  # words before the program, which they exec

    @property
    def ports_file(self):
        return os.path.join(self.state_dir, "state", "ports.json")

    @property
    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def start(self, *more, flags=()):
        words = [*self.launcher, self.program, *self.flags, *flags]
        words += ["--set", f"server.state_dir={self.state_dir}/state"]
        for setting in [*self.settings, *more]:
            words += ["--set", setting]
        if self.over:
            # In a mount namespace that ends with it; each word is exec'ed, so the pid of the process is the server's.
            script = "".join(f"mount --bind '{file}' '{path}' && " for path, file in self.over.items()) + 'exec "$@"'
            words = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
        env = {**os.environ, "LSAN_OPTIONS": f"suppressions={LEAKS}:print_suppressions=0:{os.environ.get('LSAN_OPTIONS', '')}"}
        with self.open_log() as log, self.namespace:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        until(self._is_ready, "holdfastd has started", more=lambda: self.log, pause=0.005)
        return self

    def open_log(self):
        return open(self.log_path, "ab")

    def _is_ready(self):
        if self.process.poll() is not None:
            raise Failed(f"holdfastd did not start:\n{self.log}")
        try:
            with open(self.ports_file, encoding="utf-8") as ports:
                return json.load(ports)["pid"] == self.process.pid
        except (OSError, ValueError):
            return False

    def crash(self):
        self.process.kill()
        self.reap()

    def reap(self):
        """Waits until it is gone, and what it logged is there."""
        self.process.wait()

    def stop(self):
        """SIGTERM; it must end with 0 and leave no scars in its log."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.crash()
                raise Failed(f"holdfastd does not stop:\n{self.log}") from None
            self.reap()
        log = self.log
        if self.process and self.process.returncode != 0 or scar_in(log):
            raise Failed(f"holdfastd ended with {self.process.returncode}:\n{log}\n{scar_in(log)}")

    def close(self):
        """Takes it down and removes what it left, whatever happened."""
        if self.process and self.process.poll() is None:
            self.crash()
        shutil.rmtree(self.state_dir, ignore_errors=True)
