#!/usr/bin/env python3
"""State numbers that datagrams say: what a forged one must not do, and that the client's own always count in the end.

A forger can send any datagram in a host's name and sees no answer. The hosts are scripted as in test_trust_notices.py:
what their statd says and where their lock manager is.
"""

import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from asked import LOOK, Asked, notice
from forger import DistantForger, Forger, empty_address
from play import main
from until import comes, lapse
from rpc import NoReply, TcpCaller, auth_sys, call_message, exchange
from xdr import Out

AT_ONCE = 2.5  # seconds, on a machine that is four times slower under a sanitizer; a retransmission comes after 10
FAR = 1001
UDP_LOCKS = ((4, nlm.LOCK), (4, nlm.NM_LOCK), (4, nlm.LOCK_MSG), (3, nlm.LOCK), (1, nlm.LOCK))
DENIED = "a notice of a restart is denied"
REFUSED = "the state number of a lock request is not believed"


class Forged(Asked):
    locks_by = "udp"

    def setUp(self):
        super().setUp()
        self.forger = Forger(self.b.namespace, (self.network.SERVER[0], 2049))
        self.addCleanup(self.forger.close)

    def said(self, text, n=1):
        self.until(lambda: self.log.count(text), f"{n} times {text!r}", passes=lambda seen: seen >= n)

    def forge_lock(self, host, state, port=7000, version=4, procedure=nlm.LOCK, **how):
        """A LOCK in @host's name, of a file of its own; its handle."""
        lock = nlm.Lock(**{"name": host.name, "fh": os.urandom(20), "svid": 77, "state": state, **how})
        self.forger.send(host.address, port, call_message(nlm.PROGRAM, version, procedure, lock.args(procedure, version)))
        return lock

    def taken(self, lock):
        """The forged LOCK has been served."""
        self.until(lambda: self.holder_of(lock), "the forged lock is there")

    def forge_notice(self, host, state):
        self.forger.send(host.address, 700, notice(host.name, state))

    def restart(self, host, state, moves=True):
        """Its memory is gone; a new lock manager is somewhere else, unless an administrator gave it a port."""
        host.drop_callers()
        if moves:
            host.start_lockd()
        host.state = state
        host.asked.items.clear()

    def is_answered(self, host, state):
        try:
            host.notify(state, reserved=True, timeout=2)
        except NoReply:
            return False
        return True

    def assert_notice_frees(self, host, state, lock, **how):
        began = time.monotonic()
        host.notify(state, **{"reserved": True, **how})
        self.assertLess(time.monotonic() - began, AT_ONCE)
        self.assert_free(lock)


