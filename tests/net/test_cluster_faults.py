#!/usr/bin/env python3
"""Faults of a service on two nodes: a process that stands still, a database that is away, lists that may be incomplete.

A deposed node changes nothing and is not heard; what was promised is held, or every client is told.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from dbwire import DatabaseWire
from nodes import SERVICE
from play import main
from rpc import NoReply, TcpCaller, UdpCaller, auth_sys, call_message, result_of
from takeover import Takeover, nfs
from xdr import Out

SILENCE = 1  # seconds in which an answer would have come
TOO_SLOW = "the database is too slow for cluster.lease_seconds"


def write_message(fh, data):
    args = Out().opaque(fh).u64(0).u32(len(data)).u32(nfs.FILE_SYNC).opaque(data).bytes()
    return call_message(nfs.NFS, 3, nfs.WRITE, args, cred=auth_sys("client", 0, 0, ()))


def lock_message(procedure, lock):
    return call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=auth_sys(lock.name))


class Faults(Takeover):
    # A process that stands still

    def callers(self, node):
        """Ways of a to @node: by the service's address and by the node's own, which stays there."""
        where = (self.a.address, 0), self.a.namespace
        return [kind((address, 2049), *where) for kind in (TcpCaller, UdpCaller) for address in (SERVICE, node.address)]

    def assert_silent(self, caller, seconds=SILENCE):
        with contextlib.suppress(EOFError, ConnectionError):
            self.assertRaises(NoReply, caller.receive, seconds)

    def test_t1_node_that_stood_still_is_not_heard(self):
        """Requests wait in its sockets. When it goes on, its lease is over: it begins none of them."""
        old, new = self.active, self.standby
        callers = self.callers(old)
        targets = [(self.make_file(), self.make_file()) for _ in callers]
        handles = [(self.handle_of(written), self.handle_of(locked)) for written, locked in targets]
        kept = self.hold()
        unlocked = handles[0][1]
        self.hold(self.c, fh=unlocked)
        old.pause()
        self.addCleanup(old.go_on)
        for caller, (written, locked) in zip(callers, handles):
            self.addCleanup(caller.close)
            caller.send(write_message(written, b"new"))
            if locked is not unlocked:
                caller.send(lock_message(nlm.LOCK, self.a.lock_of(locked)))
            caller.send(lock_message(nlm.UNLOCK, kept))
            caller.send(lock_message(nlm.TEST, self.a.lock_of(unlocked)))
        self.until_serving(new)
        self.assert_denied(self.b)
        old.go_on()
        old.until_role("standby")
        for caller in callers:
            self.assert_silent(caller, 0.2)
        for path, _ in targets:
            with open(path, "rb") as file:
                self.assertEqual(file.read(), b"old")
        for _, locked in handles[1:]:
            self.assert_free(locked)
        self.assert_denied(self.b)
        self.assertTrue(new.serves())

    def calls_under_way(self, node, host):
        """Bytes that @node's kernel still has to send to @host's lock manager; None: there is no such connection."""
        rows = []
        with node.namespace:
            for name in ("tcp", "tcp6"):
                with open(f"/proc/thread-self/net/{name}", encoding="ascii") as table:
                    rows += [line.split() for line in table.readlines()[1:]]
        found = [int(row[4].split(":")[0], 16) for row in rows if int(row[2].split(":")[1], 16) == host.lockd.tcp_port]
        return max(found, default=None)

    def test_t1_call_that_was_not_heard_ends_with_its_term(self):
        """The kernel of a node that was killed would send a GRANTED for minutes, also when the address comes back to it."""
        lock = self.hold()
        waiter = self.waits(self.b)
        self.release(lock)
        self.b.wait_granted(waiter)  # from here on there is a connection to b
        self.release(waiter, self.b)
        self.hold()
        self.waits(self.b)
        self.wire.cut_off(self.b.number)
        self.addCleanup(self.wire.reconnect, self.b.number)
        self.release(lock)
        old, new = self.active, self.standby
        self.until(lambda: self.calls_under_way(old, self.b), "the call has left, and is not heard")
        old.crash()
        self.assertIsNone(self.calls_under_way(old, self.b), "the kernel goes on to send it")
        self.wire.reconnect(self.b.number)
        self.until_serving(new)
        self.b.grants.wait(2)

    def test_transaction_that_is_left_open_holds_up_nothing(self):
        """As that of a node that was stopped within it: the takeover ends it, and what it wrote is gone."""
        lock = self.hold()
        view = self.pg.query("SELECT viewname FROM pg_views WHERE viewname LIKE 'holdfast\\_term\\_%'")
        words = [os.path.join(self.pg.bin, "psql"), "-X", "-q", "-A", "-t", "-d", self.pg.connection]
        session = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(session.communicate)
        row = f"INSERT INTO {view} (server, number, records) VALUES ('nfs', 1000000, 'nonsense')"
        session.stdin.write(f"BEGIN; {row}; SELECT 'begun';\n")
        session.stdin.flush()
        while session.stdout.readline() != "begun\n":
            self.assertIsNone(session.poll())
        self.kill_active()
        self.assert_denied(self.b)
        self.release(lock)
        self.hold(self.b)

    # The database

    def stop_database(self):
        self.pg.signal(signal.SIGSTOP)

    def go_on_database(self):
        self.pg.signal(signal.SIGCONT)

    def pause_standby(self):
        """So that the row stays the active node's own."""
        self.standby.pause()
        self.addCleanup(self.standby.go_on)

    def until_lease_is_over(self, node):
        def is_over():
            answer = node.rest.get("/readyz")
            return answer.status == 503 and b"lease" in answer.body

        self.until(is_over, "it says that its lease is over")

    def test_database_that_stands_still(self):
        state, epoch = self.state_of(self.active), self.active.cluster()["epoch"]
        self.hold()
        self.pause_standby()
        self.b.test(self.lock_of(self.b))
        begun = len(self.active.log)
        self.stop_database()
        self.addCleanup(self.go_on_database)
        self.assertEqual(self.b.test(self.lock_of(self.b)).stat, nlm.S_DENIED, "it serves until its lease ends")
        self.until_lease_is_over(self.active)
        caller = UdpCaller((self.active.address, 2049), (self.c.address, 0), self.c.namespace)
        self.addCleanup(caller.close)
        caller.send(lock_message(nlm.TEST, self.lock_of(self.c)))
        caller.send(write_message(self.fh, b"new"))
        self.assert_silent(caller)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"old")
        self.assertEqual(self.active.role, "stopping")
        self.assertNotIn(TOO_SLOW, self.active.log[begun:], "the database has not answered at all")
        self.go_on_database()
        self.until_serving(self.active)
        self.assertEqual(self.active.cluster()["epoch"], epoch)
        self.assert_continued(self.active, state)
        self.assert_denied(self.b)

    def test_standby_waits_while_the_lease_is_renewed(self):
        epoch = self.active.cluster()["epoch"]
        renewed = "SELECT renewals FROM holdfast_leases"
        before = int(self.pg.query(renewed))
        self.until(lambda: int(self.pg.query(renewed)) > before + 6, "it is renewed for two leases", pause=0.1)
        self.assertEqual(self.one_serves(), (self.active, self.standby))
        self.assertEqual(self.active.cluster()["epoch"], epoch)

    def test_database_is_killed_while_the_process_lives(self):
        """Unsynced commits are lost with it. The active node has all in its memory, and stores it again."""
        state = self.state_of(self.active)
        lock = self.hold()
        waiter = self.waits(self.b)
        self.pause_standby()
        self.pg.kill()
        self.until_lease_is_over(self.active)
        self.pg.start()
        self.until_serving(self.active)
        self.assert_continued(self.active, state)
        self.assert_denied(self.c)
        self.standby.go_on()
        self.assertEqual(self.until_one_serves(), (self.active, self.standby))
        _, new = self.kill_active()
        self.assert_continued(new, state)
        self.assert_denied(self.c)
        self.release(lock)
        self.b.wait_granted(waiter)

    def test_lock_while_the_database_is_away(self):
        """Its client asks again. An error would be the program's, which had better wait."""
        self.pause_standby()
        lock = self.lock_of(self.b)
        self.assertEqual(self.b.lock(lock.but(offset=100, length=1)), nlm.S_GRANTED)
        self.pg.kill()
        self.addCleanup(lambda: self.pg.server.poll() is None or self.pg.start())
        for _ in range(3):  # the commit under way, and those that are not begun
            self.assertEqual(self.b.lock(lock.but(offset=0, length=1)), nlm.S_GRACE)
        self.pg.start()
        self.until(lambda: self.b.lock(lock.but(offset=0, length=1)) == nlm.S_GRANTED, "it is granted", pause=0.1)

    def test_database_is_away_for_both_nodes(self):
        """It does not matter which of them has the service afterwards: nothing is lost, since nothing was."""
        state = self.state_of(self.active)
        lock = self.hold()
        waiter = self.waits(self.b)
        self.stop_database()
        self.addCleanup(self.go_on_database)
        self.until_lease_is_over(self.active)
        self.go_on_database()
        self.assert_all_is_there(state, lock, waiter)


