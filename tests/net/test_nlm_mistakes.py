#!/usr/bin/env python3
"""Cases that other servers got wrong, each by its name.

Here are those that have no play of their own. The rest, by file:

  upgrade on a repeated LOCK (chimera 1096)           test_nlm_locks    Semantics.test_upgrade
  Windows' length of 2^64-1                           test_nlm_locks    Ranges.test_length_of_2_to_the_64_minus_1_…
  version 3 ranges over 2^31                          test_nlm_locks    Ranges.test_old_*, test_nlm_blocking
  CANCEL with the other mode (chimera 47033e71)       test_nlm_queue    test_cancel_with_the_other_mode_…
  GRANTED refused by the client                       test_nlm_blocking test_refused_grant_*
  readers overtake a writer (nfs-ganesha 1126)        test_nlm_queue    test_a_reader_does_not_overtake_…
  a second waiter for each poll (dittofs)             test_nlm_queue    test_repoll_*
  empty cookie, cookie of 1024 bytes                  test_nlm_tables   test_cookie_*
  name changed between LOCK and UNLOCK                test_nlm_owners   Owners.test_name_changed_*
  two clients one name, one client two addresses      test_nlm_owners   Owners.test_same_name_…, test_one_client_…
  IPv4-mapped addresses (nfs-ganesha 318)             test_nlm_owners   Owners.test_ipv4_mapped_is_ipv4
  FREE_ALL with several shares (ganesha f83ab0532)    test_nlm_owners   Deaths.test_free_all_with_several_shares
  waiter left after a client's purge (ganesha 922)    test_nlm_owners   Deaths.test_waiters_go_with_…
  second lock after an early end of grace (dittofs)   test_nlm_grace    AfterCrash.test_the_second_lock_survives_…
  lock after grace denied (nfs-ganesha 834)           test_nlm_grace    AfterCrash.test_a_lock_after_grace_is_granted
  restart in grace                                    test_nlm_grace    AfterCrash.test_restart_in_grace_…
  clear_locks of NFStash, on this host                test_recovery_tables test_operator_on_the_host
  rpcbind restarts                                    portmap.sh, tests/unit/proto/portmap/test_registrar.c
"""

import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import NSM
from play import Play, main
from rpc import Refused, TcpCaller, UdpCaller, call_message, exchange, record, result_of
from xdr import In, Out

SM_MON, SM_NOTIFY = 2, 6


class Notices(Play):
    """SM_NOTIFY has no authentication: which sender may say that a client rebooted?"""

    def locks(self, name=None, state=3, **more):
        lock = self.lock_of(self.a, name=name or self.a.name, state=state, **more)
        self.assert_granted(self.a, lock)
        return lock

    def notify(self, host, name, state, transport="udp", **where):
        args = Out().string(name).i32(state).bytes()
        return host.call(SM_NOTIFY, args, version=1, transport=transport, program=NSM, **where)

    def test_a_client_that_rebooted(self):
        lock = self.locks()
        self.assertEqual(self.notify(self.a, self.a.name, 5, reserved=True), b"")
        self.assert_free(lock)

    def test_double_notify_by_full_and_short_name(self):
        """statd says it once for each of its names; the second one says nothing new, and takes no new lock away."""
        lock = self.locks(state=7)
        self.notify(self.a, self.a.name, 9)
        self.assert_free(lock)
        new = self.locks(state=9, svid=2)
        self.notify(self.a, f"{self.a.name}.example.org", 9)
        self.notify(self.a, self.a.name, 9)
        self.assert_held(new, by=2)

    def test_late_notify_leaves_locks_of_the_new_state(self):
        """The client locked again before its statd spoke."""
        old = self.locks(name="late", state=3, offset=0, length=5)
        new = self.locks(name="late", state=5, offset=10, length=5, svid=2)
        self.notify(self.a, "late", 5)
        self.assert_free(old)
        self.assert_held(new, by=2)
        self.a.free_all("late")

    def test_equal_state_is_a_replay(self):
        self.notify(self.a, "replayed", 3)
        lock = self.locks(name="replayed", state=3)
        for _ in range(3):
            self.notify(self.a, "replayed", 3)
        self.assert_held(lock, by=1)
        self.a.free_all("replayed")

    def test_notify_from_a_stranger(self):
        """NFStash's clear_locks from just anywhere: answered, and ignored."""
        lock = self.locks(name="victim")
        for transport in ("udp", "tcp"):
            for state in (5, 1_700_000_000, -1, 0):
                self.assertEqual(self.notify(self.b, "victim", state, transport), b"")
                self.assertEqual(self.notify(self.b, self.a.address, state, transport), b"")
        self.assert_held(lock, by=1)
        self.a.free_all("victim")

    def test_notify_from_a_host_that_is_not_monitored(self):
        stranger = self.add_host()
        self.assertEqual(self.notify(stranger, "unknown", 5), b"")

    def test_notify_flood(self):
        """Ten thousand notices by strangers for names that no client has: no memory, no delay, no lock lost."""
        lock = self.locks(name="flooded")
        caller = self.b.caller("udp")
        for number in range(10_000):
            args = Out().string(f"flood-{number}").i32(number * 2 + 1).bytes()
            caller.send(call_message(NSM, 1, SM_NOTIFY, args))
        self.assertEqual(self.c.call(nlm.NULL, b"", transport="udp"), b"")
        self.assert_held(lock, by=1)
        self.a.free_all("flooded")
        self.b.drop_callers()

    def test_mon_from_the_network(self):
        """CVE-1999-0493: no export allows that host, so it may not register."""
        args = Out().string("peer").string("me").i32(100021).i32(4).i32(16).fixed(bytes(16)).bytes()
        for host in (self.a, self.b):
            for transport in ("udp", "tcp"):
                answer = host.call(SM_MON, args, version=1, transport=transport, program=NSM)
                self.assertEqual(In(answer).u32(), 1, "stat_fail")

    def test_notify_with_bad_names(self):
        for name in ("../etc/passwd", "%n%n%n", "", "a/b", "\x1b[2J"):
            try:
                self.assertEqual(self.notify(self.b, name, 5), b"")
            except Refused:
                pass


