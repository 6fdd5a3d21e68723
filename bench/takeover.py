#!/usr/bin/env python3
"""How long clients wait when the server dies or moves: two nodes and one PostgreSQL, one node alone, and nfs-ganesha.

    takeover.py BUILD_DIR [--rounds N] [--only PART]... [--lease SECONDS]

BUILD_DIR has holdfastd. The parts:

    kill     SIGKILL of the process that serves; its machine lives. Until another client has a new lock.
    loss     The machine is lost: its wire, its witness and its process. Only the lease tells. Until the same.
    move     `holdfast cluster move`. The longest READ, WRITE and LOCK of three clients that never stop.
    restart  One node with the embedded store, SIGKILL and a start at once, by recovery.after_crash: until another
             client has a new lock, and until the next READ is answered.
    ganesha  nfs-ganesha on two nodes, with the same files and the same list of clients: SIGKILL, the address moves
             after 4/3 of the lease, the other node starts. Until another client has a new lock. A round takes more
             than 90 s: its grace period cannot end sooner.

The clients are scripts, each in a network namespace of its own. A client sends its call again, over a new connection,
when a connection breaks or 100 ms pass without a reply; it asks again after 20 ms where the server is in its grace
period. So the figures are the server's: a kernel client may add the pauses of its own TCP and RPC. One more client
holds a lock all the time. It reclaims the lock when it is told to, as a kernel does. Prints JSON, all in seconds.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("net/lib", "files", "e2e/lib"):
    sys.path.insert(0, os.path.join(HERE, "..", "tests", *folder.split("/")))

# pylint: disable=wrong-import-position
import cluster
import ganesha
import nfs
import nlm
from daemon import Daemon
from netns import is_possible
from nodes import SERVICE, Node, Wire, kill_witness, settings_of
from nsm import Host
from rest import Rest
from rpc import NoReply, Stage, TcpCaller, auth_sys, call_message, exchange
from until import lapse, until

REPLY_WITHIN, GRACE_PAUSE = 0.1, 0.02
LONGEST = 300  # that any client waits
LOST = (OSError, EOFError, NoReply)


class Client:
    """A host on the wire that repeats a call until it is answered."""

    def __init__(self, host, nlm_port=2049):
        self.host = host
        self.nlm_port = nlm_port
        self.callers = {}
        self.broken = set()  # ports whose connection broke, until a call over the next one is answered
        self.back_at = {}  # by port: when that call was answered

    def call(self, port, message):
        """The results, whatever happens to the server meanwhile. A repetition is the same message."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            try:
                if port not in self.callers:
                    self.callers[port] = TcpCaller((SERVICE, port), (self.host.address, 0), self.host.namespace,
                                                   timeout=REPLY_WITHIN)  # fmt: skip
                results = exchange(self.callers[port], message, REPLY_WITHIN)
            except LOST:
                self.broken.add(port)
                self.forget(port)
                lapse(0.001)
                continue
            if port in self.broken:
                self.broken.discard(port)
                self.back_at[port] = time.monotonic()
            return results
        raise RuntimeError("no reply")

    def forget(self, port):
        caller = self.callers.pop(port, None)
        if caller:
            caller.close()

    def nlm(self, procedure, lock):
        message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=auth_sys(self.host.name))
        return nlm.res_of(procedure, self.call(self.nlm_port, message)).stat

    def locks(self, lock):
        """When it is granted."""
        end = time.monotonic() + LONGEST
        while (stat := self.nlm(nlm.LOCK, lock)) == nlm.S_GRACE and time.monotonic() < end:
            lapse(GRACE_PAUSE)
        assert stat == nlm.S_GRANTED, stat
        return time.monotonic()

    def unlocks(self, lock):
        end = time.monotonic() + LONGEST
        while (stat := self.nlm(nlm.UNLOCK, lock)) == nlm.S_GRACE and time.monotonic() < end:
            lapse(GRACE_PAUSE)
        assert stat == nlm.S_GRANTED, stat

    def close(self):
        for port in list(self.callers):
            self.forget(port)


class Files(nfs.Client):
    """NFS and MOUNT of such a client."""

    def __init__(self, client, port=2049, mount_port=2049):  # pylint: disable=super-init-not-called
        self.client = client
        self.ports = {nfs.NFS: port, nfs.MOUNT: mount_port}
        self.cred = auth_sys(client.host.name, 0, 0, ())

    def call(self, program, version, procedure, args=b"", xid=None):
        message = call_message(program, version, procedure, args, xid=xid, cred=self.cred)
        return nfs.In(self.client.call(self.ports[program], message))


