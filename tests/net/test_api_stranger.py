#!/usr/bin/env python3
"""holdfast, and a program that is not its server at the server's address: it crashes nothing and steers no terminal."""

import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from commandline import FAILED, HOLDFAST, OK, UNREACHABLE
from fakeapi import FakeApi
from play import main
from terminal import Terminal
from until import PATIENCE

STATUS = {"name": "localhost", "version": "1.0", "uptime_seconds": 5.5, "epoch": 7, "sm_state": 3, "role": "active", "exports": 1,
          "store": {"backend": "lmdb", "lock_durability": "process", "healthy": True}, "per_client": True, "reservations": 1,
          "grace": {"active": True, "ends_in_seconds": 5.5, "reason": "restart", "unreclaimed": 2}, "clients": 1, "locks": 2, "waiters": 0,
          "reload": {"at": "2027-01-15T08:00:00Z", "loaded": True, "at_next_start": ["server.port"]}}  # fmt: skip
HOSTILE = "\033[2J\u009b31m\u007f"
LOCK = {"share": "/data", "file": "/data/a", "handle": "0102", "client": "nlm:a:b", "owner": "o", "offset": 1, "length": 2, "mode": "shared",
        "state": "held", "waiting_seconds": 1.5, "blocked_by": ["o"], "blocked_by_clients": ["nlm:a:b"], "access": "read_write", "count": 1,
        "unreclaimed": 1}  # fmt: skip
CLIENT = {"id": "nlm:a:b", "status": "active", "sm_state": 1, "locks": 1, "waiters": 1, "transport": "tls", "identity": "a", "refused_calls": 1,
          "last_seen": "2027-01-15T08:00:00Z", "silent_seconds": 5.5, "address": "192.0.2.1", "reservations": 1}  # fmt: skip
USED = {"address": "192.0.2.1", "share": "/data", "calls": 5, "last_used": "2027-01-15T08:00:00Z", "bytes_read": 5}
NODE = {"name": "b", "role": "standby", "reason": "why", "version": "1.0", "last_seen": "2027-01-15T08:59:59.000Z"}
ANSWERS = {
    "/api/v1/status": STATUS,
    "/api/v1/clients": {"clients": [CLIENT], "next": None},
    "/api/v1/clients/nlm:a:b": {**CLIENT, "locks": [LOCK], "lock_count": 1, "has_more_locks": True},
    "/api/v1/locks": {"locks": [LOCK], "next": None},
    "/api/v1/waiters": {"waiters": [LOCK], "next": None},
    "/api/v1/reservations": {"reservations": [{**LOCK, "mode": "deny_write"}], "next": None},
    "/api/v1/shares": {"shares": [{"name": "/data", "path": "/srv", "clients": 1, "locks": 1, "waiters": 1}], "next": None},
    "/api/v1/usage": {"usage": [USED], "other": {"calls": 1}, "next": None},
    "/api/v1/limits": {"limits": [{"name": "locks", "used": 9, "max": 10, "refused": 1, "by": "a", "what": "locks"}]},
    "/api/v1/grace": STATUS["grace"],
    "/api/v1/cluster": {"service": "nfs", "node": "a", "role": "active", "reason": "why", "epoch": 7, "nodes": [NODE, {**NODE, "name": "c"}],
                        "lease": {"holder": "a", "renewed_seconds_ago": 0.25, "seconds": 3.0, "seconds_left": 2.75},
                        "last_takeover": {"at": "2027-01-15T08:00:00.250Z", "from": "b", "to": "a", "reason": "why", "result": "continued",
                                          "seconds": 3.9}, "addresses": ["192.0.2.10/24%lo"], "fence": True, "automatic": True},
}  # fmt: skip
COMMANDS = (
    (("status",), "/api/v1/status"),
    (("status",), "/api/v1/limits"),
    (("clients",), "/api/v1/clients"),
    (("clients", "nlm:a:b"), "/api/v1/clients/nlm:a:b"),
    (("locks",), "/api/v1/locks"),
    (("waiters",), "/api/v1/waiters"),
    (("reservations",), "/api/v1/reservations"),
    (("shares",), "/api/v1/shares"),
    (("usage",), "/api/v1/usage"),
    (("limits",), "/api/v1/limits"),
    (("grace",), "/api/v1/grace"),
    (("cluster",), "/api/v1/cluster"),
    (("top", "--once"), "/api/v1/status"),
    (("release", "--yes", "--silent-for", "1"), "/api/v1/clients"),
    (("release", "--yes", "nlm:a:b", "--file", "/data/a"), "/api/v1/locks"),
)
CHANGED = ("", HOSTILE, 1e300, None, [], {})


def places(value, path=()):
    """Where its values are, the whole first."""
    yield path
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


def put(value, path, new):
    """A copy with @new there, and without that key if @new is KeyError."""
    if not path:
        return new
    made = copy.deepcopy(value)
    at = made
    for key in path[:-1]:
        at = at[key]
    if new is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return made


