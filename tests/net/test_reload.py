#!/usr/bin/env python3
"""An operator has the configuration loaded again (`holdfast reload`, POST /api/v1/reload): what the answer says, and what is in
effect then without a restart.

    test_reload.py PATH/holdfastd [unittest's own arguments]
"""

import json
import os
import re
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from commandline import FAILED, CliPlay
from exported import Exported, nfs
import nsm
from nsm import FAIL, SUCC, Host, Local
from play import main
from rest import Events
from rpc import Refused
from slow_config import SlowConfig


class Reloading(Exported, CliPlay):
    def tearDown(self):
        self.write_config(self.exports)
        self.assertEqual(self.order(), [])
        super().tearDown()

    def write(self, *more):
        """The exports, and @more lines."""
        self.write_config(self.exports)
        with open(self.config, "a", encoding="ascii") as out:
            out.writelines(f"{line}\n" for line in more)

    def order(self, *more):
        """The keys that wait for the next start."""
        if more:
            self.write(*more)
        answer = self.rest.call("POST", "/api/v1/reload", token=True)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(self.rest.get("/api/v1/status", token=True).json["reload"], answer.json)
        self.assertEqual((answer.json["loaded"], answer.json["reason"]), (True, None))
        return answer.json["at_next_start"]


class Answers(Reloading):
    n_hosts = 1

    def test_all_is_in_effect(self):
        self.write("log: {level: debug}")
        self.assertRegex(self.run_cli("reload").stdout, r"^reload     \S+: everything is in effect\n$")
        self.assertIn("an operator has the configuration loaded again peer=", self.daemon.log)

    def test_keys_that_wait_for_the_next_start(self):
        self.assertEqual(self.order("server: {threads: 7}", "metrics: {enabled: false}"), ["server.threads", "metrics.enabled"])
        self.assertRegex(self.run_cli("reload").stdout,
                         r"^reload     \S+: only at the next start: server.threads metrics.enabled\n$")  # fmt: skip

    def refuse(self, reason, *more):
        """By REST, by the command line, and what the status says afterwards."""
        self.write(*more)
        answer = self.rest.call("POST", "/api/v1/reload", token=True)
        self.assertEqual((answer.status, answer.code), (409, "not_loaded"))
        message = answer.json["error"]["message"]
        self.assertRegex(message, "^The configuration is not loaded, the old one stays: " + reason)
        self.assertIn(message, self.run_cli("reload", code=FAILED).stderr)
        self.assertRegex(self.rest.get("/api/v1/status").json["reload"]["reason"], reason)
        self.assertRegex(self.run_cli("status").stdout, r"\nreload     \S+: failed, the old configuration stays: " + reason)

    def test_a_wrong_configuration_is_not_loaded(self):
        self.refuse(re.escape(self.config) + ":[0-9]+: .*nonsense", "nonsense: 1")

    def test_a_certificate_that_is_not_there(self):
        self.refuse(r".*tls\.certificate", "tls: {certificate: /nowhere/pem, key: /nowhere/key}")

    def test_the_order_needs_the_token(self):
        before = self.rest.get("/api/v1/status").json["reload"]
        self.assertEqual(self.rest.call("POST", "/api/v1/reload").status, 401)
        self.assertEqual(self.rest.get("/api/v1/status").json["reload"], before)

    def order_during_a_reload(self):
        """(the slow reload, a thread that gets an answer of the order, its answers)"""
        before = len(self.daemon.log)
        slow, answers = SlowConfig(self.config), []
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(slow.is_read, "it reads the configuration")
        order = threading.Thread(target=lambda: answers.append(self.rest.call("POST", "/api/v1/reload", token=True)))
        order.start()
        self.until(lambda: "an operator has the configuration loaded again" in self.daemon.log[before:], "the order is there")
        return slow, order, answers

    def test_an_order_during_a_reload_waits_for_the_next_one(self):
        """The running one reads what the configuration was before the order."""
        slow, order, answers = self.order_during_a_reload()
        slow.go_on("nonsense: 1\n")
        order.join()
        self.assertEqual((answers[0].status, answers[0].json["loaded"]), (200, True))
        self.assertIn("configuration not loaded, the old one stays", self.daemon.log)

    def test_an_order_waits_for_no_reload_after_its_own(self):
        """Of three that are slow, the second one is the order's."""
        first, order, answers = self.order_during_a_reload()
        first.restore()
        second = SlowConfig(self.config)
        first.finish("{}\n")
        self.until(second.is_read, "the second one reads")
        self.assertEqual(answers, [])
        self.daemon.process.send_signal(signal.SIGHUP)
        second.restore()
        third = SlowConfig(self.config)
        second.finish("{}\n")
        order.join()
        self.assertEqual(answers[0].status, 200)
        self.until(third.is_read, "the third one reads")
        third.go_on("{}\n")

    def test_no_more_than_64_wait(self):
        """So other calls find a connection, whatever happens to the callers."""
        slow = SlowConfig(self.config)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(slow.is_read, "it reads the configuration")
        orders = []
        for _ in range(64):
            orders.append(self.rest.raw())
            orders[-1].sendall(f"POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.rest.token}\r\n"
                               "Content-Length: 0\r\n\r\n".encode())  # fmt: skip
        until_busy = self.until(lambda: self.rest.call("POST", "/api/v1/reload", token=True), "there are 64",
                                passes=lambda answer: answer.status == 503)  # fmt: skip
        self.assertEqual(until_busy.code, "busy")
        slow.go_on("{}\n")
        for one in orders:
            self.assertTrue(one.recv(12).startswith(b"HTTP/1.1 200"))
            one.close()

    def test_a_stop_answers_orders(self):
        slow, order, answers = self.order_during_a_reload()
        self.daemon.process.terminate()
        order.join()
        slow.go_on("")
        self.assertEqual((answers[0].status, answers[0].code), (503, "stopping"))
        self.assertEqual(self.daemon.process.wait(), 0)
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()


