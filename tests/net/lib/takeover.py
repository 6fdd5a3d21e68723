"""Plays about a service that moves: two nodes, one PostgreSQL, one directory, and hosts that reach the service by its address."""

import os
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "files"))

import cluster
import nfs
import nlm
from daemon import scar_in
from nodes import SERVICE, Node, Wire, settings_of
from nsm import Host, Local
from play import Play
from rpc import Stage, TcpCaller, UdpCaller, auth_sys
from until import PATIENCE, until

EXPORT = "{{path: {base}/data, name: /data, squash: none}}"


class NfsClient(nfs.Client):
    """A client on a fake host, of the service or of one node's own address."""

    def __init__(self, host, server=SERVICE, udp=False):  # pylint: disable=super-init-not-called
        kind = UdpCaller if udp else TcpCaller
        self.caller = kind((server, 2049), (host.address, 0), host.namespace)
        self.cred = auth_sys(host.name, 0, 0, ())


class Takeover(unittest.TestCase):
    """Each test begins with all nodes running: one serves, and the others can take over."""

    lease = 2
    more = ()  # settings of all nodes
    n_nodes = 2
    n_hosts = 4

    @classmethod
    def setUpClass(cls):
        if not cluster.programs():
            raise unittest.SkipTest("no PostgreSQL here")
        cls.pg = cluster.Cluster().start()
        cls.addClassCleanup(cls.pg.close)
        cls.wire = Wire()
        cls.addClassCleanup(cls.wire.close)
        cls.stage = Stage()
        cls.addClassCleanup(cls.stage.close)
        cls.base = tempfile.mkdtemp(prefix="hf-takeover-")
        cls.addClassCleanup(shutil.rmtree, cls.base, True)
        os.chmod(cls.base, 0o755)
        os.mkdir(os.path.join(cls.base, "data"))
        cls.n_files = 0
        cls.nodes, cls.hosts = [], []
        for _ in range(cls.n_nodes):
            cls.add_node()
        for _ in range(cls.n_hosts):
            namespace, number = cls.wire.add_client()
            cls.hosts.append(Host(cls.stage, namespace, number, SERVICE))
            cls.addClassCleanup(cls.hosts[-1].close)

    # Nodes

    @classmethod
    def add_node(cls, *more):
        number = len(cls.nodes) + 1
        settings = settings_of(cls.pg.connection, f"cluster.lease_seconds={cls.lease}", "recovery.window_seconds=3600",
                               *cls.more, *more)  # fmt: skip
        node = Node(Play.program, cls.wire.add_node(), number, settings)
        node.config = os.path.join(cls.base, f"{node.name}.yaml")
        node.flags = ["--config", node.config]
        cls.write_exports(node)
        cls.nodes.append(node)
        cls.addClassCleanup(node.close)
        return node

    @classmethod
    def write_exports(cls, node, *exports):
        with open(node.config, "w", encoding="ascii") as out:
            out.write("exports:\n")
            for line in exports or (EXPORT,):
                out.write("  - " + line.format(base=cls.base) + "\n")

    def with_role(self, role):
        return [node for node in self.nodes if node.role == role]

    def until(self, look, what, timeout=PATIENCE, **how):
        def logs():
            return "\n".join(f"the log of {node.name} ends:\n{node.log[-2500:]}" for node in self.nodes if node.process)

        return until(look, what, timeout, more=logs, **how)

    def one_serves(self):
        """(the node that serves, the first standby), when all others that run stand by; None until then."""
        serving = [node for node in self.nodes if node.serves()]
        standing = self.with_role("standby")
        n_running = 0
        for node in self.nodes:
            if node.runs:
                n_running += 1
            elif node.process and node.process.returncode not in (0, -signal.SIGKILL):
                self.fail(f"{node.name} has ended with {node.process.returncode}:\n{node.log[-3000:]}")
        if len(serving) == 1 and len(standing) == n_running - 1:
            return serving[0], standing[0] if standing else None
        return None

    def settle(self):
        """Starts what does not run. Gives the node that serves and the one that is ready to take over."""
        for node in self.nodes:
            if not node.runs:
                node.start()
        return self.until_one_serves()

    def until_one_serves(self):
        active, standby = self.until(self.one_serves, "one node serves, and all others stand by")
        if standby:
            self.until_ready(active, standby)
        return active, standby

    def until_ready(self, active, standby):
        """The active node knows that the other one can take over."""

        def is_known():
            known = {node["name"]: node["role"] for node in active.cluster()["nodes"]}
            return known.get(standby.name) == "standby"

        self.until(is_known, f"{active.name} knows that {standby.name} is ready")

    def until_serving(self, node):
        """And the clients connect anew."""
        self.until(node.serves, f"{node.name} serves")
        for host in self.hosts:
            host.drop_callers()

    def kill_active(self):
        """SIGKILL for the node that serves; gives it and its successor."""
        active, standby = self.active, self.standby
        active.crash()
        self.until_serving(standby)
        return active, standby

    # Each test

    def setUp(self):
        self.active, self.standby = self.settle()
        self.a, self.b, self.c, self.d = (self.hosts + [None] * 4)[:4]
        for host in self.hosts:
            host.drop_callers()
            host.script = nlm.S_GRANTED
            host.free_all()
            host.grants.items.clear()
        self.forget_notices()
        self.path = self.make_file()
        self.fh = self.handle_of(self.path)

    def tearDown(self):
        self.assertEqual(self.stage.broken, [], "a fake service failed")
        for node in self.nodes:
            if node.process and (scar := scar_in(node.log)):
                self.fail(f"the log of {node.name} has a scar:\n{scar}")

    def forget_notices(self):
        def is_quiet():
            notices = self.active.rest.get("/api/v1/status").json["notifications"]
            return notices["waiting"] == notices["in_flight"] == 0

        self.until(is_quiet, "no client is to be told")
        self.stage.settle()
        for host in self.hosts:
            host.told.items.clear()

    # Files and locks

    def make_file(self, text=b"old"):
        type(self).n_files += 1
        path = os.path.join(self.base, "data", f"file{self.n_files}")
        with open(path, "wb") as out:
            out.write(text)
        return path

    def handle_of(self, path):
        with NfsClient(self.hosts[-1]) as client:
            return client.lookup(client.root("/data"), os.path.basename(path).encode()).fh

    def state_of(self, node):
        local = Local(node.namespace)
        try:
            return local.state()
        finally:
            local.close()

    def is_in_grace(self, node):
        return node.rest.get("/api/v1/grace").json["active"]

    def lock_of(self, host, **more):
        return host.lock_of(**{"fh": self.fh, **more})

    def hold(self, host=None, **more):
        lock = self.lock_of(host or self.a, **more)
        self.assertEqual((host or self.a).lock(lock), nlm.S_GRANTED)
        return lock

    def waits(self, host, **more):
        lock = self.lock_of(host, block=True, **more)
        self.assertEqual(host.lock(lock), nlm.S_BLOCKED)
        return lock

    def release(self, lock, host=None):
        self.assertEqual((host or self.a).unlock(lock), nlm.S_GRANTED)

    def assert_denied(self, host, **more):
        self.assertEqual(host.lock(self.lock_of(host, **more)), nlm.S_DENIED)

    def assert_free(self, fh):
        self.assertEqual(self.d.test(self.d.lock_of(fh, svid=99)).stat, nlm.S_GRANTED, "a client holds it")

    def assert_continued(self, node, state):
        """No client was told, and none has to reclaim."""
        self.assertEqual(self.state_of(node), state, "the state number stays")
        self.assertFalse(self.is_in_grace(node))
        self.stage.settle()
        self.assertEqual([host.name for host in self.hosts if host.told.items], [], "no client is told")

    def assert_all_is_there(self, state, lock, waiter):
        """One node serves: a has its @lock, and b is the next in the queue with its @waiter."""
        active, _ = self.until_one_serves()
        self.until_serving(active)
        self.assert_continued(active, state)
        self.assert_denied(self.c)
        self.release(lock)
        self.b.wait_granted(waiter)

    def takeover_of(self, node, wanted):
        """The last takeover as @node shows it, once it is the @wanted one: (from, to)."""

        def shown():
            last = node.cluster()["last_takeover"]
            return last if last and (last["from"], last["to"]) == wanted else None

        return self.until(shown, f"{node.name} shows the takeover {wanted}")
