#!/usr/bin/env python3
"""The limits: how much of each is used, by which client, and what they refused.

    test_limits.py PATH/holdfastd [unittest's own arguments]
"""

import itertools
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from commandline import CliPlay
from forger import DistantForger, empty_address
from play import main
from rest import Events
from rpc import TcpCaller, UdpCaller, call_message, exchange, record, result_of
from xdr import In, Out

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "guide", "limits.md")
RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib", "prometheus", "holdfast.rules.yml")
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "base", "limit.c")
READERS = 64
PORTMAP, SET, DUMP, MOUNT, EXPORT = 100000, 1, 4, 100005, 5
NSM = 100024


class Limited(CliPlay):
    settings = ("api.listen=127.0.0.1:0", "recovery.max_clients=8", "recovery.max_clients_per_address=4")

    def limit(self, name):
        return next(l for l in self.rest.get("/api/v1/limits").json["limits"] if l["name"] == name)

    def metric(self, kind, name):
        return self.rest.metrics()[f'holdfast_limit_{kind}{{limit="{name}"}}']

    def assert_shown(self, name, used, top, refused):
        """In all three places."""
        shown = self.limit(name)
        self.assertEqual((shown["used"], shown["max"], shown["refused"]), (used, top, refused), name)
        self.assertEqual([self.metric(kind, name) for kind in ("used", "max", "refused_total")], [used, top, refused])
        row = next(l for l in self.run_cli("limits").stdout.splitlines() if l.startswith(f"{name} ")).split()
        self.assertEqual(row[1:5], [str(used), str(top), f"{100 * used / top:.0f}%", str(refused)])
        return shown


