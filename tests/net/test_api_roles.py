#!/usr/bin/env python3
"""Two tokens: one may change things, the other may only look. Each call of the API, with either, none and a wrong one."""

import os
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from commandline import DENIED, CliPlay
from daemon import Failed
from https import HttpsPlay
from play import main
from routes import routes

STREAM = "/api/v1/events"


class Roles:
    """What holds on every address; mixed into the plays below."""

    @classmethod
    def setUpClass(cls):
        cls.view_file = tempfile.mktemp(prefix="hf-view-")
        cls.addClassCleanup(lambda: os.remove(cls.view_file))
        cls.settings = (*cls.settings, f"api.view_token_file={cls.view_file}")
        super().setUpClass()

    @property
    def view(self):
        with open(self.view_file, encoding="ascii") as file:
            return file.read().strip()

    def call(self, method, target, token=None):
        return self.rest.call(method, target, headers={"Authorization": f"Bearer {token}"} if token else {})

    def test_the_file_is_made_for_the_server_alone(self):
        self.assertRegex(self.view, r"\A[0-9a-f]{64}\Z")
        self.assertNotEqual(self.view, self.rest.token)
        self.assertEqual(stat.S_IMODE(os.stat(self.view_file).st_mode), 0o600)
        self.assertNotIn(self.view, self.daemon.log)

    def test_no_call_that_changes_something(self):
        changing = [(method, pattern) for method, pattern, _, changes, _ in routes() if changes]
        self.assertGreaterEqual(len(changing), 6)
        self.assertEqual({method for method, *_, changes, _ in routes() if method != "GET" and not changes}, set(),
                         "only GET may change nothing")  # fmt: skip
        for method, pattern in changing:
            with self.subTest(method=method, pattern=pattern):
                target = pattern.replace("{id}", "nlm:10.0.0.1:nobody")
                answer = self.call(method, target, self.view)
                self.assertEqual((answer.status, answer.code), (403, "view_only"))
                self.assertIn("may only look", answer.json["error"]["message"])
                self.assertEqual(self.call(method, target).code, "no_token")
                self.assertEqual(self.call(method, target, self.view[:-1]).code, "wrong_token")
                self.assertEqual(self.call(method, target, "x" + self.view).code, "wrong_token")
                self.assertNotIn(self.call(method, target, self.rest.token).status, (401, 403))

    def test_every_call_that_shows_something(self):
        for method, pattern, _, changes, _ in routes():
            if changes or pattern == STREAM:
                continue
            with self.subTest(pattern=pattern):
                target = pattern.replace("{id}", "nlm:10.0.0.1:nobody")
                for token in (self.view, self.rest.token):
                    self.assertIn(self.call(method, target, token).status, (200, 404))
                    self.assertIn(self.call("HEAD", target, token).status, (200, 404))

    def test_the_status_tells_the_role(self):
        self.assertEqual(self.call("GET", "/api/v1/status", self.view).json["access"], "view")
        self.assertEqual(self.call("GET", "/api/v1/status", self.rest.token).json["access"], "change")

    def test_the_command_line(self):
        self.run_cli("--token-file", self.view_file, "status")
        said = self.run_cli("--token-file", self.view_file, "notify", code=DENIED).stderr
        self.assertIn("This token may only look", said)
        self.run_cli("notify")

    def test_refusals_are_logged_and_not_too_often(self):
        for _ in range(40):
            self.assertEqual(self.call("POST", "/api/v1/notify", self.view).status, 403)
        lines = [line for line in self.daemon.log.splitlines() if "refused an API call that changes something" in line]
        self.assertTrue(lines)
        self.assertLessEqual(len(lines), 12)

    def test_print_config_shows_no_token(self):
        shown = subprocess.run([self.program, "--print-config", "--set", f"api.view_token_file={self.view_file}"],
                               capture_output=True, text=True, check=True).stdout  # fmt: skip
        self.assertIn(self.view_file, shown)
        self.assertNotIn(self.view, shown)


class OnLoopback(Roles, CliPlay):
    n_hosts = 0

    def test_without_a_token_all_may_look(self):
        self.assertIsNone(self.call("GET", "/api/v1/status").json["access"])
        self.assertIsNone(self.call("GET", "/api/v1/status", "wrong-wrong-wrong").json["access"])


class FromOtherHosts(Roles, CliPlay):
    n_hosts = 0
    settings = ("api.listen=0.0.0.0:0",)

    def test_without_a_token_none_may_look(self):
        for method, pattern, _, changes, is_open in routes():
            if changes or is_open:
                continue
            target = pattern.replace("{id}", "nlm:10.0.0.1:nobody")
            self.assertEqual(self.call(method, target).code, "no_token", pattern)
            self.assertEqual(self.call(method, target, self.view[:-1] + "g").code, "wrong_token", pattern)


class OverHttps(Roles, HttpsPlay):
    settings = ("api.listen=0.0.0.0:0",)


class Starts(CliPlay):
    n_hosts = 0

    def test_the_same_token_twice_is_refused(self):
        with tempfile.NamedTemporaryFile("w", prefix="hf-view-") as file:
            file.write(self.rest.token + "\n")
            file.flush()
            self.daemon.stop()
            with self.assertRaises(Failed) as failed:
                self.daemon.start(f"api.view_token_file={file.name}")
        self.assertIn("contain the same token", str(failed.exception))
        self.daemon.start()

    def test_a_short_token_is_refused(self):
        with tempfile.NamedTemporaryFile("w", prefix="hf-view-") as file:
            file.write("short\n")
            file.flush()
            self.daemon.stop()
            with self.assertRaises(Failed) as failed:
                self.daemon.start(f"api.view_token_file={file.name}")
        self.assertIn("fewer than 16", str(failed.exception))
        self.daemon.start()


if __name__ == "__main__":
    main()