class Numbers(Forged):
    # A LOCK with a newer number

    def test_forged_lock_with_a_newer_number_of_a_client_by_udp(self):
        lock = self.hold(self.a)
        for n, (version, procedure) in enumerate(UDP_LOCKS, 1):
            other = self.forge_lock(self.a, 5 + 2 * n, version=version, procedure=procedure)
            self.taken(other)
            self.assert_held(lock, by=lock.svid)
        self.assertEqual(self.log.count(REFUSED), len(UDP_LOCKS))
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)
        self.assert_free(other)

    def test_forged_next_number_marks_no_lock_of_a_client_over_a_connection(self):
        """What a forged LOCK takes must not outlive the restart that brings the forged number."""
        lock = self.hold(self.a, transport="tcp")
        other = self.forge_lock(self.a, 7)
        self.taken(other)
        self.assert_held(lock, by=lock.svid)
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)
        self.assert_free(other)

    def test_forged_next_number_marks_no_lock_of_a_host_that_was_slow(self):
        """Its port denies no notice. But a host puts the number of its statd into its LOCKs."""
        self.a.portmap_delay = 0.5
        lock = self.hold(self.a)
        self.a.portmap_delay = 0
        others = [self.forge_lock(self.a, 7, **how) for how in ({}, {"fh": lock.fh, "svid": lock.svid})]
        for other in others:
            self.taken(other)
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)
        self.assert_free(others[0])

    def test_number_that_was_denied_marks_no_later_lock(self):
        """Within a second the same number is not checked again."""
        lock = self.hold(self.a)
        others = [self.forge_lock(self.a, 7) for _ in range(3)]
        for other in others:
            self.taken(other)
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)
        for other in others:
            self.assert_free(other)

    def test_lock_by_udp_of_a_client_that_was_restarted_takes_milliseconds(self):
        """Its statd says the number: what it held goes, and the LOCK is answered at once."""
        took = []
        for i in range(10):
            state = 7 + 2 * i
            old = self.hold(self.a, state=state - 2)
            self.restart(self.a, state)
            began = time.monotonic()
            self.assert_granted(self.a, old.but(svid=100 + i, state=state), transport="udp")
            took.append(time.monotonic() - began)
            self.assert_held(old, by=100 + i)
            self.a.unlock(old.but(svid=100 + i, state=state), transport="udp")
        self.assertLess(max(took), AT_ONCE)
        print(f"\n  a LOCK by UDP that tells of a restart is answered after {sorted(took)[5] * 1000:.1f} ms (median of 10)")

    def test_nothing_overtakes_a_lock_whose_number_is_checked(self):
        """An UNLOCK behind it is served after it: the owner has nothing in the end."""
        old = self.hold(self.a)
        self.restart(self.a, 7)
        self.a.portmap_delay = 0.5
        self.addCleanup(setattr, self.a, "portmap_delay", 0)
        new = old.but(svid=9, state=7)
        caller = self.a.caller("udp")
        caller.send(call_message(nlm.PROGRAM, 4, nlm.LOCK, new.args(nlm.LOCK)))
        self.assertEqual(self.a.unlock(new, transport="udp"), nlm.S_GRANTED)
        self.assertRegex(self.log, "client crashed, locks released .* locks=1 waiters=0 reservations=0 locks_left=0 ")
        self.assert_free(old)

    def test_lock_by_udp_of_a_silent_host(self):
        """As a notice: nothing denies it."""
        old = self.hold(self.a)
        self.restart(self.a, 7)
        self.a.deaf = True
        self.assert_granted(self.a, old.but(svid=9, state=7), transport="udp")
        self.assert_held(old, by=9)

    # Numbers that were never proven

    def test_far_number_before_the_first_lock(self):
        """The number that a forger said first is not the client's: its own notices count."""
        for n, transport in enumerate(("tcp", "udp"), 1):
            with self.subTest(transport=transport):
                self.fh = os.urandom(28)
                forged = self.forge_lock(self.a, FAR)
                self.taken(forged)
                lock = self.hold(self.a, transport=transport, state=self.a.state, reserved=True)
                self.forge_notice(self.a, FAR + 2)
                self.said(DENIED, n)
                self.assert_held(lock, by=lock.svid)
                self.restart(self.a, self.a.state + 2)
                self.assert_notice_frees(self.a, self.a.state, lock)
                self.a.free_all(transport="tcp", reserved=True)

    def test_guessed_number_before_the_first_lock(self):
        """The very number of the next restart: its notice is not a copy."""
        self.taken(self.forge_lock(self.a, 7))
        lock = self.hold(self.a)
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)

    def test_guessed_number_of_a_host_that_was_not_seen(self):
        """Nothing tells a restart from a copy. The answer of the statd does not make the next copy an old notice."""
        self.a.state = None
        self.taken(self.forge_lock(self.a, 7))
        lock = self.hold(self.a)
        self.restart(self.a, 7)
        for n in (1, 2):
            self.forge_notice(self.a, 7)
            self.said(DENIED, n)
        self.assert_held(lock, by=lock.svid)

    def test_low_number_before_the_first_lock(self):
        """The statd does not seem to be another host's by it."""
        self.taken(self.forge_lock(self.a, 3))
        lock = self.hold(self.a)
        self.forge_notice(self.a, 11)
        self.said(DENIED)
        self.assert_held(lock, by=lock.svid)

    def test_far_number_of_a_refused_reclaim_before_the_first_lock(self):
        """It hides no restart that only the number of the client's next LOCK tells of."""
        self.forge_lock(self.a, FAR, reclaim=True)
        self.b.test(self.lock_of(self.b), transport="udp")  # behind it in the queue of the same socket
        lock = self.hold(self.a)
        self.restart(self.a, 7)
        new = lock.but(svid=100, state=7)
        self.assert_granted(self.a, new, transport="udp")
        self.assert_held(new, by=100)

    def test_number_that_was_forged_while_the_host_was_down(self):
        """A host that is silent denies nothing. When it is back, what it says counts."""
        lock = self.hold(self.a)
        self.a.deaf = True
        self.forge_notice(self.a, FAR)
        self.until(lambda: self.holder_of(lock), "it is released", timeout=LOOK + 20, passes=lambda holder: holder is None)
        self.a.deaf = False
        self.restart(self.a, 7)
        lock = self.hold(self.a, state=7)
        self.forge_notice(self.a, FAR + 2)
        self.said(DENIED)
        self.assert_held(lock, by=lock.svid)
        self.restart(self.a, 9, moves=False)
        self.assert_notice_frees(self.a, 9, lock)

    def silence_and_forge(self, state):
        """The server knows no number of host a but a forged one, and its statd gives none when it locks again."""
        lock = self.hold(self.a)
        self.a.deaf = True
        self.forge_notice(self.a, state)
        self.until(lambda: self.holder_of(lock), "it is released", timeout=LOOK + 20, passes=lambda holder: holder is None)
        self.a.deaf = False
        self.a.state = None
        self.a.asked.items.clear()

    def test_restart_that_only_a_lock_tells_of_after_a_far_number_was_forged(self):
        """The number of the client's LOCKs is the one to compare with, not the forged one."""
        self.silence_and_forge(FAR)
        lock = self.hold(self.a, state=7)
        self.restart(self.a, 9)
        new = lock.but(svid=100, state=9)
        self.assert_granted(self.a, new, transport="udp")
        self.assert_held(new, by=100)

    def test_restart_that_only_a_lock_tells_of_after_its_number_was_forged(self):
        """The number is the last one that the server heard, and yet not the number of the client's LOCKs."""
        self.silence_and_forge(9)
        lock = self.hold(self.a, state=7)
        self.restart(self.a, 9)
        new = lock.but(svid=100, state=9)
        self.assert_granted(self.a, new, transport="udp")
        self.assert_held(new, by=100)

    def test_notice_of_a_restart_after_its_number_was_forged(self):
        """It is no copy: the client's LOCKs had an older number, and its statd gives the one in the notice."""
        self.silence_and_forge(9)
        lock = self.hold(self.a, state=7)
        self.restart(self.a, 9)
        self.assert_notice_frees(self.a, 9, lock)

    def test_forged_low_number_makes_no_number_of_the_client_newer(self):
        """Otherwise the client's own next LOCK would release what it has, if its host is silent."""
        self.silence_and_forge(FAR)
        lock = self.hold(self.a, state=7)
        self.taken(self.forge_lock(self.a, 3))
        self.a.deaf = True
        self.assert_granted(self.a, lock.but(fh=os.urandom(20), state=7), transport="udp")
        self.assert_held(lock, by=lock.svid)

    def test_forged_lock_and_a_notice_that_wait_for_one_answer(self):
        """The LOCK brings the first number of the client, which releases nothing. The notice still does."""
        lock = self.hold(self.a, state=0)
        self.restart(self.a, 7)
        self.a.portmap_delay = 0.5
        self.addCleanup(setattr, self.a, "portmap_delay", 0)
        self.forge_lock(self.a, 7, reclaim=True)
        self.b.test(self.lock_of(self.b), transport="udp")  # behind it in the queue of the same socket
        self.assert_notice_frees(self.a, 7, lock, transport="udp")

    def test_lock_of_the_life_before_that_is_read_while_a_notice_is_checked(self):
        """The server stood still, and reads the notice before a LOCK that is older. The statd gives the new number."""
        lock = self.hold(self.a)
        self.restart(self.a, 7)
        self.a.portmap_delay = 0.5
        self.addCleanup(setattr, self.a, "portmap_delay", 0)
        self.a.lookups.items.clear()
        caller = self.a.caller("udp", reserved=True)
        caller.send(notice(self.a.name, 7))
        self.a.lookups.wait()
        old = lock.but(fh=os.urandom(20), svid=9)
        self.assert_granted(self.a, old, transport="udp")
        caller.receive()
        self.assert_free(lock)
        self.assert_free(old)

    def test_number_after_the_next_that_was_forged_while_the_host_was_down(self):
        """Its notice is no copy: the host had another number for sure in between, and gave none when it locked."""
        lock = self.hold(self.a)
        self.a.deaf = True
        self.forge_notice(self.a, 9)
        self.until(lambda: self.holder_of(lock), "it is released", timeout=LOOK + 20, passes=lambda holder: holder is None)
        self.a.deaf = False
        self.restart(self.a, 7)
        self.a.notify(7, reserved=True)
        self.a.state = None
        self.a.asked.items.clear()
        lock = self.hold(self.a, state=0)
        self.restart(self.a, 9)
        self.assert_notice_frees(self.a, 9, lock)

    def test_number_that_a_connection_says_releases_nothing(self):
        """A wrong number is put right, and what the client holds stays."""
        self.taken(self.forge_lock(self.a, FAR))
        lock = self.hold(self.a, state=0)
        self.assert_granted(self.a, lock.but(fh=os.urandom(20), state=5), transport="tcp")
        self.assert_held(lock, by=lock.svid)

    # Neighbours

    def test_forged_neighbour(self):
        """A name that only datagrams have said does not make the address that of two hosts."""
        for transport in ("udp", "tcp"):
            with self.subTest(transport=transport):
                self.fh = os.urandom(28)
                lock = self.hold(self.a, transport=transport)
                self.a.drop_callers()
                n = self.log.count(DENIED)
                self.taken(self.forge_lock(self.a, 5, name="evil"))
                self.forge_notice(self.a, 7)
                self.said(DENIED, n + 1)
                self.assert_held(lock, by=lock.svid)
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)

    def test_neighbour_over_a_connection_from_an_ordinary_port(self):
        """An ordinary user of the host can make up names, too; the client calls from reserved ports."""
        lock = self.hold(self.a, transport="tcp", reserved=True)
        self.a.drop_callers()
        self.assert_granted(self.a, lock.but(name="evil", fh=os.urandom(20), svid=3))
        self.forge_notice(self.a, 7)
        self.said(DENIED)
        self.assert_held(lock, by=lock.svid)

    def test_copy_of_a_notice_of_a_host_with_two_names(self):
        """Its statd was started too early, and gives the old number. Two hosts may be at its address, so that its ports do not
        tell: its notice is believed for lack of a denial. What it took since its restart stays."""
        for name in (self.a.name, "second"):
            old = self.lock_of(self.a, state=5, name=name, fh=os.urandom(20))
            self.assert_granted(self.a, old, transport="tcp", reserved=True)
        self.a.asked.wait(2)
        self.a.nsm(nsm.NULL, transport="tcp")
        self.a.drop_callers()
        for name in ("second", self.a.name):
            self.a.notify(7, transport="udp", reserved=True, name=name)
        self.assert_free(old)
        self.a.asked.items.clear()
        lock = self.hold(self.a, transport="tcp", reserved=True)
        self.a.drop_callers()
        self.is_answered(self.a, 7)
        self.assert_held(lock, by=lock.svid)

    def test_forged_neighbour_and_a_notice_by_another_name(self):
        """The host's own notice under its other name is still about the one client there."""
        lock = self.hold(self.a, transport="tcp")
        self.taken(self.forge_lock(self.a, 5, name="evil"))
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock, name="other-name")

    # Ports

    def test_forged_reserved_port_of_a_client_with_ordinary_ones(self):
        lock = self.hold(self.a, transport="tcp")
        self.taken(self.forge_lock(self.a, 5, port=700))
        self.assert_granted(self.a, lock.but(fh=os.urandom(20), svid=3))
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_forged_reserved_port_before_the_first_lock(self):
        self.taken(self.forge_lock(self.a, 5, port=700))
        lock = self.hold(self.a, transport="tcp")
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_free(lock)

    # Many exchanges

    def test_silent_hosts_do_not_delay_the_notice_of_another(self):
        """Each of them is asked about a forged notice, and says nothing."""
        lock = self.hold(self.a)
        fh = os.urandom(20)
        forger = DistantForger(self.network.server, 2049)
        self.addCleanup(forger.close)
        for i in range(1, 1300):
            name, source = f"silent{i}", empty_address(i)
            one = nlm.Lock(name=name, fh=fh, svid=i, offset=i, length=1, state=5)
            forger.send(source, 700, call_message(nlm.PROGRAM, 4, nlm.LOCK, one.args(nlm.LOCK)))
            forger.send(source, 700, notice(name, 7))
            if i % 50 == 0:  # the server keeps up
                self.until(lambda at=i: self.holder_of(nlm.Lock(fh=fh, offset=at, length=1)), "it is there")
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock)


