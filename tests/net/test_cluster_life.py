#!/usr/bin/env python3
"""The life of a service on two nodes: a standby waits, takes over, hands back; every lock is held and every waiter waits on."""

import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from nodes import SERVICE
from play import main
from rpc import TcpCaller, call_message
from sniffer import Sniffer
from takeover import NfsClient, Takeover, nfs
from tracer import Held
from until import PATIENCE, until

BUSY = 5  # seconds that a busy machine may be late
ROUNDS = 5  # of announcements, when a node takes the service
# A sequence keeps its number when the transaction is undone.
REFUSE_REPORTS = """
    CREATE SEQUENCE tries MINVALUE 0 START 0;
    CREATE FUNCTION refuse_report() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.takeover_at IS DISTINCT FROM OLD.takeover_at THEN
            RAISE EXCEPTION 'try % is refused', nextval('tries');
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse_report BEFORE UPDATE ON holdfast_leases FOR EACH ROW EXECUTE FUNCTION refuse_report();
"""


class Life(Takeover):
    # A standby

    def test_standby_serves_no_client(self):
        for port in (111, 2049):
            with self.subTest(port=port), self.standby.namespace, socket.socket() as probe:
                self.assertEqual(probe.connect_ex(("127.0.0.1", port)), 111, "ECONNREFUSED")
        self.assertFalse(self.standby.has_address())

    def test_standby_shows_its_role(self):
        shown = self.standby.cluster()
        self.assertEqual((shown["role"], shown["lease"]["holder"]), ("standby", self.active.name))
        roles = {self.active.name: "active", self.standby.name: "standby"}
        self.until(lambda: {node["name"]: node["role"] for node in self.standby.cluster()["nodes"]} == roles,
                   "each node has said what it is")  # fmt: skip
        answer = self.standby.rest.get("/readyz")
        self.assertEqual(answer.status, 503)
        self.assertIn(b"standby", answer.body)
        for target in ("locks", "clients", "grace"):
            with self.subTest(target=target):
                answer = self.standby.rest.get(f"/api/v1/{target}")
                self.assertEqual((answer.status, answer.code), (503, "standby"))
                self.assertIn(self.active.name, answer.json["error"]["message"])

    # The active node dies

    def test_locks_are_held_after_a_kill(self):
        state, epoch = self.state_of(self.active), self.active.cluster()["epoch"]
        lock = self.hold()
        since = time.monotonic()
        old, new = self.kill_active()
        self.assert_denied(self.b)
        waited = time.monotonic() - since
        self.assertLess(waited, self.lease * 4 / 3 + 2 + BUSY)
        self.assert_continued(new, state)
        self.assertEqual(new.cluster()["epoch"], epoch + 1)
        last = self.takeover_of(new, (old.name, new.name))
        self.assertEqual((last["reason"], last["result"]), ("the lease was over", "continued"))
        self.release(lock)
        self.hold(self.b)

    def test_process_that_is_killed_is_missed_at_once(self):
        """Its machine lives: the witness knows that it is dead, and hands over. No node waits for the lease."""
        state = self.state_of(self.active)
        lock = self.hold()
        waiter = self.waits(self.b)
        old, new = self.active, self.standby
        self.assertTrue(old.has_witness())
        old.kill_process()
        self.until_serving(new)
        self.assertEqual(self.takeover_of(new, (old.name, new.name))["reason"], "handed over")
        self.assert_continued(new, state)
        self.assertFalse(old.has_address())
        self.until(lambda: not old.has_witness(), "the witness is gone")
        self.assert_denied(self.c)
        self.release(lock)
        self.b.wait_granted(waiter)

    def test_witness_of_a_node_that_does_not_serve_does_nothing(self):
        state, epoch = self.state_of(self.active), self.active.cluster()["epoch"]
        self.standby.kill_process()
        self.until(lambda: not self.standby.has_witness(), "the witness is gone")
        self.assertTrue(self.active.serves())
        self.assertEqual((self.state_of(self.active), self.active.cluster()["epoch"]), (state, epoch))

    def test_releases_stay_released(self):
        lock = self.hold()
        self.release(lock)
        self.kill_active()
        self.hold(self.b)

    def test_waiters_keep_their_order(self):
        state = self.state_of(self.active)
        lock = self.hold()
        waiters = [(host, self.waits(host)) for host in self.hosts[1:4]]
        _, new = self.kill_active()
        self.assert_continued(new, state)
        self.release(lock)
        for n, (host, waiter) in enumerate(waiters):
            heard = host.wait_granted(waiter)
            self.assertEqual(heard.call.peer[0].removeprefix("::ffff:"), SERVICE)
            for later, _ in waiters[n + 1 :]:
                self.assertEqual(later.granted_calls, [], f"{later.name} came after {host.name}")
            self.release(waiter, host)

    def test_unanswered_grant_is_called_again(self):
        lock = self.hold()
        self.b.script = self.b.SILENT
        waiter = self.waits(self.b)
        self.release(lock)
        first = self.b.wait_granted(waiter)
        self.kill_active()
        n_heard = len(self.b.grants.matching())
        self.b.script = nlm.S_GRANTED
        again = self.b.grants.wait(n_heard + 1)[-1]
        self.assertEqual(again.grant.cookie, first.grant.cookie)
        self.assert_denied(self.c)
        self.release(waiter, self.b)
        self.hold(self.c)

    def test_handles_stay_and_the_write_verifier_does_not(self):
        with NfsClient(self.a) as client:
            before = client.write(self.fh, b"one", stable=0)
        self.kill_active()
        with NfsClient(self.a) as client:
            self.assertEqual(client.read(self.fh).data, b"one")
            after = client.write(self.fh, b"two", stable=0)
        self.assertEqual((before.stat, after.stat), (0, 0))
        self.assertNotEqual(before.verifier, after.verifier)

    def test_old_node_returns_as_standby(self):
        self.hold()
        old, new = self.kill_active()
        epoch = new.cluster()["epoch"]
        old.start()
        self.assertEqual(self.until_one_serves(), (new, old))
        self.assertEqual(new.cluster()["epoch"], epoch)
        self.assert_denied(self.b)

    def test_restart_on_the_same_node_waits_for_no_lease(self):
        """The other node is stopped, so that a slow start is no takeover."""
        state, epoch = self.state_of(self.active), self.active.cluster()["epoch"]
        self.hold()
        self.standby.pause()
        self.addCleanup(self.standby.go_on)
        self.active.crash()
        self.active.start()
        self.until_serving(self.active)
        self.assertIn("reason=restart", self.active.log)
        self.assert_continued(self.active, state)
        self.assertEqual(self.active.cluster()["epoch"], epoch + 1)
        self.assert_denied(self.b)

    def test_both_nodes_are_killed(self):
        state = self.state_of(self.active)
        lock = self.hold()
        waiter = self.waits(self.b)
        self.standby.crash()
        self.active.crash()
        self.settle()
        self.assert_all_is_there(state, lock, waiter)

    # The report of a takeover

    def test_report_that_is_refused_is_repeated_with_pauses(self):
        """Without them it would fill the database's log."""
        self.pg.query(REFUSE_REPORTS)
        self.addCleanup(self.pg.query, "DROP FUNCTION IF EXISTS refuse_report CASCADE; DROP SEQUENCE IF EXISTS tries")

        def tries():
            return int(self.pg.query("SELECT last_value FROM tries"))

        old, new = self.kill_active()
        self.until(tries, "the report is refused")
        since, first = time.monotonic(), tries()
        n = self.until(lambda: max(tries() - first - 4, 0), "and repeated") + 4
        self.assertGreater(time.monotonic() - since, (n - 2) * 0.25, f"{n} tries")
        self.assertTrue(new.serves())
        self.pg.query("DROP FUNCTION refuse_report CASCADE")
        self.takeover_of(new, (old.name, new.name))

    # Planned moves

    def moved(self, to):
        """Waits until it serves; the locks that it found are held."""
        self.until_serving(to)
        last = self.takeover_of(to, (self.active.name, to.name))
        self.assertEqual((last["reason"], last["result"]), ("handed over", "continued"))
        self.active, self.standby = self.until_one_serves()
        self.assertIs(self.active, to)

    def test_move_there_and_back(self):
        state = self.state_of(self.active)
        lock = self.hold()
        waiter = self.waits(self.b)
        orders = (
            lambda: self.active.order("move"),
            lambda: self.active.order(f"move?to={self.standby.name}"),
            lambda: self.standby.order("take"),
        )
        for order in orders:
            self.assertEqual(order().status, 202)
            self.moved(self.standby)
            self.assert_continued(self.active, state)
            self.assert_denied(self.c)
        self.release(lock)
        self.b.wait_granted(waiter)

    def test_orders_that_cannot_be_followed(self):
        for node, what, word in (
            (self.standby, "move", self.active.name),
            (self.active, "move?to=elsewhere", "elsewhere"),
            (self.active, "take", "already"),
        ):
            with self.subTest(what=what):
                answer = node.order(what)
                self.assertEqual(answer.status, 409)
                self.assertIn(word, answer.json["error"]["message"])
        self.standby.stop()
        self.until(lambda: len(self.active.cluster()["nodes"]) == 1, "the node that stopped is not shown any more")
        self.assertEqual(self.active.order("move").status, 409)
        self.assertTrue(self.active.serves())

    def test_stop_hands_over(self):
        state = self.state_of(self.active)
        self.hold()
        old, new = self.active, self.standby
        old.stop()
        self.assertFalse(old.has_address())
        self.until_serving(new)
        self.assertEqual(self.takeover_of(new, (old.name, new.name))["reason"], "handed over")
        self.assert_continued(new, state)
        self.assert_denied(self.b)
        old.start()
        self.assertEqual(self.until_one_serves(), (new, old))

    def test_standby_that_is_told_to_stop_when_it_claims_ends(self):
        """Its main thread hears of the signal and of the claim in one turn."""
        old, new = self.active, self.standby
        owner = "SELECT node FROM holdfast_leases WHERE owner <> ''"
        with Held(new.process.pid):
            new.process.send_signal(signal.SIGTERM)
            old.kill_process()
            until(lambda: self.pg.query(owner) == new.name, "the other node has the service")
        self.until(lambda: not new.runs, "it ends")
        self.assertEqual(new.process.returncode, 0, new.log)
        self.assertEqual(self.pg.query(owner), "", "it has handed the service over")

    def test_node_that_is_told_to_stop_and_is_deposed_ends(self):
        old, new = self.active, self.standby
        old.pause()
        self.until_serving(new)
        old.process.send_signal(signal.SIGTERM)
        old.go_on()
        self.until(lambda: not old.runs, "it ends")
        self.assertEqual(old.process.returncode, 0, old.log)

    # Addresses and connections

    def test_address_leaves_a_node_that_was_killed(self):
        self.standby.stop()
        self.active.crash()
        self.assertTrue(self.active.has_address(), "the kernel lives, and has it until its time is over")
        self.until(lambda: not self.active.has_address(), "the address is gone", self.lease + 1 + BUSY)

    def test_addresses_that_come_later_are_announced(self):
        """The address is in the node's own network configuration when it takes the service, and is removed there after that."""
        old, new = self.active, self.standby
        address = f"{SERVICE}/16"
        with new.namespace, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as probe:
            probe.bind(("eth0", 0))
            mac = probe.getsockname()[4]
        reply_to_all = b"\xff" * 6 + mac + bytes.fromhex("0806 0001 0800 0604 0002") + mac + socket.inet_aton(SERVICE)
        new.namespace.run("addr", "add", address, "dev", "eth0")
        with Sniffer(self.a.namespace) as sniffer:
            self.assertEqual(old.order("move").status, 202)
            self.until(lambda: "cannot hold the addresses of the service" in new.log, "it cannot hold the address")
            new.namespace.run("addr", "del", address, "dev", "eth0")
            self.until(lambda: "the addresses of the service are here" in new.log, "it has the address")
            self.until(lambda: sniffer.count(reply_to_all) > ROUNDS, "and announces it once more")
        self.until_serving(new)

    def test_client_that_only_waits_is_reset(self):
        idle = TcpCaller((SERVICE, 2049), (self.a.address, 0), self.a.namespace)
        self.addCleanup(idle.close)
        port = idle.sock.getsockname()[1].to_bytes(2, "little").hex()

        def is_stored():
            return port in self.pg.query("SELECT encode(connections, 'hex') FROM holdfast_leases")

        self.until(is_stored, "the database has the connection", pause=0.2)
        self.wire.pull(self.active.number)
        self.addCleanup(self.wire.plug_in, self.active.number)
        self.until_serving(self.standby)
        idle.sock.settimeout(PATIENCE)
        with self.assertRaises(ConnectionResetError):
            idle.sock.recv(1)

    def test_move_leaves_no_connection_behind(self):
        """A client that finds its connection closed connects again at once. It must not find the old node, which would refuse it.
        And when the address comes back, the node must know nothing of the connections before."""
        for _ in range(2):
            idle = TcpCaller((SERVICE, 2049), (self.a.address, 0), self.a.namespace)
            self.addCleanup(idle.close)
            idle.send(call_message(nfs.NFS, 3, 0))
            idle.receive()  # so it is accepted
            old = self.active
            self.assertEqual(old.order("move").status, 202)
            self.moved(self.standby)
            idle.sock.settimeout(PATIENCE)
            with self.assertRaises(ConnectionResetError, msg="the old node has closed it"):
                idle.sock.recv(1)
            with old.namespace:
                left = subprocess.run(["ss", "-tnaH", f"src {SERVICE}"], check=True, capture_output=True, text=True).stdout
            self.assertEqual([line for line in left.splitlines() if not line.startswith("TIME-WAIT")], [])

    def test_link_down_hands_over(self):
        state = self.state_of(self.active)
        self.hold()
        old, new = self.active, self.standby
        self.wire.pull(old.number)
        self.addCleanup(self.wire.plug_in, old.number)
        self.until_serving(new)
        self.assertEqual(self.takeover_of(new, (old.name, new.name))["reason"], "handed over")
        self.assert_continued(new, state)
        self.assert_denied(self.b)
        old.until_role("mismatched")
        self.assertIn("has no link", old.cluster()["reason"])
        self.wire.plug_in(old.number)
        self.assertEqual(self.until_one_serves(), (new, old))


if __name__ == "__main__":
    main()
