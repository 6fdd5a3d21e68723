#!/usr/bin/env python3
"""The status monitor's procedures: what they answer, whom they refuse, and that nothing a peer says is believed to be
more than a name."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from fakehost import NSM
from nsm import FAIL, SUCC, Host, Local, Registrar
from play import main
from recovering import Recovering
from rpc import GARBAGE_ARGS, PROC_UNAVAIL, PROG_MISMATCH, Refused, call_message, exchange
from xdr import In, Out

BAD_NAMES = ("", ".", "..", "/etc/passwd", "../../x", "a/b", ".hidden", "a b", "a\tb", "a\nb", "a\x7f", "\xe4",
             "%n%n%n%s /", "x" * 1025)  # fmt: skip


class Protocol(Recovering):
    backend = ("store.backend=lmdb",)

    def setUp(self):
        super().setUp()
        self.local = Local(self.network.server)
        self.addCleanup(self.local.close)

    def local_again(self):
        """After a restart."""
        local = Local(self.network.server)
        self.addCleanup(local.close)
        return local

    def add_watcher(self):
        """A lock manager on the server's host."""
        watcher = Registrar(self.stage, self.network.server)
        self.addCleanup(watcher.close)
        return watcher

    # Each procedure over each transport

    def test_null(self):
        for transport in ("udp", "tcp"):
            self.assertEqual(self.a.nsm(nsm.NULL, transport=transport), b"")

    def test_stat(self):
        for transport in ("udp", "tcp"):
            results = In(self.a.nsm(nsm.STAT, Out().string("any-host").bytes(), transport=transport))
            self.assertEqual((results.u32(), results.i32()), (SUCC, self.local.state()))
            results.end()
        results = In(self.a.nsm(nsm.STAT, Out().string("a/b").bytes()))
        self.assertEqual((results.u32(), results.i32()), (FAIL, -1))

    def test_mon_and_unmon(self):
        for transport in ("udp", "tcp"):
            self.assertEqual(self.a.mon("server", transport=transport), (SUCC, self.local.state()))
            args = nsm.mon_args("server", self.a.name, Host.PROGRAM, 7)
            results = In(self.a.nsm(nsm.UNMON, args, transport=transport))
            self.assertEqual(results.i32(), self.local.state())
            results.end()
        self.assertEqual(In(self.a.nsm(nsm.UNMON, args)).i32(), self.local.state(), "again is no error")
        self.assertEqual(self.b.mon("server")[0], SUCC)
        self.restart()
        self.b.statuses.wait()
        self.assertEqual(self.a.statuses.matching(), [])

    def test_late_copy_of_mon_after_unmon(self):
        mon = call_message(NSM, 1, nsm.MON, nsm.mon_args("server", self.a.name, Host.PROGRAM, 7) + bytes(16))
        caller = self.a.caller("udp")
        first = exchange(caller, mon)
        self.assertEqual(In(first).u32(), SUCC)
        self.a.nsm(nsm.UNMON, nsm.mon_args("server", self.a.name, Host.PROGRAM, 7))
        self.assertEqual(exchange(caller, mon), first, "a copy is answered as the call was")
        self.assertEqual(self.b.mon("server")[0], SUCC)
        self.restart()
        self.until_all_are_told()
        self.assertEqual(self.a.statuses.matching(), [])
        self.assertEqual(len(self.b.statuses.matching()), 1)

    def test_unmon_is_for_ones_own(self):
        self.assertEqual(self.a.mon("server")[0], SUCC)
        self.b.nsm(nsm.UNMON, nsm.mon_args("server", self.a.name, Host.PROGRAM, 7))
        self.b.nsm(nsm.UNMON_ALL, Out().string(self.a.name).u32(Host.PROGRAM).u32(1).u32(7).bytes())
        self.a.nsm(nsm.UNMON, nsm.mon_args("another", self.a.name, Host.PROGRAM, 7))
        self.restart()
        self.a.statuses.wait()

    def test_unmon_all(self):
        self.assertEqual(self.a.mon("server")[0], SUCC)
        self.assertEqual(self.a.mon("server", "other-name")[0], SUCC)
        args = Out().string(self.a.name).u32(Host.PROGRAM).u32(1).u32(7).bytes()
        results = In(self.a.nsm(nsm.UNMON_ALL, args))
        self.assertEqual(results.i32(), self.local.state())
        results.end()
        self.restart()
        self.a.statuses.wait()
        self.until_all_are_told()
        self.assertEqual(len(self.a.statuses.matching()), 1)

    def test_simu_crash(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        state = self.local.state()
        self.assertEqual(self.local.ask(nsm.SIMU_CRASH), b"")  # not from a reserved port
        self.a.nsm(nsm.SIMU_CRASH)
        self.a.nsm(nsm.SIMU_CRASH, reserved=True)
        self.assertIn("SM_SIMU_CRASH is ignored: it is for root on this host", self.log)
        self.assertEqual(self.local.state(), state)
        root = Local(self.network.server, reserved=True)
        self.addCleanup(root.close)
        self.assertEqual(root.ask(nsm.SIMU_CRASH), b"")
        notice = self.a.told.wait()[0]
        self.assertEqual((notice.name, notice.state), ("server", state + 2))
        self.assertRegex(self.log, f"simulated a restart state={state + 2}\n(.*\n)*.*grace began, only reclaims are granted ")
        self.assertEqual(self.local.state(), state + 2)
        self.assertEqual(self.b.lock(self.lock_of(self.b, fh=os.urandom(9))), nlm.S_GRACE)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.restart()
        self.assertEqual(self.local.state(), state + 4)

    # Who is who

    def test_names_that_are_none(self):
        for name in BAD_NAMES:
            for where in ("mon_name", "my_name"):
                with self.subTest(name=name, where=where):
                    names = {"mon_name": "server", "my_name": "me", where: name}
                    try:
                        self.assertEqual(self.a.mon(names["mon_name"], names["my_name"] or "\0")[0], FAIL)
                    except Refused as error:
                        self.assertEqual(error.stat, GARBAGE_ARGS)
            self.a.notify(5, name=name[:1024])
        state = os.path.join(self.daemon.state_dir, "state")
        self.assertFalse([name for name in os.listdir(state) if "passwd" in name or name == "x"])

    def test_programs_that_are_refused_for_a_call_back(self):
        for program in (100000, 100003, 100005):
            self.assertEqual(self.a.mon("server", program=program)[0], FAIL)

    def test_lock_manager_of_this_host_with_many_peers(self):
        registrar = self.add_watcher()
        for i, mon_name in enumerate((self.a.address, self.b.address, "by-name-1", "by-name-2.example.org")):
            priv = bytes([i]) * 16
            self.assertEqual(nsm.mon(self.local.ask, mon_name, registrar.name, 200300, 16, priv)[0], SUCC)
        self.restart()
        self.a.told.wait()
        self.b.told.wait()
        self.b.notify(11, name="whatever")
        self.assertEqual([(s.name, s.state, s.priv[0]) for s in registrar.heard.wait()], [(self.b.address, 11, 1)])
        self.c.notify(13, name="By-Name-2")
        found = registrar.heard.wait(2)[1]
        self.assertEqual((found.name, found.state, found.priv[0]), ("by-name-2.example.org", 13, 3))
        args = Out().string(registrar.name).u32(200300).u32(1).u32(16).bytes()
        self.local_again().ask(nsm.UNMON_ALL, args)
        self.b.notify(15)
        self.c.notify(17, name="by-name-2")
        # A notice of another peer that comes afterwards shows that the server has dealt with these.
        self.assertEqual(nsm.mon(self.local_again().ask, self.a.address, registrar.name, 200300, 17, bytes(16))[0], SUCC)
        self.a.notify(19)
        self.assertEqual([status.state for status in registrar.heard.wait(3)], [11, 13, 19])

    def test_a_lock_manager_of_this_host_and_a_client_by_one_name(self):
        """It watches that client, and both call themselves the same: each has its own registration."""
        for is_local_first in (True, False):
            with self.subTest(is_local_first=is_local_first):
                watcher = self.add_watcher()
                mine = (self.a.address, watcher.name, 200300, 16)
                both = [lambda: nsm.mon(self.local_again().ask, *mine, bytes(16)),
                        lambda: self.a.mon("server", watcher.name)]  # fmt: skip
                for register in both if is_local_first else reversed(both):
                    self.assertEqual(register()[0], SUCC)
                self.a.notify(41 + is_local_first)
                watcher.heard.wait()
                self.restart()
                self.a.told.wait()
                self.a.statuses.wait()
                self.a.nsm(nsm.UNMON, nsm.mon_args(self.a.address, watcher.name, Host.PROGRAM, 7))
                self.a.nsm(nsm.UNMON_ALL, Out().string(watcher.name).u32(Host.PROGRAM).u32(1).u32(7).bytes())
                self.a.notify(43 + is_local_first)
                watcher.heard.wait(2)
                self.a.statuses.items.clear()
                self.a.told.items.clear()
                self.restart()
                self.until_all_are_told("told=1 failed=0")
                self.assertEqual(self.a.statuses.matching(), [])
                self.restart("--clear-store")

    def registered(self):
        return sorted(client["id"] for client in self.rest.get("/api/v1/clients?limit=1000").json["clients"])

    def test_unmon_of_peers_by_name_in_any_order(self):
        """Also when the peer that was monitored first is monitored no more."""
        names = ("alpha", "beta", "gamma")
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            with self.subTest(order=order):
                for name in names:
                    self.assertEqual(nsm.mon(self.local.ask, name, "localhost", 200300, 16, bytes(16))[0], SUCC)
                self.assertEqual(len(self.registered()), 3)
                self.local.ask(nsm.UNMON, nsm.mon_args(names[order[0]], "localhost", 200300, 16))
                rest = self.registered()
                self.assertEqual(len(rest), 2)
                for i in order[1:]:
                    self.assertEqual(nsm.mon(self.local.ask, names[i], "localhost", 200300, 16, bytes(16))[0], SUCC)
                self.assertEqual(self.registered(), rest, "a repeated SM_MON makes no second registration")
                for i in order[1:]:
                    self.local.ask(nsm.UNMON, nsm.mon_args(names[i], "localhost", 200300, 16))
                self.assertEqual(self.registered(), [])

    def test_unmon_by_one_of_two_with_one_name(self):
        """A lock manager of this host and the client that it monitors have one name. The first one left."""
        for is_local_first in (True, False):
            with self.subTest(is_local_first=is_local_first):
                mine = nsm.mon_args(self.a.address, "one-name", 200300, 16)
                its = nsm.mon_args("server", "one-name", Host.PROGRAM, 7)
                both = [(self.local.ask, mine), (self.a.nsm, its)]
                if not is_local_first:
                    both.reverse()
                for ask, args in both:
                    self.assertEqual(In(ask(nsm.MON, args + bytes(16))).u32(), SUCC)
                self.assertEqual(len(self.registered()), 2)
                for left, (ask, args) in ((1, both[0]), (0, both[1])):
                    ask(nsm.UNMON, args)
                    self.assertEqual(len(self.registered()), left)

    def test_peers_by_name_are_told_of_our_restart(self):
        """Those whose name has an address, whatever becomes of the others, which are looked up two at a time."""
        hosts = os.path.join(self.daemon.state_dir, "hosts")
        with open(hosts, "w", encoding="ascii") as file:
            file.write(f"127.0.0.1 localhost self-by-name\n{self.a.address} peer-by-name peer-by-name.example.org\n")
            file.write(f"{self.b.address} other-by-name\n")
        names = ["peer-by-name.example.org", "other-by-name", "self-by-name", *[f"unknown{i}.invalid" for i in range(9)]]
        for name in names:
            self.assertEqual(nsm.mon(self.local.ask, name, "localhost", 200300, 16, bytes(16))[0], SUCC)
        self.daemon.over = {"/etc/hosts": hosts}
        self.addCleanup(self.daemon.over.clear)
        self.restart()
        state = self.local_again().state()
        for host in (self.a, self.b):
            notice = host.told.wait()[0]
            self.assertEqual((notice.name, notice.state), ("server", state))
            self.assertLess(notice.port, 1024)
        self.until_all_are_told("told=2 failed=10")  # the others have no address
        self.daemon.over.clear()
        self.restart()
        self.until_all_are_told("told=0 failed=12")  # now no peer has one

    def test_a_client_with_a_link_local_address(self):
        """It is asked about a notice, and told of the server's restart, as any other."""
        ours, its = "169.254.3.1", "169.254.3.2"
        for namespace, line in ((self.network.server, f"{ours}/16 dev wire"), (self.a.namespace, f"{its}/16 dev eth0")):
            namespace.batch([f"addr add {line}"])
            self.addCleanup(namespace.batch, [f"addr del {line}"])
        lock = self.lock_of(self.a)
        self.assertEqual(self.a.lock(lock, server=ours, local=its), nlm.S_GRANTED)
        self.a.notify(9, server=ours, local=its)
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRANTED)
        self.assertEqual(self.a.lock(lock.but(fh=os.urandom(9)), server=ours, local=its), nlm.S_GRANTED)
        self.restart()
        self.a.told.wait(test=lambda notice: notice.source == ours)

    def test_a_lock_with_a_newer_state_is_told_to_watchers_too(self):
        registrar = self.add_watcher()
        self.assertEqual(nsm.mon(self.local.ask, self.a.address, registrar.name, 200300, 16, bytes(16))[0], SUCC)
        self.assert_granted(self.a, self.lock_of(self.a, state=3))
        self.assert_granted(self.a, self.lock_of(self.a, state=5))
        self.assertEqual((registrar.heard.wait()[0].state), 5)

    def settled_state(self):
        """The server's state number, when all that was to be written by now is: a new one counts from then on."""
        answer, state = self.c.mon("server")
        self.assertEqual(answer, SUCC)
        return state

    # Call-backs to the server itself: they come over loopback from a reserved port, as what root says does

    def test_a_call_back_to_ourselves_frees_no_lock(self):
        """Any process of this host can register any program. A notice from any host makes the server call those that
        watch its name."""
        watcher = self.add_watcher()
        lock = self.held(self.a, state=3)
        state = self.local.state()
        cases = [(nlm.PROGRAM, version, nlm.SM_NOTIFY) for version in nlm.VERSIONS]
        cases += [(nlm.PROGRAM, version, nlm.FREE_ALL) for version in (3, 4)]
        cases += [(NSM, 1, nsm.NOTIFY), (NSM, 1, nsm.SIMU_CRASH)]
        for news, (program, version, procedure) in enumerate(cases, 1):
            with self.subTest(program=program, version=version, procedure=procedure):
                args = Out().string(self.a.name).string("127.0.0.1:2049").u32(program).u32(version).u32(procedure)
                self.assertEqual(In(self.local.ask(nsm.MON, args.fixed(bytes(16)).bytes())).u32(), SUCC)
                self.assertEqual(nsm.mon(self.local.ask, self.a.name, watcher.name, 200300, 16, bytes(16))[0], SUCC)
                self.b.notify(100 + news, name=self.a.name)
                watcher.heard.wait(news)  # so the other one was sent, and is before what the test asks now
                self.assertEqual(self.settled_state(), state)
                self.assert_held(lock, by=lock.svid)

    def test_a_call_back_to_ourselves_does_not_restart_us(self):
        args = Out().string("server").string("127.0.0.1:2049").u32(NSM).u32(1).u32(nsm.SIMU_CRASH)
        self.assertEqual(In(self.local.ask(nsm.MON, args.fixed(bytes(16)).bytes())).u32(), SUCC)
        state = self.local.state()
        self.restart()
        self.until_all_are_told()
        self.assertEqual(self.settled_state(), state + 2)

    # Nonsense

    def test_killed_before_a_watcher_is_told(self):
        """A notice that was not acknowledged comes again."""
        watcher = self.add_watcher()
        watcher.is_silent = True
        self.assertEqual(nsm.mon(self.local.ask, self.a.address, watcher.name, Host.PROGRAM, 7, bytes(16))[0], SUCC)
        self.a.notify(21)
        watcher.heard.wait()
        self.restart()
        self.stage.settle()
        n = len(watcher.heard.matching())  # it is sent again until it is answered
        watcher.is_silent = False
        self.a.notify(21)
        watcher.heard.wait(n + 1)
        self.a.notify(21)
        self.a.notify(23)
        self.assertEqual([status.state for status in watcher.heard.wait(n + 2)[n:]], [21, 23])

    def test_a_watcher_is_told_of_the_newest_restart_alone(self):
        """A host that says often that it was restarted causes one call-back at a time, and not one for each notice."""
        watcher = self.add_watcher()
        watcher.is_silent = True
        self.assertEqual(nsm.mon(self.local.ask, self.a.address, watcher.name, Host.PROGRAM, 7, bytes(16))[0], SUCC)
        for state in range(21, 31, 2):
            self.a.notify(state)
        watcher.heard.wait(3, lambda status: status.state == 29)  # it is sent again until it is answered
        states = [status.state for status in watcher.heard.matching()]
        self.assertEqual(states, sorted(states))
        watcher.is_silent = False
        watcher.heard.wait(4, lambda status: status.state == 29)
        self.a.notify(31)
        watcher.heard.wait(1, lambda status: status.state == 31)

    def test_unmon_ends_a_call_back_that_is_not_answered(self):
        """A lock manager that registers again is not told by what it said before."""
        watcher = self.add_watcher()
        watcher.is_silent = True
        mine = (self.a.address, watcher.name, Host.PROGRAM, 7)
        self.assertEqual(nsm.mon(self.local.ask, *mine, b"1" * 16)[0], SUCC)
        self.a.notify(21)
        watcher.heard.wait()
        self.local.ask(nsm.UNMON, nsm.mon_args(*mine))
        self.assertEqual(nsm.mon(self.local.ask, *mine, b"2" * 16)[0], SUCC)
        self.stage.settle()
        before = len(watcher.heard.matching())
        watcher.is_silent = False
        self.a.notify(23)
        watcher.heard.wait(before + 1)
        self.assertEqual({status.priv for status in watcher.heard.matching()[before:]}, {b"2" * 16})

    def test_unmon_while_the_peer_is_being_told(self):
        """The call that tells the peer uses the registration until it ends. UNMON counts at once all the same."""
        watcher = self.add_watcher()
        for host in (self.a, self.b):
            self.assertEqual(nsm.mon(self.local.ask, host.address, watcher.name, Host.PROGRAM, 7, bytes(16))[0], SUCC)
        self.a.deaf = True
        self.assertEqual(self.rest.call("POST", "/api/v1/notify", token=True).status, 202)
        self.local.ask(nsm.UNMON, nsm.mon_args(self.a.address, watcher.name, Host.PROGRAM, 7))
        for host in (self.a, self.b):
            host.notify(31)
        self.assertEqual([status.name for status in watcher.heard.wait()], [self.b.address])

    def test_garbage(self):
        cases = [(procedure, b"") for procedure in (nsm.STAT, nsm.MON, nsm.UNMON, nsm.UNMON_ALL, nsm.NOTIFY)]
        whole = nsm.mon_args("server", "me", 1, 2, bytes(16))
        cases += [(nsm.MON, whole[:n]) for n in range(0, len(whole), 4)]
        cases += [(nsm.NOTIFY, Out().u32(0xFFFFFFFF).bytes()), (nsm.NOTIFY, Out().opaque(b"a\0b").i32(3).bytes())]
        for procedure, args in cases:
            with self.subTest(procedure=procedure, args=args):
                with self.assertRaises(Refused) as caught:
                    self.a.nsm(procedure, args)
                self.assertEqual(caught.exception.stat, GARBAGE_ARGS)

    def test_no_such_procedure_or_version(self):
        with self.assertRaises(Refused) as caught:
            self.a.nsm(7)
        self.assertEqual(caught.exception.stat, PROC_UNAVAIL)
        with self.assertRaises(Refused) as caught:
            exchange(self.a.caller("udp"), call_message(NSM, 2, 0, b""))
        self.assertEqual(caught.exception.stat, PROG_MISMATCH)

    def test_second_copy_of_a_notice_that_came_too_early(self):
        """The server did not know the host when it was restarted. The first lock of the host has no state number. It
        outlives the second copy of the notice."""
        lock = self.lock_of(self.c, name="early", state=0)
        self.c.notify(77, name="early")
        self.assert_granted(self.c, lock)
        self.c.notify(77, name="early")
        self.assert_held(lock, by=lock.svid)
        self.c.notify(79, name="early")
        self.assert_free(lock)

    def test_copy_of_a_notice_that_came_too_early_after_the_next(self):
        lock = self.lock_of(self.c, name="earlier", state=0)
        self.c.notify(177, name="earlier")
        self.assert_granted(self.c, lock)
        self.c.notify(179, name="earlier")
        self.assert_free(lock)
        self.assert_granted(self.c, lock)
        self.c.notify(177, name="earlier")
        self.assert_held(lock, by=lock.svid)
        self.c.notify(181, name="earlier")
        self.assert_free(lock)

    def test_copies_of_two_notices_that_came_too_early(self):
        for state in (277, 279):
            self.c.notify(state, name="earliest")
        lock = self.lock_of(self.c, name="earliest", state=0)
        self.assert_granted(self.c, lock)
        for state in (277, 279):
            self.c.notify(state, name="earliest")
            self.assert_held(lock, by=lock.svid)
        self.c.notify(281, name="earliest")
        self.assert_free(lock)

    def test_old_copy_of_two_notices_that_came_too_early(self):
        """It says nothing of what is there now: the number that the host says next is not another restart."""
        for state in (477, 479):
            self.c.notify(state, name="eldest")
        lock, other = (self.lock_of(self.c, offset=state, length=1, name="eldest", state=state) for state in (0, 479))
        self.c.notify(477, name="eldest")
        self.assert_granted(self.c, lock)
        self.c.notify(477, name="eldest")
        self.assert_granted(self.c, other)
        self.assert_held(lock, by=lock.svid)

    def test_copy_of_a_notice_under_a_new_name(self):
        """The first was about what the host held under its old name, where it was alone."""
        old = self.held_and_seen(self.c, 299, name="old-name", state=0)
        self.c.state = 301
        self.c.notify(301, name="new-name")
        self.assert_free(old)
        new = self.held_and_seen(self.c, 301, name="new-name", state=0)
        self.c.notify(301, name="new-name")
        self.assert_held(new, by=new.svid)
        self.c.state = 303
        self.c.notify(303, name="new-name")
        self.assert_free(new)

    def test_many_restarts_of_one_client(self):
        """Each is believed; the log does not grow with each: of 500 it has a hundred in ten seconds."""
        before, began = len(self.daemon.log), time.monotonic()
        for state in range(1001, 1501, 2):
            self.assert_granted(self.a, self.lock_of(self.a, state=state))
        for state in range(1501, 2001, 2):
            lock = self.held(self.a, state=state - 2)
            self.a.notify(state)
            self.assert_free(lock)
        most = 100 * (2 + (time.monotonic() - began) // 10)
        self.assertLessEqual(self.daemon.log[before:].count("client crashed"), most)

    def test_many_notices_of_unknown_hosts(self):
        before = len(self.daemon.log)
        for i in range(500):
            self.a.notify(i, name=f"unknown{i}")
        self.assertEqual(self.daemon.log[before:].count("is ignored"), 1)


if __name__ == "__main__":
    main()