class Queue(Forged):
    """The server asks 32 hosts at a time what they say of themselves. The time of a silent one is longer than the test."""

    settings = (*Forged.settings, "recovery.notify_timeout_ms=60000")
    N_AT_ONCE = 32

    def fill(self):
        """Silent hosts lock, and are asked."""
        fh = os.urandom(20)
        forger = DistantForger(self.network.server, 2049)
        self.addCleanup(forger.close)
        for i in range(self.N_AT_ONCE):
            one = nlm.Lock(name="silent", fh=fh, svid=i, offset=i, length=1, state=5)
            forger.send(empty_address(i), 700, call_message(nlm.PROGRAM, 4, nlm.LOCK, one.args(nlm.LOCK)))
        for i in range(self.N_AT_ONCE):
            self.taken(nlm.Lock(fh=fh, offset=i, length=1))

    def restart_the_silent(self):
        root = nsm.Local(self.network.server, reserved=True)
        self.addCleanup(root.close)
        root.ask(nsm.NOTIFY, Out().string("silent").i32(7).bytes())  # all of them: root of this host is believed

    def test_next_host_is_asked_when_those_before_were_restarted(self):
        self.fill()
        self.assert_granted(self.a, self.lock_of(self.a, state=5), transport="udp")
        self.assertEqual(self.a.asked.matching(), [])
        self.restart_the_silent()
        self.until(self.a.asked.matching, "the host is asked")

    def test_host_that_was_restarted_before_it_was_asked(self):
        """It gives the port of its new lock manager, which denies nothing. Its statd gives the old number."""
        self.fill()
        lock = self.lock_of(self.a, state=5)
        self.assert_granted(self.a, lock, transport="udp")
        self.restart(self.a, 5)
        lapse(0.3)
        self.restart_the_silent()
        self.until(self.a.asked.matching, "the host is asked")
        self.a.test(lock)
        self.assertFalse(self.is_answered(self.a, 7))
        self.a.state = 7  # its statd is started again
        self.assert_notice_frees(self.a, 7, lock)


