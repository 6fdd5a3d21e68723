"""A service of two nodes. The node that serves dies, stops, or is cut off, and the other one goes on: the kernels of the
clients notice a broken connection and nothing else. No lock is lost, none is held twice, and waiters get the call that they wait
for, in their order."""

import time
import unittest

import cluster
from database import Database
from load import PingPong, Sqlite, Writer
from service import DATABASES, Service, machines
from stage import MOUNT
from tools import PROGRAM_PATIENCE, ToolPlay
from until import lapse

LEASE = 2  # seconds
RECLAIM = "nlm.procedure_v4 == 2 && nlm.reclaim == 1"
NOTICE = "stat.procedure_v1 == 6"


@unittest.skipUnless(cluster.programs(), "there is no PostgreSQL here")
class Takeover(ToolPlay):
    settings = (f"cluster.lease_seconds={LEASE}",)
    captured = 4096  # more than all the lock calls that a client sends at once: they may share a packet
    weight = 3
    # A journal that is deleted would be missed: the client repeats a REMOVE whose reply died with the node, and is told that
    # there is no such file.
    journal = "TRUNCATE"

    def make_database(self):
        """What the nodes connect to."""
        self.database = Database(self.stage.network.server, DATABASES[0])
        self.addCleanup(self.database.close)
        return self.database.start().connection

    def make_server(self):
        machines(self.stage)  # the database needs its wire
        return Service(self.stage, self.settings, self.note, self.make_database())

    def setUp(self):
        super().setUp()
        self.first, self.second = self.server.nodes
        self.act()

    def act(self):
        """Each client has a lock. Of clientb two processes wait for clienta's, and of clienta one waits for clientb's. Both play
        ping-pong and insert rows with SQLite, and clienta writes."""
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")
        self.ada.locks(0, 10)
        self.bob.locks(10, 10)
        self.waiters = [self.b.opens("f"), self.b.opens("f"), self.a.opens("f")]
        self.waiters[0].waits(0, 10)
        self.server.has(waiters=1)
        self.waiters[1].waits(0, 10)
        self.server.has(waiters=2)
        self.waiters[2].waits(10, 10)
        self.server.has(waiters=3)
        self.game = PingPong((self.a, self.b), self.server.export, MOUNT)
        self.writer = Writer(self.a, "written", MOUNT)
        self.sqlite = Sqlite((self.a, self.b), self.server.export, MOUNT, self.journal)
        self.plays_on()

    def plays_on(self):
        """The ping-pong has some turns more."""
        turns = self.game.count() + 4
        self.server.active.until(lambda: self.game.count() >= turns or any(load.has_failed() for load in self.game.loads),
                                 "the ping-pong goes on")  # fmt: skip

    def has_new_lock(self):
        """Of clientb; when it had it."""
        self.b.opens("g").locks()
        return time.monotonic()

    def is_as_before(self):
        """No lock is lost, and no other client or process has it."""
        for wait in self.waiters:
            wait.still_waits()
        self.b.opens("f").is_denied(0, 1)
        self.a.opens("f").is_denied(10, 1)
        held = [one for one in self.server.ranges() if one[1] == 10]
        self.assertEqual(sorted(held), [(0, 10), (10, 10)])

    def goes_on(self, keeps_order=True):
        """After the last takeover: everything is as before, and then everything comes to its end."""
        rows = self.sqlite.count() + 1
        self.plays_on()
        self.is_as_before()
        self.server.active.until(lambda: self.sqlite.count() >= rows or self.sqlite.has_failed(), "SQLite goes on",
                                 PROGRAM_PATIENCE)  # fmt: skip
        turns, pause = self.game.ends()
        self.pause = self.writer.ends_and_is_verified(self.server.export)
        rows = self.sqlite.ends_and_is_verified()
        self.report(f"{turns} turns; the longest took {pause:.1f} s, the longest write {self.pause:.1f} s; {rows} rows")
        began = time.monotonic()
        self.ada.unlocks(0, 10)
        first, second = self.waiters[:2]
        if not keeps_order:
            self.server.wait("one is granted", lambda _: first.command.has_line() or second.command.has_line())
            first, second = sorted((first, second), key=lambda process: not process.command.has_line())
        first.gets()
        second.still_waits()
        first.unlocks(0, 10)
        second.gets()
        self.bob.unlocks(10, 10)
        self.waiters[2].gets()
        self.assertLess(time.monotonic() - began, 15, "by call-back, not by a poll")

    def tells_no_client(self):
        """On the wire: nothing was reclaimed, and no notice sent."""
        self.assertEqual(self.capture.find(f"({RECLAIM}) || ({NOTICE})"), [])


class Killed(Takeover):
    def test_the_active_node(self):
        """Its machine lives: the witness hands the service over at once."""
        self.dies(self.first.is_killed)

    def test_the_active_node_and_its_machine(self):
        """The other node waits for the end of the lease."""
        self.dies(self.first.is_lost)

    def dies(self, how):
        how()
        took = self.has_new_lock() - self.first.killed_at
        self.server.is_taken_over()
        self.report(f"first new lock {took:.1f} s after the kill")
        self.goes_on()
        self.tells_no_client()
        self.first.starts()
        self.server.is_whole()

    def test_both_nodes(self):
        for node in self.server.nodes:
            node.is_lost()
        for node in self.server.nodes:
            node.starts()
        self.server.is_served()
        self.goes_on()
        self.tells_no_client()
        self.server.is_whole()