class FromThisHost(Play):
    """What only a program on the server itself may say: its own statd, an operator."""

    def local(self, procedure, args, kind=UdpCaller, reserved=True, program=nlm.PROGRAM, version=4):
        caller = kind(("127.0.0.1", 2049), ("127.0.0.1", 0), self.network.server, reserved)
        try:
            return exchange(caller, call_message(program, version, procedure, args))
        finally:
            caller.close()

    def test_proc_16_of_the_local_statd(self):
        """Versions 1, 3 and 4, over UDP and TCP, by name and by address."""
        state = 3
        for version, kind in itertools.product(nlm.VERSIONS, (UdpCaller, TcpCaller)):
            for name in (f"watched{version}", self.a.address):
                with self.subTest(version=version, kind=kind.__name__, name=name):
                    lock = self.lock_of(self.a, name=f"watched{version}", state=state)
                    self.assert_granted(self.a, lock)
                    state += 2
                    args = nlm.Lock(name=name, state=state).args(nlm.SM_NOTIFY)
                    self.assertEqual(self.local(nlm.SM_NOTIFY, args, kind, version=version), b"")
                    self.assert_free(lock)

    def test_proc_16_about_a_client_that_gave_no_state(self):
        """Its locks carry state 0: a statd that says that it was restarted says that they are dead, all the same."""
        lock = self.lock_of(self.a, name="stateless", state=0)
        self.assert_granted(self.a, lock)
        args = nlm.Lock(name="stateless", state=5).args(nlm.SM_NOTIFY)
        self.assertEqual(self.local(nlm.SM_NOTIFY, args), b"")
        self.assert_free(lock)

    def test_proc_16_needs_a_reserved_port(self):
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        args = nlm.Lock(name=self.a.name, state=99).args(nlm.SM_NOTIFY)
        with self.assertRaises(Refused):
            self.local(nlm.SM_NOTIFY, args, reserved=False, kind=TcpCaller)
        self.assert_held(lock, by=1)

    def test_free_all_by_root_of_this_host(self):
        """root of this host frees each client of that name, at any address. Another user of this host frees none."""
        for version in (3, 4):
            for kind in (UdpCaller, TcpCaller):
                with self.subTest(version=version, kind=kind.__name__):
                    locks = [(host, self.lock_of(host, host.number, 1, name="twins")) for host in (self.a, self.b)]
                    other = self.lock_of(self.a, 100, 1, name="others")
                    for host, lock in (*locks, (self.a, other)):
                        self.assert_granted(host, lock)
                    args = nlm.Lock(name="twins").args(nlm.FREE_ALL)
                    self.assertEqual(self.local(nlm.FREE_ALL, args, kind, reserved=False, version=version), b"")
                    for _, lock in locks:
                        self.assert_held(lock)
                    self.assertEqual(self.local(nlm.FREE_ALL, args, kind, version=version), b"")
                    for _, lock in locks:
                        self.assert_free(lock)
                    self.assert_held(other)

    def test_a_name_of_this_hosts_own_clients_is_not_mixed_up(self):
        """A client on the server itself, over loopback, with a name that another one has, too."""
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        answer = nlm.res_of(nlm.LOCK, self.local(nlm.LOCK, lock.but(svid=1).args(nlm.LOCK)))
        self.assertEqual(answer.stat, nlm.S_DENIED)
        nlm.res_of(nlm.UNLOCK, self.local(nlm.UNLOCK, lock.args(nlm.UNLOCK)))
        self.assert_held(lock, by=1)