class Hasty(Forged):
    """A look-up asks over the other transport after 150 ms."""

    settings = (*Forged.settings, "recovery.notify_timeout_ms=600")

    def test_host_that_answers_the_second_question(self):
        """It was down at the first one. It gives the port of its new lock manager, which denies nothing."""
        self.a.has_silent_portmap = True
        self.addCleanup(setattr, self.a, "has_silent_portmap", False)
        lock = self.lock_of(self.a, state=5)
        self.assert_granted(self.a, lock, transport="udp")
        lapse(0.05)
        self.restart(self.a, 5)
        self.a.has_silent_portmap = False
        self.until(self.a.asked.matching, "the host is asked")
        self.a.test(lock)
        self.assertFalse(self.is_answered(self.a, 7))
        self.a.state = 7  # its statd is started again
        self.assert_notice_frees(self.a, 7, lock)


class AfterOurRestart(Forged):
    settings = (*Forged.settings, "store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=3600")

    def tearDown(self):
        for host in self.hosts:
            host.drop_callers()

    def test_forged_lock_with_a_newer_number(self):
        """Until the client reclaims, nothing tells that it locks over a connection."""
        lock = self.hold(self.a, transport="tcp")
        self.a.drop_callers()
        self.daemon.crash()
        self.daemon.start()
        self.forge_lock(self.a, 7)
        self.said(REFUSED)
        self.assertNotIn("client crashed, locks released", self.log)
        self.assert_granted(self.a, lock.but(reclaim=True))

    def test_a_restart_between_two_registrations_of_a_watcher(self):
        """A lock manager of the server's host watches a host, which is restarted while the server is down. The lock manager
        registers again before the notice comes. The host has the number of the notice by then."""
        watcher = nsm.Registrar(self.stage, self.network.server)
        self.addCleanup(watcher.close)

        def register():
            self.a.asked.items.clear()
            local = nsm.Local(self.network.server)
            self.assertEqual(nsm.mon(local.ask, self.a.address, watcher.name, 200300, 16, bytes(16))[0], nsm.SUCC)
            local.close()
            comes(self.a.asked.matching, LOOK)
            self.a.test(self.lock_of(self.a))  # the server has read the answer

        register()
        self.restart(self.a, 5)  # its statd was started before sm-notify raised the number, so nothing proves it
        self.a.notify(7, reserved=True)
        self.assertEqual([heard.state for heard in watcher.heard.wait()], [7])
        register()  # the number is stored
        self.a.drop_callers()
        self.daemon.crash()
        self.restart(self.a, 9, moves=False)
        self.daemon.start()
        register()
        self.until(lambda: self.is_answered(self.a, 9), "the host need not repeat its notice any more")
        self.assertEqual([heard.state for heard in watcher.heard.wait(2)], [7, 9])


