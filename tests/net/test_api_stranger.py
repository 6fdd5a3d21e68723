#!/usr/bin/env python3
"""holdfast, and a program that is not its server at the server's address: it learns no token, crashes nothing and steers no terminal."""

import contextlib
import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from commandline import DENIED, FAILED, HOLDFAST, OK, UNREACHABLE, CliPlay
from fakeapi import FakeApi
from https import HttpsPlay
from play import main
from terminal import Terminal
from until import PATIENCE

PORT = 8049
STATUS = {"name": "localhost", "version": "1.0", "uptime_seconds": 5.5, "epoch": 7, "sm_state": 3, "role": "active", "exports": 1,
          "store": {"backend": "lmdb", "lock_durability": "process", "healthy": True}, "per_client": True, "reservations": 1,
          "grace": {"active": True, "ends_in_seconds": 5.5, "reason": "restart", "unreclaimed": 2}, "clients": 1, "locks": 2, "waiters": 0,
          "reload": {"at": "2027-01-15T08:00:00Z", "loaded": True, "at_next_start": ["server.port"]}}  # fmt: skip
REFUSED = {"error": {"code": "no_token", "message": "This call needs a token."}}


class StrangerPlay(CliPlay):
    """The server's address is known: a local user can have it as soon as the server is gone."""

    n_hosts = 0
    settings = (f"api.listen=127.0.0.1:{PORT}",)

    def setUp(self):
        path = f"{self.daemon.state_dir}/state/api.token"
        with open(path, encoding="ascii") as file:
            self.token = file.read().strip()
        self.sent = f"Bearer {self.token}"
        self.token_file = path
        self.api = None

    def tearDown(self):
        if self.api:
            self.api.close()
        if self.daemon.process.poll() is not None:
            self.daemon.start()
        super().tearDown()

    def stranger(self):
        """Takes the address until the end of the test; then the server is back."""
        with self.daemon.namespace:
            api = self.api = FakeApi(PORT)
        for path in ("waiters", "clients", "limits"):
            api.set("GET", f"/api/v1/{path}", 200, {path: [], "next": None})
        api.set("GET", "/api/v1/status", 200, STATUS)
        api.set("POST", "/api/v1/notify", 401, REFUSED)
        api.set("GET", "/api/v1/events", 401, REFUSED)
        return api

    def assert_nothing_learnt(self, api):
        self.assertTrue(api.calls)
        self.assertEqual(set(api.tokens), {None}, api.calls)