class Changes(Reloading):
    """What a running server does otherwise after a reload."""

    n_hosts = 3
    host_class = Host

    def limit(self, name):
        return next(limit for limit in self.rest.get("/api/v1/limits").json["limits"] if limit["name"] == name)["max"]

    def lock(self, number, name):
        return self.a.lock(self.lock_of(self.a, number, 1, name=name))

    def test_more_and_fewer_clients(self):
        self.assertEqual(self.order("recovery: {max_clients: 2, max_clients_per_address: 2}"), [])
        self.assertEqual([self.lock(i, f"few{i}") for i in range(3)], [nlm.S_GRANTED, nlm.S_GRANTED, nlm.S_NOLOCKS])
        self.assertEqual(self.limit("clients"), 2)
        self.assertEqual(self.order("recovery: {max_clients: 8}"), [])
        self.assertEqual((self.limit("clients"), self.limit("clients_per_address")), (8, 4))
        self.assertEqual([self.lock(i, f"few{i}") for i in range(2, 5)], [nlm.S_GRANTED, nlm.S_GRANTED, nlm.S_NOLOCKS])
        self.assertEqual(self.order("recovery: {max_clients: 1}"), [])
        self.assertEqual(self.lock(9, "few9"), nlm.S_NOLOCKS)
        self.assertEqual(self.lock(10, "few0"), nlm.S_GRANTED, "a client beyond the limit stays")
        for i in range(4):
            self.a.free_all(f"few{i}")

    def test_who_may_register(self):
        for allowed, answer in (("local", FAIL), ("any", SUCC), ("local", FAIL)):
            with self.subTest(allowed=allowed):
                self.assertEqual(self.order(f"nsm: {{allow_mon: {allowed}}}"), [])
                self.assertEqual(self.b.mon("server")[0], answer)
        self.assertEqual(self.order("nsm: {allow_mon: any}"), [])
        self.rest.call("DELETE", "/api/v1/clients/" + self.b.name, token=True)

    def test_ports_of_notices(self):
        self.assertEqual(self.order("nsm: {secure: true}"), [])
        self.assertRaises(Refused, self.c.notify, 7)
        self.assertEqual(self.order("nsm: {secure: false}"), [])
        self.c.notify(7)

    def audited(self, path):
        """The names that were created, by the audit log at @path, when it ends in the last one."""
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line)["name"] for line in lines if line.endswith("\n") and '"op":"create"' in line]

    def assert_audited(self, path, *names):
        self.until(lambda: self.audited(path), f"{names} are in {path}", passes=lambda found: found == list(names))

    def create(self, name):
        with self.network.server, nfs.Client(2049) as client:
            self.assertEqual(client.create(client.root("/data"), name.encode()).stat, nfs.OK)

    def test_the_audit_log(self):
        first, second = (os.path.join(self.base, name) for name in ("first.log", "second.log"))
        self.create("a")
        self.assertEqual(self.order(f"log: {{audit: {first}}}"), [])
        self.create("b")
        self.assert_audited(first, "b")
        self.assertEqual(self.order(f"log: {{audit: {second}}}"), [])
        self.create("c")
        self.assert_audited(second, "c")
        self.write(f"log: {{audit: {self.base}/no-such-folder/log}}")
        answer = self.rest.call("POST", "/api/v1/reload", token=True)
        self.assertEqual(answer.status, 409)
        self.assertIn("the new audit log cannot be opened", answer.json["error"]["message"])
        self.create("d")
        self.assert_audited(second, "c", "d")
        self.write()
        self.assertEqual(self.order(), [])
        self.create("e")
        self.assertEqual(self.order(f"log: {{audit: {first}}}"), [])
        self.create("f")
        self.assert_audited(first, "b", "f")
        self.assert_audited(second, "c", "d")

    def lines_of_a_reload(self):
        before = len(self.daemon.log)
        self.assertEqual(self.order(), [])
        lines = self.daemon.log[before:].splitlines()
        self.assertGreater(len(lines), 1)
        return lines

    def test_the_format_of_the_log(self):
        self.assertEqual(self.order("log: {format: json}"), [])
        for line in self.lines_of_a_reload():
            self.assertIn("message", json.loads(line))
        self.write(f"log: {{format: text, audit: {self.base}/no-such-folder/log}}")
        self.assertEqual(self.rest.call("POST", "/api/v1/reload", token=True).status, 409)
        json.loads(self.daemon.log.splitlines()[-1])
        self.assertEqual(self.order("log: {format: text}"), [])
        for line in self.lines_of_a_reload():
            self.assertRegex(line, "^[0-9T:.-]+Z (info|warn): ")

    def test_how_long_a_silent_client_is_told(self):
        """Of the configured 600 s in all, and then of 50 ms."""
        self.assertEqual(self.order("recovery: {notify_timeout_ms: 600000, notify_retry_seconds: 0}"), [])
        self.assert_granted(self.b, self.lock_of(self.b, 0, 1))
        self.b.deaf = True
        before = self.rest.metrics()['nsm_notifications_total{result="failed"}']
        self.assertEqual(self.order("recovery: {notify_timeout_ms: 50, notify_retry_seconds: 0}"), [])
        self.assertEqual(self.rest.call("POST", "/api/v1/notify", token=True).status, 202)
        self.until(lambda: self.rest.metrics()['nsm_notifications_total{result="failed"}'] > before, "it is given up")
        self.b.deaf = False