class Limits(Play):
    """What one client can make the server store has an end, an answer, and a word for the operator."""

    settings = ("recovery.max_clients=4", "recovery.max_clients_per_address=4")

    def test_the_next_new_client_gets_no_lock(self):
        """max_clients counts registrations: DENIED_NOLOCKS for one more, and nothing of it stays."""
        for number in range(4):
            name = f"limited{number}"
            self.assert_granted(self.a, self.lock_of(self.a, number, 1, name=name))
        for block in (False, True):
            answer = self.a.lock(self.lock_of(self.a, 100, 5, name="onemore", block=block))
            self.assertEqual(answer, nlm.S_NOLOCKS)
        self.assert_free(self.lock_of(self.a, 100, 5))
        self.assertEqual(self.a.share(self.lock_of(self.a, name="onemore", access=3, deny=3)), nlm.S_NOLOCKS)
        self.assertEqual(self.daemon.log.count("recovery.max_clients"), 1, "one line for all of them")
        self.assert_granted(self.a, self.lock_of(self.a, 50, 5, name="limited0"))
        for number in range(4):
            self.a.free_all(f"limited{number}")

    def test_a_client_that_gets_no_lock_keeps_what_it_has(self):
        """NM_LOCK does not register the client. A LOCK that is refused for want of a registration must not take the
        NM_LOCK away."""
        for number in range(4):
            self.assert_granted(self.a, self.lock_of(self.a, 1000 + number, 1, name=f"limited{number}"))
        unmonitored = self.lock_of(self.a, 0, 20, name="onemore")
        self.assertEqual(self.a.ask(nlm.NM_LOCK, unmonitored).stat, nlm.S_GRANTED)
        self.assertEqual(self.a.lock(unmonitored.but(offset=5, length=5)), nlm.S_NOLOCKS)
        self.assert_held(self.lock_of(self.a, 5, 5), by=1)
        for name in (*(f"limited{number}" for number in range(4)), "onemore"):
            self.a.free_all(name)


class Queues(Play):
    MAX_SHARES = 65_536  # of one client

    def refusals(self):
        """The log lines about clients that ask for more than the limits allow."""
        return [line for line in self.daemon.log.splitlines() if " refused: " in line]

    def test_the_queue_of_a_file_has_an_end(self):
        """More than a thousand waiters for one file: DENIED_NOLOCKS, and the queue still works."""
        self.assert_granted(self.a, self.lock_of(self.a))
        answers = [self.b.lock(self.lock_of(self.b, svid=svid, block=True)) for svid in range(1, 1100)]
        self.assertEqual(answers[0], nlm.S_BLOCKED)
        self.assertEqual(answers[-1], nlm.S_NOLOCKS)
        said = [line for line in self.refusals() if "lock refused: " in line]
        self.assertEqual(len(said), 1, "one line for all of them")
        self.assertIn(f"is at its limit client={self.id_of(self.b)} locks=0 waiters=1024 more=0", said[0])
        self.b.free_all()
        self.assertEqual(self.a.unlock(self.lock_of(self.a)), nlm.S_GRANTED)
        self.assert_free(self.lock_of(self.a))

    def test_the_reservations_of_a_client_have_an_end(self):
        """Counted as Windows does, so that one open mode is enough to get there: DENIED_NOLOCKS, and a line."""
        mine = self.lock_of(self.c, access=1)
        caller = self.c.caller("tcp")
        message = call_message(nlm.PROGRAM, 4, nlm.SHARE, mine.args(nlm.SHARE))
        for first in range(0, self.MAX_SHARES, 512):
            xids = (number.to_bytes(4, "big") for number in range(first, first + 512))  # no two calls look the same
            caller.sock.sendall(b"".join(record(xid + message[4:]) for xid in xids))
            for _ in range(512):
                self.assertEqual(nlm.res_of(nlm.SHARE, result_of(caller.receive())).stat, nlm.S_GRANTED)
        for _ in range(2):
            self.assertEqual(self.c.share(mine), nlm.S_NOLOCKS)
        self.assertEqual(self.c.share(mine.but(fh=b"another file")), nlm.S_NOLOCKS)
        said = [line for line in self.refusals() if "reservation refused: " in line]
        self.assertEqual(len(said), 1, "one line for all of them")
        self.assertIn(f"is at its limit client={self.id_of(self.c)} reservations={self.MAX_SHARES} more=0", said[0])
        self.assertEqual(self.c.unshare(mine), nlm.S_GRANTED)
        self.assertEqual(self.c.share(mine), nlm.S_GRANTED)


if __name__ == "__main__":
    main()
