"""How long clients wait, measured: a takeover, a planned move, and a restart that goes on or starts over."""

import statistics
import time
import unittest

import cluster
import ganesha
from load import Reader, Writer
from play_takeover import Takeover
from service import ADDRESS, machines
from stage import MOUNT, Play
from until import lapse


def spread(seconds):
    return f"{min(seconds):.2f} to {max(seconds):.2f} s, median {statistics.median(seconds):.2f} s"


@unittest.skipUnless(cluster.programs(), "there is no PostgreSQL here")
class Nodes(Takeover):
    """With the default lease, there and back."""

    is_long = True
    settings = ()
    rounds = 4

    def act(self):
        self.a.opens("f").locks()
        self.bob = self.b.opens("g")
        self.bob.locks()
        self.bob.unlocks()  # so that all connections are there

    def test_kill_to_the_next_new_lock(self):
        took, back = [], []
        for _ in range(self.rounds):
            lapse(1.5)  # the connections of the clients are stored four times a second
            self.server.active.is_killed()
            killed_at = self.server.active.killed_at
            self.bob.locks()
            took.append(time.monotonic() - killed_at)
            self.server.is_taken_over()
            back.append(self.server.active.cluster["last_takeover"]["seconds"])
            self.bob.unlocks()
            self.server.other.starts()
            self.server.is_whole()
        self.report(f"SIGKILL of the active node to the next new lock: {spread(took)}; the service was away {spread(back)}")

    def test_cut_off_to_the_next_new_lock(self):
        """As if the power of the node failed: no packet comes from it any more."""
        took = []
        for _ in range(self.rounds):
            lapse(1.5)  # the connections of the clients are stored four times a second
            self.server.active.is_cut_off("eth0", "eth1")
            cut_at = time.monotonic()
            self.bob.locks()
            took.append(time.monotonic() - cut_at)
            self.server.is_taken_over()
            self.bob.unlocks()
            self.server.other.has_its_wires()
            self.server.is_whole()
        self.report(f"loss of the active node to the next new lock: {spread(took)}")

    def test_pause_of_a_planned_move(self):
        pauses = {"write": [], "read": [], "lock": []}
        for _ in range(self.rounds):
            loads = {"write": Writer(self.a, "written", MOUNT), "read": Reader(self.b, "read", self.server.export, MOUNT)}
            self.server.active.is_told("move")
            moved_at = time.monotonic()
            self.bob.locks()
            pauses["lock"].append(time.monotonic() - moved_at)
            self.server.is_taken_over()
            self.bob.unlocks()
            self.server.is_whole()
            for name, load in loads.items():
                pauses[name].append(load.ends()[1])
        for name, seconds in pauses.items():
            self.report(f"planned move, longest {name}: {spread(seconds)}")


class Restart(Play):
    """One node with LMDB: what a restart costs its clients, by recovery.after_crash."""

    is_long = True
    is_mounted = False
    rounds = 3

    def measure(self, how):
        self.server.stops()
        self.server.starts(f"recovery.after_crash={how}")
        self.a.mounts()
        self.b.mounts()
        ada, bob = self.a.opens("f"), self.b.opens("g")
        ada.locks()
        bob.locks()
        bob.unlocks()
        new_lock, read = [], []
        for _ in range(self.rounds):
            load = Reader(self.a, "read", self.server.export, MOUNT)
            self.server.is_killed_and_starts(f"recovery.after_crash={how}")
            bob.locks()
            new_lock.append(time.monotonic() - self.server.killed_at)
            bob.unlocks()
            read.append(load.ends()[1])
            self.server.ends_grace()
        self.report(f"{how}: SIGKILL to the next new lock {spread(new_lock)}; longest READ {spread(read)}")
        for client in (self.a, self.b):
            for process in client.processes:
                process.closes()
            client.processes.clear()
            client.unmounts()

    def test_continue_beside_reclaim(self):
        self.measure("reclaim")
        self.measure("continue")


class Ganesha(Play):
    """nfs-ganesha on two nodes with the same address move: the second one starts to serve when the first is found dead."""

    is_long = True
    is_mounted = False
    lease = 3

    def test_kill_to_the_next_new_lock(self):
        reason = ganesha.why_not()
        if reason:
            self.skipTest(reason)
        hosts = machines(self.stage)
        old = ganesha.Ganesha(hosts[0].namespace, self.note, address=ADDRESS)
        self.addCleanup(old.close)
        new = ganesha.Ganesha(hosts[1].namespace, self.note, like=old, address=ADDRESS)
        self.addCleanup(new.close)
        hosts[0].namespace.run("addr", "add", f"{ADDRESS}/16", "dev", "eth0")
        self.addCleanup(lambda: [host.namespace.run("-force", "addr", "flush", "to", ADDRESS) for host in hosts])
        old.starts()
        for client in (self.a, self.b):
            client.mounts(f"{ADDRESS}:/data")
        ada, bob = self.a.opens("f"), self.b.opens("g")
        ada.locks(timeout=300)  # it begins its first life with grace
        bob.locks()
        bob.unlocks()
        old.is_killed()
        killed_at = old.killed_at
        self.note("the address moves after 4/3 of the lease")
        lapse(max(0, self.lease * 4 / 3 - (time.monotonic() - killed_at)))
        hosts[0].namespace.run("addr", "del", f"{ADDRESS}/16", "dev", "eth0")
        hosts[1].namespace.run("addr", "add", f"{ADDRESS}/16", "dev", "eth0")
        new.announces(ADDRESS)
        new.starts()
        bob.locks(timeout=300)
        seconds = time.monotonic() - killed_at
        self.report(f"nfs-ganesha: SIGKILL of the active node to the next new lock {seconds:.1f} s")