class Limits(Limited):
    def test_clients_at_an_address(self):
        name = "clients_per_address"
        self.assertNotIn(name, self.run_cli("status").stdout)
        before = self.limit(name)["refused"]
        for number in range(4):
            self.assert_granted(self.a, self.lock_of(self.a, number, 1, name=f"limited{number}"))
        self.assertEqual(self.assert_shown(name, 4, 4, before)["by"], self.a.address)
        self.assert_shown("clients", 4, 8, 0)
        self.assertRegex(self.run_cli("status").stdout, rf"\nlimits     .*{name} 100% used")
        self.assertEqual(self.a.lock(self.lock_of(self.a, 100, 5, name="onemore")), nlm.S_NOLOCKS)
        self.assert_shown(name, 4, 4, before + 1)
        self.assertRegex(self.run_cli("status").stdout, rf"{name} 100% used, {before + 1} refused.*; see `holdfast limits`\n")
        for number in range(4):
            self.a.free_all(f"limited{number}")

    def test_locks_of_the_client_that_has_the_most(self):
        for offset in range(5):
            self.assert_granted(self.b, self.lock_of(self.b, 2 * offset, 1))
        self.assert_granted(self.c, self.lock_of(self.c, 100, 1))
        self.assert_blocked(self.c, self.lock_of(self.c, 0, 1))
        self.assertEqual(self.assert_shown("locks_per_client", 5, 262144, 0)["by"], self.id_of(self.b))
        self.assertEqual(self.assert_shown("locks_per_address", 5, 4194304, 0)["by"], self.b.address)
        self.assertEqual(self.assert_shown("waiters_per_client", 1, 4096, 0)["by"], self.id_of(self.c))
        self.assertEqual(self.assert_shown("waiters_per_address", 1, 131072, 0)["by"], self.c.address)
        self.assertEqual(self.assert_shown("waiters", 1, 262144, 0)["by"], None)
        self.assertEqual(self.assert_shown("locks", 7, 8388608, 0)["by"], None)

    def test_locks_of_the_file_that_has_the_most(self):
        """Small files, and files of which there are many as large."""
        for number in range(40):
            for offset in range(10 if number % 2 else 1):
                self.assert_granted(self.b, self.lock_of(self.b, 2 * offset, 1, fh=b"file%d" % number))
        self.assert_shown("locks_per_file", 10, 1048576, 0)
        for offset in range(20):
            self.assert_granted(self.b, self.lock_of(self.b, 2 * offset, 1))
        self.assert_blocked(self.c, self.lock_of(self.c, 0, 1))
        self.assert_shown("locks_per_file", 21, 1048576, 0)
        self.assertEqual(self.b.unlock(self.lock_of(self.b, 10, 100)), nlm.S_GRANTED)
        self.assert_shown("locks_per_file", 10, 1048576, 0)

    def test_waiters_in_one_file(self):
        """An address has half of them."""
        self.assert_granted(self.b, self.lock_of(self.b, 0, 1))
        refused = self.limit("waiters_per_file")["refused"]
        for svid in range(1024):
            self.assert_blocked(self.c, self.lock_of(self.c, 0, 1, svid=svid))
        for _ in range(3):
            self.assertEqual(self.c.lock(self.lock_of(self.c, 0, 1, svid=5000, block=True)), nlm.S_NOLOCKS)
        self.assert_shown("waiters_per_file", 1024, 2048, refused + 3)
        self.assert_shown("waiters_per_client", 1024, 4096, 0)
        self.assert_shown("waiters_per_address", 1024, 131072, 0)
        self.searches()

    def searches(self):
        """Each further waiter of another address costs a search of the queue."""
        svids = itertools.count(1)

        def ask():
            locks = [self.lock_of(self.a, 0, 1, svid=next(svids), block=True) for _ in range(500)]
            stats = self.a.ask_together([(nlm.LOCK, lock) for lock in locks])
            limit = self.limit("lock_searches")
            self.a.ask_together([(nlm.CANCEL, lock) for lock in locks])
            self.assertEqual(set(stats) - {nlm.S_BLOCKED, nlm.S_NOLOCKS}, set())
            return limit

        before = self.limit("lock_searches")["refused"]
        limit = self.until(ask, "a search is refused", passes=lambda l: l["refused"] > before and l["used"])
        self.assertEqual((limit["max"], limit["by"]), (262144, self.a.address))
        self.assertGreater(self.metric("refused_total", "lock_searches"), before)

    def test_reservations(self):
        for number in range(5):
            self.assertEqual(self.b.share(self.lock_of(self.b, access=1, oh=b"%d" % number)), nlm.S_GRANTED)
        self.assertEqual(self.c.share(self.lock_of(self.c, access=1)), nlm.S_GRANTED)
        self.assertEqual(self.assert_shown("reservations_per_client", 5, 65536, 0)["by"], self.id_of(self.b))
        self.assertEqual(self.assert_shown("reservations_per_address", 5, 524288, 0)["by"], self.b.address)
        self.assert_shown("reservations_per_file", 6, 65536, 0)
        self.assert_shown("reservations", 6, 1048576, 0)
        for number in range(5):
            self.assertEqual(self.b.unshare(self.lock_of(self.b, access=1, oh=b"%d" % number)), nlm.S_GRANTED)
        self.assertEqual(self.c.unshare(self.lock_of(self.c, access=1)), nlm.S_GRANTED)
        self.assert_shown("reservations_per_file", 0, 65536, 0)

    def test_memory(self):
        """Owner handles of a kilobyte, until their client has used up its memory for them."""
        top = 16 << 20
        for first in itertools.count(0, 1000):
            calls = [(nlm.LOCK, self.lock_of(self.b, 2 * i, 1, svid=i, oh=b"%01024d" % i)) for i in range(first, first + 1000)]
            stats = self.b.ask_together(calls)
            if nlm.S_NOLOCKS in stats:
                break
        n = first + stats.count(nlm.S_GRANTED)
        self.assertEqual(n, top // 1024)
        refused = stats.count(nlm.S_NOLOCKS)
        self.assertEqual(self.assert_shown("owner_bytes_per_client", top, top, refused)["by"], self.id_of(self.b))
        self.assertEqual(self.assert_shown("owner_bytes_per_address", top, 64 << 20, 0)["by"], self.b.address)
        self.assert_shown("owner_bytes", top, 128 << 20, 0)
        for name, owner, most in (("lock_bytes_per_client", self.id_of(self.b), 512 << 20),
                                  ("lock_bytes_per_address", self.b.address, 2 << 30), ("lock_bytes", None, 4 << 30)):  # fmt: skip
            limit = self.limit(name)
            self.assertEqual((limit["max"], limit["refused"], limit["by"]), (most, 0, owner))
            self.assertGreater(limit["used"], top)

    def test_unread_input(self):
        """The beginning of a call, and no more of it."""
        caller = TcpCaller((self.a.server, 2049), (self.a.address, 0), self.a.namespace)
        self.addCleanup(caller.close)
        caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, nlm.LOCK, bytes(700)))[:600])
        self.until(lambda: self.limit("record_bytes"), "it is counted", passes=lambda limit: limit["used"] >= 500)
        self.assertEqual(self.limit("record_bytes")["max"], 256 << 20)

    def test_cached_replies(self):
        before = self.limit("cached_replies")["used"]
        for svid in range(5):
            self.assert_granted(self.a, self.lock_of(self.a, svid, 1, svid=svid), transport="udp")
        self.assertGreaterEqual(self.limit("cached_replies")["used"], before + 5)
        before = self.limit("cached_msg_replies")["used"]
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK_MSG, self.lock_of(self.a, 20, 1).args(nlm.LOCK_MSG))
        self.a.caller("udp").send(message)
        self.until(lambda: self.limit("cached_msg_replies")["used"], "it is cached", passes=lambda used: used > before)

    def test_readers_of_events(self):
        before = self.limit("event_readers")
        readers = [Events(self.rest) for _ in range(READERS - before["used"])]
        for reader in readers:
            self.addCleanup(reader.close)
        self.assertEqual(self.rest.get("/api/v1/events").status, 503)
        self.assert_shown("event_readers", READERS, READERS, before["refused"] + 1)

    def test_connections(self):
        self.a.lock(self.lock_of(self.a))
        self.assertGreaterEqual(self.limit("connections")["used"], 1)
        more = [TcpCaller((self.a.server, 2049), (self.a.address, 0), self.a.namespace) for _ in range(9)]
        for caller in more:
            self.addCleanup(caller.close)
            exchange(caller, call_message(nlm.PROGRAM, 4, 0))
        self.assertGreaterEqual(self.limit("connections_per_address")["used"], 9)
        self.assertEqual(self.limit("connections_per_address")["by"], self.a.address)
        self.assertEqual(self.limit("connections_per_address")["max"], 2048)

    def test_lists_over_udp(self):
        """They have a limit of their own: that of calls in progress is not blamed."""
        for port, *what in ((111, PORTMAP, 2, DUMP), (2049, MOUNT, 3, EXPORT)):
            caller = UdpCaller((self.a.server, port), (self.a.address, 0), self.a.namespace)
            self.addCleanup(caller.close)
            ask, before = call_message(*what), self.limit("udp_lists")["refused"]

            def flood(caller=caller, ask=ask):
                for _ in range(150):
                    caller.send(ask)
                return self.limit("udp_lists")

            lists = self.until(flood, "lists are refused", passes=lambda limit, before=before: limit["refused"] > before)
            self.assertGreater(lists["used"], 0)
            self.assertEqual((lists["max"], lists["by"]), (100, None))
        self.assertEqual(self.limit("udp_calls")["refused"], 0)
        self.assertEqual(self.rest.metrics()["holdfast_calls_dropped_total"], 0)
        self.assertIn("udp_lists", self.run_cli("status").stdout)
        status = json.loads(self.run_cli("--json", "status").stdout)
        self.assertEqual(next(l for l in status["limits"] if l["name"] == "udp_lists")["refused"], self.limit("udp_lists")["refused"])

    def test_the_guide_has_each_limit(self):
        with open(DOCUMENT, encoding="utf-8") as document, open(TABLE, encoding="utf-8") as table:
            named = set(re.findall(r"^\| `(\w+)`", document.read(), re.MULTILINE))
            there = set(re.findall(r'\] = \{\s*"(\w+)"', table.read()))
        self.assertEqual(named, there)
        shown = {l["name"] for l in json.loads(self.run_cli("--json", "limits").stdout)}
        files = {"local_files", "name_lookups", "group_lookups", "mounts", "mounts_per_address", "names_remembered",
                 "addresses_remembered", "users_remembered", "usage_pairs"}  # fmt: skip
        self.assertEqual(there - shown, files, "this server has no export")
        self.assertEqual(shown - there, set())

    def test_no_alert_of_a_cache(self):
        """It may be full for ever."""
        with open(RULES, encoding="utf-8") as rules:
            left_out = [set(names.split("|")) for names in re.findall(r'limit!~"([^"]*)"', rules.read())]
        caches = {l["name"] for l in json.loads(self.run_cli("--json", "limits").stdout) if l["is_cache"]}
        with open(TABLE, encoding="utf-8") as table:
            in_table = set(re.findall(r'"(\w+)",[^}]*is_cache = true', table.read()))
        self.assertEqual(left_out, [in_table, in_table])
        self.assertEqual(caches, {"cached_replies", "cached_msg_replies", "contacts"})


