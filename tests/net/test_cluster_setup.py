#!/usr/bin/env python3
"""Nodes that do not fit together, and how a service begins: each mistake is refused or shown, and none costs a lock."""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from daemon import Daemon, Failed
from nodes import SERVICE, Node, settings_of
from play import Play, main
from slow_config import SlowConfig
from takeover import EXPORT, NfsClient, Takeover
from until import lapse

OTHER = "{{path: {base}/other, name: /other, squash: none}}"
ATTEMPTS = 3


class Setup(Takeover):
    n_hosts = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.mkdir(os.path.join(cls.base, "other"))

    def extra(self, name, namespace=None, *more):
        """Another daemon beside the nodes, which the test starts; it ends with the test."""
        settings = settings_of(self.pg.connection, f"cluster.lease_seconds={self.lease}", *more)
        node = Node(Play.program, namespace or self.wire.add_node(), len(self.wire.nodes), settings)
        node.settings.append(f"cluster.node={name}")
        node.config = os.path.join(self.base, f"extra-{len(self.wire.nodes)}.yaml")
        node.flags = ["--config", node.config]
        self.write_exports(node)
        self.addCleanup(node.close)
        return node

    def assert_ends(self, node, status, *words):
        with contextlib.suppress(Failed):  # it may end before it is ready
            node.start()
        node.process.wait(30)
        self.assertEqual(node.process.returncode, status, node.log)
        for word in words:
            self.assertIn(word, node.log)

    def reload(self, node, *exports):
        self.write_exports(node, *exports)
        node.process.send_signal(signal.SIGHUP)

    def restart_with(self, node, *settings):
        """A node with other settings, until the test ends."""
        before = list(node.settings)
        node.stop()
        node.settings = [*before, *settings]

        def mend():
            node.settings = before
            node.stop()

        self.addCleanup(mend)
        node.start()

    def test_clear_store_is_refused(self):
        """The process would clear it whenever it takes the service over."""
        node = self.nodes[0]
        words = [node.program, "--clear-store", *node.flags, "--set", f"server.state_dir={node.state_dir}/other"]
        for setting in node.settings:
            words += ["--set", setting]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--clear-store cannot be used in a cluster", done.stderr)

    # Exports

    def until_mismatched(self, node, *words):
        def reason():
            shown = node.cluster()
            return shown["role"] == "mismatched" and all(word in shown["reason"] for word in words) and shown["reason"]

        return node.until(reason, f"it is mismatched, and says {words}")

    def test_exports_that_differ(self):
        self.reload(self.standby, EXPORT, OTHER)
        self.addCleanup(self.write_exports, self.standby)
        self.until_mismatched(self.standby, "exports differ", self.active.name, "/other")
        self.assertEqual(self.standby.rest.get("/readyz").status, 503)
        self.assertEqual(self.standby.order("take").status, 409)
        self.until(lambda: {n["name"]: n["role"] for n in self.active.cluster()["nodes"]}[self.standby.name] == "mismatched",
                   "the active node knows it")  # fmt: skip
        self.assertEqual(self.active.order("move").status, 409)

        with self.subTest("no takeover"):
            self.active.crash()
            lapse(2 * self.lease)  # longer than any takeover of a node that may
            self.assertEqual(self.standby.role, "mismatched")
            self.active.start()
            self.active.until_serving()

        with self.subTest("a reload of the standby mends it"):
            self.reload(self.standby, EXPORT)
            self.standby.until_role("standby")

        with self.subTest("a reload of the active node changes the service"):
            self.reload(self.active, EXPORT, OTHER)
            self.addCleanup(self.write_exports, self.active)
            self.until_mismatched(self.standby, "exports differ", "/other")
            self.reload(self.standby, EXPORT, OTHER)
            self.standby.until_role("standby")
            self.active.crash()
            self.until_serving(self.standby)
        self.active.start()
        self.until_one_serves()
        for node in (self.standby, self.active):
            self.reload(node, EXPORT)
        self.until_one_serves()

    def test_a_standby_that_cannot_open_its_audit_log(self):
        """Without it the node would not start to serve."""
        node, folder = self.standby, tempfile.mkdtemp(prefix="hf-audit-")
        self.addCleanup(shutil.rmtree, folder, True)
        self.addCleanup(self.reload, node)

        def order(path):
            self.write_exports(node)
            with open(node.config, "a", encoding="ascii") as out:
                out.write(f"log: {{audit: {path}}}\n")
            return node.rest.call("POST", "/api/v1/reload", token=True)

        refused = order(f"{folder}/no-such-folder/audit.log")
        self.assertEqual(refused.status, 409)
        self.assertIn("the new audit log cannot be opened", refused.json["error"]["message"])
        self.assertEqual(order(f"{folder}/audit.log").status, 200)
        shutil.rmtree(folder)
        self.until_mismatched(node, "the audit log cannot be opened here")

    def test_a_standby_reloads_by_order(self):
        """What it has loaded is in effect when it serves."""
        node = self.standby
        self.addCleanup(self.reload, node)
        with open(node.config, "a", encoding="ascii") as out:
            out.write("recovery: {max_clients: 77}\n")
        answer = node.rest.call("POST", "/api/v1/reload", token=True)
        self.assertEqual((answer.status, answer.json["loaded"], answer.json["at_next_start"]), (200, True, []))
        self.assertEqual(node.rest.get("/api/v1/status").json["reload"], answer.json)
        self.assertEqual(node.order("take").status, 202)
        self.until_serving(node)
        limits = node.rest.get("/api/v1/limits").json["limits"]
        self.assertEqual([limit["max"] for limit in limits if limit["name"] == "clients"], [77])

    def test_exports_that_differ_in_access(self):
        self.reload(self.standby, EXPORT.replace("squash: none", "squash: none, access: ro"))
        self.addCleanup(self.reload, self.standby, EXPORT)
        self.until_mismatched(self.standby, "access=ro")

    def test_automatic_is_turned_off_and_on_by_a_reload(self):
        """On the standby, which it is for."""
        node = self.standby
        self.addCleanup(self.write_exports, node)
        self.write_exports(node)
        with open(node.config, "a", encoding="ascii") as out:
            out.write("cluster: {automatic: false}\n")
        before = len(node.log)
        node.process.send_signal(signal.SIGHUP)
        self.until(lambda: not node.cluster()["automatic"], "it knows")
        self.assertNotIn("at the next start", node.log[before:])
        self.active.crash()
        lapse(2 * self.lease)  # longer than any takeover by itself
        self.assertEqual(node.role, "standby")
        self.reload(node, EXPORT)
        self.until_serving(node)

    def test_exports_come_back_after_an_empty_list(self):
        node = self.active
        self.addCleanup(self.write_exports, node)
        with open(node.config, "w", encoding="ascii") as out:
            out.write("exports: []\n")
        node.process.send_signal(signal.SIGHUP)
        self.until(lambda: "configuration loaded again exports=0" in node.log, "it has no exports")
        before = len(node.log)
        self.reload(node, EXPORT)
        self.until(lambda: "configuration loaded again" in node.log[before:], "it has reloaded")
        self.assertIn("configuration loaded again exports=1", node.log[before:])
        self.assertNotIn("at the next start", node.log[before:])
        with NfsClient(self.a) as client:
            client.root("/data")
        self.assertEqual(self.until_one_serves(), (self.active, self.standby))

    def begin_slow_reload(self, node):
        """Of a configuration that is read when the function that this gives is called; the next reload finds a file there."""
        slow = SlowConfig(node.config)
        node.process.send_signal(signal.SIGHUP)
        node.until(slow.is_read, "it reads the configuration")
        return lambda: slow.go_on("exports: broken\n")

    def assert_reloads_in_next_role(self, node, order):
        before = len(node.log)
        go_on = self.begin_slow_reload(node)
        self.assertIn(order().status, (200, 202))
        node.until(lambda: node.role is None, "its role ends")
        go_on()
        node.until(lambda: "configuration loaded again exports=1" in node.log[before:], "it has reloaded")
        self.assertNotIn("configuration not loaded", node.log[before:])
        self.assertEqual(self.until_one_serves(), (self.standby, self.active))

    def test_reload_of_a_standby_that_takes_the_service(self):
        self.assert_reloads_in_next_role(self.standby, lambda: self.standby.order("take"))

    def test_reload_of_an_active_node_that_hands_over(self):
        self.assert_reloads_in_next_role(self.active, lambda: self.active.order("move"))

    def test_directory_that_is_not_there(self):
        """The exports are the same, but one of them is gone on the standby, which has a file system of its own in its place."""
        node = self.extra("third")
        config = os.path.join(node.state_dir, "exports.yaml")
        shutil.copy(node.config, config)
        node.flags = ["--config", config]
        script = f"mount -t tmpfs none '{self.base}' && mkdir '{self.base}/data' && exec \"$@\""
        node.launcher = ["unshare", "--mount", "sh", "-c", script, "sh"]
        node.start()
        node.until_role("standby")
        subprocess.run(["nsenter", "-t", str(node.process.pid), "-m", "rmdir", f"{self.base}/data"], check=True)
        self.until_mismatched(node, "data", "cannot be reached")
        subprocess.run(["nsenter", "-t", str(node.process.pid), "-m", "mkdir", f"{self.base}/data"], check=True)
        node.until_role("standby")
        node.stop()

    # Who is who

    def test_handle_key_that_differs(self):
        node = self.extra("third")
        os.makedirs(os.path.join(node.state_dir, "state"), mode=0o700)
        path = os.path.join(node.state_dir, "state", "handle.key")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            out.write(os.urandom(16))
        self.assert_ends(node, 1, "the key of the file handles differs", "handle.key")
        self.assertTrue(self.active.serves())

    def test_lease_that_differs(self):
        self.restart_with(self.standby, "cluster.lease_seconds=7")
        self.until_mismatched(self.standby, "cluster.lease_seconds is 7 here and 2")

    def test_interface_that_does_not_exist(self):
        self.restart_with(self.standby, f"cluster.addresses={SERVICE}/16%nosuch0")
        self.until_mismatched(self.standby, "the interface nosuch0 does not exist; cluster.addresses names it")

    def test_two_nodes_of_one_name(self):
        for name in (self.active.name, self.standby.name):
            with self.subTest(name=name):
                self.assert_ends(self.extra(name), 1, f"takes part in the cluster as node {name}")
        self.assertEqual(self.one_serves(), (self.active, self.standby))

    def test_other_store_is_a_mistake_of_the_configuration(self):
        words = [Play.program, "--set", "store.backend=lmdb", "--set", "cluster.service=nfs"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cluster", done.stderr)

    # A holdfastd outside of the cluster

    def plain(self, *more):
        settings = ["server.portmap=embedded", "store.backend=postgres", f"store.postgres={self.pg.connection}",
                    "server.name=nfs", "api.listen=127.0.0.1:0", *more]  # fmt: skip
        daemon = Daemon(Play.program, self.wire.add_node(), settings, ["--config", self.nodes[0].config])
        self.addCleanup(daemon.close)
        return daemon

    def test_plain_server_beside_a_cluster_is_refused(self):
        daemon = self.plain()
        self.assert_ends(daemon, 1, "server.name")
        self.assertEqual(self.one_serves(), (self.active, self.standby))


class Beginning(Takeover):
    """How a service begins: each test has a database without one."""

    n_hosts = 2

    def setUp(self):
        for node in self.nodes:
            if node.runs:
                node.crash()
            shutil.rmtree(os.path.join(node.state_dir, "state"), ignore_errors=True)
        tables = self.pg.query("SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'public'")
        if tables:
            self.pg.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        self.a, self.b = self.hosts
        for host in self.hosts:
            host.drop_callers()
            host.told.items.clear()
        # The address of a node that was killed leaves with its lifetime.
        self.until(lambda: not any(node.has_address() for node in self.nodes), "no node has the address of the service")

    def test_both_nodes_start_at_once(self):
        """Each of them finds no service, and one begins it."""
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor() as pool:
                for started in [pool.submit(node.start) for node in self.nodes]:
                    started.result()
            active, standby = self.until_one_serves()
            self.assertNotIn("cannot take up what was stored", active.log + standby.log)
            standby.stop()
            active.stop()
            self.pg.query("DELETE FROM holdfast_leases; DELETE FROM holdfast_services; DELETE FROM holdfast_server_state")

    def begin_plain(self, *more):
        settings = ["server.portmap=embedded", "store.backend=postgres", f"store.postgres={self.pg.connection}",
                    "server.name=nfs", "api.listen=127.0.0.1:0", "recovery.window_seconds=3600", *more]  # fmt: skip
        namespace = self.wire.add_node()
        namespace.run("addr", "add", f"{SERVICE}/16", "dev", "eth0")
        for host in self.hosts:  # a plain server announces nothing
            host.namespace.run("neigh", "flush", "dev", "eth0")
        daemon = Daemon(Play.program, namespace, settings, ["--config", self.nodes[0].config])
        self.addCleanup(daemon.close)
        daemon.start()
        return daemon

    def end_plain(self, daemon):
        daemon.stop()
        daemon.namespace.run("addr", "del", f"{SERVICE}/16", "dev", "eth0")

    def test_store_of_a_plain_server_is_taken_along(self):
        """The node waits and says so while that server runs; then its locks are held."""
        plain = self.begin_plain("recovery.after_crash=continue")
        state = self.state_of(plain)
        self.fh = self.handle_of(self.make_file())
        self.hold()
        node = self.nodes[0]
        # The key of its handles comes along, too.
        os.makedirs(os.path.join(node.state_dir, "state"), mode=0o700)
        shutil.copy2(os.path.join(plain.state_dir, "state", "handle.key"), os.path.join(node.state_dir, "state", "handle.key"))
        node.start()
        self.until(lambda: "outside of the cluster" in (node.cluster()["reason"] or ""), "it says why it waits")
        self.assertEqual(node.role, "standby")
        self.assertEqual(node.rest.get("/readyz").status, 503)
        self.end_plain(plain)
        self.until_serving(node)
        self.assert_continued(node, state)
        self.assert_denied(self.b)
        self.nodes[1].start()
        self.assertEqual(self.until_one_serves(), tuple(self.nodes))

    def test_node_without_the_key_of_a_plain_server_comes_first(self):
        """Its own key would be that of the service for good. It waits for the node that has the key of the stored locks."""
        plain = self.begin_plain("recovery.after_crash=continue")
        state = self.state_of(plain)
        self.fh = self.handle_of(self.make_file())
        self.hold()
        self.end_plain(plain)
        right, wrong = self.nodes
        wrong.start()
        wrong.until_role("mismatched")
        self.assertIn("handle.key", wrong.cluster()["reason"])
        self.assertEqual(self.pg.query("SELECT count(*) FROM holdfast_leases"), "0")
        os.makedirs(os.path.join(right.state_dir, "state"), mode=0o700)
        shutil.copy2(os.path.join(plain.state_dir, "state", "handle.key"), os.path.join(right.state_dir, "state", "handle.key"))
        right.start()
        self.until_serving(right)
        self.assert_continued(right, state)
        self.assert_denied(self.b)
        self.assertEqual(self.until_one_serves(), (right, wrong))
        right.crash()
        self.until_serving(wrong)
        self.assert_denied(self.b)

    def test_key_of_a_plain_server_without_clients(self):
        """No client relies on it: the node begins with a key of its own."""
        self.end_plain(self.begin_plain())
        self.assertNotEqual(self.pg.query("SELECT handle_key FROM holdfast_services"), "0")
        self.nodes[0].start()
        self.until_serving(self.nodes[0])


class Fenced(Takeover):
    """cluster.fence on all nodes: it writes down for whom it was run, and fails while a file says so."""

    n_hosts = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = os.path.join(cls.base, "runs")
        cls.fails = os.path.join(cls.base, "fails")
        script = os.path.join(cls.base, "fence")
        with open(script, "w", encoding="ascii") as out:
            out.write(f'#!/bin/sh\necho "$1" >> {cls.runs}\n[ ! -e {cls.fails} ]\n')
        os.chmod(script, 0o755)
        for node in cls.nodes:
            node.settings.append(f"cluster.fence={script}")

    def setUp(self):
        super().setUp()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.runs)

    def fenced(self):
        with contextlib.suppress(FileNotFoundError), open(self.runs, encoding="ascii") as runs:
            return runs.read().split()
        return []

    def test_fence_runs_before_a_takeover(self):
        self.hold()
        old, _ = self.kill_active()
        self.assertEqual(self.fenced(), [old.name])
        self.assert_denied(self.b)

    def test_no_fence_in_a_planned_move(self):
        """A machine on which a hand-over takes longer than the lease tells nothing: then once more."""
        for _ in range(ATTEMPTS):
            n = len(self.fenced())
            self.assertEqual(self.active.order("move").status, 202)
            self.until_serving(self.standby)
            reasons = {self.standby.cluster()["last_takeover"]["reason"]}
            self.standby.stop()
            self.until_serving(self.active)
            reasons.add(self.active.cluster()["last_takeover"]["reason"])
            if reasons == {"handed over"}:
                self.assertEqual(len(self.fenced()), n)
                return
            self.active, self.standby = self.settle()
        self.fail(f"the last of {ATTEMPTS} moves: {reasons}")

    def test_fence_that_fails_is_tried_again(self):
        with open(self.fails, "wb"):
            pass
        self.hold()
        self.active.crash()
        self.until(lambda: len(self.fenced()) >= 2, "it was tried twice")
        self.assertEqual(self.standby.role, "standby")
        self.assertIn("cluster.fence failed", self.standby.cluster()["reason"])
        self.assertFalse(self.standby.has_address())
        os.unlink(self.fails)
        self.until_serving(self.standby)
        self.assert_denied(self.b)

    def test_node_that_was_installed_anew_does_not_fence_itself(self):
        """The row has its name with another instance. The command would switch off the machine that runs it."""
        self.hold()
        node = self.active
        self.standby.stop()
        node.crash()
        os.unlink(os.path.join(node.state_dir, "state", "instance"))
        node.start()
        self.until(lambda: node.serves() or self.fenced(), "it serves")
        self.assertEqual(self.fenced(), [])
        self.until_serving(node)
        self.until(lambda: node.cluster()["last_takeover"]["reason"] == "the lease was over", "the takeover is reported")
        self.assert_denied(self.b)


class ByHand(Takeover):
    """automatic: false. A node takes over only when it is told, or when the service is handed to it."""

    n_hosts = 2
    more = ("cluster.automatic=false",)

    def settle(self):
        for node in self.nodes:
            if not node.runs:
                node.start()
        self.until(lambda: all(node.role for node in self.nodes), "both have a role")
        if not self.with_role("active"):
            self.until(lambda: self.nodes[0].order("take").status == 202, "it can be told")
        return self.until_one_serves()

    def test_takes_over_only_when_told(self):
        self.hold()
        self.active.crash()
        lapse(2 * self.lease)  # longer than any takeover by itself
        self.assertEqual(self.standby.role, "standby")
        self.assertEqual(self.standby.order("take").status, 202)
        self.until_serving(self.standby)
        self.assert_denied(self.b)

    def test_move_is_an_order(self):
        self.assertEqual(self.active.order("move").status, 202)
        self.until_serving(self.standby)


if __name__ == "__main__":
    main()
