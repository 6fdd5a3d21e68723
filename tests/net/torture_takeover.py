#!/usr/bin/env python3
"""Clients lock, reserve, wait and unlock through the address of a service, while its nodes are killed, stopped, moved and cut off.

    torture_takeover.py PATH/holdfastd [--takeovers N] [--seed N] [--seconds S] [--lease S] [--fault NAME] [--jobs N] [--talks]

What was stored is durable (lock_durability: machine), so that each takeover continues. What is checked, from the outside only:
  T1, T2  no client is told GRANTED for what another client believes to have; at rest the service holds what its
          clients believe to have, and nothing else (T3)
  T4      owners that stood in line before a fault are granted in their order after it
  T5, T6  no client is ever told of a restart, and the state number stays
and that a node serves again after each fault. The clients are those of torture.py, but for waits that outlast a takeover.
"""

import argparse
import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import cluster
import netns
import nlm
from clusterfaults import Faults
from daemon import Failed, scar_in
from dbwire import DatabaseWire
from nodes import SERVICE, Node, Wire, settings_of
from nsm import Host, state_of
from player import N_FILES, N_UNITS, UNIT, Player, Violation, World
from reserving import Lost
from rpc import NoReply, Refused, Stage, TcpCaller
from takeover import NfsClient
from until import comes, lapse, until

N_PLAYERS = 4
N_NODES = 2
PATIENCE = 60  # seconds for whatever must happen in a round
CONNECT = 1  # second: a client does not wait for long at an address that is not there
SKIPPED = 77
UNREACHED = (OSError, EOFError, NoReply, Refused)


class Client(Host):
    """It gives up a connection soon that is not made."""

    def caller(self, transport="tcp", server=None, **where):
        key = transport, server
        if transport != "tcp" or where:
            return super().caller(transport, server, **where)
        if key not in self._callers:
            self._callers[key] = TcpCaller((server or self.server, 2049), (self.address, 0), self.namespace, timeout=CONNECT)
        return self._callers[key]


class PatientPlayer(Player):
    """It waits through takeovers. A lock that it is to ask for again may be its own, or not: it gives that back."""

    def ask(self, procedure, lock):
        stat = super().ask(procedure, lock)
        if stat == nlm.S_GRACE and procedure == nlm.LOCK:
            raise Lost
        return stat

    def wait_for(self, key, exclusive, svid):
        patience = self.random.choice((0.05, 0.5, 10))
        comes(lambda: not self.waiting or self.is_over or self.pause.is_set(), patience, pause=0.005)
        with self.guard:
            gave_up = self.waiting is not None
            self.is_letting_go = gave_up
            self.waiting = None
        if gave_up:
            self.give_back(key, svid)