class Load(threading.Thread):
    """Does @act again and again, and knows when each began and ended."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self.act = act
        self.spans = []
        self.is_over = threading.Event()
        self.start()

    def run(self):
        while not self.is_over.is_set():
            began = time.monotonic()
            self.act()
            self.spans.append((began, time.monotonic()))

    def until_after(self, moment):
        """An act has begun after @moment and is done."""
        until(lambda: self.spans and self.spans[-1][0] > moment, "the load goes on", LONGEST)

    def ends(self):
        self.is_over.set()
        self.join(LONGEST)

    def longest(self):
        return max(end - began for began, end in self.spans)


class Faithful(threading.Thread):
    """Reclaims its locks whenever it is told of a restart."""

    def __init__(self, client, lock):
        super().__init__(daemon=True)
        self.client, self.lock = client, lock
        self.n_seen = len(client.host.told.matching())
        self.is_over = threading.Event()
        self.start()

    def run(self):
        while not self.is_over.is_set():
            with contextlib.suppress(AssertionError):
                self.client.host.told.wait(self.n_seen + 1, timeout=1)
                self.n_seen = len(self.client.host.told.matching())
                self.client.nlm(nlm.LOCK, self.lock.but(reclaim=True))

    def ends(self):
        self.is_over.set()
        self.join()


class Scene:
    """One wire, a directory, and clients: the holder of a lock, and three more."""

    def __init__(self, options):
        self.options = options
        self.exit = contextlib.ExitStack()

    def build(self):
        self.wire = self.added(Wire())
        self.stage = self.added(Stage())
        self.base = tempfile.mkdtemp(prefix="hf-bench-takeover-")
        self.exit.callback(shutil.rmtree, self.base, True)
        os.chmod(self.base, 0o755)
        self.data = os.path.join(self.base, "data")
        os.mkdir(self.data)
        self.clients = []
        for _ in range(4):
            host = self.added(Host(self.stage, *self.wire.add_client(), SERVICE))
            self.clients.append(self.added(Client(host)))

    def added(self, thing):
        self.exit.callback(thing.close)
        return thing

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.exit.close()
            raise
        return self

    def __exit__(self, *_):
        self.exit.close()

    def fill(self, folder):
        os.chmod(folder, 0o777)
        for i in range(len(self.clients)):
            with open(os.path.join(folder, str(i)), "wb") as out:
                out.write(bytes(1 << 16))
            os.chmod(os.path.join(folder, str(i)), 0o666)

    def open_files(self, **ports):
        """Finds the handles; the last client holds a lock from here on."""
        self.files = [Files(client, **ports) for client in self.clients]
        root = self.files[0].root("/data")
        self.handles = [self.files[0].lookup(root, str(i).encode()).fh for i in range(len(self.clients))]
        held = self.lock_of(3)
        self.clients[3].locks(held)
        faithful = Faithful(self.clients[3], held)
        self.exit.callback(faithful.ends)
        self.get_new_lock()  # so that its connection is there, as that of any client that has locked before

    def lock_of(self, i):
        return self.clients[i].host.lock_of(self.handles[i])

    def get_new_lock(self):
        """Another client's new lock: when it has it."""
        got_at = self.clients[0].locks(self.lock_of(0))
        self.clients[0].unlocks(self.lock_of(0))
        return got_at

    def lock_and_unlock(self):
        self.get_new_lock()

    def read(self):
        assert self.files[1].read(self.handles[1], 0, 4096).stat == nfs.OK

    def write(self):
        assert self.files[2].write(self.handles[2], bytes(4096), 0).stat == nfs.OK


class Nodes(Scene):
    """Two nodes of a service."""

    def build(self):
        super().build()
        self.fill(self.data)
        self.pg = self.added(cluster.Cluster())
        self.pg.start()
        self.nodes = []
        for number in (1, 2):
            settings = settings_of(self.pg.connection, f"cluster.lease_seconds={self.options.lease}", "log.level=info")
            flags = ["--export", f"{self.data}:/data"]
            node = Node(self.options.program, self.wire.add_node(), number, settings, flags)
            self.nodes.append(self.added(node))
        self.settle()
        self.open_files()

    def settle(self):
        """Gives the node that serves and the one that can take over."""
        for node in self.nodes:
            if not node.runs:
                node.start()

        def are_ready():
            active = [node for node in self.nodes if node.serves()]
            if len(active) != 1:
                return None
            known = {node["name"]: node["role"] for node in active[0].cluster()["nodes"]}
            standby = [node for node in self.nodes if node is not active[0]][0]
            return (active[0], standby) if known.get(standby.name) == "standby" else None

        ready = until(are_ready, "one node serves and the other stands by", 60)
        until(ready[0].has_witness, "it has a witness")
        lapse(1.5)  # it stores the connections of its clients four times a second
        return ready

    def kill(self):
        active, _ = self.settle()
        began = time.monotonic()
        active.kill_process()
        return {"new_lock": self.get_new_lock() - began}

    def loss(self):
        active, _ = self.settle()
        kill_witness(active)
        began = time.monotonic()
        self.wire.pull(active.number)
        active.kill_process()
        took = self.get_new_lock() - began
        self.wire.plug_in(active.number)
        return {"new_lock": took}

    def move(self):
        active, standby = self.settle()
        loads = {"read": Load(self.read), "write": Load(self.write), "lock": Load(self.lock_and_unlock)}
        began = time.monotonic()
        answer = active.order("move")
        assert answer.status // 100 == 2, answer.status
        until(standby.serves, "the other node serves", 60)
        moved = time.monotonic()
        for load in loads.values():
            load.until_after(moved)
            load.ends()
        return {name: load.longest() for name, load in loads.items()} | {"until_it_serves": moved - began}