class Grace(Reloading):
    n_hosts = 1
    host_class = Host
    settings = ("api.listen=127.0.0.1:0", "store.backend=lmdb", "recovery.grace=auto")

    def grace(self):
        return self.rest.get("/api/v1/status").json["grace"]

    def restart_in_grace(self, *more):
        """With a lock to reclaim, and these lines."""
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock)
        self.write(*more)
        self.restart()
        self.assertTrue(self.grace()["active"])
        return lock.but(reclaim=True)

    def end_grace(self):
        self.until(lambda: not self.grace()["active"], "everything is accounted for")

    def test_early_end_is_turned_on_in_the_midst_of_grace(self):
        lock = self.restart_in_grace("recovery: {window_seconds: 300, early_end: false}")
        self.assert_granted(self.a, lock)
        self.assertEqual(self.order(), [])
        self.assertTrue(self.grace()["active"])
        self.assertEqual(self.order("recovery: {window_seconds: 300, early_end: true}"), [])
        self.end_grace()

    def test_early_end_is_turned_off_in_the_midst_of_grace(self):
        lock = self.restart_in_grace("recovery: {window_seconds: 300}")
        self.assertEqual(self.order("recovery: {window_seconds: 300, early_end: false}"), [])
        self.assert_granted(self.a, lock)
        self.assertTrue(self.grace()["active"])
        self.assertEqual(self.order("recovery: {window_seconds: 300}"), [])
        self.end_grace()

    def simulate_a_restart(self):
        """How long the grace is that begins then, in seconds."""
        before = len(self.daemon.log)
        root = Local(self.network.server, reserved=True)
        self.addCleanup(root.close)
        self.assertEqual(root.ask(nsm.SIMU_CRASH), b"")
        began = r"grace began, only reclaims are granted .*seconds=(\d+)"
        return int(self.until(lambda: re.search(began, self.daemon.log[before:]), "grace begins")[1])

    def test_windows_are_those_of_the_next_grace(self):
        self.restart_in_grace("recovery: {window_seconds: 300}")
        self.assertEqual(self.order("recovery: {window_seconds: 7, nlm_grace_seconds: 2}"), [])
        self.assertGreater(self.grace()["ends_in_seconds"], 250, "the open one keeps its end")
        self.assertEqual(self.simulate_a_restart(), 2)
        self.end_grace()
        self.assertEqual(self.order("recovery: {window_seconds: 3}"), [])
        self.assertEqual(self.simulate_a_restart(), 3)
        self.end_grace()


