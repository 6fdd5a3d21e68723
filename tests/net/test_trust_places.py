#!/usr/bin/env python3
"""One host that takes all it can get, and an honest one beside it: places, locks, waiters and the work of the server.

    test_trust_places.py [PATH/holdfastd] [unittest's own arguments]
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import netns
import nlm
from daemon import Daemon
from forger import DistantForger, empty_address
from nsm import MON, NOTIFY, NSM, mon_args
from rpc import NoReply, Service, Stage, TcpCaller, UdpCaller, call_message, exchange, result_of
from sniffer import Sniffer
from until import until
from xdr import In, Out

SKIPPED = 77  # meson's word for it
SERVER, GREEDY, HONEST, THIRD = "10.9.0.1", "10.9.1.1", "10.9.2.1", "10.9.3.1"
CALLBACK = 200300  # a program of the registrar's own
BATCH = 50  # calls under way of one connection


class Trust(unittest.TestCase):
    program = os.environ.get("HOLDFASTD")
    settings = ()

    def setUp(self):
        self.place = netns.Namespace("trust")
        self.addCleanup(self.place.close)
        for address in (SERVER, GREEDY, HONEST, THIRD):
            self.place.run("addr", "add", f"{address}/32", "dev", "lo")
        self.daemon = Daemon(
            self.program,
            self.place,
            ["server.port=0", "server.portmap=off", "api.listen=", "nsm.allow_mon=any", "recovery.window_seconds=1",
             "recovery.notify_timeout_ms=200", *self.settings],
        )  # fmt: skip
        self.addCleanup(self.daemon.close)
        self.start()
        self.addCleanup(self.daemon.stop)

    def start(self):
        self.daemon.start()
        with open(self.daemon.ports_file, encoding="utf-8") as file:
            self.port = json.load(file)["rpc"]

    def crash(self):
        """kill -9, and a start."""
        self.daemon.crash()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.daemon.ports_file)
        self.start()

    def tcp(self, address):
        caller = TcpCaller((SERVER, self.port), (address, 0), self.place)
        self.addCleanup(caller.close)
        return caller

    # Many calls at once

    def results(self, caller, calls):
        """The results of @calls, (program, version, procedure, args), in order, many of them under way at once."""
        found = []
        for first in range(0, len(calls), BATCH):
            batch = calls[first : first + BATCH]
            caller.send_together([call_message(*call, xid=first + i + 1) for i, call in enumerate(batch)])
            replies = dict((int.from_bytes(reply[:4], "big"), reply) for reply in (caller.receive() for _ in batch))
            found += [result_of(replies[first + i + 1]) for i in range(len(batch))]
        return found

    def ask_all(self, caller, procedure, locks):
        calls = [(nlm.PROGRAM, 4, procedure, lock.args(procedure)) for lock in locks]
        if procedure == nlm.FREE_ALL:
            return self.results(caller, calls)
        return [nlm.res_of(procedure, result).stat for result in self.results(caller, calls)]

    def ask(self, caller, procedure, lock):
        return self.ask_all(caller, procedure, [lock])[0]

    def mon_all(self, caller, names):
        calls = [(NSM, 1, MON, mon_args("server", name, CALLBACK, 1, bytes(16))) for name in names]
        return [In(result).u32() for result in self.results(caller, calls)]

    def out_of_grace(self, caller, lock):
        """The answer to @lock, as soon as it is not about grace."""
        return until(lambda: self.ask(caller, nlm.LOCK, lock), "grace is over", passes=lambda s: s != nlm.S_GRACE)

    def memory(self):
        """Bytes of the daemon that are in no file."""
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) << 10
        raise AssertionError("no RssAnon")


class Places(Trust):
    settings = ("recovery.max_clients=200", "store.backend=lmdb")
    n = 260  # more than there are places

    def newcomers(self):
        for i in range(self.n):
            yield nlm.Lock(name=f"new{i}", fh=b"of%d" % i, svid=i + 1)

    def assert_newcomer_is_granted(self, newcomers, address=HONEST):
        self.assertEqual(self.out_of_grace(self.tcp(address), next(newcomers)), nlm.S_GRANTED)

    def test_h1_forged_sm_mon_takes_no_place(self):
        """Datagrams from one source that no host has confirmed; and the same over TCP, which cannot be forged."""
        newcomers = self.newcomers()
        flood = UdpCaller((SERVER, self.port), (GREEDY, 0), self.place)
        self.addCleanup(flood.close)
        for i in range(self.n):
            with contextlib.suppress(NoReply):
                exchange(flood, call_message(NSM, 1, MON, mon_args("server", f"forged{i}", CALLBACK, 1, bytes(16))), 5)
        self.assert_newcomer_is_granted(newcomers)
        self.assert_newcomer_is_granted(newcomers, GREEDY)  # unconfirmed registrations make room
        self.mon_all(self.tcp(GREEDY), [f"confirmed{i}" for i in range(self.n)])
        self.assert_newcomer_is_granted(newcomers)
        self.crash()
        self.assert_newcomer_is_granted(newcomers)
        self.assert_newcomer_is_granted(newcomers, THIRD)

    def test_h2_many_names_take_no_more_than_a_part(self):
        newcomers = self.newcomers()
        greedy = self.tcp(GREEDY)
        locks = [nlm.Lock(name=f"name{i}", fh=b"x%d" % i, svid=1) for i in range(self.n)]
        self.ask_all(greedy, nlm.LOCK, locks[:150])
        self.assert_newcomer_is_granted(newcomers)  # while the flood runs
        answers = self.ask_all(greedy, nlm.LOCK, locks[150:])
        self.assertEqual(set(answers), {nlm.S_NOLOCKS})
        self.assert_newcomer_is_granted(newcomers)
        self.crash()
        self.assert_newcomer_is_granted(newcomers)
        greedy = self.tcp(GREEDY)
        again = [lock.but(name=f"again{i}") for i, lock in enumerate(locks)]
        self.out_of_grace(greedy, again[0])
        self.ask_all(greedy, nlm.LOCK, again)
        self.assert_newcomer_is_granted(newcomers)

    def test_h2_names_that_hold_nothing_give_way(self):
        """After FREE_ALL of all of them another client at their address need not wait for 300 s."""
        newcomers = self.newcomers()
        greedy = self.tcp(GREEDY)
        locks = [nlm.Lock(name=f"name{i}", fh=b"x%d" % i, svid=1) for i in range(self.n)]
        self.ask_all(greedy, nlm.LOCK, locks)
        self.ask_all(greedy, nlm.FREE_ALL, locks)
        for _ in range(20):
            self.assert_newcomer_is_granted(newcomers, GREEDY)
            self.assert_newcomer_is_granted(newcomers)
        self.assertIn("makes room for a new one", self.daemon.log)


class ManyPeers(Trust):
    """A program of this host watches thousands of peers. The work for one call does not grow with them."""

    settings = ("recovery.max_clients=40000", "store.backend=memory")
    n_peers = 12_000
    n_measured = 400
    most = 3  # times the work beside few peers, and a little: a walk through all of them takes far more
    little = 30e-6

    def setUp(self):
        super().setUp()
        self.local = TcpCaller(("127.0.0.1", self.port), ("127.0.0.1", 0), self.place, reserved=True)
        self.addCleanup(self.local.close)

    def cost(self, calls):
        """Seconds of the processor for one of @calls."""
        tasks = f"/proc/{self.daemon.process.pid}/task"

        def used():
            total = 0
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/schedstat", encoding="ascii") as file:
                    total += int(file.read().split()[0])
            return total

        before = used()
        results = self.results(self.local, calls)
        return (used() - before) / 1e9 / len(calls), results

    def watch(self, first, n):
        calls = [(NSM, 1, MON, mon_args(f"127.{i >> 14}.{i >> 7 & 127}.{i & 127}", "manager", CALLBACK, 1, bytes(16)))
                 for i in range(first + (1 << 14), first + (1 << 14) + n)]  # fmt: skip
        cost, results = self.cost(calls)
        self.assertEqual({In(result).u32() for result in results}, {0})
        return cost

    def notice(self, number):
        args = [Out().string(f"stranger{i}").i32(2 * number + 1).bytes() for i in range(self.n_measured)]
        return self.cost([(NSM, 1, NOTIFY, one) for one in args])[0]

    def lock_notice(self, procedure):
        """By a statd of this host that speaks of another one, or by that host's end."""
        args = [nlm.Lock(name=f"stranger{i}", state=5).args(procedure) for i in range(self.n_measured)]
        return self.cost([(nlm.PROGRAM, 4, procedure, one) for one in args])[0]

    def assert_alike(self, few, many, what):
        print(f"{what}: {few * 1e6:.0f} us beside few, {many * 1e6:.0f} us beside {self.n_peers}", file=sys.stderr)
        self.assertLess(many, self.most * few + self.little)

    def test_cost_of_a_call_beside_many_peers(self):
        few = self.watch(0, self.n_measured)
        notice = self.notice(1)
        told, freed = self.lock_notice(nlm.SM_NOTIFY), self.lock_notice(nlm.FREE_ALL)
        self.watch(self.n_measured, self.n_peers)
        self.assert_alike(few, self.watch(self.n_measured + self.n_peers, self.n_measured), "SM_MON")
        self.assert_alike(notice, self.notice(2), "a notice that names a client")
        self.assert_alike(told, self.lock_notice(nlm.SM_NOTIFY), "a notice to the lock manager")
        self.assert_alike(freed, self.lock_notice(nlm.FREE_ALL), "FREE_ALL")