class Unconfirmed(Limited):
    def test_locks_that_are_dropped(self):
        """There are four places for clients that nothing confirms: the other calls wait for their hosts, which do not exist."""
        forger = DistantForger(self.network.server, 2049)
        self.addCleanup(forger.close)
        for i in range(10):
            lock = self.lock_of(self.a, 2 * i, 1, name=f"forged{i}")
            forger.send(empty_address(i), 700, call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK)))
        self.until(lambda: self.limit("clients_unconfirmed")["refused"], "the others are dropped", passes=lambda n: n == 6)
        self.assert_shown("clients_unconfirmed", 4, 4, 6)
        self.assertRegex(self.run_cli("status").stdout, "clients_unconfirmed 100% used, 6 refused")


class Waiting(Limited):
    """Calls over UDP that wait until their hosts, which do not exist, have answered."""

    settings = ("api.listen=127.0.0.1:0", "recovery.max_clients=1024", "recovery.notify_timeout_ms=60000", "nsm.allow_mon=any")
    UNCONFIRMED = 1024 // 8

    def setUp(self):
        super().setUp()
        self.forger = DistantForger(self.network.server, 2049)
        self.addCleanup(self.forger.close)

    def send(self, host, procedure, args, program=nlm.PROGRAM, version=4):
        self.forger.send(empty_address(host), 700, call_message(program, version, procedure, args))

    def fill(self, name, most, of_host, send):
        """@send(host) sends a call of that host."""

        def shows(name, *wanted):
            """Not too many are on their way at once, so that none is lost."""
            self.until(lambda: self.limit(name), f"{name} shows {wanted}",
                       passes=lambda limit: (limit["used"], limit["max"], limit["refused"]) == wanted)  # fmt: skip

        first = 200
        for _ in range(of_host + 2):
            send(first)
        shows(f"{name}_per_address", of_host, of_host, 2)
        self.assertEqual(self.limit(f"{name}_per_address")["by"], empty_address(first))
        shows(name, of_host, most, 0)
        for host in range(1, most // of_host):
            for _ in range(of_host):
                send(first + host)
            shows(name, (host + 1) * of_host, most, 0)
        self.assert_shown(name, most, most, 0)
        send(199)
        self.until(lambda: self.limit(name)["refused"], "one is refused", passes=lambda n: n == 1)
        self.assertRegex(self.run_cli("status").stdout, rf"{name}_per_address 100% used, 2 refused")

    def test_locks(self):
        numbers = itertools.count()

        def send(host):
            number = next(numbers)
            lock = self.lock_of(self.a, 2 * number, 1, svid=number, name=f"forged{host}")
            self.send(host, nlm.LOCK, lock.args(nlm.LOCK))

        for host in range(self.UNCONFIRMED):
            send(host)
        self.until(lambda: self.limit("clients_unconfirmed")["used"], "the places are taken",
                   passes=lambda n: n == self.UNCONFIRMED)  # fmt: skip
        self.fill("udp_locks_unconfirmed", 1024, 16, send)

    def test_registrations(self):
        args = Out().string("peer").string("me").u32(200100).u32(1).u32(1).fixed(bytes(16)).bytes()
        self.fill("udp_mon_unconfirmed", 256, 4, lambda host: self.send(host, nsm.MON, args, NSM, 1))


class Mapper(Limited):
    """The embedded port mapper."""

    def caller(self, reserved=False):
        made = TcpCaller(("127.0.0.1", 111), ("127.0.0.1", 0), self.network.server, reserved)
        self.addCleanup(made.close)
        return made

    def register(self, caller, programs):
        """How many of them are registered."""
        messages = [call_message(PORTMAP, 2, SET, Out().u32(program).u32(1).u32(6).u32(20000).bytes()) for program in programs]
        caller.send_together(messages)
        return sum(In(result_of(caller.receive())).u32() for _ in messages)

    def test_mappings(self):
        self.assertEqual(self.register(self.caller(), range(400000, 400260)), 256)
        self.assert_shown("mappings_unprivileged", 256, 256, 4)
        self.assert_shown("mappings", 256, 1024, 0)
        self.assertEqual(self.register(self.caller(reserved=True), range(500000, 500770)), 768)
        self.assert_shown("mappings", 1024, 1024, 2)

    def test_connections(self):
        held = [TcpCaller((self.a.server, 111), (self.a.address, 0), self.a.namespace) for _ in range(256)]
        for caller in held:
            self.addCleanup(caller.close)
        name = "mapper_connections_per_address"
        self.until(lambda: self.limit(name)["used"], "all are counted", passes=lambda used: used == 256)
        self.assertEqual(self.assert_shown(name, 256, 256, 0)["by"], self.a.address)
        self.assertGreaterEqual(self.limit("mapper_connections")["used"], 256)
        self.assertEqual(self.limit("mapper_connections")["max"], 4096)
        more = TcpCaller((self.a.server, 111), (self.a.address, 0), self.a.namespace)
        self.addCleanup(more.close)
        self.until(lambda: self.limit(name)["refused"], "one more is refused", passes=lambda n: n == 1)


if __name__ == "__main__":
    main()