class Token(StrangerPlay):
    def look_and_order(self, api):
        self.assertIn(f"at 127.0.0.1:{PORT}\n", self.run_cli("status").stdout)
        for words in (("notify",), ("events",)):
            said = self.run_cli(*words, code=DENIED).stderr
            self.assertIn(f"The token in {self.daemon.state_dir}/state is not sent: no server runs with this directory", said)
        with self.daemon.namespace:
            done = subprocess.run(self.words("doctor"), capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertIn("no server runs with the state directory", done.stdout)
        done = self.run_cli("dashboard")
        self.assertEqual(done.stdout, f"http://127.0.0.1:{PORT}/\n")
        self.assertIn("is not sent", done.stderr)
        self.assert_nothing_learnt(api)

    def test_after_a_stop(self):
        self.daemon.stop()
        self.look_and_order(self.stranger())

    def test_after_a_crash(self):
        """api.address is left over."""
        self.daemon.crash()
        self.assertIn("api.address", os.listdir(f"{self.daemon.state_dir}/state"))
        self.look_and_order(self.stranger())

    def test_a_start_removes_what_a_crash_left(self):
        """Before it waits for anything: its lock makes api.address credible. Here its database does not answer."""
        self.daemon.crash()
        with self.daemon.namespace, socket.create_server(("127.0.0.1", 0)) as database:
            database.settimeout(PATIENCE)
            words = [self.program, "--set", f"server.state_dir={self.daemon.state_dir}/state", "--set", "store.backend=postgres"]
            words += ["--set", f"store.postgres=host=127.0.0.1 port={database.getsockname()[1]}", "--set", f"api.listen=127.0.0.1:{PORT}"]
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:
                connection = database.accept()[0]
                left = os.listdir(f"{self.daemon.state_dir}/state")
                starting.kill()
                connection.close()
        self.assertNotIn("api.address", left)
        self.assertNotIn("ports.json", left)

    def test_while_a_command_runs(self):
        """top asks each second; the server goes, and the stranger comes, between two questions."""
        terminal = Terminal(self.words("top"), self.daemon.namespace)
        terminal.wait("ends")
        terminal.process.send_signal(signal.SIGSTOP)
        self.daemon.stop()
        api = self.stranger()
        terminal.process.send_signal(signal.SIGCONT)
        self.until(lambda: ("GET", "/api/v1/status") in api.calls, "top has asked")
        terminal.write("q")
        terminal.wait("\033[?1049l")
        self.assertEqual(terminal.end(), OK)
        self.assert_nothing_learnt(api)

    def test_what_the_user_names_gets_it(self):
        self.daemon.stop()
        api = self.stranger()
        other = {"HOLDFAST_TOKEN": "another-token-of-this-user"}
        for words, env, sent in (
            (("--server", f"127.0.0.1:{PORT}"), {}, self.sent),
            ((), {"HOLDFAST_SERVER": f"127.0.0.1:{PORT}"}, self.sent),
            (("--token-file", self.token_file), {}, self.sent),
            ((), other, f"Bearer {other['HOLDFAST_TOKEN']}"),
        ):
            with self.subTest(words=words, env=env):
                del api.tokens[:]
                self.run_cli(*words, "status", env=env)
                self.assertEqual(set(api.tokens), {sent})

    def test_a_server_with_another_state_directory(self):
        """It is found at the default address. The token of the directory that was looked at is not its token."""
        with tempfile.TemporaryDirectory(prefix="hf-stranger-") as empty:
            for content in (None, "f" * 64):
                if content:
                    with open(f"{empty}/api.token", "w", encoding="ascii") as file:
                        file.write(content)
                with self.subTest(has_token=content is not None):
                    here = ("--state-dir", empty)
                    self.assertIn(f"at 127.0.0.1:{PORT}\n", self.run_cli(*here, "status").stdout)
                    self.run_cli(*here, "notify", code=DENIED)
                    self.run_cli(*here, "--token-file", self.token_file, "notify")
                    self.run_cli(*here, "notify", env={"HOLDFAST_TOKEN": self.token})
        self.run_cli("notify")


class Https(HttpsPlay, StrangerPlay):
    """The certificate of api.address goes with the server. What is left must not be asked in the clear."""

    settings = StrangerPlay.settings

    def test_after_a_stop(self):
        self.daemon.stop()
        api = self.stranger()
        self.run_cli("--json", "status")
        self.run_cli("notify", code=DENIED)
        self.assert_nothing_learnt(api)

    def test_after_a_crash(self):
        self.daemon.crash()
        api = self.stranger()
        self.run_cli("notify", code=UNREACHABLE)
        self.assertEqual(api.calls, [])


HOSTILE = "\033[2J\u009b31m\u007f"
LOCK = {"share": "/data", "file": "/data/a", "handle": "0102", "client": "nlm:a:b", "owner": "o", "offset": 1, "length": 2, "mode": "shared",
        "state": "held", "waiting_seconds": 1.5, "blocked_by": ["o"], "blocked_by_clients": ["nlm:a:b"], "access": "read_write", "count": 1,
        "unreclaimed": 1}  # fmt: skip
CLIENT = {"id": "nlm:a:b", "status": "active", "sm_state": 1, "locks": 1, "waiters": 1, "transport": "tls", "identity": "a",
          "tls_connection": "mtls", "authenticated_as": "a b", "refused_calls": 1,
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

    def test_a_server_that_goes_while_clients_are_released(self):
        """What was released before is said; nothing, if it was the first order."""
        clients = [{**CLIENT, "id": f"nlm:a:{name}"} for name in "xyz"]
        self.api.set("GET", "/api/v1/clients", 200, {"clients": clients, "next": None})
        for gone, code in ((b"", UNREACHABLE), (REFUSED, DENIED)):
            for words, said in (((), b"3 locks released.\n"), (("--json",), b'"locks_released": 3')):
                with self.subTest(code=code, words=words):
                    self.api.set("DELETE", "/api/v1/clients/nlm:a:x", 200, {"locks_released": 3})
                    self.api.set("DELETE", "/api/v1/clients/nlm:a:y", 401, gone)
                    done = self.run_cli(*words, "release", "--yes", "--silent-for", "1")
                    self.assertEqual(done.returncode, code)
                    self.assertIn(said, done.stdout)
                    self.api.set("DELETE", "/api/v1/clients/nlm:a:x", 401, gone)
                    done = self.run_cli(*words, "release", "--yes", "--silent-for", "1")
                    self.assertEqual(done.returncode, code)
                    self.assertNotIn(b"locks released", done.stdout)
                    self.assertNotIn(b"locks_released", done.stdout)
        self.assertNotIn(("DELETE", "/api/v1/clients/nlm:a:z"), self.api.calls)

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
