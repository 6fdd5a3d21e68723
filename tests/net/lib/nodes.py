"""A cluster on one wire: two nodes, each in a namespace of its own, clients, and a PostgreSQL that both reach by its socket.

The service has 10.98.0.9, which moves with it. Node N has 10.98.0.N of its own.
"""

import contextlib
import os
import signal
import socket

from daemon import Daemon
from netns import Namespace
from rest import Rest
from until import until

SERVICE = "10.98.0.9"


class Wire:
    """A bridge in a namespace of its own. Clients have the addresses of netns.Network."""

    SERVER = (SERVICE,)

    def __init__(self):
        self.switch = Namespace("switch")
        self.switch.batch(["link add wire address 02:00:00:00:00:01 type bridge", "link set wire up"])
        self.clients = []
        self.nodes = []

    def _plug(self, namespace, port, lines):
        self.switch.batch([f"link add {port} type veth peer name eth0 netns {namespace.path}",
                           f"link set {port} master wire", f"link set {port} up"])  # fmt: skip
        namespace.batch([*lines, "link set eth0 up"])

    def add_client(self):
        number = len(self.clients)
        client = Namespace(f"client{number}")
        self.clients.append(client)
        self._plug(client, f"p{number}", [f"addr add 10.98.0.{10 + number}/16 dev eth0"])
        return client, number

    def add_node(self):
        number = len(self.nodes) + 1
        node = Namespace(f"node{number}")
        self.nodes.append(node)
        self._plug(node, f"n{number}", [f"addr add 10.98.0.{number}/16 dev eth0"])
        return node

    def pull(self, number):
        """The wire of a node is cut: its interface loses the link."""
        self.switch.run("link", "set", f"n{number}", "down")

    def plug_in(self, number):
        self.switch.run("link", "set", f"n{number}", "up")

    def cut_off(self, number):
        """The wire of a client is cut."""
        self.switch.run("link", "set", f"p{number}", "down")

    def reconnect(self, number):
        self.switch.run("link", "set", f"p{number}", "up")

    def close(self):
        for namespace in [*self.clients, *self.nodes, self.switch]:
            namespace.close()


def witnesses(daemon):
    """The process that hands the service over when the server is killed: a fork of it, with its command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm", encoding="ascii") as name, open(f"/proc/{pid}/cmdline", "rb") as words:
                if name.read() == "hf-witness\n" and f"server.state_dir={daemon.state_dir}/".encode() in words.read():
                    yield int(pid)


def kill_witness(daemon):
    for pid in witnesses(daemon):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Node(Daemon):
    """One holdfastd of the service."""

    def __init__(self, program, namespace, number, settings, flags=()):
        self.number = number
        self.name = f"node{number}"
        super().__init__(program, namespace, [*settings, f"cluster.node={self.name}"], flags)
        self.rest = Rest(self)

    def cluster(self):
        return self.rest.get("/api/v1/cluster").json

    @property
    def role(self):
        if not self.runs:
            return None
        with contextlib.suppress(OSError, ValueError, KeyError):
            return self.cluster()["role"]
        return None

    def serves(self):
        """It has the role, its service is ready, and the service's address is here."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return self.role == "active" and self.rest.get("/readyz").status == 200 and self.has_address()
        return False

    @property
    def runs(self):
        return self.process is not None and self.process.poll() is None

    @property
    def address(self):
        """Its own."""
        return f"10.98.0.{self.number}"

    def has_address(self, address=SERVICE):
        with self.namespace, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                return False
        return True

    def order(self, what):
        """An operator's POST: its answer."""
        return self.rest.call("POST", f"/api/v1/cluster/{what}", token=True)

    def crash(self):
        """As if its machine had died: no process of it is left to say so."""
        kill_witness(self)
        super().crash()

    def kill_process(self):
        """SIGKILL for the server alone. Its machine lives."""
        super().crash()

    def has_witness(self):
        return any(True for _ in witnesses(self))

    def pause(self):
        """Stops all its threads. A signal is on its way for a moment."""
        self.process.send_signal(signal.SIGSTOP)
        self.until(self._stands_still, "all its threads have stopped")

    def _stands_still(self):
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="ascii", errors="replace") as stat:
                if stat.read().rpartition(")")[2].split()[0] not in "Tt":
                    return False
        return True

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def until(self, look, what, timeout=30):
        return until(look, f"{self.name}: {what}", timeout, more=lambda: f"its log ends:\n{self.log[-3000:]}")

    def until_serving(self, timeout=30):
        self.until(self.serves, "it serves", timeout)

    def until_role(self, role, timeout=30):
        self.until(lambda: self.role == role, f"it is {role}", timeout)


def settings_of(postgres, *more):
    return [
        "server.portmap=embedded",
        "store.backend=postgres",
        f"store.postgres={postgres}",
        "cluster.service=nfs",
        f"cluster.addresses={SERVICE}/16%eth0",
        "api.listen=127.0.0.1:0",
        "log.level=debug",
        *more,
    ]


def export_flags(folder):
    os.chmod(folder, 0o777)
    return ["--export", f"{folder}:/data"]