class CutOff(Takeover):
    """The first node lives, and loses its wires."""

    def is_taken_over_and_mended(self):
        self.server.is_taken_over()
        self.has_new_lock()
        self.first.has_its_wires()
        self.server.is_whole()
        self.goes_on()
        self.tells_no_client()

    def test_from_all(self):
        self.first.is_cut_off("eth0", "eth1")
        self.is_taken_over_and_mended()

    def test_from_the_database(self):
        self.first.is_cut_off("eth1")
        self.is_taken_over_and_mended()

    def test_from_the_clients_with_the_link(self):
        """It sees that, and hands the service over."""
        self.first.loses_link("eth0")
        self.is_taken_over_and_mended()

    def test_from_the_clients_silently(self):
        """It cannot see that, and serves on until an operator has it moved."""
        self.first.is_cut_off("eth0")
        lapse(2 * LEASE)
        self.assertEqual((self.first.role, self.second.role), ("active", "standby"))
        self.second.is_told("take")
        self.is_taken_over_and_mended()


class Stopped(Takeover):
    def test_and_goes_on_with_requests_in_its_sockets(self):
        """What it had not read is done by the other node, and the client goes on from there. It must not be done again."""
        late, later = self.a.opens("h"), self.b.opens("h")
        late.writes("before")
        self.first.pauses()
        late.begins("write late00")
        later.begins("set w 100 7")
        self.first.until(self.first.has_requests, "has requests in its sockets")
        self.server.is_taken_over()
        late.gets("done")
        later.gets("granted")
        late.writes("newest")
        later.unlocks(100, 7)
        late.locks(100, 7)
        self.first.goes_on()
        self.server.is_whole()
        self.b.opens("h").reads("newest")
        later.is_denied(100, 7)
        self.goes_on()
        self.tells_no_client()


class Moved(Takeover):
    """An operator has the service moved, there and back."""

    weight = 6
    journal = "DELETE"  # a node that hands over answers every call first

    def test_there_and_back_under_load(self):
        for _ in range(2):
            self.plays_on()
            self.server.active.is_told("move")
            self.server.is_taken_over()
            self.server.is_whole()
        self.goes_on()
        self.tells_no_client()
        self.assertLess(self.pause, 3, "a client that was refused would wait so long")


class Replicated(Takeover):
    """The database dies, and its replica takes its place."""

    settings = (*Takeover.settings, "store.lock_durability=machine")  # a commit waits for a synchronous replica
    is_synchronous = True

    def make_database(self):
        super().make_database()
        self.replica = Database(self.stage.network.server, DATABASES[1], primary=self.database)
        self.addCleanup(self.replica.close)
        self.replica.start().until_it_follows()
        if self.is_synchronous:
            self.database.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.database.ask("SELECT pg_reload_conf()")
        return self.replica.connection

    def is_promoted(self, dies=None):
        """The database dies first: the other node must not take over with it."""
        self.note("database: dies, and its replica is promoted")
        self.database.kill()
        if dies:
            dies.is_lost()
        self.replica.is_promoted()


class Promoted(Replicated):
    def test_and_the_node_dies_with_it(self):
        """Each commit was on the replica before a client heard of it: the other node goes on."""
        self.is_promoted(dies=self.first)
        self.server.is_taken_over()
        self.goes_on()
        self.tells_no_client()
        self.first.starts()


class PromotedTooEarly(Replicated):
    is_synchronous = False

    def test_and_the_node_dies_with_it(self):
        """Locks may be missing there: the clients are told, and reclaim them."""
        self.is_promoted(dies=self.first)
        self.server.is_taken_over("reclaimed")
        self.server.wait("the locks are reclaimed", lambda server: {(0, 10), (10, 10)} <= set(server.ranges()))
        for client in (self.a, self.b):
            client.has_reclaimed()  # also the lock of its turn, which the end of grace would give to the other one
        self.server.is_told_to_end_grace()
        self.goes_on(keeps_order=False)  # waiters ask again after grace, each in its own time
        self.assertTrue(self.capture.find(NOTICE), "a notice")
        self.assertTrue(self.capture.find(RECLAIM), "a reclaim")
        self.first.starts()


class PromotedAlone(Replicated):
    is_long = True
    is_synchronous = False

    def test_and_the_node_lives(self):
        """The node has everything in its memory, and the replica gets what it lacks."""
        self.is_promoted()
        self.server.is_served()
        self.goes_on()
        self.tells_no_client()


class DatabaseKilled(Takeover):
    def test_and_starts_again(self):
        """A program that asks for a lock meanwhile has it a little later."""
        eve = self.b.opens("h")
        self.note("database: is killed")
        self.database.kill()
        eve.begins("set w 100 7")
        self.server.wait("clientb is told to ask again",
                         lambda server: server.answers("DENIED_GRACE_PERIOD") or eve.command.has_line())  # fmt: skip
        self.note("database: starts again")
        self.database.start()
        self.server.is_served()
        eve.gets("granted")
        self.goes_on()
        self.tells_no_client()
