#!/usr/bin/env python3
"""holdfast cluster, and holdfast doctor in a cluster, beside an API that answers as the test wants."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from fakeapi import FakeApi
from until import PATIENCE

HOLDFAST = os.path.abspath(os.environ.get("HOLDFAST") or os.path.join(os.path.dirname(os.environ.get("HOLDFASTD", "")), "holdfast"))
OK, FAILED, USAGE, UNREACHABLE, DENIED, NOT_FOUND = range(6)
CONTRIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib")

TAKEOVER = {"at": "2027-01-15T08:00:00.250Z", "from": "b", "to": "a", "reason": "the lease of b was over", "result": "continued",
            "seconds": 3.912}  # fmt: skip
CLUSTER = {
    "service": "nfs", "node": "a", "role": "active", "reason": None, "epoch": 7,
    "lease": {"holder": "a", "renewed_seconds_ago": 0.25, "seconds": 3.0, "seconds_left": 2.75},
    "nodes": [{"name": "a", "role": "active", "reason": None, "version": "1.0", "last_seen": "2027-01-15T09:00:00.000Z"},
              {"name": "b", "role": "standby", "reason": None, "version": "1.0", "last_seen": "2027-01-15T08:59:59.000Z"}],
    "last_takeover": TAKEOVER, "addresses": ["192.0.2.10/24%lo"], "fence": True, "automatic": True,
}  # fmt: skip
STATUS = {"name": "localhost", "version": "1.0", "uptime_seconds": 5, "epoch": 7, "sm_state": 3, "role": "active",
          "store": {"backend": "postgres", "lock_durability": "process", "healthy": True},
          "grace": {"active": False, "ends_in_seconds": 0, "reason": "", "unreclaimed": 0}, "clients": 1, "locks": 2, "waiters": 0}  # fmt: skip
ACCEPTED = {"status": "accepted"}


def refusal(code, message):
    return {"error": {"code": code, "message": message}}


class ClusterPlay(unittest.TestCase):
    def setUp(self):
        self.api = FakeApi()
        self.addCleanup(self.api.close)
        self.cluster = copy.deepcopy(CLUSTER)
        self.status = copy.deepcopy(STATUS)
        self.api.answers[("GET", "/api/v1/cluster")] = lambda: (200, self.cluster)
        self.api.answers[("GET", "/api/v1/status")] = lambda: (200, self.status)
        folder = tempfile.TemporaryDirectory(prefix="hf-cluster-")
        self.addCleanup(folder.cleanup)
        self.state_dir = folder.name

    def run_cli(self, *words, code=OK):
        done = subprocess.run([HOLDFAST, "--state-dir", self.state_dir, "--server", self.api.address, *words], capture_output=True,
                              text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def be_standby(self):
        self.cluster["role"] = "standby"
        self.cluster["lease"].update(holder="b", seconds_left=0)
        self.cluster["nodes"][0]["role"], self.cluster["nodes"][1]["role"] = "standby", "active"
        self.status.update(role="standby", sm_state=None, clients=0, locks=0)
        self.status["store"].update(lock_durability=None, healthy=None)
        self.status["grace"]["reason"] = "this node is a standby; b is active"


class Show(ClusterPlay):
    def test_table(self):
        self.assertEqual(
            self.run_cli("cluster").stdout,
            "service    nfs, epoch 7\n"
            "node       a, active\n"
            "lease      held by a, renewed 0.2 s ago, 3 s long, 2.8 s left\n"
            "takeover   2027-01-15T08:00:00.250Z from b to a in 3.91 s, all locks were held: the lease of b was over\n"
            "addresses  192.0.2.10/24%lo\n"
            "fence      yes\n"
            "automatic  yes\n\n"
            "NODE  ROLE     VERSION  LAST SEEN\n"
            "a     active       1.0  2027-01-15T09:00:00.000Z\n"
            "b     standby      1.0  2027-01-15T08:59:59.000Z\n",
        )  # fmt: skip

    def test_what_is_missing(self):
        self.be_standby()
        self.cluster.update(role="mismatched", reason="/data is missing here", last_takeover=None, addresses=[], fence=False, automatic=False)
        self.cluster["lease"].update(holder=None, renewed_seconds_ago=None)
        text = self.run_cli("cluster").stdout
        for line in ("node       a, mismatched: /data is missing here", "lease      no node holds it; 3 s long", "takeover   there was none",
                     "addresses  moved by another program", "fence      none", "automatic  no: takes over only with `holdfast cluster take`"):  # fmt: skip
            self.assertIn(f"{line}\n", text)

    def test_a_restart_is_no_move(self):
        self.cluster["last_takeover"].update({"from": "a", "reason": "restart"})
        self.assertIn("2027-01-15T08:00:00.250Z to a in 3.91 s, all locks were held: restart\n", self.run_cli("cluster").stdout)

    def test_json(self):
        self.assertEqual(json.loads(self.run_cli("--json", "cluster").stdout), self.cluster)

    def test_no_terminal_is_steered(self):
        self.cluster["nodes"][1]["name"] = "b\033[31m"
        self.cluster["reason"] = "x\033]0;y"
        self.assertNotIn("\033", self.run_cli("cluster").stdout)

    def test_no_cluster(self):
        self.api.set("GET", "/api/v1/cluster", 404, refusal("not_found", "This server is no node of a cluster."))
        for words in (("cluster",), ("cluster", "move"), ("cluster", "take")):
            self.assertIn("This server is no node of a cluster.", self.run_cli(*words, code=NOT_FOUND).stderr)

    def test_status_of_a_standby(self):
        self.assertIn("role       active; see `holdfast cluster`\n", self.run_cli("status").stdout)
        self.be_standby()
        text = self.run_cli("status").stdout
        self.assertIn("role       standby; see `holdfast cluster`\nservice    this node is a standby; b is active\n", text)
        self.assertNotIn("locks", text)


class Orders(ClusterPlay):
    """The API of a node ends and starts again when its role changes: an answer that is missing does not end the wait."""

    def changes(self, *states):
        """Each look at the cluster after the order gives the next of these; the last one stays."""
        left = list(states)

        def next_state():
            ordered = any(method == "POST" for method, _ in self.api.calls)
            if ordered and left:
                self.cluster = left.pop(0)
            return self.cluster if isinstance(self.cluster, tuple) else (200, self.cluster)

        self.api.answers[("GET", "/api/v1/cluster")] = next_state

    def moved(self, **more):
        after = copy.deepcopy(self.cluster)
        after.update(role="standby", epoch=8, last_takeover={**TAKEOVER, "at": "2027-01-15T09:00:01.000Z", "from": "a", "to": "b",
                                                    "reason": "an operator moved it", "seconds": 0.31, **more})  # fmt: skip
        return after

    def test_move_waits_for_the_takeover(self):
        self.api.set("POST", "/api/v1/cluster/move", 202, ACCEPTED)
        stopping = {**self.cluster, "role": "stopping"}
        self.changes(stopping, (503, refusal("stopping", "The server is stopping.")), {**stopping, "role": "standby"}, self.moved())
        self.assertEqual(self.run_cli("cluster", "move").stdout,
                         "The service moved from a to b in 0.31 s, all locks were held: an operator moved it\n")  # fmt: skip
        self.assertEqual([call for call in self.api.calls if call[0] == "POST"], [("POST", "/api/v1/cluster/move")])

    def test_move_to_a_node(self):
        self.api.set("POST", "/api/v1/cluster/move", 202, ACCEPTED)
        self.changes(self.moved(result="reclaimed"))
        self.assertIn("clients reclaim their locks", self.run_cli("cluster", "move", "b x").stdout)
        self.assertIn(("POST", "/api/v1/cluster/move?to=b%20x"), self.api.calls)

    def test_move_as_json(self):
        self.api.set("POST", "/api/v1/cluster/move", 202, ACCEPTED)
        self.changes(self.moved())
        self.assertEqual(json.loads(self.run_cli("--json", "cluster", "move").stdout)["to"], "b")

    def test_take_waits_until_the_node_serves(self):
        self.be_standby()
        self.api.set("POST", "/api/v1/cluster/take", 202, ACCEPTED)
        ready = [(503, {"status": "standby"}), (503, refusal("not_ready", "")), (200, {"status": "ok"})]
        self.api.answers[("GET", "/readyz")] = lambda: ready.pop(0)
        taken = copy.deepcopy(self.cluster)
        taken.update(role="active", epoch=8, last_takeover={**TAKEOVER, "at": "2027-01-15T09:00:01.000Z"})
        self.changes(self.cluster, taken)
        self.assertIn("The service moved from b to a in 3.91 s", self.run_cli("cluster", "take").stdout)
        self.assertEqual(ready, [])

    def test_a_late_report_of_the_takeover_before_is_not_the_result(self):
        self.be_standby()
        self.api.set("POST", "/api/v1/cluster/take", 202, ACCEPTED)
        self.api.set("GET", "/readyz", 200, {"status": "ok"})
        late = {**self.cluster, "last_takeover": {**TAKEOVER, "at": "2027-01-15T08:59:59.000Z", "from": "a", "to": "b"}}
        taken = {**late, "epoch": 8, "role": "active", "last_takeover": {**TAKEOVER, "at": "2027-01-15T09:00:01.000Z"}}
        self.changes(late, {**late, "role": "active"}, taken)
        self.assertIn("The service moved from b to a in 3.91 s", self.run_cli("cluster", "take").stdout)

    def test_the_report_before_may_come_when_this_node_has_the_lease(self):
        self.be_standby()
        self.api.set("POST", "/api/v1/cluster/take", 202, ACCEPTED)
        self.api.set("GET", "/readyz", 200, {"status": "ok"})
        mine = {**self.cluster, "epoch": 8, "lease": {**self.cluster["lease"], "holder": "a"}}
        late = {**mine, "last_takeover": {**TAKEOVER, "at": "2027-01-15T08:59:59.000Z", "from": "a", "to": "b"}}
        taken = {**mine, "role": "active", "last_takeover": {**TAKEOVER, "at": "2027-01-15T09:00:01.000Z"}}
        self.changes(mine, late, late, {**late, "role": "active"}, taken)
        self.assertIn("The service moved from b to a in 3.91 s", self.run_cli("cluster", "take").stdout)

    def test_the_takeover_before_may_be_learnt_of_after_the_order_to_take(self):
        self.be_standby()
        self.api.set("POST", "/api/v1/cluster/take", 202, ACCEPTED)
        self.api.set("GET", "/readyz", 200, {"status": "ok"})
        late = {**self.cluster, "epoch": 8, "last_takeover": {**TAKEOVER, "at": "2027-01-15T08:59:59.000Z", "from": "a", "to": "b"}}
        taken = {**late, "epoch": 9, "role": "active", "last_takeover": {**TAKEOVER, "at": "2027-01-15T09:00:01.000Z"}}
        self.changes(late, taken)
        self.assertIn("The service moved from b to a in 3.91 s", self.run_cli("cluster", "take").stdout)

    def test_the_report_before_may_come_after_the_move(self):
        self.cluster["last_takeover"] = None
        self.api.set("POST", "/api/v1/cluster/move", 202, ACCEPTED)
        self.changes({**self.moved(), "last_takeover": TAKEOVER}, self.moved())
        self.assertIn("The service moved from a to b in 0.31 s", self.run_cli("cluster", "move").stdout)

    def test_another_node_was_faster(self):
        self.be_standby()
        self.api.set("POST", "/api/v1/cluster/take", 202, ACCEPTED)
        self.changes(self.moved(to="c"))
        self.assertIn("another node took the service over", self.run_cli("cluster", "take", code=FAILED).stderr)

    def test_no_wait(self):
        self.api.set("POST", "/api/v1/cluster/move", 202, ACCEPTED)
        self.assertIn("was accepted", self.run_cli("--no-wait", "cluster", "move").stdout)
        self.assertEqual(json.loads(self.run_cli("--no-wait", "--json", "cluster", "move").stdout), ACCEPTED)

    def test_refusals(self):
        self.api.set("POST", "/api/v1/cluster/move", 409, refusal("refused", "No standby is ready."))
        self.api.set("POST", "/api/v1/cluster/take", 401, refusal("no_token", "This call needs a token."))
        self.assertIn("No standby is ready.", self.run_cli("cluster", "move", code=FAILED).stderr)
        self.assertIn("needs a token", self.run_cli("cluster", "take", code=DENIED).stderr)

    def test_usage(self):
        for words in (("cluster", "mvoe"), ("cluster", "take", "b"), ("cluster", "move", "b", "c"), ("grace", "end", "now")):
            self.run_cli(*words, code=USAGE)
        self.assertFalse(self.api.calls)


class Doctor(ClusterPlay):
    def setUp(self):
        super().setUp()
        self.status["store"]["healthy"] = None  # a standby's, so that no time goes into a look at port 111

    def examine(self):
        done = subprocess.run([HOLDFAST, "--json", "--state-dir", self.state_dir, "--server", self.api.address, "doctor"],
                              capture_output=True, text=True, timeout=3 * PATIENCE, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertIn(done.returncode, (OK, FAILED), done.stderr)
        return json.loads(done.stdout)

    def assert_found(self, level, *words):
        findings = self.examine()
        found = [f for f in findings if all(word in f["what"] for word in words)]
        self.assertEqual([f["level"] for f in found], [level], f"{words}: {json.dumps(findings, indent=1)}")
        self.assertTrue(level == "ok" or found[0]["breaks"] and found[0]["mend"], found)

    def assert_not_found(self, *words):
        self.assertFalse([f for f in self.examine() if all(word in f["what"] for word in words)])

    def test_all_is_well(self):
        for words in (["this node a is active for the service nfs"], ["the node b is standby"], ["a fence is configured"],
                      ["the interface of the service's address 192.0.2.10/24%lo is here"]):  # fmt: skip
            self.assert_found("ok", *words)
        for words in (["no standby"], ["versions"], ["mismatched"], ["no node serves"], ["only when told"]):
            self.assert_not_found(*words)

    def test_without_a_cluster(self):
        self.api.set("GET", "/api/v1/cluster", 404, refusal("not_found", "This server is no node of a cluster."))
        self.assert_not_found("node")

    def test_no_standby(self):
        del self.cluster["nodes"][1]
        self.assert_found("bad", "no standby is ready")

    def test_a_node_that_is_gone(self):
        self.cluster["nodes"][1]["last_seen"] = "2027-01-15T08:58:00.000Z"
        self.assert_found("note", "the node b was not seen for 120 s")
        self.assert_found("bad", "no standby is ready")

    def test_mismatched(self):
        self.cluster["nodes"][1].update(role="mismatched", reason="/data is missing there")
        self.assert_found("bad", "the node b is mismatched: /data is missing there")
        self.cluster.update(node="b", role="mismatched", reason="/data is missing here")
        self.assert_found("bad", "this node b is mismatched", "/data is missing here")

    def test_versions(self):
        self.cluster["nodes"][1]["version"] = "1.1"
        self.assert_found("note", "different versions")

    def test_two_active_nodes(self):
        self.cluster["nodes"][1]["role"] = "active"
        self.assert_found("bad", "several nodes say that they are active")

    def test_node_that_died_while_it_was_active(self):
        """Its row has the last role that it had."""
        self.cluster["nodes"][1].update(role="active", last_seen="2027-01-15T08:59:50.000Z")
        self.assert_not_found("several nodes say that they are active")

    def test_lease(self):
        self.cluster.update(role="stopping", reason="the lease is over")
        self.assert_found("bad", "this node a is stopping", "the lease is over")
        self.be_standby()
        self.cluster["lease"].update(renewed_seconds_ago=9)
        self.assert_found("bad", "the node b has not renewed its lease for 9 s, and no node took over")
        self.cluster["lease"].update(holder=None, renewed_seconds_ago=None)
        self.assert_found("bad", "no node serves")
        self.cluster["reason"] = "cluster.fence failed for node b"
        self.assert_found("bad", "this node a is standby", "cluster.fence failed for node b")

    def test_no_fence(self):
        self.cluster["fence"] = False
        self.assert_found("note", "no fence is configured")

    def test_not_automatic(self):
        self.cluster["automatic"] = False
        self.assert_found("note", "only when told")

    def test_addresses(self):
        self.cluster["addresses"] = ["192.0.2.10/24%nowhere0"]
        self.assert_found("bad", "192.0.2.10/24%nowhere0 is missing here")

    def test_pace_of_the_database(self):
        for sum_of_100, level in ((0.5, "ok"), (40, "bad")):
            self.api.set("GET", "/metrics", 200, f"holdfast_store_commit_seconds_sum {sum_of_100}\nholdfast_store_commit_seconds_count 100\n")
            self.assert_found(level, "a commit takes", "the lease is 3 s")

    def test_a_standby_is_well(self):
        self.be_standby()
        self.assert_found("ok", "the server answers; it is a standby")
        self.assert_found("ok", "the node b is active")
        self.assert_not_found("port 111")


class Agent(ClusterPlay):
    """contrib/pacemaker/holdfast, with a systemctl of the test's own."""

    OK, GENERIC, UNIMPLEMENTED, INSTALLED, CONFIGURED, NOT_RUNNING = 0, 1, 3, 5, 6, 7

    def setUp(self):
        super().setUp()
        self.said = f"{self.state_dir}/said"
        with open(f"{self.state_dir}/systemctl", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$@" >>{self.said}\nif [ -e {self.state_dir}/dead ]; then echo inactive; exit 3; fi\necho active\n')
        os.chmod(f"{self.state_dir}/systemctl", 0o700)

    def die(self):
        """holdfastd does not run, and cannot be started."""
        with open(f"{self.state_dir}/dead", "w", encoding="utf-8"):
            pass
        self.api.answers.clear()

    def orders(self):
        with open(self.said, encoding="utf-8") as file:
            return [line.strip() for line in file if "is-active" not in line]

    def is_restarted(self):
        """The process that systemd started stands by."""
        if os.path.exists(self.said) and self.orders():
            self.be_standby()
        return 200, self.cluster

    def act(self, action, code, **parameters):
        settings = {f"OCF_RESKEY_{key}": value for key, value in {"holdfast": HOLDFAST, "state_dir": self.state_dir, **parameters}.items()}
        env = {**os.environ, **settings, "PATH": f"{self.state_dir}:{os.environ['PATH']}", "HOLDFAST_SERVER": self.api.address}
        done = subprocess.run(["sh", f"{CONTRIB}/pacemaker/holdfast", action], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              stdin=subprocess.DEVNULL, env=env)  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_description(self):
        described = xml.etree.ElementTree.fromstring(self.act("meta-data", self.OK).stdout)
        self.assertEqual([action.get("name") for action in described.iter("action")], ["start", "stop", "monitor", "meta-data", "validate-all"])
        self.assertEqual([parameter.get("name") for parameter in described.iter("parameter")], ["holdfast", "state_dir", "unit"])

    def test_monitor(self):
        for role, code in (("active", self.OK), ("standby", self.NOT_RUNNING), ("mismatched", self.NOT_RUNNING), ("stopping", self.GENERIC)):
            self.cluster["role"] = role
            self.act("monitor", code)
        self.api.answers.clear()
        self.act("monitor", self.GENERIC)
        self.die()
        self.act("monitor", self.NOT_RUNNING)

    def test_start(self):
        """It repeats an order that is refused; a node that cannot serve fails."""
        self.be_standby()
        refusals = [(409, refusal("refused", "This node has not seen the database yet."))]

        def take():
            if refusals:
                return refusals.pop()
            self.cluster["role"] = "active"
            return 202, ACCEPTED

        self.api.answers[("POST", "/api/v1/cluster/take")] = take
        self.api.set("GET", "/readyz", 200, {"status": "ok"})
        self.act("start", self.OK)
        self.act("start", self.OK)
        self.assertEqual([call for call in self.api.calls if call[0] == "POST"], 2 * [("POST", "/api/v1/cluster/take")])
        self.cluster["role"] = "mismatched"
        self.api.set("POST", "/api/v1/cluster/take", 409, refusal("refused", "The exports differ."))
        self.assertIn("The exports differ.", self.act("start", self.GENERIC).stderr)
        self.die()
        self.act("start", self.GENERIC)

    def test_stop(self):
        self.api.answers[("GET", "/api/v1/cluster")] = self.is_restarted
        self.act("stop", self.OK)
        self.assertEqual(self.orders(), ["restart holdfastd.service"])
        self.be_standby()
        self.act("stop", self.OK, unit="nfs.service")
        self.die()
        self.act("stop", self.OK)
        self.assertEqual(self.orders(), ["restart holdfastd.service"], "nothing more was to be done")

    def test_mistakes(self):
        self.act("validate-all", self.OK)
        self.act("validate-all", self.INSTALLED, holdfast="/nonexistent")
        self.act("start", self.CONFIGURED, state_dir="relative")
        self.act("promote", self.UNIMPLEMENTED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