class LeaseLostInGrace(Takeover):
    """A node without its lease drops every reclaim. That time is no part of grace."""

    n_nodes = 1
    more = ("recovery.after_crash=reclaim", "recovery.window_seconds=6", "recovery.early_end=false")

    def grace(self):
        return self.active.rest.get("/api/v1/grace").json

    def test_i3_reclaimable_lock_is_no_other_clients(self):
        lock = self.hold()
        self.active.crash()
        self.active.start()
        self.until_serving(self.active)
        before = self.grace()
        self.assertEqual((before["active"], before["unreclaimed"]), (True, 1))
        self.pg.kill()
        self.addCleanup(lambda: self.pg.server.poll() is None or self.pg.start())

        def is_decided():
            now = self.grace()
            return not now["active"] or now["ends_in_seconds"] > before["ends_in_seconds"]

        self.until(lambda: not self.active.serves(), "its lease is over")
        self.until(is_decided, "grace ends, or begins anew")
        self.assertTrue(self.grace()["active"], "no client could reclaim")
        self.pg.start()
        self.until_serving(self.active)
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        self.until(lambda: self.a.lock(lock.but(reclaim=True)) == nlm.S_GRANTED, "the lock is reclaimed", pause=0.1)
        self.until(lambda: not self.grace()["active"], "grace ends")
        self.assert_denied(self.b)
        self.release(lock)


