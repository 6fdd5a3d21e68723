#!/usr/bin/env python3
"""What an operator sees and does about single locks and reservations, over REST and by the command line.

    test_operator.py PATH/holdfastd [unittest's own arguments]
"""

import fcntl
import json
import os
import signal
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from commandline import FAILED, NOT_FOUND, USAGE, CliPlay
from exported import Exported, nfs
from fakehost import FakeHost
from play import main
from rest import Events
from rpc import TcpCaller, UdpCaller, auth_sys, call_message, exchange
from terminal import Terminal
from xdr import Out

READ, WRITE, BOTH = 1, 2, 3


def quote(text):
    return urllib.parse.quote(text, safe="")


class Reservations(CliPlay):
    """Share reservations: the list, its pages and filters, the command line, the gauge."""

    FIELDS = {"share", "file", "handle", "client", "owner", "mode", "access", "count", "unreclaimed"}

    def reserve(self, host, access=READ, deny=0, **more):
        self.assertEqual(host.share(self.lock_of(host, access=access, deny=deny, **more)), nlm.S_GRANTED)

    def listed(self, query=""):
        return self.rest.get(f"/api/v1/reservations{query}").json["reservations"]

    def ours(self, query="?limit=1000"):
        return [r for r in self.listed(query) if r["handle"] == self.fh.hex()]

    def test_reservations_are_listed(self):
        self.assertEqual(self.rest.get("/api/v1/reservations").json, {"reservations": [], "next": None})
        self.reserve(self.a, BOTH, WRITE, oh=b"\xff\0 oh")
        self.reserve(self.a, BOTH, WRITE, oh=b"\xff\0 oh")
        self.reserve(self.b, READ, 0)
        shown = self.ours()
        self.assertEqual([set(r) for r in shown], [self.FIELDS] * 2)
        first = next(r for r in shown if r["client"] == self.id_of(self.a))
        self.assertEqual(
            {k: first[k] for k in ("owner", "mode", "access", "count", "unreclaimed", "file")},
            {"owner": f"nlm:{self.a.name}:ff00206f68", "mode": "deny_write", "access": "read_write", "count": 2,
             "unreclaimed": 0, "file": None},
        )  # fmt: skip
        second = next(r for r in shown if r["client"] == self.id_of(self.b))
        self.assertEqual((second["mode"], second["access"]), ("deny_none", "read"))
        self.assertEqual(self.rest.get("/api/v1/status").json["reservations"], 3)
        self.assertEqual(self.rest.metrics()["holdfast_reservations"], 3)
        self.assertEqual(self.ours(f"?client={quote(self.id_of(self.a))}"), [first])
        self.assertEqual(self.ours("?share=no-such-share"), [])
        self.assertEqual(self.ours(f"?share={quote(first['share'])}"), shown)
        self.assertEqual(self.ours("?client=nlm:192.0.2.1:gone"), [])
        self.assertEqual(self.rest.get("/api/v1/reservations?mode=x").status, 400)
        self.assertEqual(self.a.unshare(self.lock_of(self.a, access=BOTH, deny=WRITE, oh=b"\xff\0 oh")), nlm.S_GRANTED)
        self.assertEqual(next(r for r in self.ours() if r["client"] == self.id_of(self.a))["count"], 1)

    def test_reservations_have_pages_that_are_stable_under_change(self):
        for i in range(25):
            self.reserve(self.c, oh=bytes([i]))
        seen, cursor, n_pages = [], "", 0
        while cursor is not None:
            scope = f"/api/v1/reservations?client={quote(self.id_of(self.c))}&limit=4"
            page = self.rest.get(scope + (f"&cursor={quote(cursor)}" if cursor else "")).json
            self.assertLessEqual(len(page["reservations"]), 4)
            seen += [r["owner"] for r in page["reservations"]]
            cursor = page["next"]
            n_pages += 1
            if n_pages == 2:  # what was seen goes, and something new comes
                self.c.unshare(self.lock_of(self.c, access=READ, oh=bytes([7])))
                self.reserve(self.c, oh=b"new")
        self.assertEqual(seen, [f"nlm:{self.c.name}:{oh.hex()}" for oh in (*(bytes([i]) for i in range(25)), b"new")])

    def test_reservations_by_the_command_line(self):
        self.assertEqual(self.run_cli("reservations").stdout, "There are no reservations.\n")
        self.assertNotIn("reserved", self.run_cli("status").stdout)
        self.reserve(self.a, BOTH, WRITE)
        self.reserve(self.b, READ, 0)
        lines = self.run_cli("reservations").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["SHARE", "FILE", "ACCESS", "DENIES", "COUNT", "UNRECLAIMED", "CLIENT", "OWNER"])
        row = next(line for line in lines if self.id_of(self.a) in line).split()
        self.assertEqual(row[2:7], ["read+write", "write", "1", "0", self.id_of(self.a)])
        self.assertRegex(self.run_cli("status").stdout, r"\nreserved   2\n")
        one = json.loads(self.run_cli("--json", "reservations", "--client", self.id_of(self.b)).stdout)
        self.assertEqual([(r["client"], r["access"]) for r in one], [(self.id_of(self.b), "read")])