class Alone(Scene):
    """One node with the embedded store. It has the service's address all the time."""

    def __init__(self, options, how):
        super().__init__(options)
        self.how = how

    def build(self):
        super().build()
        self.fill(self.data)
        namespace = self.wire.add_node()
        namespace.run("addr", "add", f"{SERVICE}/16", "dev", "eth0")
        settings = ["server.portmap=embedded", "store.backend=lmdb", "api.listen=127.0.0.1:0",
                    f"recovery.after_crash={self.how}"]  # fmt: skip
        self.daemon = self.added(Daemon(self.options.program, namespace, settings, ["--export", f"{self.data}:/data"]))
        self.daemon.start()
        self.rest = Rest(self.daemon)
        self.open_files()

    def is_quiet(self):
        status = self.rest.get("/api/v1/status").json["notifications"]
        return not self.rest.get("/api/v1/grace").json["active"] and status["waiting"] == status["in_flight"] == 0

    def restart(self):
        until(self.is_quiet, "the grace period is over", LONGEST)
        load = Load(self.read)
        load.until_after(time.monotonic())
        began = time.monotonic()
        self.daemon.crash()
        starter = threading.Thread(target=self.daemon.start)
        starter.start()
        took = self.get_new_lock() - began
        starter.join()
        load.until_after(time.monotonic())
        load.ends()
        return {"new_lock": took, "read": self.clients[1].back_at[2049] - began}


class Ganeshas(Scene):
    """Two nfs-ganeshas, of which one runs."""

    def build(self):
        super().build()
        self.hosts = [self.wire.add_node() for _ in range(2)]
        first = ganesha.Ganesha(self.hosts[0], lambda text: None, address=SERVICE)
        self.exit.callback(first.close)
        second = ganesha.Ganesha(self.hosts[1], lambda text: None, like=first, address=SERVICE)
        self.exit.callback(second.close)
        self.serving, self.other = first, second
        self.fill(os.path.join(first.base, "export"))
        self.hosts[0].run("addr", "add", f"{SERVICE}/16", "dev", "eth0")
        first.starts()
        ports = self.ports_of(first)
        for client in self.clients:
            client.nlm_port = ports[nlm.PROGRAM]
        self.open_files(port=ports[nfs.NFS], mount_port=ports[nfs.MOUNT])

    @staticmethod
    def ports_of(server):
        with server.namespace:
            lines = subprocess.run(["rpcinfo", "-p", "127.0.0.1"], check=True, capture_output=True, text=True).stdout
        rows = [line.split() for line in lines.splitlines()[1:]]
        return {int(row[0]): int(row[3]) for row in rows if row[2] == "tcp"}

    def kill(self):
        self.serving.is_killed()
        began = self.serving.killed_at
        lapse(max(0, self.options.lease * 4 / 3 - (time.monotonic() - began)))
        self.serving.namespace.run("addr", "del", f"{SERVICE}/16", "dev", "eth0")
        self.other.namespace.run("addr", "add", f"{SERVICE}/16", "dev", "eth0")
        self.other.announces(SERVICE)
        self.other.starts()
        self.serving, self.other = self.other, self.serving
        for client in self.clients:
            client.nlm_port = self.ports_of(self.serving)[nlm.PROGRAM]
        return {"new_lock": self.get_new_lock() - began}


def summary(rounds):
    """The median, the shortest and the longest of each figure."""
    return {
        name: {
            "median": round(statistics.median(times), 3),
            "least": round(min(times), 3),
            "most": round(max(times), 3),
        }
        for name in rounds[0]
        for times in [[figures[name] for figures in rounds]]
    }


def measure(options, part):
    def repeat(act):
        return summary([act() for _ in range(options.rounds)])

    if part in ("kill", "loss", "move"):
        with Nodes(options) as scene:
            return repeat(getattr(scene, part))
    if part == "restart":
        with Alone(options, "reclaim") as reclaim, Alone(options, "continue") as goes_on:
            both = [(reclaim.restart(), goes_on.restart()) for _ in range(options.rounds)]
        return {"reclaim": summary([one for one, _ in both]), "continue": summary([two for _, two in both])}
    with Ganeshas(options) as scene:
        return repeat(scene.kill)


def why_not(part):
    if part in ("kill", "loss", "move") and not cluster.programs():
        return "there is no PostgreSQL here"
    return ganesha.why_not() if part == "ganesha" else None


def main():
    parts = ("kill", "loss", "move", "restart", "ganesha")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lease", type=int, default=3)
    parser.add_argument("--only", action="append", choices=parts)
    options = parser.parse_args()
    options.program = os.path.join(options.build, "holdfastd")
    reason = is_possible()
    if reason:
        sys.exit(f"takeover: {reason}")
    figures = {"bench": "takeover", "unit": "seconds", "rounds": options.rounds, "lease": options.lease}
    for part in options.only or parts:
        reason = why_not(part)
        figures[part] = {"left_out": reason} if reason else measure(options, part)
        print(part, json.dumps(figures[part]), file=sys.stderr, flush=True)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