class Users(Forged):
    """An ordinary user of a client's host connects from an ordinary port, under any name. The host's kernel locks from a
    reserved port."""

    def user_lock(self, name=None, state=5):
        caller = TcpCaller((self.a.server, 2049), (self.a.address, 0), self.a.namespace)
        self.addCleanup(caller.close)
        lock = nlm.Lock(name=name or self.a.name, state=state, fh=os.urandom(20), svid=66)
        reply = exchange(caller, call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys("user")))
        self.assertEqual(nlm.res_of(nlm.LOCK, reply).stat, nlm.S_GRANTED)
        return caller

    def kernel_lock(self):
        return self.hold(self.a, transport="tcp", reserved=True)

    def test_number_of_a_user_does_not_hide_a_restart(self):
        self.user_lock(state=7).close()
        lock = self.kernel_lock()
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock, transport="udp")

    def test_far_number_of_a_user_makes_no_forged_notice_believed(self):
        self.user_lock(state=FAR)
        lock = self.kernel_lock()
        self.forge_notice(self.a, 7)
        self.said(DENIED)
        self.assert_held(lock, by=lock.svid)

    def test_connection_of_a_user_is_no_evidence(self):
        """The user takes the first lock, and breaks its connection while a notice is checked."""
        first = self.user_lock()
        lock = self.kernel_lock()
        self.user_lock(name="made-up")
        self.forge_notice(self.a, 7)
        first.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        self.said(DENIED)
        self.assert_held(lock, by=lock.svid)

    def test_name_of_a_user_does_not_keep_a_restart_from_being_believed(self):
        lock = self.kernel_lock()
        self.user_lock(name="made-up").close()
        self.restart(self.a, 7)
        self.assert_notice_frees(self.a, 7, lock, name="another-name", transport="udp")

    def test_free_all_that_the_client_confirms_while_it_is_checked(self):
        """What the client took without a number is of the life that says it."""
        lock = self.lock_of(self.a, state=0)
        self.assert_granted(self.a, lock, transport="tcp", reserved=True)
        comes(self.a.asked.matching, LOOK)
        self.a.asked.items.clear()
        self.a.portmap_delay = 0.5
        forged = nlm.Lock(name=self.a.name, state=5).args(nlm.FREE_ALL)
        self.forger.send(self.a.address, 700, call_message(nlm.PROGRAM, 4, nlm.FREE_ALL, forged))
        self.assert_granted(self.a, lock.but(fh=os.urandom(20), state=5), transport="tcp", reserved=True)
        comes(self.a.asked.matching, LOOK)  # after rpcbind has answered at last
        self.a.portmap_delay = 0
        self.assert_held(lock, by=lock.svid)
        self.restart(self.a, 7)
        # The FREE_ALL may still be checked, by what the host said before its restart. Then the notice has no reply.
        self.until(lambda: self.is_answered(self.a, 7), "a repeated notice is believed")
        self.assert_free(lock)


class Departed(Forged):
    """There is room for one client: the next one takes the place of a client that holds nothing."""

    settings = (*Forged.settings, "recovery.max_clients=1")

    def test_copy_of_a_notice_after_its_client_has_left(self):
        """The client comes back without a number and cannot deny the copy, and the server still knows that number."""
        sure = {"transport": "tcp", "reserved": True}
        self.a.unlock(self.hold(self.a, **sure), **sure)
        self.b.unlock(self.hold(self.b))
        self.a.deaf = True
        lock = self.hold(self.a, state=0)
        began = time.monotonic()
        self.a.notify(5, transport="udp", reserved=True)
        self.assertLess(time.monotonic() - began, AT_ONCE)
        self.assert_held(lock, by=lock.svid)


if __name__ == "__main__":
    main()
