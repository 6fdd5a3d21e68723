"""A service of two nodes with one export: each a namespace with a wire to the clients and one to the database.

The service has 10.98.0.9, which moves with it. Node N has 10.98.0.(2+N) of its own on the clients' wire, and 10.96.0.(10+N) on
the other one, where the databases are at 10.96.0.1 and 10.96.0.2.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile

from guest import PATIENCE
from netns import Namespace
from nodes import kill_witness
from server import Server, make_export
from until import until

ADDRESS = "10.98.0.9"
DATABASES = ("10.96.0.1", "10.96.0.2")


class Machine:
    """Of a node, with its two wires."""

    def __init__(self, switch, number):
        self.switch = switch
        self.namespace = Namespace(f"node{number}")
        self.ports = {"eth0": (f"n{number}", "wire"), "eth1": (f"d{number}", "data")}
        addresses = {"eth0": f"10.98.0.{2 + number}/16", "eth1": f"10.96.0.{10 + number}/16"}
        for interface, (port, bridge) in self.ports.items():
            switch.batch([f"link add {port} type veth peer name {interface} netns {self.namespace.path}",
                          f"link set {port} master {bridge}", f"link set {port} up"])  # fmt: skip
            self.namespace.batch([f"addr add {addresses[interface]} dev {interface}", f"link set {interface} up"])

    def lose_link(self, interface):
        self.switch.run("link", "set", self.ports[interface][0], "down")

    def cut(self, interface):
        """Behind the switch: the interface has its link, and nothing comes or goes."""
        self.switch.run("link", "set", self.ports[interface][0], "nomaster")

    def mend(self):
        for port, bridge in self.ports.values():
            self.switch.run("link", "set", port, "master", bridge, "up")


def machines(stage):
    """The two of this world."""
    if not stage.machines_of_nodes:
        switch = stage.network.server
        switch.batch(["link add data address 02:00:00:00:00:02 type bridge", "link set data up",
                      *(f"addr add {address}/16 dev data" for address in DATABASES)])  # fmt: skip
        stage.machines_of_nodes = [Machine(switch, number) for number in (1, 2)]
    return stage.machines_of_nodes


class Node(Server):
    def __init__(self, program, machine, number, settings, note, export):
        self.name = f"node{number}"
        super().__init__(program, machine.namespace, [*settings, f"cluster.node={self.name}"], note, export)
        self.machine = machine

    def is_lost(self):
        """With its machine: no process of it is left to hand the service over."""
        kill_witness(self.daemon)
        self.is_killed()

    def call(self, method, target):
        """None: it does not answer, for instance because it changes its role."""
        with contextlib.suppress(OSError, ValueError):
            return self.rest.call(method, target, token=method != "GET")
        return None

    @property
    def cluster(self):
        answer = self.call("GET", "/api/v1/cluster")
        return answer.json if answer and answer.status == 200 else {"role": None}

    @property
    def role(self):
        return self.cluster["role"]

    def serves(self):
        answer = self.call("GET", "/readyz")
        return bool(answer) and answer.status == 200 and self.role == "active"

    def until(self, look, what, timeout=PATIENCE):
        until(look, f"{self.name}: {what}", timeout, more=lambda: self.daemon.log[-3000:])
        self.note(f"{self.name}: {what}")

    def is_told(self, order):
        """By an operator."""
        self.note(f"{self.name}: is told to {order}")

        def is_accepted():
            answer = self.call("POST", f"/api/v1/cluster/{order}")
            return bool(answer) and answer.status == 202

        until(is_accepted, f"{self.name} accepts {order}", more=lambda: self.cluster)

    def has_requests(self):
        """That it has not read."""
        with self.namespace:
            said = subprocess.run(["ss", "-tnH", "sport = :2049"], check=True, capture_output=True, text=True).stdout
        return any(int(line.split()[1]) > 0 for line in said.splitlines())

    # ---- its wires

    def loses_link(self, *interfaces):
        self.note(f"{self.name}: loses the link of {' and '.join(interfaces)}")
        for interface in interfaces:
            self.machine.lose_link(interface)

    def is_cut_off(self, *interfaces):
        """Without a word of it."""
        self.note(f"{self.name}: is cut off at {' and '.join(interfaces)}")
        for interface in interfaces:
            self.machine.cut(interface)

    def has_its_wires(self):
        self.note(f"{self.name}: has all its wires")
        self.machine.mend()


class Service:
    """What the plays know as their server. Whatever is asked of a server is asked of the node that served last."""

    source = f"{ADDRESS}:/data"

    def __init__(self, stage, settings, note, database):
        self.note = note
        self.directory = tempfile.mkdtemp(prefix="hf-service-")
        os.chmod(self.directory, 0o755)
        self.export = make_export(self.directory)
        settings = ["store.backend=postgres", f"store.postgres={database}", "cluster.service=nfs", "server.name=nfs",
                    f"cluster.addresses={ADDRESS}/16%eth0", *settings]  # fmt: skip
        self.nodes = [Node(stage.program, machine, number, settings, note, self.export)
                      for number, machine in enumerate(machines(stage), 1)]  # fmt: skip
        self.active, self.other = self.nodes

    def starts(self):
        self.active.starts()
        self.active.until(self.active.serves, "serves")
        self.other.starts()
        self.is_whole()

    def is_whole(self):
        """One serves, the other could, and each knows it."""
        self.other.until(lambda: self.other.role == "standby", "is standby")
        self.active.until(lambda: sorted(node["role"] for node in self.active.cluster["nodes"]) == ["active", "standby"],
                          "sees both")  # fmt: skip

    def is_served(self):
        """By one of them."""
        until(lambda: any(node.serves() for node in self.nodes), "a node serves", PATIENCE,
              more=lambda: "\n".join(node.daemon.log[-2000:] for node in self.nodes))  # fmt: skip
        if not self.active.serves():
            self.active, self.other = self.other, self.active

    def is_taken_over(self, result="continued", timeout=PATIENCE):
        """The other node serves."""
        before, self.active, self.other = self.active, self.other, self.active
        self.active.until(self.active.serves, "serves", timeout)
        self.has_result(before, result)

    def has_result(self, before, result):
        """Of the takeover from the node @before."""
        def last():
            takeover = self.active.cluster.get("last_takeover") or {}
            return (takeover.get("from"), takeover.get("to"), takeover.get("result"))

        self.active.until(lambda: last()[:2] == (before.name, self.active.name), "has reported")
        self.note(f"service: {self.active.cluster['last_takeover']}")
        assert last()[2] == result, self.active.cluster["last_takeover"]

    def is_well(self):
        return all(node.is_well() for node in self.nodes)

    def stops(self):
        """The standby first: else the service would move."""
        self.other.stops()
        self.active.stops()

    def copy_logs(self, directory):
        for node in self.nodes:
            shutil.copy(node.daemon.log_path, os.path.join(directory, f"{node.name}.log"))

    def close(self):
        for node in self.nodes:
            node.close()
            node.machine.mend()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __getattr__(self, name):
        return getattr(self.active, name)