class ReleaseOne(CliPlay):
    """DELETE /api/v1/locks: one lock, or all that a client has in a file."""

    def target(self, host, fh=None, **more):
        query = {"client": self.id_of(host), "handle": (fh or self.fh).hex(), **more}
        return "/api/v1/locks?" + "&".join(f"{key}={quote(str(value))}" for key, value in query.items())

    def release(self, host, token=True, **more):
        return self.rest.call("DELETE", self.target(host, **more), token=token)

    def assert_refused(self, answer, status, code):
        self.assertEqual((answer.status, answer.code), (status, code))

    def test_one_lock_goes_to_its_waiter_at_once(self):
        events = Events(self.rest)
        self.addCleanup(events.close)
        for offset in (0, 100, 200):
            self.assert_granted(self.a, self.lock_of(self.a, offset, 10))
        self.assert_blocked(self.b, self.lock_of(self.b, 100, 10))
        before = self.rest.metrics()
        answer = self.release(self.a, offset=100, length=10)
        self.assertEqual((answer.status, answer.json), (200, {"locks_released": 1}))
        self.b.wait_granted(self.lock_of(self.b, 100, 10))
        self.assertEqual(sorted(self.held_bytes(3)), [0, 1, 2])
        self.assert_held(self.lock_of(self.a, 200, 10), by=1)
        after = self.rest.metrics()
        moved = {key: after[key] - before[key] for key in after if "_seconds" not in key and after[key] != before.get(key, 0)}
        self.assertEqual(moved["holdfast_locks_released_by_operator_total"], 1)
        self.assertEqual(moved["nlm_waiters"], -1)
        self.assertNotIn("nsm_crash_cleanups_total", moved, "no client crashed")
        event = events.wait("unlock", lambda data: data["handle"] == self.fh.hex())["data"]
        self.assertEqual((event["client"], event["offset"], event["length"], event["reason"]),
                         (self.id_of(self.a), 100, 10, "an operator released it"))  # fmt: skip
        self.assertRegex(self.daemon.log, rf"an operator releases locks of a client in a file\W.*{self.fh.hex()}")

    def test_all_locks_in_a_file_and_no_other(self):
        other = os.urandom(8)
        for svid in (1, 2):
            self.assert_granted(self.a, self.lock_of(self.a, 100 * svid, 10, svid=svid))
        self.assert_granted(self.a, self.lock_of(self.a, 0, 1, fh=other))
        self.assert_granted(self.b, self.lock_of(self.b, 900, 10))
        # Another program of the same client waits: it gets the lock, and keeps it.
        self.assert_blocked(self.a, self.lock_of(self.a, 100, 10, svid=3))
        self.assertEqual(self.release(self.a).json, {"locks_released": 2})
        self.a.wait_granted(self.lock_of(self.a, 100, 10, svid=3))
        self.assert_held(self.lock_of(self.a, 100, 10), by=3)
        self.assert_free(self.lock_of(self.a, 200, 10))
        self.assert_held(self.lock_of(self.a, 0, 1, fh=other))
        self.assert_held(self.lock_of(self.b, 900, 10))

    def test_more_locks_than_the_loop_examines_in_a_turn(self):
        for i in range(300):
            self.assert_granted(self.a, self.lock_of(self.a, 10 * i, 5, svid=i + 1))
        self.assertEqual(self.release(self.a, offset=2990, length=5).json, {"locks_released": 1})
        self.assertEqual(self.release(self.a).json, {"locks_released": 299})
        self.assert_free(self.lock_of(self.a))

    def test_readers_of_one_range_are_told_apart_by_their_owner(self):
        readers = [self.lock_of(self.a, 0, 0, svid=svid, exclusive=False) for svid in (1, 2, 3)]
        for lock in readers:
            self.assert_granted(self.a, lock)
        owner = lambda lock: f"nlm:{lock.name}:{lock.svid}:{lock.owner.hex()}"
        self.assertEqual(self.release(self.a, offset=0, length=0, owner=owner(readers[1])).json, {"locks_released": 1})
        left = self.rest.get(f"/api/v1/locks?client={quote(self.id_of(self.a))}").json["locks"]
        self.assertEqual([l["owner"] for l in left if l["handle"] == self.fh.hex()], [owner(readers[0]), owner(readers[2])])
        self.assertEqual(self.release(self.a, offset=0, length=0).json, {"locks_released": 2})

    def test_what_is_refused(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        self.assert_refused(self.release(self.a, token=False), 401, "no_token")
        self.assert_refused(self.release(self.a, offset=0, length=9), 404, "no_such_lock")
        self.assert_refused(self.release(self.a, offset=0, length=0), 404, "no_such_lock")
        self.assert_refused(self.release(self.a, fh=os.urandom(28)), 404, "no_such_lock")
        self.assert_refused(self.rest.call("DELETE", f"/api/v1/locks?client=nlm:192.0.2.1:x&handle={self.fh.hex()}", token=True),
                            404, "not_found")  # fmt: skip
        for query in ("", f"?client={quote(self.id_of(self.a))}", f"?handle={self.fh.hex()}"):
            self.assert_refused(self.rest.call("DELETE", f"/api/v1/locks{query}", token=True), 400, "bad_request")
        for more in ({"offset": 0}, {"length": 10}, {"offset": "x", "length": 10}, {"offset": 2**63, "length": 1}):
            self.assert_refused(self.release(self.a, **more), 400, "bad_request")
        for handle in ("0", "xy", "AB", "00" * 65):
            answer = self.rest.call("DELETE", f"/api/v1/locks?client={quote(self.id_of(self.a))}&handle={handle}", token=True)
            self.assert_refused(answer, 400, "bad_request")
        self.assert_held(self.lock_of(self.a, 0, 10), by=1)

    def test_a_grant_on_its_way_is_released_too(self):
        self.b.script = None  # hears of the grant, and says nothing
        held = self.lock_of(self.a)
        self.assert_granted(self.a, held)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.a.unlock(held)
        self.b.wait_granted(self.lock_of(self.b))
        self.assertEqual(self.release(self.b).json, {"locks_released": 1})
        self.assert_granted(self.c, self.lock_of(self.c))

    def grant_in_pieces(self):
        """b has a part, waits for more, and hears of it without an answer."""
        held = self.lock_of(self.a, 10, 10)
        self.assert_granted(self.a, held)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 10, exclusive=False))
        wanted = self.lock_of(self.b, 0, 20, exclusive=False)
        self.assert_blocked(self.b, wanted)
        self.b.script = self.b.SILENT
        self.a.unlock(held)
        self.b.wait_granted(wanted)
        return wanted

    def assert_not_told_again(self, host, lock):
        """A later grant without an answer is repeated; one of before would be repeated earlier."""
        other = self.lock_of(self.c, fh=os.urandom(8))
        self.assert_granted(self.a, other.but(name=self.a.name, svid=1000))
        self.assert_blocked(self.c, other)
        self.c.script = self.c.SILENT
        self.a.unlock(other.but(name=self.a.name, svid=1000))
        self.c.wait_granted(other, 2)
        told = [heard for heard in host.grants.items if (heard.grant.fh, heard.grant.svid) == (lock.fh, lock.svid)]
        self.assertEqual(len(told), 1, told)

    def test_a_grant_ends_with_a_part_of_its_lock(self):
        """GRANTED names the whole range: b must not hear it when c has a part."""
        wanted = self.grant_in_pieces()
        self.assertEqual(self.release(self.b, offset=10, length=10).json, {"locks_released": 1})
        self.assert_granted(self.c, self.lock_of(self.c, 10, 10))
        self.assert_not_told_again(self.b, wanted)
        self.assert_held(self.lock_of(self.b, 0, 10))

    def test_all_locks_in_a_file_with_the_parts_of_a_grant(self):
        wanted = self.grant_in_pieces()
        self.assertEqual(self.release(self.b).status, 200)
        self.assert_free(self.lock_of(self.a, 0, 20))
        self.assert_granted(self.c, self.lock_of(self.c, 0, 20))
        self.assert_not_told_again(self.b, wanted)

    # By the command line

    def test_release_by_the_command_line(self):
        for offset in (0, 100):
            self.assert_granted(self.c, self.lock_of(self.c, offset, 10))
        file = f"handle:{self.fh.hex()}"
        terminal = Terminal(self.words("release", self.id_of(self.c), "--file", file, "--range", "100+10"), self.daemon.namespace,
                            40, 200)  # fmt: skip
        terminal.wait("Continue?")
        self.assertIn("100+10", terminal.text)
        self.assertNotIn("0+10 ", terminal.text.replace("100+10 ", ""))
        self.assertIn("in the belief that it holds the lock", terminal.text)
        terminal.write("no\n")
        terminal.wait("Nothing was changed.")
        self.assertEqual(terminal.end(), FAILED)
        self.run_cli("release", self.id_of(self.c), "--file", file, code=USAGE)  # without a terminal it cannot ask
        self.assert_held(self.lock_of(self.c, 100, 10))
        said = self.run_cli("release", self.id_of(self.c), "--file", file, "--range", "100+10", "--yes").stdout
        self.assertEqual(said, "1 locks released.\n")
        self.assert_free(self.lock_of(self.c, 100, 10))
        self.assert_held(self.lock_of(self.c, 0, 10))
        self.assertEqual(json.loads(self.run_cli("--json", "release", self.id_of(self.c), "--file", file, "--yes").stdout),
                         {"locks_released": 1})  # fmt: skip
        self.run_cli("release", self.id_of(self.c), "--file", file, "--yes", code=NOT_FOUND)

    def test_command_lines_that_mean_nothing(self):
        lock = self.lock_of(self.c)
        self.assert_granted(self.c, lock)
        for words in ((), ("--file", "x"), (self.id_of(self.c), "--range", "all"), (self.id_of(self.c), "--address", self.c.address),
                      ("--address", "c"), ("--silent-for", "0"), ("--silent-for", "x"), ("--silent-for", "5x")):  # fmt: skip
            self.run_cli("release", "--yes", *words, code=USAGE)
        self.run_cli("locks", "--file", "x", code=USAGE)
        self.assert_held(lock)