class Torture:
    def __init__(self, args):
        self.args, self.lease = args, args.lease
        self.random = random.Random(args.seed)
        self.began = time.monotonic()
        self.stack = contextlib.ExitStack()
        self.nodes, self.players = [], []
        self.pg = cluster.Cluster().start()
        self.stack.callback(self.pg.close)
        self.wire, self.stage, self.world = Wire(), Stage(), World()
        self.stack.callback(self.wire.close)
        self.stack.callback(self.stage.close)
        self.base = tempfile.mkdtemp(prefix="hf-torture-")
        self.stack.callback(shutil.rmtree, self.base, True)
        os.chmod(self.base, 0o777)
        for _ in range(N_NODES):
            self.add_node()
        self.stranger = self.make_host()
        self.faults = Faults(self)
        self.differences = []  # between what clients believe to have and what the service has
        self.n = {"terms": 0, "takeovers": 0, "lines": 0}

    def add_node(self):
        way = DatabaseWire(self.pg.path)
        settings = settings_of(way.connection, "store.lock_durability=machine", f"cluster.lease_seconds={self.lease}",
                               "recovery.window_seconds=120", "log.level=info")  # fmt: skip
        node = Node(self.args.program, self.wire.add_node(), len(self.nodes) + 1, settings, ["--export", f"{self.base}:/data"])
        node.way = way
        self.nodes.append(node)
        self.stack.callback(way.close)
        self.stack.callback(node.close)

    def make_host(self):
        namespace, number = self.wire.add_client()
        host = Client(self.stage, namespace, number, SERVICE)
        self.stack.callback(host.close)
        return host

    def make_files(self):
        names = [*(f"file{n}" for n in range(N_FILES)), "line"]
        for name in names:
            with open(os.path.join(self.base, name), "wb") as file:
                os.fchmod(file.fileno(), 0o666)
        with NfsClient(self.stranger) as client:
            root = client.root("/data")
            return [client.lookup(root, name.encode()).fh for name in names]

    def say(self, text):
        if self.args.talks:
            print(f"{time.monotonic() - self.began:8.2f} {text}", flush=True)

    # Nodes

    def wait(self, test, what):
        def look():
            if self.world.violations:
                raise Violation(self.world.violations[0])
            return test()

        until(look, what, PATIENCE)

    def order(self, node, what):
        """Whether it is accepted; while a node is slow, its lease may be over, and it refuses."""
        try:
            return node.order(what).status == 202
        except (OSError, ValueError):
            return False

    def ensure_running(self):
        for node in self.nodes:
            if node.runs:
                continue
            if node.process and node.process.returncode not in (0, 1, -9):
                raise Violation(f"{node.name} ended with {node.process.returncode}")
            with contextlib.suppress(Failed):  # it may end again, as long as the database is away
                node.start()

    def one_serves(self):
        self.ensure_running()
        serving = [node for node in self.nodes if node.serves()]
        standing = [node for node in self.nodes if node.role == "standby"]
        if len(serving) != 1 or len(standing) != N_NODES - 1:
            return None
        known = {node["name"]: node["role"] for node in serving[0].cluster()["nodes"]}
        return (serving[0], standing[0]) if known.get(standing[0].name) == "standby" else None

    def until_one_serves(self):
        found = []

        def look():
            with contextlib.suppress(OSError, ValueError, KeyError):
                found[:] = self.one_serves() or ()
            return found

        self.wait(look, "one node serves, and the other one stands by")
        return found

    def note_term(self, active):
        """Counts takeovers. None of them starts over."""
        with contextlib.suppress(OSError, ValueError, KeyError, NoReply):
            epoch, state = active.cluster()["epoch"], state_of(active.namespace)
            if state != self.state:
                raise Violation(f"the state number is {state}, and was {self.state}")
            if epoch < self.epoch:
                raise Violation(f"the epoch is {epoch}, and was {self.epoch}")
            self.n["terms"] += epoch - self.epoch
            self.n["takeovers"] += active is not self.last
            self.epoch, self.last = epoch, active
        told = [host.name for host in self.hosts() if host.told.items]
        if told:
            raise Violation(f"these hosts were told of a restart: {told}")
        for node in self.nodes:
            if scar := scar_in(node.log):
                raise Violation(f"{node.name} has a scar in its log: {scar}")

    def hosts(self):
        return [self.stranger, *(player.host for player in self.players)]

    # The line

    def ask(self, procedure, lock, wanted):
        """The stranger asks until an answer comes that is not for a store which cannot write now."""
        answers = []

        def look():
            try:
                answers.append(self.stranger.ask(procedure, lock).stat)
            except UNREACHED:
                self.stranger.drop_callers()
                return False
            return answers[-1] not in (nlm.S_GRACE, nlm.S_NOLOCKS)

        self.wait(look, f"the stranger's call {procedure} is answered")
        if answers[-1] not in wanted:
            raise Violation(f"T4: the stranger's call {procedure} about {lock} is answered {answers[-1]}")

    def stand_in_line(self):
        """One owner has a lock, and two want it, one after the other."""
        line = [self.stranger.lock_of(self.line_file, self.n["lines"], 1, svid=svid, block=svid > 1) for svid in (1, 2, 3)]
        self.n["lines"] += 1
        self.stranger.grants.items.clear()
        self.ask(nlm.LOCK, line[0], (nlm.S_GRANTED,))
        for lock in line[1:]:
            self.ask(nlm.LOCK, lock, (nlm.S_BLOCKED,))
        return line

    def serve_line(self, line):
        def heard():
            wanted = lambda item: (item.grant.fh, item.grant.offset) == (line[0].fh, line[0].offset)
            return [item.grant.svid for item in self.stranger.grants.matching(wanted)]

        if heard():
            raise Violation(f"T4: {heard()} was granted while another owner has it")
        for lock, following in zip(line, line[1:]):
            self.ask(nlm.UNLOCK, lock, (nlm.S_GRANTED,))
            self.wait(lambda f=following: f.svid in heard(), f"T4: owner {following.svid} is granted the lock")
            if heard()[-1] != following.svid:
                raise Violation(f"T4: out of order: {heard()}")
        self.ask(nlm.UNLOCK, line[-1], (nlm.S_GRANTED,))

    # Rest

    def pause(self):
        for player in self.players:
            player.paused.clear()
            player.pause.set()
        for player in self.players:
            self.wait(player.paused.is_set, f"{player.host.name} comes to rest")

    def rest(self):
        """All clients stop; then the service has the locks that they believe to have."""
        self.pause()
        try:
            self.wait(self.is_as_believed, "T2, T3: the service holds what its clients believe to have")
        except AssertionError as error:
            locks = [node.rest.get("/api/v1/locks").json for node in self.nodes if node.serves()]
            raise Violation(f"{error}: {self.differences}\nof all these locks: {locks}") from None
        for player in self.players:
            player.pause.clear()

    def holder_of(self, file, unit):
        lock = nlm.Lock(fh=self.files[file], offset=unit * UNIT, length=UNIT, name="stranger", svid=99)
        return self.stranger.test(lock).holder

    def is_as_believed(self):
        self.differences = []
        try:
            for file, unit in itertools.product(range(N_FILES), range(N_UNITS)):
                holder, believed = self.holder_of(file, unit), self.world.held.get((file, unit))
                if bool(holder) != bool(believed):
                    self.differences.append((file, unit, holder, [player.host.name for player in believed or ()]))
        except UNREACHED:
            self.stranger.drop_callers()
            return False
        return not self.differences

    def begin(self):
        self.ensure_running()
        active, _ = self.until_one_serves()
        self.last, self.epoch, self.state = active, active.cluster()["epoch"], state_of(active.namespace)
        *self.files, self.line_file = self.make_files()
        for i in range(N_PLAYERS):
            self.players.append(PatientPlayer(self.world, self.make_host(), self.files, self.args.seed * 1000 + i))
        for player in self.players:
            player.start()

    def run(self):
        self.begin()
        end, rounds = time.monotonic() + self.args.seconds, 0
        while self.n["takeovers"] < self.args.takeovers and time.monotonic() < end:
            active, standby = self.until_one_serves()
            self.note_term(active)
            line = self.stand_in_line()
            lapse(self.random.uniform(0.002, 0.3))  # it strikes at a random moment
            fault = self.faults.strike(active, standby)
            self.n[fault] = self.n.get(fault, 0) + 1
            active, _ = self.until_one_serves()
            self.note_term(active)
            self.serve_line(line)
            rounds += 1
            if rounds % 8 == 0:
                self.rest()
        self.rest()
        totals = {key: sum(player.n[key] for player in self.players) for key in self.players[0].n}
        seconds = time.monotonic() - self.began
        print(f"torture: {self.n['takeovers']} takeovers in {seconds:.0f} s, seed {self.args.seed}: {self.n}, {totals}")
        if self.n["takeovers"] < self.args.takeovers:
            raise Violation(f"only {self.n['takeovers']} takeovers in {self.args.seconds} s")

    def close(self):
        for player in self.players:
            player.is_over = True
        for player in self.players:
            if player.ident:
                player.join(5)
        self.stack.close()