class Cut(Takeover):
    """Each node has a way of its own to the database."""

    @classmethod
    def add_node(cls, *more):
        wire = DatabaseWire(cls.pg.path)
        node = super().add_node(*more, f"store.postgres={wire.connection}")
        node.way = wire
        cls.addClassCleanup(wire.close)
        return node

    def check(self, break_way):
        state = self.state_of(self.active)
        self.hold()
        waiter = self.waits(self.b)
        old, new = self.active, self.standby
        self.addCleanup(old.way.mend)
        break_way(old.way)
        self.until_serving(new)
        self.assert_continued(new, state)
        self.assert_denied(self.c)
        self.assertFalse(old.has_address())
        old.way.mend()
        self.assertEqual(self.until_one_serves(), (new, old))
        self.a.unlock(self.lock_of(self.a))
        self.b.wait_granted(waiter)

    def test_lock_that_may_be_stored_is_not_refused(self):
        """The database has stored it, and the node does not hear of that. The client is to ask again: another node may hold it."""
        self.hold(fh=self.handle_of(self.make_file()))  # a is registered
        old, new = self.active, self.standby
        self.addCleanup(old.way.mend)
        caller, lock = self.a.caller("tcp"), self.lock_of(self.a, svid=5)
        message = lock_message(nlm.LOCK, lock)
        old.way.deafen()
        caller.send(message)
        self.until(lambda: self.pg.query("SELECT count(*) FROM holdfast_locks WHERE owner = 5") == "1", "it is stored")
        old.way.cut()
        with contextlib.suppress(NoReply, EOFError, ConnectionError):
            self.assertEqual(nlm.res_of(nlm.LOCK, result_of(caller.receive())).stat, nlm.S_GRACE)
        self.until_serving(new)
        self.assertEqual(self.a.lock(lock), nlm.S_GRANTED)
        self.assert_denied(self.b)

    def until_renewed(self, times):
        renewed = "SELECT renewals FROM holdfast_leases"
        before = int(self.pg.query(renewed))
        self.until(lambda: int(self.pg.query(renewed)) >= before + times, f"it is renewed {times} times", pause=0.1)

    def test_database_that_is_too_slow_for_the_lease(self):
        """A renewal of some six answers takes more than a third of the lease. The node says so once, until it was fast again."""
        node, late = self.active, self.lease / 15

        def warnings():
            return [line for line in node.log.splitlines() if TOO_SLOW in line]

        self.addCleanup(node.way.mend)
        for _ in range(2):
            self.until_renewed(2)
            n_before = len(warnings())
            node.way.slow_down(late)
            self.until(lambda: len(warnings()) > n_before, "it warns")
            self.until_renewed(3)
            self.assertEqual(len(warnings()), n_before + 1)
            took = float(re.search(r"answer_seconds=([\d.]+)", warnings()[-1])[1])
            self.assertGreater(took, self.lease / 3)
            self.assertIn(f"lease_seconds={self.lease}", warnings()[-1])
            node.way.mend()
        self.assertEqual(self.until_one_serves(), (node, self.standby))

    def test_way_to_the_database_is_cut(self):
        self.check(DatabaseWire.cut)

    def test_way_to_the_database_stands_still(self):
        self.check(DatabaseWire.freeze)


