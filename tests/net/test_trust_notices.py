#!/usr/bin/env python3
"""Who may say that a client was restarted: no datagram with a forged sender, no ordinary user of the client's host; and
a host that was restarted is always believed in the end.

The hosts here are scripted: what their statd says, whether it is there, at which port their lock manager is, and
whether the connections of their last life are still known to them.
"""

import os
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from asked import LOOK, Asked, notice
from fakehost import NSM
from forger import forged
from nsm import SUCC, Host
from play import main
from rpc import NoReply, UdpCaller, auth_sys, call_message, exchange, record
from until import comes, lapse

TCP_REPAIR = 19
FIXED = 4045  # below the ports that a system chooses
DENIED = "a notice of a restart is denied"
UNSURE = "a notice of a restart is not believed yet"
FREED = "client crashed, locks released"
AT_ONCE = 2.5  # seconds, on a machine that is four times slower under a sanitizer; the look at a silent host takes more


def free_all(name, state):
    return call_message(nlm.PROGRAM, 4, nlm.FREE_ALL, nlm.Lock(name=name, state=state).args(nlm.FREE_ALL))


class Reserving:
    """Beside an Asked: what a client took by calls without a number."""

    def reserve(self, host, **how):
        """A conflict with what @host has reserved now."""
        fh = os.urandom(20)
        self.assertEqual(host.share(host.lock_of(fh, svid=5, access=2, deny=1), **how), nlm.S_GRANTED)
        return self.b.lock_of(fh, svid=6, access=2, deny=2)

    def until_seen(self, host):
        """The server has what the host says of itself."""
        host.asked.wait()
        host.lookups.wait(1, lambda item: item[1] == nlm.PROGRAM)
        self.stage.settle()
        host.test(self.lock_of(host))

    def assert_reserved(self, conflict):
        self.assertEqual(self.b.share(conflict), nlm.S_DENIED)