def run_jobs(args):
    """The takeovers shared by several worlds, each a process of its own; the worst status of them."""
    children = []
    for i in range(args.jobs):
        takeovers = args.takeovers // args.jobs + (i < args.takeovers % args.jobs)
        words = ["--takeovers", takeovers, "--seconds", args.seconds, "--lease", args.lease, "--seed", args.seed + i,
                 "--fault", args.fault, *(["--talks"] if args.talks else [])]  # fmt: skip
        children.append(subprocess.Popen([sys.executable, __file__, args.program, *map(str, words)]))
    return max(child.wait() for child in children)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=os.environ.get("HOLDFASTD"))
    parser.add_argument("--takeovers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--lease", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--fault", default="", help="only this one, by its name in lib/clusterfaults.py")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--talks", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    if args.jobs > 1:
        sys.exit(run_jobs(args))
    reason = netns.is_possible() or (None if cluster.programs() else "no PostgreSQL here")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    torture = Torture(args)
    try:
        torture.run()
    except (Violation, Failed, AssertionError) as violation:
        logs = "\n".join(f"{node.name}:\n{node.log[-6000:]}" for node in torture.nodes if node.process)
        print(f"torture: seed {args.seed}, {torture.n}: {violation}\n{logs}")
        sys.exit(1)
    finally:
        torture.close()


if __name__ == "__main__":
    main()