class ReleaseMany(CliPlay):
    """holdfast release --address, --silent-for: shows first, then asks."""

    def test_all_clients_of_an_address(self):
        for name in ("one", "two"):
            self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(8), name=name))
        self.assertEqual(self.a.share(self.lock_of(self.a, fh=os.urandom(8), name="three", access=READ)), nlm.S_GRANTED)
        self.assert_granted(self.b, self.lock_of(self.b))
        done = self.run_cli("release", "--address", self.a.address, code=USAGE)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["ID", "LOCKS", "WAITERS", "RESERVATIONS", "SILENT", "FOR"])
        self.assertEqual([line.split()[:4] for line in lines[1:4]],
                         [[f"nlm:{self.a.address}:{name}", *n] for name, n in (("one", "100"), ("two", "100"), ("three", "001"))])  # fmt: skip
        self.assertIn("These 3 clients will be declared crashed", done.stdout)
        self.assertIn("use --yes", done.stderr)
        terminal = Terminal(self.words("release", "--address", self.a.address), self.daemon.namespace, 40, 200)
        terminal.wait("Continue?")
        terminal.write("no\n")
        terminal.wait("Nothing was changed.")
        self.assertEqual(terminal.end(), FAILED)
        self.assertEqual(len(self.rest.get("/api/v1/locks").json["locks"]), 3)
        self.assertTrue(self.run_cli("release", "--address", self.a.address, "--yes").stdout.endswith("\n2 locks released.\n"))
        self.assertEqual([l["client"] for l in self.rest.get("/api/v1/locks").json["locks"]], [self.id_of(self.b)])
        self.assertEqual(self.rest.get("/api/v1/reservations").json["reservations"], [])
        self.assertEqual(self.run_cli("release", "--address", self.a.address).stdout, "No such client has anything to release.\n")

    def test_clients_that_are_silent(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        silent = lambda host: self.rest.get(f"/api/v1/clients/{quote(self.id_of(host))}").json["silent_seconds"]
        self.until(lambda: silent(self.a), "it is silent for a while", passes=lambda seconds: seconds >= 1.5)
        self.assert_granted(self.b, self.lock_of(self.b, fh=os.urandom(8)))
        self.assertEqual(self.run_cli("release", "--silent-for", "3600").stdout, "No such client has anything to release.\n")
        self.assertGreater(silent(self.a), silent(self.b))
        # b may be silent for long, too, until the command runs: so its address is not meant.
        shown = self.run_cli("release", "--silent-for", "1", "--address", self.a.address, code=USAGE)
        self.assertIn(self.id_of(self.a), shown.stdout)
        self.assertNotIn(self.id_of(self.b), shown.stdout)
        self.run_cli("release", "--silent-for", "1", "--address", self.a.address, "--yes")
        self.assert_free(self.lock_of(self.a))
        self.assertEqual([l["client"] for l in self.rest.get("/api/v1/locks").json["locks"]], [self.id_of(self.b)])


class Silence(CliPlay):
    """Clients that are silent: in lists, and as a metric."""

    NAME = "holdfast_oldest_lock_of_silent_client_seconds"

    def test_the_longest_silence_of_a_client_with_locks_is_a_metric(self):
        self.assertEqual(self.rest.metrics()[self.NAME], 0, "no client holds a lock")
        self.assert_granted(self.a, self.lock_of(self.a))
        self.until(lambda: self.rest.metrics()[self.NAME], "it is silent for a while", passes=lambda seconds: seconds >= 1)
        self.assert_granted(self.b, self.lock_of(self.b, fh=os.urandom(8)))
        self.assertGreaterEqual(self.rest.metrics()[self.NAME], 1, "of the client that is silent for longer")
        line = next(l for l in self.run_cli("clients").stdout.splitlines() if self.id_of(self.a) in l)
        self.assertRegex(line, r" \d+\.\ds$")
        self.assertIn("SILENT FOR", self.run_cli("clients").stdout)
        shown = self.rest.get(f"/api/v1/clients/{quote(self.id_of(self.a))}").json
        self.assertGreaterEqual(shown["silent_seconds"], 1)
        self.a.unlock(self.lock_of(self.a))
        self.b.free_all()
        self.until(lambda: self.rest.metrics()[self.NAME], "no client holds a lock", passes=lambda seconds: seconds == 0)


class SignsOfLife(Exported, CliPlay):
    """How long a client is silent: whatever its host sends is a sign of life, and an open connection is none."""

    OLDEST = "holdfast_oldest_lock_of_silent_client_seconds"
    IN_THE_WAY = "holdfast_silent_client_in_the_way_seconds"
    TIME = 2  # seconds

    def silent(self, host):
        return self.rest.get(f"/api/v1/clients/{quote(self.id_of(host))}").json["silent_seconds"]

    def pass_time(self):
        began = time.monotonic()
        self.until(lambda: time.monotonic() - began, "time passes", passes=lambda passed: passed > self.TIME)

    def caller(self, host, kind=TcpCaller):
        """A mount of its own beside the connection of the lock manager."""
        caller = kind((self.network.SERVER[0], 2049), (host.address, 0), host.namespace, reserved=True)
        self.addCleanup(caller.close)
        return caller

    def read(self, host, caller):
        """GETATTR and READ; the times around them."""
        began = time.monotonic()
        for procedure, args in ((nfs.GETATTR, Out().opaque(self.fh)), (nfs.READ, Out().opaque(self.fh).u64(0).u32(10))):
            message = call_message(nfs.NFS, 3, procedure, args.bytes(), cred=auth_sys(host.name, 1000, 1000))
            self.assertEqual(exchange(caller, message)[:4], bytes(4), "NFS3_OK")
        return began, time.monotonic()

    def assert_silent_since(self, host, began, ended):
        """The last sign of life came between these two times."""
        least = time.monotonic() - ended
        silent, metric = self.silent(host), self.rest.metrics()[self.OLDEST]
        most = time.monotonic() - began
        for seconds in (silent, metric):  # the loop's clock is as old as its turn
            self.assertTrue(least - 0.1 <= seconds <= most + 0.1, f"{seconds} is not from {least} to {most}")

    def play_reader(self, kind):
        self.assert_granted(self.a, self.lock_of(self.a))
        caller = self.caller(self.a, kind)
        self.pass_time()
        for _ in range(3):
            self.assert_silent_since(self.a, *self.read(self.a, caller))
        times = self.read(self.a, caller)
        self.pass_time()
        self.assert_silent_since(self.a, *times)  # and not the connection is the sign
        return caller, times

    def test_a_client_that_reads_is_not_silent(self):
        self.play_reader(TcpCaller)

    def test_a_client_that_reads_over_udp_is_not_silent(self):
        self.play_reader(UdpCaller)

    def test_a_client_is_silent_since_the_last_call_of_a_connection_that_has_ended(self):
        n_open = lambda: self.rest.metrics()['holdfast_connections{transport="tcp"}']
        caller, times = self.play_reader(TcpCaller)
        before = n_open()
        caller.close()
        self.a.drop_callers()  # that of the lock manager
        self.until(n_open, "the connections have ended", passes=lambda n: n == before - 2)
        self.assert_silent_since(self.a, *times)
        began = time.monotonic()
        again = self.caller(self.a)
        self.until(lambda: self.silent(self.a), "a new connection is a sign", passes=lambda s: s <= time.monotonic() - began)
        self.assertEqual(n_open(), before - 1)
        self.assert_silent_since(self.a, *self.read(self.a, again))

    def test_the_answer_to_a_grant_is_a_sign_of_life(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.pass_time()
        began = time.monotonic()
        self.a.unlock(self.lock_of(self.a))
        self.b.grants.wait(1)
        self.until(lambda: self.silent(self.b), "b has answered", passes=lambda s: s <= time.monotonic() - began)

    def test_a_grant_that_is_only_sent_is_no_sign_of_life(self):
        """GRANTED_MSG has no reply. The server knows the port of b's lock manager from the first one."""
        for count, script in ((1, nlm.S_GRANTED), (2, FakeHost.SILENT)):
            self.assert_granted(self.a, self.lock_of(self.a))
            wanted = self.lock_of(self.b, block=True)
            cred = auth_sys(self.b.name)
            asks = call_message(nlm.PROGRAM, 4, nlm.LOCK_MSG, wanted.args(nlm.LOCK_MSG), cred=cred)
            self.b.caller("udp").send(asks)
            self.b.answers.wait(count)
            if script == FakeHost.SILENT:
                self.b.script = script
                self.pass_time()
            self.a.unlock(self.lock_of(self.a))
            self.b.grants.wait(count)
            if script == nlm.S_GRANTED:
                self.b.unlock(self.lock_of(self.b))
        self.assertTrue(all(heard.is_msg for heard in self.b.grants.matching()))
        self.assertGreater(self.silent(self.b), self.TIME)

    def test_only_a_client_in_the_way_of_another_one_is_in_the_way(self):
        self.assertEqual(self.rest.metrics()[self.IN_THE_WAY], 0, "no client waits")
        self.assert_granted(self.a, self.lock_of(self.a, offset=5, length=5, exclusive=False))
        self.assert_granted(self.a, self.lock_of(self.a, offset=40, length=10))
        self.assert_blocked(self.a, self.lock_of(self.a, offset=40, length=10, svid=2))
        self.pass_time()
        self.assert_granted(self.b, self.lock_of(self.b, length=10, exclusive=False))
        self.assert_granted(self.b, self.lock_of(self.b, offset=20, length=10))
        self.assertEqual(self.rest.metrics()[self.IN_THE_WAY], 0, "only a program of the client itself waits")
        self.assert_blocked(self.c, self.lock_of(self.c, offset=20, length=10))
        caller = self.caller(self.b)
        began, _ = self.read(self.b, caller)
        shown = self.rest.metrics()
        self.assertLessEqual(shown[self.IN_THE_WAY], time.monotonic() - began + 0.1, "of the client that c waits for")
        self.assertGreater(shown[self.OLDEST], shown[self.IN_THE_WAY] + self.TIME - 0.5)
        self.assert_blocked(self.c, self.lock_of(self.c, length=10, svid=2))
        shown = self.rest.metrics()
        self.assertGreater(shown[self.IN_THE_WAY], self.TIME, "of two in the way, the one that is silent for longer")
        self.assertAlmostEqual(shown[self.IN_THE_WAY], shown[self.OLDEST], delta=0.5)


class ReleasedForGood(Exported):
    """A lock that an operator released does not return after a crash of the server."""

    n_hosts = 2
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.after_crash=continue", "api.listen=127.0.0.1:0")

    def test_a_released_lock_stays_released_through_a_crash(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        self.assert_granted(self.a, self.lock_of(self.a, 100, 10))
        target = f"/api/v1/locks?client={quote(self.id_of(self.a))}&handle={self.fh.hex()}&offset=0&length=10"
        self.assertEqual(self.rest.call("DELETE", target, token=True).json, {"locks_released": 1})
        self.restart()
        self.assertFalse(self.rest.get("/api/v1/status").json["grace"]["active"])
        locks = self.rest.get("/api/v1/locks").json["locks"]
        self.assertEqual([(l["offset"], l["length"], l["file"]) for l in locks], [(100, 10, self.path)])


class ReleasedLocally(Exported):
    """Processes on the server see the lock go, too."""

    n_hosts = 1
    exports = ("{{path: {base}/data, name: /data, squash: none, local_locks: on}}",)
    settings = ("api.listen=127.0.0.1:0",)

    def try_to_lock(self, file, offset):
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, offset)
        except OSError:
            return False
        return True

    def test_a_released_lock_is_free_for_local_processes(self):
        for offset in (0, 100):
            self.assert_granted(self.a, self.lock_of(self.a, offset, 10))
        with open(self.path, "r+b") as file:
            self.assertFalse(self.try_to_lock(file, 0))
            target = f"/api/v1/locks?client={quote(self.id_of(self.a))}&handle={self.fh.hex()}&offset=0&length=10"
            self.assertEqual(self.rest.call("DELETE", target, token=True).json, {"locks_released": 1})
            self.until(lambda: self.try_to_lock(file, 0), "the kernel has it, too")
            self.assertFalse(self.try_to_lock(file, 100))


class ReleaseByPath(Exported, CliPlay):
    """The command line names files as the list of locks does: by their paths."""

    n_hosts = 2

    def test_a_file_is_named_by_its_path(self):
        other = self.make_file()
        locks = [self.lock_of(self.a, offset, 10) for offset in (0, 100)]
        elsewhere = self.lock_of(self.a, 0, 10, fh=self.handle_of(other))
        for lock in (*locks, elsewhere):
            self.assert_granted(self.a, lock)
        self.assertIn(self.path, self.run_cli("locks").stdout)
        release = ("release", self.id_of(self.a), "--yes", "--file")
        self.run_cli(*release, "/no/such/file", code=NOT_FOUND)
        self.assertEqual(self.run_cli(*release, self.path, "--range", "100+10").stdout, "1 locks released.\n")
        self.assert_held(locks[0])
        self.assert_free(locks[1])
        self.assertEqual(self.run_cli(*release, self.path).stdout, "1 locks released.\n")
        self.assert_free(locks[0])
        self.assert_held(elsewhere)

    def test_a_handle_that_is_cut_off_must_name_one_file(self):
        for path in (self.path, self.make_file()):
            self.assert_granted(self.a, self.lock_of(self.a, fh=self.handle_of(path)))
        release = ("release", self.id_of(self.a), "--yes", "--file")
        said = self.run_cli(*release, f"handle:{self.fh.hex()[:2]}", code=USAGE).stderr
        self.assertIn("several files have handles that begin so", said)
        self.assertEqual(self.run_cli(*release, f"handle:{self.fh.hex()}").stdout, "1 locks released.\n")


class UnreclaimedLocks(Exported):
    """In grace an operator may release what is not reclaimed yet."""

    n_hosts = 1
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=300", "api.listen=127.0.0.1:0")

    def test_an_unreclaimed_lock_is_released(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        self.restart()
        self.assertTrue(self.rest.get("/api/v1/status").json["grace"]["active"])
        (shown,) = self.rest.get("/api/v1/locks").json["locks"]
        self.assertEqual(shown["state"], "unreclaimed")
        target = f"/api/v1/locks?client={quote(shown['client'])}&handle={shown['handle']}"
        self.assertEqual(self.rest.call("DELETE", target, token=True).json, {"locks_released": 1})
        self.assertEqual(self.rest.get("/api/v1/locks").json["locks"], [])
        self.assertEqual(self.rest.get("/api/v1/status").json["grace"]["unreclaimed"], 0)


class Reload(Exported, CliPlay):
    """The status says what became of a reload, and what could not change."""

    n_hosts = 1

    def reload(self, *more):
        before = self.rest.get("/api/v1/status").json["reload"]
        with open(self.config, "a", encoding="ascii") as out:
            out.writelines(f"{line}\n" for line in more)
        self.daemon.process.send_signal(signal.SIGHUP)
        return self.until(lambda: self.rest.get("/api/v1/status").json["reload"], "it has reloaded", passes=lambda now: now != before)

    def test_a_reload_says_what_waits_for_the_next_start(self):
        self.assertIsNone(self.rest.get("/api/v1/status").json["reload"])
        self.assertNotIn("reload", self.run_cli("status").stdout)
        said = self.reload()
        self.assertEqual((said["loaded"], said["at_next_start"]), (True, []))
        self.assertRegex(self.run_cli("status").stdout, r"\nreload     \S+: everything is in effect\n")
        said = self.reload("server: {threads: 77}", "recovery: {max_clients: 99}", "log: {level: info}")
        self.assertEqual((said["loaded"], said["at_next_start"]), (True, ["server.threads"]))
        self.assertRegex(self.run_cli("status").stdout,
                         r"\nreload     \S+: only at the next start: server.threads\n")  # fmt: skip
        said = self.reload("nonsense: 1")
        self.assertEqual((said["loaded"], said["at_next_start"]), (False, []))
        self.assertIn(f"failed, the old configuration stays: {self.config}:", self.run_cli("status").stdout)


class RestoredReservations(Exported):
    """After a restart: those that are not reclaimed yet; and the paths of files."""

    n_hosts = 1
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.early_end=false", "recovery.window_seconds=300",
                "api.listen=127.0.0.1:0")  # fmt: skip

    def test_unreclaimed_reservations_are_shown_with_their_file(self):
        share = self.lock_of(self.a, access=READ, deny=WRITE)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        (shown,) = self.rest.get("/api/v1/reservations").json["reservations"]
        self.assertEqual((shown["count"], shown["unreclaimed"], shown["share"]), (1, 1, "/data"))
        self.assertEqual(shown["file"], self.path)
        self.assertEqual(self.rest.metrics()["holdfast_reservations"], 0)
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)
        (shown,) = self.rest.get("/api/v1/reservations").json["reservations"]
        self.assertEqual((shown["count"], shown["unreclaimed"]), (1, 0))


if __name__ == "__main__":
    main()