class Notices(Reserving, Asked):
    settings = (*Asked.settings, "recovery.max_clients=40")

    def setUp(self):
        super().setUp()
        self.next_state = 5

    def send(self, host, message, reserved=False):
        """A datagram as if from @host: no forger could make a better one."""
        caller = UdpCaller((self.network.SERVER[0], 2049), (host.address, 0), host.namespace, reserved)
        caller.send(message)
        caller.close()

    def wait_denied(self, n=1):
        self.until(lambda: self.log.count(DENIED), f"{n} denied", passes=lambda seen: seen >= n)

    def reboot(self, host, statd_is_late=False, breaks=True, moves=True):
        """Its memory is gone, and with it the connections; a new lock manager is somewhere else if it @moves."""
        for caller in host._callers.values():  # pylint: disable=protected-access
            if caller.sock.type == socket.SOCK_STREAM and breaks:
                caller.sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)  # closed without a word
        host.drop_callers()
        if moves:
            host.start_lockd()
        self.next_state += 2
        if not statd_is_late:
            host.state = self.next_state

    def notify(self, host, **how):
        """sm-notify; how long the answer took."""
        began = time.monotonic()
        host.notify(self.next_state, reserved=True, **how)
        took = time.monotonic() - began
        host.asked.items.clear()  # the next lock is the first of a new run
        return took

    def assert_cleaned_up_at_once(self, host, lock, **how):
        took = self.notify(host, **how)
        self.assert_free(lock)
        self.assertLess(took, AT_ONCE)
        return took

    # H3: forged datagrams

    def test_h3_forged_notice_with_the_right_name(self):
        lock = self.hold(self.a)
        for n in range(1, 4):
            self.send(self.a, notice(self.a.name, 5 + 2 * n), reserved=True)
            self.wait_denied(n)
            self.assert_held(lock, by=lock.svid)
        self.reboot(self.a)
        self.next_state = self.a.state = 21
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_forged_notice_with_a_wrong_name(self):
        lock = self.hold(self.a)
        self.send(self.a, notice("other-name", 7), reserved=True)
        self.wait_denied()
        self.assert_held(lock, by=lock.svid)
        self.reboot(self.a)
        self.assert_cleaned_up_at_once(self.a, lock, name="other-name")

    def test_h3_forged_lock_with_a_newer_number(self):
        """The client took its lock over a connection: what a datagram says of its number is no evidence."""
        lock = self.hold(self.a)
        caller = UdpCaller((self.network.SERVER[0], 2049), (self.a.address, 0), self.a.namespace, True)
        self.addCleanup(caller.close)
        for state in (7, 9):
            other = lock.but(fh=os.urandom(8), svid=99, state=state)
            args = other.args(nlm.LOCK)
            exchange(caller, call_message(nlm.PROGRAM, 4, nlm.LOCK, args, cred=auth_sys(self.a.name)))
            self.assert_held(lock, by=lock.svid)
        self.reboot(self.a)
        self.notify(self.a)
        self.until(lambda: self.b.lock(lock.but(name=self.b.name, svid=3, state=0)), "b has it", passes=lambda stat: stat == 0)

    def test_h3_forged_free_all_with_the_bytes_of_the_next_true_one(self):
        """The reply to the forged call does not answer the client's own call."""
        lock = self.hold(self.a)
        message = free_all(self.a.name, 7)
        self.send(self.a, message, reserved=True)
        self.wait_denied()
        self.assert_held(lock, by=lock.svid)
        self.reboot(self.a)
        self.send(self.a, message, reserved=True)
        self.until(lambda: self.log.count(FREED), "freed", passes=lambda n: n == 1)
        self.assert_free(lock)

    def test_h3_forged_free_all(self):
        lock = self.hold(self.a)
        for n, state in enumerate((0, 5, 7), 1):
            self.send(self.a, free_all(self.a.name, state), reserved=True)
            self.wait_denied(n)
            self.assert_held(lock, by=lock.svid)
        self.reboot(self.a)
        began = time.monotonic()
        self.a.free_all(state=7, transport="udp", reserved=True)
        self.assert_free(lock)
        self.assertLess(time.monotonic() - began, AT_ONCE)

    def test_h3_forged_notice_while_the_server_stands_still(self):
        """The time for the host's denial passes while its answers wait in the server's sockets: it was not silent."""
        lock, asked = self.hold(self.a), threading.Event()
        port_of = self.a.port_of
        self.addCleanup(setattr, self.a, "port_of", port_of)
        self.a.port_of = lambda *which: (asked.set(), port_of(*which))[1]
        self.a.portmap_delay = 0.5  # the server has stopped by then
        self.addCleanup(setattr, self.a, "portmap_delay", 0)
        self.send(self.a, notice(self.a.name, 7), reserved=True)
        asked.wait(LOOK)
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            lapse(LOOK + 1.5)
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        self.wait_denied()
        self.assert_held(lock, by=lock.svid)

    def test_lock_of_a_host_that_died_while_the_server_stood_still(self):
        """What the host says of itself after that may be of its new life, and does not deny the notice of its restart."""
        lock = self.lock_of(self.a, state=5)
        caller = self.a.caller("tcp", reserved=True)
        exchange(caller, call_message(nlm.PROGRAM, 4, 0))
        # The server waits for an answer of B: it notices the standstill by a time that has passed.
        self.assert_granted(self.b, self.lock_of(self.b, fh=bytes(8), state=5), transport="tcp")
        self.b.asked.wait()
        self.b.portmap_delay = 2
        self.addCleanup(setattr, self.b, "portmap_delay", 0)
        self.send(self.b, notice(self.b.name, 7), reserved=True)
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            caller.sock.sendall(record(call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys(self.a.name))))
            lapse(2.5)
            self.reboot(self.a, statd_is_late=True)
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        self.until(lambda: self.b.test(lock.but(name=self.b.name, svid=2)).stat, "it is locked", passes=lambda s: s == nlm.S_DENIED)
        self.send(self.a, notice(self.a.name, self.next_state), reserved=True)
        said = rf"{DENIED} .*name={self.a.name} .*sure=(\w+)"
        self.until(lambda: re.findall(said, self.log), "judged", passes=lambda seen: seen == ["no"])

    def test_h3_forged_notice_that_says_what_statd_says(self):
        """Any host can ask a statd for its number. So the number does not prove a notice for a client that has sent none."""
        lock = self.hold(self.a, state=0)
        self.send(self.a, notice(self.a.name, 5), reserved=True)
        self.wait_denied()
        self.assert_held(lock, by=lock.svid)
        self.reboot(self.a)
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_forged_notice_without_a_connection(self):
        """The client locks by UDP: its lock manager is where it was."""
        lock = self.hold(self.a, transport="udp")
        self.send(self.a, notice(self.a.name, 7), reserved=True)
        self.wait_denied()
        self.assert_held(lock, by=lock.svid)
        self.reboot(self.a, statd_is_late=True)
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_forged_notice_for_a_watcher(self):
        """A lock manager of the server's host watches the client: it is told the truth alone."""
        watcher = nsm.Registrar(self.stage, self.network.server)
        self.addCleanup(watcher.close)
        local = nsm.Local(self.network.server)
        self.addCleanup(local.close)
        self.assertEqual(nsm.mon(local.ask, self.a.address, watcher.name, 200300, 16, bytes(16))[0], SUCC)
        self.a.asked.wait()
        self.send(self.a, notice(self.a.name, 5), reserved=True)
        self.wait_denied()
        self.assertEqual(watcher.heard.matching(), [])
        self.reboot(self.a)
        self.notify(self.a)
        self.assertEqual(watcher.heard.wait()[0].state, 7)

    # A statd that was started before sm-notify has raised the number

    def test_statd_that_was_late_is_restarted_alone(self):
        """The number in the locks of a life rises. The restart that it tells of is known already."""
        for host, reserved in ((self.a, False), (self.c, True)):
            old = self.lock_of(host, state=5, fh=os.urandom(20))
            self.assert_granted(host, old, reserved=reserved)
            comes(host.asked.matching, LOOK)
            self.reboot(host, statd_is_late=True)
            self.notify(host)
            self.assert_free(old)
            lock = old.but(fh=os.urandom(20))
            self.assert_granted(host, lock, reserved=reserved)
            host.asked.wait()
            host.nsm(nsm.NULL, transport="tcp")
            host.state = self.next_state
            new = lock.but(fh=os.urandom(20), state=self.next_state)
            self.assert_granted(host, new, reserved=reserved)
            self.notify(host)  # a copy
            for kept in (lock, new):
                self.assert_held(kept, by=kept.svid)
            self.next_state = 5

    def test_statd_is_late_with_the_highest_number(self):
        """The next one is negative."""
        self.a.state = 2**31 - 1
        lock = self.hold(self.a, state=2**31 - 1, reserved=True)
        self.reboot(self.a, statd_is_late=True)
        self.a.notify(1 - 2**31, reserved=True)
        self.assert_free(lock)

    def test_h3_statd_is_late_and_the_old_connection_is_dead(self):
        lock = self.hold(self.a)
        self.reboot(self.a, statd_is_late=True)
        self.assert_cleaned_up_at_once(self.a, lock)
        # It says the old number in its locks, too, as Linux does; the next forgery is one all the same.
        lock = self.hold(self.a)
        self.send(self.a, notice(self.a.name, 9), reserved=True)
        self.wait_denied()
        self.assert_held(lock, by=lock.svid)

    def test_h3_statd_is_late_and_the_connection_was_closed(self):
        lock = self.hold(self.a)
        self.reboot(self.a, statd_is_late=True, breaks=False)
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_statd_is_late_and_all_ports_are_fixed(self):
        """Only the old connection tells: the host's kernel does not know it."""
        self.a.start_lockd(port=FIXED)
        self.addCleanup(self.a.start_lockd)
        lock = self.hold(self.a)
        self.reboot(self.a, statd_is_late=True, moves=False)
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_statd_is_late_and_the_host_was_slow_to_give_its_port(self):
        """As if a copy of its LOCK had come while it was down: the port may be that of its next life, and denies nothing."""
        for host, transport in ((self.a, "udp"), (self.b, "tcp")):
            host.portmap_delay = 0.5
            lock = self.hold(host, transport=transport)
            host.portmap_delay = 0
            self.reboot(host, statd_is_late=True, moves=False)
            with self.assertRaises(NoReply):
                host.notify(self.next_state, reserved=True, timeout=2)
            self.assertRegex(self.log, f"{UNSURE}.* peer={host.address}:")
            host.state = self.next_state  # its statd is started again
            self.assert_cleaned_up_at_once(host, lock)
        self.assertNotIn("has not been restarted", self.log)

    def test_h3_copy_of_a_notice_that_was_not_believed(self):
        """The host was restarted once more since, and is cut off: it denies nothing."""
        self.a.portmap_delay = 0.5
        self.hold(self.a)
        self.a.portmap_delay = 0
        self.reboot(self.a, statd_is_late=True, moves=False)
        with self.assertRaises(NoReply):
            self.a.notify(7, reserved=True, timeout=2)
        self.reboot(self.a)
        lock = self.hold(self.a, state=9, reserved=True)
        self.until(lambda: self.log.count(FREED), "the lock of the first life is gone", passes=lambda n: n == 1)
        self.a.deaf = True
        self.addCleanup(setattr, self.a, "deaf", False)
        self.a.notify(7, reserved=True)
        self.assert_held(lock, by=lock.svid)
        self.assertEqual(self.log.count(FREED), 1)

    def test_h3_notice_under_another_name_of_a_host_that_was_slow_to_give_its_number(self):
        """It may have given the number of its next life. So nothing denies the notice."""
        self.a.state, self.a.portmap_delay = 7, 0.5
        lock = self.hold(self.a)
        self.a.portmap_delay = 0
        self.reboot(self.a, moves=False)
        with self.assertRaises(NoReply):
            self.a.notify(7, reserved=True, timeout=2, name="other-name")
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_a_lock_taken_while_the_notice_is_checked(self):
        """It is of the new life, though it says the old number."""
        lock = self.hold(self.a)
        self.reboot(self.a, statd_is_late=True)
        self.a.portmap_delay = 0.5
        self.addCleanup(setattr, self.a, "portmap_delay", 0)
        self.send(self.a, notice(self.a.name, 7), reserved=True)
        new = lock.but(fh=os.urandom(20), svid=9)
        self.assert_granted(self.a, new)
        self.until(lambda: FREED in self.log, "the old one is released")
        self.assert_free(lock)
        self.assert_held(new, by=9)

    # Whose word it is

    def test_h3_statd_of_another_host_behind_the_address(self):
        """The host in front says 5, and the client behind it has 1009: that statd says nothing of the client's restart."""
        lock = self.hold(self.a, state=1009, reserved=True)
        self.a.drop_callers()
        self.next_state = 1011
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_copy_of_a_notice_that_came_before_there_were_locks(self):
        """The host was restarted since. A connection proves the sender of the copy, and not that it is new."""
        self.a.notify(7, transport="tcp", reserved=True)
        self.a.state = 9
        lock = self.hold(self.a, state=9, reserved=True)
        self.a.notify(7, transport="tcp", reserved=True)
        self.assert_held(lock, by=lock.svid)

    def test_copy_of_a_notice_takes_nothing_of_a_host_without_reserved_ports(self):
        """Its LOCKs have said the number, and its reservations have none. Its statd gives no number either."""
        for host, is_lock_first in ((self.a, True), (self.c, False)):
            host.state, fh = None, os.urandom(20)
            lock = self.lock_of(host, state=5, fh=os.urandom(20))
            steps = [(nlm.LOCK, lock), (nlm.SHARE, host.lock_of(fh, svid=5, access=2, deny=1))]
            for procedure, args in steps if is_lock_first else reversed(steps):
                self.assertEqual(host.ask(procedure, args).stat, nlm.S_GRANTED)
            host.notify(5, transport="tcp")
            conflict = self.b.lock_of(fh, svid=6, access=2, deny=2)
            self.assertEqual(self.b.share(conflict), nlm.S_DENIED)
            self.assert_held(lock, by=lock.svid)
            host.notify(7, transport="tcp")  # and now it was restarted
            self.assertEqual(self.b.share(conflict), nlm.S_GRANTED)
            self.assert_free(lock)

    # What a client took by calls without a number

    def test_first_notice_with_the_number_that_the_statd_gave(self):
        for host, reserved in ((self.a, False), (self.c, True)):
            host.state = 7
            host.lookups.items.clear()
            conflict = self.reserve(host, reserved=reserved)
            self.until_seen(host)
            host.notify(7, transport="tcp", reserved=reserved)
            self.assert_reserved(conflict)

    def test_notices_under_the_long_name_and_the_short_one(self):
        """sm-notify sends both. The host reserves a file in between."""
        for host, transport in ((self.a, "tcp"), (self.c, "udp")):
            host.state = None
            host.notify(7, name=host.name.upper() + ".example.org", transport=transport)
            conflict = self.reserve(host)
            host.notify(7, transport=transport)
            self.assert_reserved(conflict)

    def test_free_all_and_a_notice_of_one_restart(self):
        """The server does not know the host when its FREE_ALL comes. The host reserves a file before its notice comes."""
        for host, transport in ((self.a, "tcp"), (self.c, "udp")):
            host.state = None
            host.free_all(state=7, transport=transport)
            conflict = self.reserve(host)
            host.notify(7, transport=transport)
            self.assert_reserved(conflict)

    def test_free_all_under_another_name_does_not_weaken_the_notice(self):
        """The host's own, under its long name, or a forged one. Its statd gives no number, or its next one."""
        for host, state, forges in ((self.a, None, False), (self.c, 5, True)):
            host.state = state
            conflict = self.reserve(host, reserved=True)
            if state:
                self.until_seen(host)
            if forges:
                self.send(host, free_all(host.name.upper(), 7), reserved=True)
                host.call(nlm.NULL, b"", transport="udp")
            self.reboot(host)
            host.state = state and 7
            if not forges:
                host.free_all(name=host.name + ".example.org", state=7, reserved=True)
            host.notify(7, transport="tcp", reserved=True)
            self.assertEqual(self.b.share(conflict), nlm.S_GRANTED)
            self.next_state = 5

    def test_early_notice_was_forged_and_the_host_reserves(self):
        """Its own notice has that number. Its statd gave another one when it reserved the file."""
        for host, message in ((self.a, notice(self.a.name, 7)), (self.c, free_all(self.c.name, 7))):
            self.send(host, message)
            host.call(nlm.NULL, b"", transport="udp")
            host.state = 5
            conflict = self.reserve(host, reserved=True)
            self.until_seen(host)
            self.reboot(host)
            host.notify(7, transport="tcp", reserved=True)
            self.assertEqual(self.b.share(conflict), nlm.S_GRANTED)
            self.next_state = 5

    def test_dead_connection_counts_also_if_the_number_is_the_same(self):
        """A machine that is set back to a snapshot, or one that has the same number after each boot."""
        for host, tell in ((self.a, lambda host: host.notify(7)), (self.c, lambda host: host.free_all(state=7, transport="udp"))):
            host.start_lockd(port=FIXED)
            self.addCleanup(host.start_lockd)
            host.state = 7
            conflict = self.reserve(host)
            self.until_seen(host)
            self.reboot(host, moves=False, statd_is_late=True)
            tell(host)
            self.assertEqual(self.b.share(conflict), nlm.S_GRANTED)

    def test_copy_of_a_notice_after_the_statd_was_restarted_alone(self):
        """It has another port now, and its number is the one that it gave when the host reserved the file."""
        self.a.start_lockd(port=FIXED)
        self.addCleanup(self.a.start_lockd)
        self.a.state = 7
        self.a.notify(7)
        conflict = self.reserve(self.a, transport="udp")
        self.until_seen(self.a)
        self.a.move_statd()
        self.a.notify(7)
        self.assert_reserved(conflict)

    def test_copy_over_tcp_from_a_host_without_rpcbind_is_answered(self):
        """Nothing is released, and its sender need not repeat it."""
        self.a.has_silent_portmap = True
        self.addCleanup(setattr, self.a, "has_silent_portmap", False)
        lock = self.lock_of(self.a, state=7)
        self.assert_granted(self.a, lock)
        self.a.notify(7, transport="tcp", timeout=2 * LOOK)
        self.assert_held(lock, by=lock.svid)

    def test_free_all_without_a_number(self):
        """What the client takes next is of its next life, whose number its next LOCK says."""
        for host, reserved in ((self.a, False), (self.c, True)):
            lock = self.lock_of(host, state=5, fh=os.urandom(20))
            self.assert_granted(host, lock, reserved=reserved)
            host.asked.wait()
            host.drop_callers()
            host.start_lockd()
            host.state = 7
            host.free_all(reserved=reserved)
            self.assert_free(lock)
            conflict = self.reserve(host, reserved=reserved)
            self.assert_granted(host, self.lock_of(host, state=7, fh=os.urandom(20)), reserved=reserved)
            self.assert_reserved(conflict)

    def test_lock_right_behind_a_share(self):
        """The server has not heard the statd yet, and asks it once more. The lock has its number all the same."""
        self.a.state, self.a.portmap_delay = 7, 0.3
        self.addCleanup(setattr, self.a, "portmap_delay", 0)
        conflict = self.reserve(self.a)
        lock = self.lock_of(self.a, state=7)
        self.assert_granted(self.a, lock)
        self.a.notify(7, transport="tcp")
        self.assert_held(lock, by=lock.svid)
        self.assert_reserved(conflict)

    # Hosts that do not answer

    def test_h3_silent_statd(self):
        lock = self.hold(self.a)
        self.a.deaf = True
        self.a.drop_callers()
        began = time.monotonic()
        self.a.notify(7, reserved=True)
        self.assert_free(lock)
        self.assertLess(time.monotonic() - began, LOOK + AT_ONCE)

    def test_log_of_a_silent_host_claims_no_number(self):
        """A notice that may be a copy needs the host's answer. A silent host has given no other number."""
        self.a.deaf = True
        lock = self.hold(self.a, state=7, transport="udp")
        self.send(self.a, notice(self.a.name, 7), reserved=True)
        self.until(lambda: self.log.count(UNSURE), "the notice is not believed", passes=lambda n: n == 1)
        self.assertIn("the host that it names has not confirmed it", self.log)
        self.assert_held(lock, by=lock.svid)

    def test_notice_under_another_name_of_a_silent_host_is_not_answered(self):
        """Its sender repeats it, until the host has been heard: an answer would end that."""
        lock = self.hold(self.a)
        self.reboot(self.a)
        self.a.deaf = True
        caller = UdpCaller((self.network.SERVER[0], 2049), (self.a.address, 0), self.a.namespace, True)
        self.addCleanup(caller.close)
        caller.send(notice("other-name", self.next_state))
        self.wait_denied()
        ping = call_message(NSM, 1, nsm.NULL)
        caller.send(ping)
        self.assertEqual(caller.receive()[:4], ping[:4], "the notice was answered")
        self.assert_held(lock, by=lock.svid)
        self.a.deaf = False
        self.assert_cleaned_up_at_once(self.a, lock, name="other-name")

    def test_h3_no_statd(self):
        lock = self.hold(self.a)
        port, self.a.port_of = self.a.port_of, lambda *_: 0
        self.addCleanup(setattr, self.a, "port_of", port)
        self.next_state = 7
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_no_rpcbind(self):
        lock = self.hold(self.a)
        self.a.stop_portmap()
        self.addCleanup(self.a.start_portmap)
        self.next_state = 7
        self.assert_cleaned_up_at_once(self.a, lock)

    def test_h3_usual_case_takes_milliseconds(self):
        took = []
        for _ in range(20):
            lock = self.hold(self.a, state=self.next_state)
            self.reboot(self.a)
            took.append(self.assert_cleaned_up_at_once(self.a, lock))
        print(f"\n  a notice that statd confirms is answered after {sorted(took)[10] * 1000:.1f} ms (median of 20)")

    # M1: ordinary users of the client's host

    def test_m1_notice_from_an_ordinary_port(self):
        lock = self.hold(self.a, reserved=True)
        for n, transport in enumerate(("udp", "tcp"), 1):
            self.a.notify(5 + 2 * n, transport=transport)
            self.wait_denied(n)
            self.assert_held(lock, by=lock.svid)
        self.a.notify(31, transport="tcp", reserved=True)
        self.assert_free(lock)

    def test_m1_free_all_from_an_ordinary_port(self):
        lock = self.hold(self.a, reserved=True)
        for n, transport in enumerate(("udp", "tcp"), 1):
            self.a.free_all(state=5 + 2 * n, transport=transport)
            self.wait_denied(n)
            self.assert_held(lock, by=lock.svid)
        self.a.free_all(state=31, transport="tcp", reserved=True)
        self.assert_free(lock)

    def test_m1_ordinary_port_of_a_client_that_never_had_another(self):
        lock = self.hold(self.a)
        self.a.notify(7, transport="tcp")
        self.assert_free(lock)

    # H1: registrations by forged datagrams

    def test_h1_forged_sm_mon_registers_no_host(self):
        """As many as there is room for, from addresses without a host, and from one where no such program runs."""
        remote = (self.network.SERVER[0], 2049)
        with self.a.namespace:
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.addCleanup(raw.close)
        for i in range(120):
            source = f"10.98.7.{1 + i}" if i % 2 else self.b.address
            program = 200100 if i % 2 else 200999
            args = nsm.mon_args("server", f"forged{i}", program, 7, bytes(16))
            raw.sendto(forged(source, 700 + i, remote, call_message(NSM, 1, nsm.MON, args)), (remote[0], 0))
        self.assert_granted(self.c, self.lock_of(self.c))
        self.assertEqual(self.b.mon("server", transport="tcp")[0], SUCC)
        self.assertEqual(self.c.mon("server", transport="udp")[0], SUCC)
        port = f"{self.c.address}:{self.c.own.tcp_port}"
        self.assertEqual(self.c.mon("server", port, program=200998, transport="udp")[0], SUCC)

    def test_h1_forged_sm_unmon_of_a_program_that_is_gone(self):
        """The server cannot call the program back, so it does not end the registration for a datagram."""
        self.assertEqual(self.a.mon("server")[0], SUCC)
        port, self.a.port_of = self.a.port_of, lambda *_: 0
        self.a.nsm(nsm.UNMON, nsm.mon_args("server", self.a.name, Host.PROGRAM, 7))
        self.a.port_of = port
        self.assertIn("is refused", self.log)


class Evicted(Reserving, Asked):
    """A client that has nothing leaves for others at its address. It comes back, and nothing has proved its number."""

    settings = (*Asked.settings, "recovery.max_clients=4", "recovery.max_clients_per_address=2")

    def play(self, transport, says):
        self.a.state = None
        lock = self.lock_of(self.a, state=says)
        self.assert_granted(self.a, lock)
        self.a.notify(7, transport=transport)
        self.a.unlock(lock)
        others = [self.lock_of(self.a, name=f"other{i}", fh=os.urandom(20)) for i in range(2)]
        for other in others:
            self.until(lambda other=other: self.a.lock(other), "it has a place", passes=lambda stat: stat == nlm.S_GRANTED)
        self.a.unlock(others[0])
        conflict = self.reserve(self.a)
        self.a.notify(7, transport=transport)
        self.assert_reserved(conflict)

    def test_locks_said_it_and_the_copy_comes_over_tcp(self):
        self.play("tcp", 7)

    def test_locks_said_it_and_the_copy_comes_over_udp(self):
        self.play("udp", 7)

    def test_a_notice_said_it_and_nothing_denied_it(self):
        self.play("udp", 5)


if __name__ == "__main__":
    main()