class StartsOver(Takeover):
    """Where the list of locks may be incomplete, the state number rises, every client is told, and reclaims."""

    def assert_starts_over(self, node, state, lock):
        self.assertGreater(self.state_of(node), state)
        told = self.a.told.wait(1, lambda notice: notice.state > state)[0]
        self.assertEqual((told.source, told.state), (SERVICE, self.state_of(node)))
        self.assertTrue(self.is_in_grace(node))
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        node.rest.call("POST", "/api/v1/grace/end", token=True)
        self.until(lambda: not self.is_in_grace(node), "grace ends")
        self.assert_denied(self.b)
        self.release(lock)

    def kill_both(self):
        self.standby.crash()
        self.active.crash()

    def test_database_restarted_while_no_node_ran(self):
        state = self.state_of(self.active)
        lock = self.hold()
        self.kill_both()
        self.pg.kill()
        self.pg.start()
        active, _ = self.settle()
        self.until_serving(active)
        self.assert_starts_over(active, state, lock)

    def test_t6_database_that_has_gone_back(self):
        """The copy of a promoted replica is older. Each node remembers the number that it knew last."""
        lock = self.hold()
        state = self.state_of(self.active)
        back = "UPDATE holdfast_server_state SET sm_state = sm_state - 2, epoch = epoch - 1"
        for first in (1, 0):
            with self.subTest(node=self.nodes[first].name):
                self.until(lambda: len({node.cluster()["epoch"] for node in self.nodes}) == 1, "both know this term")
                self.kill_both()
                self.assertEqual(self.pg.query(back), "")
                self.nodes[first].start()
                self.until_serving(self.nodes[first])
                now = self.state_of(self.nodes[first])
                self.assertGreater(now, state)
                self.assert_starts_over(self.nodes[first], state, lock)
                state = now
                self.active, self.standby = self.settle()
                lock = self.hold()


class Unstored(StartsOver):
    """lock_durability: none."""

    more = ("store.lock_durability=none",)

    def test_takeover(self):
        state = self.state_of(self.active)
        lock = self.hold()
        old, new = self.kill_active()
        self.assert_starts_over(new, state, lock)
        self.assertEqual(self.takeover_of(new, (old.name, new.name))["result"], "reclaimed")

    test_database_restarted_while_no_node_ran = None
    test_t6_database_that_has_gone_back = None


class Machine(Takeover):
    """lock_durability: machine. Nothing is lost with a database that is killed."""

    more = ("store.lock_durability=machine",)

    def test_database_is_killed(self):
        state, lock, waiter = self.state_of(self.active), self.hold(), self.waits(self.b)
        self.pg.kill()
        self.pg.start()
        self.assert_all_is_there(state, lock, waiter)

    def test_all_is_killed(self):
        state, lock, waiter = self.state_of(self.active), self.hold(), self.waits(self.b)
        self.standby.crash()
        self.active.crash()
        self.pg.kill()
        self.pg.start()
        self.settle()
        self.assert_all_is_there(state, lock, waiter)


if __name__ == "__main__":
    main()