class Tokens(Reloading):
    """Of an API that other hosts can reach, so that every call needs one."""

    n_hosts = 0
    settings = ("api.listen=0.0.0.0:0",)

    def setUp(self):
        super().setUp()
        self.files = [os.path.join(self.base, name) for name in ("change.token", "view.token")]

    def tearDown(self):
        self.write()
        self.reload()
        for path in self.files:
            if os.path.exists(path):
                os.remove(path)
        super().tearDown()

    def replace(self, path, token):
        with open(path, "w", encoding="ascii") as out:
            out.write(token + "\n")

    def token_in(self, path):
        with open(path, encoding="ascii") as token:
            return token.read().strip()

    def reload(self, says="configuration loaded again"):
        """By a signal, which needs no token; what the log says meanwhile."""
        before = len(self.daemon.log)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: says in self.daemon.log[before:], f"it says: {says}")
        return self.daemon.log[before:]

    def access(self, token):
        """What a token is worth; None: nothing."""
        answer = self.rest.get("/api/v1/status", headers={"Authorization": f"Bearer {token}"})
        if answer.status != 200:
            self.assertEqual((answer.status, answer.code), (401, "wrong_token"))
            return None
        may_change = self.rest.call("POST", "/api/v1/notify", headers={"Authorization": f"Bearer {token}"}).status == 202
        self.assertEqual(may_change, answer.json["access"] == "change")
        return answer.json["access"]

    def test_a_token_that_leaked_is_replaced(self):
        own, leaked = os.path.join(self.daemon.state_dir, "state", "api.token"), self.rest.token
        self.replace(own, "0123456789-another-one")
        self.assertEqual(self.access(leaked), "change", "until the reload")
        said = self.reload()
        self.assertEqual((self.access(leaked), self.access("0123456789-another-one")), (None, "change"))
        self.assertNotIn("another-one", said)
        self.assertEqual(self.order(), [])
        self.assertRegex(self.run_cli("reload").stdout, ": everything is in effect\n$")
        os.remove(own)
        self.reload()
        self.assertRegex(self.rest.token, r"\A[0-9a-f]{64}\Z", "a new one is made")
        self.assertEqual((self.access("0123456789-another-one"), self.access(self.rest.token)), (None, "change"))

    def test_other_files(self):
        change, view = self.files
        own = self.rest.token
        self.replace(change, "the-token-that-may-change")
        self.write(f"api: {{token_file: {change}, view_token_file: {view}}}")
        self.reload()
        self.assertEqual([self.access(token) for token in (own, self.token_in(change), self.token_in(view))], [None, "change", "view"])
        first = self.token_in(view)
        self.replace(view, "the-token-that-may-look")
        self.reload()
        self.assertEqual([self.access(token) for token in (first, "the-token-that-may-look")], [None, "view"])
        self.write()
        self.reload()
        self.assertEqual([self.access(token) for token in (own, self.token_in(change), self.token_in(view))], ["change", None, None])
        status = self.rest.get("/api/v1/status", headers={"Authorization": f"Bearer {own}"}).json["reload"]
        self.assertEqual((status["loaded"], status["at_next_start"]), (True, []))

    def assert_refused(self, reason, *lines):
        self.write(*lines)
        answer = self.rest.call("POST", "/api/v1/reload", token=True)
        self.assertEqual((answer.status, answer.code), (409, "not_loaded"))
        self.assertRegex(answer.json["error"]["message"], reason)
        self.assertEqual(self.access(self.rest.token), "change", "the old one stays")

    def test_a_token_that_cannot_be_read_changes_nothing(self):
        change, view = self.files
        self.assert_refused("api.token_file .* cannot be read", f"api: {{token_file: {self.base}}}")
        self.assert_refused("the tokens of the API could not be read; the old ones", f"api: {{token_file: {self.base}/nowhere/token}}")
        self.replace(change, "short")
        self.assert_refused("fewer than 16", f"api: {{token_file: {change}}}")
        self.replace(view, self.rest.token)
        self.assert_refused("contain the same token", f"api: {{view_token_file: {view}}}")
        own, token = os.path.join(self.daemon.state_dir, "state", "api.token"), self.rest.token
        self.replace(own, "short")
        self.write()
        self.reload(says="the old ones and the old exports stay")
        self.assertEqual(self.access(token), "change")
        self.replace(own, token)

    def test_nothing_is_made_for_a_reload_that_is_refused(self):
        self.assert_refused("audit log", f"api: {{token_file: {self.files[0]}}}", f"log: {{audit: {self.base}/no-such-folder/log}}")
        self.assertFalse(os.path.exists(self.files[0]))

    def test_an_event_stream_ends_with_its_token(self):
        change, view = self.files
        self.replace(view, "the-token-that-may-look")
        self.write(f"api: {{view_token_file: {view}}}")
        self.reload()
        events = Events(self.rest, headers={"Authorization": "Bearer the-token-that-may-look"})
        self.addCleanup(events.close)
        self.reload()
        self.assertTrue(events.thread.is_alive(), "the tokens are the same")
        self.replace(view, "another-token-that-may-look")
        self.reload()
        self.until(lambda: not events.thread.is_alive(), "the stream ends")
        Events(self.rest, headers={"Authorization": "Bearer another-token-that-may-look"}).close()

    def test_an_order_that_began_with_the_old_token(self):
        """Its body comes after the reload."""
        own, leaked = os.path.join(self.daemon.state_dir, "state", "api.token"), self.rest.token
        slow = self.rest.raw()
        slow.sendall(f"POST /api/v1/notify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {leaked}\r\n"
                     "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode())  # fmt: skip
        self.assertTrue(slow.recv(100).startswith(b"HTTP/1.1 100"), "the token was right")
        self.replace(own, "0123456789-another-one")
        self.reload()
        slow.sendall(b"{}")
        self.assertTrue(slow.recv(12).startswith(b"HTTP/1.1 401"))
        slow.close()


del Reloading

if __name__ == "__main__":
    main()