class Host:
    """An address of this machine with an rpcbind, and a program that answers whatever it is called with."""

    def __init__(self, stage, namespace, address):
        self.address = address
        self.own = Service(stage, lambda call: call.answer(), [address], 0, namespace)
        self.portmap = Service(stage, self._on_portmap, [address], 111, namespace)

    def _on_portmap(self, call):
        if call.procedure == 0:
            call.answer()
            return
        args = In(call.args)
        program, _ = args.u32(), args.u32()
        is_tcp = args.u32() == 6 if call.version == 2 else args.string().startswith("tcp")
        port = (self.own.tcp_port if is_tcp else self.own.udp_port) if program in (CALLBACK, NSM) else 0
        if call.version == 2:
            call.answer(Out().u32(port).bytes())
        else:
            call.answer(Out().string(f"{self.address}.{port >> 8}.{port & 255}" if port else "").bytes())

    def close(self):
        self.own.close()
        self.portmap.close()


class Flood(threading.Thread):
    """Forged calls, each of another client at another address, until it is ended."""

    most = 30_000

    def __init__(self, send):
        super().__init__()
        self.forge = send
        self.ended = threading.Event()
        self.n = 0

    def run(self):
        while not self.ended.wait(0.005) and self.n < self.most:
            for _ in range(20):
                self.n += 1
                self.forge(self.n)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class Forged(Trust):
    """A forger with the handle of a file, and addresses of a network where no host is."""

    settings = ("recovery.max_clients=400", "store.backend=lmdb", "recovery.notify_timeout_ms=5000")
    n_names = 260  # of one address: more than its half
    n_newcomers = 40
    n_silent = 900  # hosts
    most_sockets = 64 + 2 * 32  # the second: of 32 hosts the ports of statd and lock manager are looked up
    bound = 128 << 20  # with AddressSanitizer, which keeps what was freed; without it a tenth

    def setUp(self):
        super().setUp()
        self.forger = DistantForger(self.place, self.port)
        self.addCleanup(self.forger.close)
        self.stage = Stage()
        self.addCleanup(self.stage.close)
        self.place.run("route", "add", "local", "10.7.0.0/16", "dev", "lo")
        self.n_met = 0

    def add_host(self, address):
        host = Host(self.stage, self.place, address)
        self.addCleanup(host.close)
        return host

    def forge(self, source, lock, procedure=nlm.LOCK):
        self.forger.send(source, 900, call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure)))

    def ask_by_udp(self, address, lock):
        """As a client does it: what is not answered is sent again."""
        caller = UdpCaller((SERVER, self.port), (address, 0), self.place)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        with contextlib.closing(caller):
            for _ in range(50):
                with contextlib.suppress(NoReply):
                    return nlm.res_of(nlm.LOCK, exchange(caller, message, 0.7)).stat
        raise AssertionError("no answer")

    def newcomer(self, over):
        """The answer to the first LOCK of a host that was not known, and what it took."""
        self.n_met += 1
        address = f"10.7.{self.n_met // 250}.{1 + self.n_met % 250}"
        lock = nlm.Lock(name=f"new{self.n_met}", fh=b"of%d" % self.n_met, svid=1)
        if over == "udp":
            self.add_host(address)
        caller = self.tcp(address) if over == "tcp" else None
        begin = time.monotonic()
        stat = self.ask(caller, nlm.LOCK, lock) if caller else self.ask_by_udp(address, lock)
        return stat, time.monotonic() - begin

    def assert_newcomers_are_served(self, what):
        for over in ("tcp", "udp"):
            answers = [self.newcomer(over) for _ in range(self.n_newcomers)]
            self.assertEqual({stat for stat, _ in answers}, {nlm.S_GRANTED}, f"{over}, {what}")
            times = sorted(took for _, took in answers)
            p99 = times[len(times) * 99 // 100]
            print(
                f"{what}, {over}: median {times[len(times) // 2] * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms",
                file=sys.stderr,
            )
            # Wide, for a machine that is many times overloaded: what was seen is printed.
            self.assertLess(times[len(times) // 2], 0.5)
            self.assertLess(times[-1], 5)

    def is_out_of_grace(self):
        return self.newcomer("tcp")[0] != nlm.S_GRACE

    def test_h1_forged_locks_take_a_part_of_the_places(self):
        before = self.memory()
        for source in (1, 2):
            for i in range(self.n_names):
                lock = nlm.Lock(name=f"name{i}", fh=b"x%d" % i, svid=source, exclusive=False)
                self.forge(empty_address(source), lock)
        self.assert_newcomers_are_served("two forged addresses")

        def send(number):
            lock = nlm.Lock(name=f"f{number}", fh=b"y", svid=1, exclusive=False, access=1)
            self.forge(empty_address(number), lock, (nlm.LOCK, nlm.SHARE, nlm.NM_LOCK)[number % 3])

        with Flood(send) as flood:
            self.assert_newcomers_are_served("any number of them")
            until(lambda: "a call over UDP is dropped" in self.daemon.log, "the operator hears of it")
            grown = self.memory() - before
            self.crash()
            until(self.is_out_of_grace, "grace is over")
            self.assert_newcomers_are_served("after a crash")
        print(f"{flood.n} forged, {grown >> 20} MiB", file=sys.stderr)
        self.assertLess(grown, self.bound)

    def connecting(self):
        """How many connections to rpcbinds the server has under way."""
        with open(f"/proc/{self.daemon.process.pid}/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in file]
        return sum(row[2].endswith(":006F") and row[3] == "02" for row in rows)

    def test_h1_hosts_that_do_not_answer_cost_few_sockets(self):
        """The server connects to hosts that wait for their first lock. A host without an rpcbind is served beside
        them: it refuses the connection."""
        names = [nlm.Lock(name=f"name{i}", fh=b"x%d" % i, svid=1, exclusive=False) for i in range(self.n_names)]
        for lock in names:
            self.forge(empty_address(1), lock)
            self.forge(empty_address(2), lock)
        until(lambda: self.newcomer("tcp")[0] == nlm.S_GRANTED, "the forged names are there")
        for i in range(self.n_silent):
            self.forge(empty_address(10 + i), names[0])
            if i % 50 == 0:  # the server has read what was sent so far
                self.newcomer("tcp")
        until(lambda: self.connecting() > 0, "the server connects")
        most, begin = 0, time.monotonic()
        for i in range(20):
            lock = nlm.Lock(name=f"plain{i}", fh=b"plain%d" % i, svid=1)
            self.assertEqual(self.ask_by_udp(f"10.7.200.{1 + i}", lock), nlm.S_GRANTED)
            most = max(most, self.connecting())
        took = time.monotonic() - begin
        while time.monotonic() - begin < 2:
            most = max(most, self.connecting())
        print(f"{most} sockets at most; 20 hosts without rpcbind: {took * 1000:.0f} ms", file=sys.stderr)
        self.assertLessEqual(most, self.most_sockets)

    def test_h1_forged_waiters_take_a_part_of_a_queue(self):
        file = nlm.Lock(name="holder", fh=b"queue")
        self.assertEqual(self.ask(self.tcp(HONEST), nlm.LOCK, file), nlm.S_GRANTED)
        for i in range(900):
            for source in (1, 2, 3):
                self.forge(empty_address(source), file.but(name="f", svid=i, block=True))
            if i % 50 == 0:  # what was sent so far has been read
                self.ask(self.tcp(THIRD), nlm.TEST, file)
        waits = file.but(name="waiter", block=True)
        self.assertEqual(self.ask(self.tcp(THIRD), nlm.LOCK, waits), nlm.S_BLOCKED)
        host = self.add_host("10.7.9.9")
        self.assertEqual(self.ask_by_udp(host.address, waits.but(name="other")), nlm.S_BLOCKED)

    def test_h1_names_of_a_host_that_lives(self):
        """It answers when it is asked, but it has made none of these calls."""
        for i in range(10):
            host = self.add_host(f"10.7.8.{i + 1}")
            for n in range(60):
                self.forge_from_here(host.address, nlm.Lock(name=f"name{n}", fh=b"z", svid=n, exclusive=False))
        self.assert_newcomers_are_served("names of hosts that live")

    def test_h1_forged_sm_mon_keeps_no_other_waiting(self):
        """Calls that wait for an answer which never comes make room for one that is answered."""
        host = self.add_host("10.7.8.1")
        for i in range(1000):
            args = mon_args("server", f"forged{i}", CALLBACK, 1, bytes(16))
            self.forger.send(empty_address(i), 900, call_message(NSM, 1, MON, args))
        caller = UdpCaller((SERVER, self.port), (host.address, 0), self.place)
        with contextlib.closing(caller):
            message = call_message(NSM, 1, MON, mon_args("server", "honest", CALLBACK, 1, bytes(16)))
            begin = time.monotonic()
            self.assertEqual(In(exchange(caller, message, 3)).u32(), 0)
        print(f"SM_MON beside forged ones: {(time.monotonic() - begin) * 1000:.1f} ms", file=sys.stderr)

    def forge_from_here(self, source, lock):
        caller = UdpCaller((SERVER, self.port), (source, 0), self.place)
        with contextlib.closing(caller):
            caller.send(call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK)))

    def test_h1_sm_mon_in_the_name_of_a_host_that_lives(self):
        """Its program is there, and answers when it is called back after the server's restart."""
        for address in ("10.7.8.1", "10.7.8.2"):
            self.add_host(address)
            caller = UdpCaller((SERVER, self.port), (address, 0), self.place)
            with contextlib.closing(caller):
                for i in range(self.n_names):
                    message = call_message(NSM, 1, MON, mon_args("server", f"forged{i}", CALLBACK, 1, bytes(16)))
                    self.assertIsNotNone(exchange(caller, message))
        self.crash()
        until(lambda: "clients told of the server's restart" in self.daemon.log, "all are told")
        until(self.is_out_of_grace, "grace is over")
        self.assert_newcomers_are_served("registrations in the name of two hosts")


class Work(Trust):
    settings = ("store.backend=memory", "recovery.grace=never")
    n_waiters = 1000
    n_pairs = 2000
    n_addresses, n_together = 100, 20

    def latencies(self, caller, until_set):
        """What an honest client's LOCK and UNLOCK take, in seconds, for as long as the flood runs."""
        times = []
        lock = nlm.Lock(name="honest", fh=b"honest", svid=1)
        while not until_set.is_set() or len(times) < 10:
            for procedure in (nlm.LOCK, nlm.UNLOCK):
                begin = time.monotonic()
                self.assertEqual(self.ask(caller, procedure, lock), nlm.S_GRANTED)
                times.append(time.monotonic() - begin)
        return sorted(times)

    def test_h5_search_for_deadlocks_is_charged(self):
        """A row of waiters, each behind the one before; then LOCK and CANCEL from its head again and again."""
        greedy = self.tcp(GREEDY)
        row = [nlm.Lock(name="greedy", fh=b"row", svid=i, offset=i, length=1) for i in range(self.n_waiters + 1)]
        self.assertEqual(set(self.ask_all(greedy, nlm.LOCK, row)), {nlm.S_GRANTED})
        waits = [lock.but(offset=lock.offset - 1, block=True) for lock in row[1:]]
        self.ask_all(greedy, nlm.LOCK, waits)
        far = nlm.Lock(name="greedy", fh=b"row", svid=5000, offset=5000, length=1)
        self.assertEqual(self.ask(greedy, nlm.LOCK, far), nlm.S_GRANTED)
        head = far.but(svid=0, block=True)
        honest, ended, calls = self.tcp(HONEST), threading.Event(), []
        for i in range(self.n_pairs):
            calls += [
                call_message(nlm.PROGRAM, 4, nlm.LOCK, head.args(nlm.LOCK), xid=2 * i + 1),
                call_message(nlm.PROGRAM, 4, nlm.CANCEL, head.args(nlm.CANCEL), xid=2 * i + 2),
            ]
        answers = []

        def flood():
            try:
                for first in range(0, len(calls), 200):
                    greedy.send_together(calls[first : first + 200])
                    answers.extend(greedy.receive() for _ in calls[first : first + 200])
            finally:
                ended.set()

        flooder = threading.Thread(target=flood)
        flooder.start()
        times = self.latencies(honest, ended)
        flooder.join()
        p99 = times[len(times) * 99 // 100]
        print(f"beside the search: p99 {p99 * 1000:.1f} ms, longest {times[-1] * 1000:.1f} ms", file=sys.stderr)
        self.assertLess(times[-1], 1, "the longest of its calls")
        self.assertEqual(len(answers), len(calls))
        # A cycle is still found, whatever was spent: the head must not wait for the end of its own row.
        last = head.but(offset=self.n_waiters, block=True)
        self.assertIn(self.ask(greedy, nlm.LOCK, last), (nlm.S_DEADLCK, nlm.S_NOLOCKS))
        self.assertEqual(self.ask(honest, nlm.LOCK, nlm.Lock(name="honest", fh=b"later", svid=1)), nlm.S_GRANTED)

    def test_h5_rows_of_many_addresses(self):
        """LOCK and CANCEL again and again from 100 addresses, all of which the server finds at once, and then a call of an
        honest client: it is not served after all of them."""
        self.place.run("route", "add", "local", "10.7.0.0/16", "dev", "lo")
        callers = [self.tcp(f"10.7.0.{1 + i}") for i in range(self.n_addresses)]

        def row(i, **more):
            return nlm.Lock(name=f"row{i % self.n_addresses}", fh=b"row", svid=i, length=1, **more)

        for is_waiting in (False, True):
            for i in range(is_waiting, self.n_waiters + 1):
                lock = row(i, offset=i - is_waiting, block=is_waiting)
                self.ask(callers[i % self.n_addresses], nlm.LOCK, lock)
        floods, length = [], 0
        for i, caller in enumerate(callers):
            far = nlm.Lock(name=f"row{i}", fh=b"row", svid=5000 + i, offset=5000 + i, length=1)
            self.assertEqual(self.ask(caller, nlm.LOCK, far), nlm.S_GRANTED)
            head = row(i, offset=5000 + (i + 1) % self.n_addresses, block=True)
            floods.append([(nlm.PROGRAM, 4, procedure, head.args(procedure)) for procedure in (nlm.LOCK, nlm.CANCEL)])
        # Once, so that the steps are spent, and to see how long the replies are.
        for caller, pair in zip(callers, floods):
            caller.send_together([call_message(*call) for call in pair * self.n_together])
            for _ in range(2 * self.n_together):
                length += 4 + len(caller.receive())
        honest = self.tcp(HONEST)
        part = self.flood_beside(honest, callers, floods) / length
        print(f"an honest call is answered after {part:.0%} of the flood", file=sys.stderr)
        self.assertLess(part, 0.75)

    def flood_beside(self, honest, callers, floods):
        """All at once, and then the honest call: how many bytes of the replies to the flood were on the wire before its reply?"""
        lock = nlm.Lock(name="honest", fh=b"honest", svid=1)
        self.ask(honest, nlm.LOCK, lock)
        self.daemon.process.send_signal(signal.SIGSTOP)
        for caller, pair in zip(callers, floods):
            caller.send_together([call_message(*call) for call in pair * self.n_together])
        honest.send(call_message(nlm.PROGRAM, 4, nlm.UNLOCK, lock.args(nlm.UNLOCK)))
        with Sniffer(self.place, "lo") as sniffer:
            self.daemon.process.send_signal(signal.SIGCONT)
            honest.receive()
            for caller in callers:
                for _ in range(2 * self.n_together):
                    caller.receive()
            before = 0
            for source, destination, data in sniffer.segments():
                if source == honest.sock.getpeername() and data:
                    if destination == honest.sock.getsockname():
                        return before
                    before += len(data)
        return self.fail("no reply to the honest client was on the wire")


class Bytes(Trust):
    settings = ("store.backend=memory", "recovery.grace=never")
    bound = 64 << 20

    def test_m6_owner_handles_of_full_length(self):
        """What the owners are called counts: one client keeps no more than a few MiB of names here."""
        greedy = self.tcp(GREEDY)
        before, n, stats = self.memory(), 40_000, []
        for first in range(0, n, 2000):
            locks = [
                nlm.Lock(name="greedy", fh=b"names", svid=i, offset=i, length=1, oh=b"%08d" % i + bytes(1016))
                for i in range(first, first + 2000)
            ]
            stats += self.ask_all(greedy, nlm.LOCK, locks)
            if stats[-1] == nlm.S_NOLOCKS:
                break
        self.assertEqual(stats[-1], nlm.S_NOLOCKS, "there is an end of it")
        grown = self.memory() - before
        print(f"{stats.count(nlm.S_GRANTED)} owners, {grown >> 20} MiB", file=sys.stderr)
        self.assertLess(grown, self.bound)
        self.assertIn("lock refused", self.daemon.log)
        # Names of the usual length are served, of that client and of others.
        usual = nlm.Lock(name="greedy", fh=b"usual", svid=1, length=1)
        self.assertEqual(self.ask(greedy, nlm.LOCK, usual), nlm.S_GRANTED)
        other = nlm.Lock(name="honest", fh=b"names", svid=1, offset=n, length=1, oh=bytes(1024))
        self.assertEqual(self.ask(self.tcp(HONEST), nlm.LOCK, other), nlm.S_GRANTED)


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.sep in sys.argv[1]:
        Trust.program = sys.argv.pop(1)
    try:
        netns.Namespace("probe").close()
    except OSError as error:
        print(f"no network namespaces here: {error}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
