#!/usr/bin/env python3
"""What people see of a cluster, and how they steer it: two real nodes, one database; REST, metrics, events, the command line, doctor."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import cluster
import netns
import play
import test_api_description
from certs import Authority
from daemon import Daemon
from https import HttpsRest
from rest import Rest
from until import PATIENCE, until

HOLDFAST = os.path.abspath(os.environ.get("HOLDFAST") or os.path.join(os.path.dirname(os.environ.get("HOLDFASTD", "")), "holdfast"))
OK, FAILED = 0, 1


class Nodes(unittest.TestCase):
    more = ()  # settings

    @classmethod
    def setUpClass(cls):
        cls.database = cluster.Cluster().start()
        cls.addClassCleanup(cls.database.close)
        cls.namespace = netns.Namespace("surface")
        cls.addClassCleanup(cls.namespace.close)
        folder = tempfile.TemporaryDirectory(prefix="hf-surface-")
        cls.addClassCleanup(folder.cleanup)
        cls.export = folder.name
        cls.nodes = {name: cls.make_node(name) for name in "ab"}
        for name in "ab":
            cls.nodes[name].start()
            until(lambda name=name: cls.role(name) == ("active" if name == "a" else "standby"), f"{name} has its role")
        cls.doc = cls.rest("a").get("/api/v1/openapi.json").json

    @classmethod
    def rest(cls, name):
        return Rest(cls.nodes[name])

    @classmethod
    def make_node(cls, name):
        settings = ["server.port=0", "server.portmap=off", "api.listen=127.0.0.1:0", "store.backend=postgres",
                    f"store.postgres={cls.database.connection}", "cluster.service=nfs", f"cluster.node={name}",
                    "cluster.lease_seconds=2", *cls.more]  # fmt: skip
        node = Daemon(os.path.abspath(os.environ["HOLDFASTD"]), cls.namespace, settings, ["--export", f"{cls.export}:/data"])
        cls.addClassCleanup(node.close)
        return node

    @classmethod
    def tearDownClass(cls):
        for node in cls.nodes.values():
            node.stop()

    @classmethod
    def ask(cls, name, path):
        """None: its API ends and starts again with every change of its role."""
        try:
            return cls.rest(name).get(path)
        except (OSError, ValueError):
            return None

    @classmethod
    def role(cls, name):
        answer = cls.ask(name, "/api/v1/cluster")
        return answer and answer.status == 200 and answer.json["role"]

    def order(self, name, path):
        return self.rest(name).call("POST", path, token=True)

    def run_cli(self, name, *words, code=OK):
        with self.namespace:
            done = subprocess.run([HOLDFAST, "--state-dir", f"{self.nodes[name].state_dir}/state", *words], capture_output=True, text=True,
                                  timeout=2 * PATIENCE, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done.stdout + done.stderr

    def serve_on(self, name):
        if self.role(name) != "active":
            self.run_cli(name, "cluster", "take")
        until(lambda: all(self.role(n) == ("active" if n == name else "standby") for n in self.nodes), "all have their roles")
        until(lambda: all(self.ask(n, "/api/v1/cluster").json["lease"]["holder"] == name for n in self.nodes), "all know the active node")
        return next(n for n in self.nodes if n != name)


class OverHttps(Nodes):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="hf-surface-keys-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.ca = Authority(os.path.join(cls.folder, "ca"))
        cls.use("first")
        cls.more = (f"api.certificate={cls.folder}/api.pem", f"api.key={cls.folder}/api.key")
        super().setUpClass()

    @classmethod
    def rest(cls, name):
        return HttpsRest(cls.nodes[name], cls.ca.certificate)

    @classmethod
    def use(cls, name):
        for source, target in zip(cls.ca.issue(name, "IP:127.0.0.1"), ("api.pem", "api.key")):
            shutil.copy(source, os.path.join(cls.folder, target))

    def reload(self, name):
        node = self.nodes[name]
        before = len(node.log)
        node.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration loaded again" in node.log[before:], "it is loaded again", more=lambda: node.log)

    def test_a_standby_reloads_its_certificate_and_keeps_it_when_it_serves(self):
        standby = self.serve_on("a")
        self.assertEqual([self.rest(name).shown() for name in self.nodes], ["first", "first"])
        self.use("second")
        self.reload(standby)
        self.assertEqual((self.rest("a").shown(), self.rest(standby).shown()), ("first", "second"))
        self.run_cli(standby, "status")
        self.serve_on(standby)
        self.assertEqual(self.rest(standby).shown(), "second")
        self.run_cli(standby, "status")
        self.use("third")
        self.reload(standby)
        self.assertEqual(self.rest(standby).shown(), "third")
        self.run_cli(standby, "status")

    def test_a_standby_takes_another_token_and_keeps_it_when_it_serves(self):
        standby = self.serve_on("a")
        leaked = self.rest(standby).token
        with open(os.path.join(self.nodes[standby].state_dir, "state", "api.token"), "w", encoding="ascii") as out:
            out.write("0123456789-another-one\n")
        self.reload(standby)
        for served in (False, True):
            order = self.rest(standby).call("POST", "/api/v1/reload", headers={"Authorization": f"Bearer {leaked}"})
            self.assertEqual((order.status, order.code), (401, "wrong_token"))
            self.assertEqual(self.order(standby, "/api/v1/reload").status, 200)
            if not served:
                self.serve_on(standby)


class Surface(Nodes):
    check = test_api_description.Described.check

    def test_each_node_shows_the_cluster(self):
        standby = self.serve_on("a")
        for name in self.nodes:
            shown = self.ask(name, "/api/v1/cluster").json
            self.check({"$ref": "#/components/schemas/Cluster"}, shown, name)
            self.check({"$ref": "#/components/schemas/Status"}, self.ask(name, "/api/v1/status").json, name)
            self.assertEqual((shown["service"], shown["node"], shown["lease"]["holder"], shown["lease"]["seconds"]), ("nfs", name, "a", 2))
            self.assertLess(shown["lease"]["renewed_seconds_ago"], 2)
            self.assertEqual({node["name"]: node["role"] for node in shown["nodes"]}, {"a": "active", standby: "standby"})
            self.assertRegex(self.run_cli(name, "cluster"), rf"(?m)^node       {name}, {shown['role']}$")

    def test_a_standby_refuses_what_it_does_not_have(self):
        standby = self.serve_on("a")
        self.assertEqual(self.ask("a", "/readyz").status, 200)
        answer = self.ask(standby, "/readyz")
        self.assertEqual((answer.status, answer.json), (503, {"status": "standby"}))
        self.assertEqual(self.ask(standby, "/healthz").status, 200)
        for path in ("clients", "locks", "waiters", "shares", "grace"):
            answer = self.ask(standby, f"/api/v1/{path}")
            self.assertEqual((answer.status, answer.code), (503, "standby"), path)
            self.assertIn("a is active", answer.json["error"]["message"])
        self.assertEqual(self.ask(standby, "/").status, 200)
        self.assertIn("this node is a standby; a is active", self.run_cli(standby, "status"))
        self.assertIn("a is active", self.run_cli(standby, "locks", code=FAILED))

    def test_orders_at_the_wrong_node(self):
        standby = self.serve_on("a")
        answer = self.order(standby, "/api/v1/cluster/move")
        self.assertEqual(answer.status, 409)
        self.assertIn("a is active", answer.json["error"]["message"])
        self.assertEqual(self.order("a", "/api/v1/cluster/take").status, 409)
        answer = self.order("a", "/api/v1/cluster/move?to=nowhere")
        self.assertEqual(answer.status, 409)
        self.assertIn("nowhere", answer.json["error"]["message"])
        self.assertEqual(Rest(self.nodes["a"]).call("POST", "/api/v1/cluster/move").status, 401, "it needs the token")

    def test_move_and_take(self):
        standby = self.serve_on("a")
        before = self.ask("a", "/api/v1/cluster").json
        self.assertRegex(self.run_cli("a", "cluster", "move", standby), rf"^The service moved from a to {standby} in \d+\.\d\d s, all locks were held: ")
        until(lambda: self.role(standby) == "active" and self.ask(standby, "/readyz").status == 200, f"{standby} serves")
        after = self.ask(standby, "/api/v1/cluster").json
        self.assertEqual(after["epoch"], before["epoch"] + 1)
        self.assertEqual((after["last_takeover"]["from"], after["last_takeover"]["to"], after["last_takeover"]["result"]), ("a", standby, "continued"))
        self.assert_told(standby, after["last_takeover"])
        self.assertGreaterEqual(self.metrics(standby)['holdfast_cluster_takeovers_total{result="continued"}'], 1)
        taken = json.loads(self.run_cli("a", "--json", "cluster", "take"))
        self.assertEqual((taken["from"], taken["to"]), (standby, "a"))
        self.assertEqual(self.ask("a", "/readyz").status, 200, "the command waits until the node serves")

    def test_take_waits_for_the_report_of_its_takeover(self):
        """A node serves before the database has what it did."""
        standby = self.serve_on("a")
        self.addCleanup(self.database.query, "DROP FUNCTION wait_a_little CASCADE")
        self.database.query("CREATE FUNCTION wait_a_little() RETURNS trigger LANGUAGE plpgsql AS"
                              " 'BEGIN PERFORM pg_sleep(0.9); RETURN NEW; END'")  # fmt: skip
        self.database.query("CREATE TRIGGER reports_late BEFORE UPDATE OF takeover_at ON holdfast_leases FOR EACH ROW"
                              " EXECUTE FUNCTION wait_a_little()")  # fmt: skip
        taken = json.loads(self.run_cli(standby, "--json", "cluster", "take"))
        self.assertEqual((taken["from"], taken["to"]), ("a", standby))
        until(lambda: self.role("a") == "standby", "a stands by")  # it may not have seen the report yet
        taken = json.loads(self.run_cli("a", "--json", "cluster", "take"))
        self.assertEqual((taken["from"], taken["to"]), (standby, "a"))

    def assert_told(self, name, takeover):
        """The event, in the ring of the node that took over."""
        with self.namespace:
            with subprocess.Popen(["curl", "-sN", f"http://127.0.0.1:{Rest(self.nodes[name]).port}/api/v1/events?since=0"], text=True,
                                  stdout=subprocess.PIPE) as stream:  # fmt: skip
                try:
                    found = next(line for line in stream.stdout if line.startswith("data: ") and '"result"' in line)
                finally:
                    stream.kill()
        told = json.loads(found[len("data: ") :])
        self.assertEqual({key: told[key] for key in takeover}, takeover)

    def metrics(self, name):
        return {key: float(value) for key, value in re.findall(r"^(holdfast_\S+) (\S+)$", self.ask(name, "/metrics").body.decode(), re.M)}

    def test_metrics(self):
        standby = self.serve_on("a")
        for name, role in (("a", "active"), (standby, "standby")):
            shown = self.metrics(name)
            for other in ("active", "standby", "mismatched", "stopping"):
                self.assertEqual(shown[f'holdfast_cluster_role{{role="{other}"}}'], other == role, (name, other))
            self.assertEqual(shown["holdfast_cluster_lease_seconds"] > 0, role == "active")
            self.assertEqual("holdfast_store_healthy" in shown, role == "active")

    def test_a_standby_that_does_not_fit(self):
        standby = self.serve_on("a")
        self.nodes[standby].stop()
        self.nodes[standby].flags = ["--export", f"{self.export}:/data", "--export", "/tmp:/more"]
        try:
            self.nodes[standby].start()
            until(lambda: self.role(standby) == "mismatched", "it sees that it does not fit")
            shown = self.ask(standby, "/api/v1/cluster").json
            self.assertIn("/more", shown["reason"])
            self.assertEqual(self.ask(standby, "/readyz").json, {"status": "mismatched"})
            self.assertEqual(self.order(standby, "/api/v1/cluster/take").status, 409)
            until(lambda: {n["name"]: n["role"] for n in self.ask("a", "/api/v1/cluster").json["nodes"]}.get(standby) == "mismatched", "a sees it")
            self.assertEqual(self.order("a", "/api/v1/cluster/move").status, 409)
            for name in self.nodes:
                bad = [f["what"] for f in self.examine(name) if f["level"] == "bad"]
                self.assertTrue(any("mismatched" in what and "/more" in what for what in bad), bad)
            self.assertIn("no standby is ready", [f["what"] for f in self.examine("a")])
        finally:
            self.nodes[standby].stop()
            self.nodes[standby].flags = ["--export", f"{self.export}:/data"]
            self.nodes[standby].start()

    def examine(self, name):
        with self.namespace:
            done = subprocess.run([HOLDFAST, "--json", "--state-dir", f"{self.nodes[name].state_dir}/state", "doctor"], capture_output=True,
                                  text=True, timeout=3 * PATIENCE, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertIn(done.returncode, (OK, FAILED), done.stderr)
        return json.loads(done.stdout)

    def test_doctor(self):
        standby = self.serve_on("a")
        for name, others in (("a", f"the node {standby} is standby"), (standby, "the node a is active")):
            found = {finding["what"]: finding["level"] for finding in self.examine(name)}
            self.assertEqual(found[others], "ok")
            self.assertEqual(found["no fence is configured"], "note")
            self.assertNotIn("no standby is ready", found)


def why_not():
    return None if cluster.programs() else "no PostgreSQL"


if __name__ == "__main__":
    play.main(why_not)