def put_everywhere(value, new):
    """A copy whose scalars are all @new."""
    if isinstance(value, dict):
        return {key: put_everywhere(part, new) for key, part in value.items()}
    return [put_everywhere(part, new) for part in value] if isinstance(value, list) else new


def other_than(value):
    return ["{}", "[]", "null", "<html>", *(put_everywhere(value, new) for new in CHANGED)]


def without_each_key(value):
    return [put(value, path, KeyError) for path in places(value) if path and not isinstance(path[-1], int)]


class Answers(unittest.TestCase):
    """Each command survives each answer, and lets no terminal be steered."""

    def setUp(self):
        self.api = FakeApi()
        self.addCleanup(self.api.close)
        self.state_dir = tempfile.mkdtemp(prefix="hf-stranger-")
        self.addCleanup(shutil.rmtree, self.state_dir)
        for path, answer in ANSWERS.items():
            self.api.set("GET", path, 200, answer)
        self.api.set("DELETE", "/api/v1/clients/nlm:a:b", 200, {"locks_released": 1})
        self.api.set("DELETE", "/api/v1/locks", 200, {"locks_released": 1})

    def words(self, *words):
        return [HOLDFAST, "--state-dir", self.state_dir, "--server", self.api.address, *words]

    def run_cli(self, *words):
        done = subprocess.run(self.words(*words), capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
        said = (done.stdout + done.stderr).decode()
        self.assertIn(done.returncode, range(6), said)
        for scar in ("Sanitizer", "runtime error", "(null)"):
            self.assertNotIn(scar, said)
        if "--json" not in words:
            for steering in ("\033", "\u009b", "\u007f"):
                self.assertNotIn(steering, said)
        return done

    def try_each(self, words, path, answers):
        for answer in answers:
            with self.subTest(words=words, answer=answer):
                self.api.set("GET", path, 200, answer)
                self.run_cli(*words)
        self.api.set("GET", path, 200, ANSWERS[path])

    def test_other_answers(self):
        for words, path in COMMANDS:
            self.try_each(words, path, other_than(ANSWERS[path]))

    def test_what_is_missing(self):
        """One key at a time."""
        for words, path in COMMANDS:
            self.try_each(words, path, without_each_key(ANSWERS[path]))

    def test_doctor(self):
        """Of a standby it does not examine port 111, which takes it seconds."""
        self.api.set("GET", "/api/v1/status", 200, {**STATUS, "store": {"healthy": None}})
        for answers in (other_than, without_each_key):
            self.try_each(("doctor",), "/api/v1/cluster", answers(ANSWERS["/api/v1/cluster"]))

    def test_a_mode_that_denies_nothing(self):
        for mode, shown in (("deny_read_write", "read+write"), ("deny_none", "none"), ("", ""), ("x", "x"), ("deny", "deny")):
            self.api.set("GET", "/api/v1/reservations", 200, {"reservations": [{**LOCK, "mode": mode}]})
            self.assertIn(f"read+write  {shown}", self.run_cli("reservations").stdout.decode())

    def test_errors(self):
        self.api.set("GET", "/api/v1/status", 500, {"error": {"message": HOSTILE}})
        self.assertEqual(self.run_cli("status").returncode, FAILED)

    def test_keys_of_events(self):
        event = f"event: {HOSTILE}\ndata: {json.dumps({HOSTILE: 1, 'time': 1e300, HOSTILE + 'b': HOSTILE, 'c': 1.5})}\n\n".encode()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.api.set("GET", "/api/v1/events", 200, head + f"{len(event):x}\r\n".encode() + event + b"\r\n0\r\n\r\n")
        done = self.run_cli("events")
        self.assertEqual(done.returncode, OK)
        self.assertIn(b"c=1.500", done.stdout)

    def test_json_on_a_terminal(self):
        """A pipe gets the text as it is."""
        self.api.set("GET", "/api/v1/locks", 200, {"locks": [{**LOCK, "file": HOSTILE}]})
        self.assertIn("\u009b", self.run_cli("--json", "locks").stdout.decode())
        terminal = Terminal(self.words("--json", "locks"), contextlib.nullcontext())
        terminal.wait("unreclaimed")
        self.assertEqual(terminal.end(), OK)
        self.assertNotIn("\u009b", terminal.text)
        self.assertNotIn("\033", terminal.text)

    def test_a_list_without_end(self):
        self.api.set("GET", "/api/v1/locks", 200, {"locks": [], "next": "again"})
        done = self.run_cli("locks")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"has no end", done.stderr)
        self.assertLess(len(self.api.calls), 10)

    def test_a_head_without_end(self):
        self.api.set("GET", "/api/v1/status", 200, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000 + b"\r\n" + json.dumps(STATUS).encode())
        self.assertEqual(self.run_cli("status").returncode, UNREACHABLE)


if __name__ == "__main__":
    main()
