#!/usr/bin/env python3
"""How long a waiter that does not answer is told of its lock: tries of 5 s, growing gaps, 30 s in all.

All scenes begin at once and run side by side; the tests look at each when it is over. Takes about 35 s, nearly all of
it waiting.
"""

import datetime
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import FakeHost
from play import Play, main
from rpc import call_message

TRY = 5
BOUND = 30
SLACK = 2  # of a machine that is not late; to which is added how late it was


class Lateness(threading.Thread):
    """How late this machine is: a thread that does nothing else measures how much later than asked it is woken."""

    TICK = 0.05

    def __init__(self):
        super().__init__(daemon=True)
        self.worst = 0.0
        self.is_over = threading.Event()

    def run(self):
        began = time.monotonic()
        while not self.is_over.wait(self.TICK):
            woken = time.monotonic()
            self.worst = max(self.worst, woken - began - self.TICK)
            began = woken


class Scene:
    """One host waits for a lock of host a's, which is then released."""

    def __init__(self, play, script, procedure=nlm.LOCK, transport="tcp"):
        self.fh = os.urandom(20)
        self.host = play.add_host()
        self.host.script = script
        self.holder = play.hosts[0]
        self.held = self.holder.lock_of(self.fh)
        self.wanted = self.host.lock_of(self.fh, block=True, svid=7)
        assert self.holder.lock(self.held) == nlm.S_GRANTED
        if procedure == nlm.LOCK:
            assert self.host.lock(self.wanted, transport=transport) == nlm.S_BLOCKED
        else:
            args = self.wanted.args(procedure)
            self.host.caller(transport).send(call_message(nlm.PROGRAM, 4, procedure, args))
            assert self.host.answers.wait()[0][1].stat == nlm.S_BLOCKED

    def begin(self):
        self.released = time.time()
        assert self.holder.unlock(self.held) == nlm.S_GRANTED
        self.began = time.monotonic()

    @property
    def tries(self):
        """When it was told, in seconds from the release."""
        return [heard.call.when - self.began for heard in self.host.granted_calls]


class Patience(Play):
    SLOW = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lateness = Lateness()
        cls.lateness.start()
        cls.addClassCleanup(cls.lateness.is_over.set)
        cls.silent = Scene(cls, FakeHost.SILENT)
        cls.silent_msg = Scene(cls, FakeHost.SILENT, nlm.LOCK_MSG, "udp")
        answers = iter([nlm.S_GRACE])  # a client in a grace of its own the first time
        cls.in_grace = Scene(cls, lambda heard: next(answers, nlm.S_GRANTED))
        cls.moved = Scene(cls, nlm.S_GRANTED, transport="udp")
        cls.cut_off = Scene(cls, nlm.S_GRANTED)
        cls.no_rpcbind = Scene(cls, nlm.S_GRANTED)
        by_call_alone = lambda heard: FakeHost.UNKNOWN if heard.is_msg else nlm.S_GRANTED
        cls.no_msg = Scene(cls, by_call_alone, nlm.LOCK_MSG, "udp")
        cls.slow = Scene(cls, FakeHost.SILENT, nlm.LOCK_MSG, "tcp")
        cls.copied = Scene(cls, cls.answer_with_a_copy, nlm.LOCK_MSG, "tcp")
        scenes = [
            cls.silent, cls.silent_msg, cls.in_grace, cls.moved, cls.cut_off, cls.no_rpcbind, cls.no_msg, cls.slow, cls.copied
        ]  # fmt: skip
        # Next in the silent ones' queues stands a healthy one.
        cls.next = {}
        for scene in (cls.silent, cls.silent_msg, cls.no_rpcbind):
            cls.next[scene] = cls.add_host()
            wanted = cls.next[scene].lock_of(scene.fh, block=True, svid=8)
            assert cls.next[scene].lock(wanted) == nlm.S_BLOCKED
        cls.move(cls.moved.host)
        cls.cut_off.host.namespace.run("link", "set", "eth0", "down")
        cls.no_rpcbind.host.stop_portmap()
        cls.slow.host.start_lockd()  # its port has to be asked for again
        cls.slow.host.portmap_delay = cls.SLOW
        for scene in scenes:
            scene.begin()
        heard = cls.copied.host.grants.wait(1)[0]
        for _ in range(3):
            cls.copied.host.test(cls.copied.wanted)  # turns of the server go by: it has read the empty reply
        cls.send_grace(heard)

    @classmethod
    def send_grace(cls, heard):
        cls.copied.host.send_granted_res(nlm.put_res(heard.grant.cookie, nlm.S_GRACE))

    @classmethod
    def answer_with_a_copy(cls, heard):
        """A client in grace, asked by GRANTED_MSG. When it is asked again, by GRANTED, the network delivers its first answer
        once more, and loses the second one, by which it took the lock. Then its program does not wait any more."""
        n = len(cls.copied.host.granted_calls)
        if n == 0:
            heard.call.answer()
        elif n == 1:
            cls.send_grace(heard)
        return FakeHost.SILENT if n < 2 else nlm.S_DENIED

    @staticmethod
    def move(host):
        """Its lockd was known at another port: a first grant told the server of it."""
        fh = os.urandom(20)
        held, wanted = host.lock_of(fh, svid=1), host.lock_of(fh, svid=2, block=True)
        assert host.lock(held) == nlm.S_GRANTED
        assert host.lock(wanted, transport="udp") == nlm.S_BLOCKED
        assert host.unlock(held) == nlm.S_GRANTED
        host.wait_granted(wanted)
        host.grants.items.clear()
        host.start_lockd()

    def setUp(self):
        """The scenes go on: their scripts stay."""

    def tearDown(self):
        """The scenes go on: nothing is freed in between."""
        self.assertIsNone(self.daemon.process.poll(), "holdfastd is gone")

    def holder(self, scene):
        stranger = nlm.Lock(fh=scene.fh, name="stranger", svid=99, oh=b"")
        return self.hosts[0].test(stranger).holder

    @property
    def slack(self):
        """The server, the wire's end and the test may each have been as late as this thread was at worst."""
        return SLACK + 3 * self.lateness.worst

    def until_logged(self, scene, what):
        """Of the host that waits in @scene; when it was, by the log's own clock."""
        line = f"{what} client={self.id_of(scene.host)}"
        look = lambda: re.search(rf"^(\S+) .*{re.escape(line)}\s", self.daemon.log, re.M)
        found = self.until(look, f"it is logged: {line}", 2 * BOUND)
        return datetime.datetime.fromisoformat(found[1]).timestamp()

    def until_given_up(self, scene):
        """And not later than it should be."""
        when = self.until_logged(scene, "no clear answer to GRANTED: the client keeps the lock")
        self.assertLess(when - scene.released, BOUND + self.slack)

    def test_1_lockd_that_moved_over_udp(self):
        """No program answers at the old port. The server asks rpcbind again, and the next try arrives."""
        heard = self.moved.host.wait_granted(self.moved.wanted, timeout=BOUND)
        self.assertEqual(heard.call.transport, "udp")
        self.assertEqual(self.holder(self.moved).svid, 7)

    def test_2_host_that_was_cut_off(self):
        """The wire comes back after the first try: its turn was not lost."""
        self.until_logged(self.cut_off, "a GRANTED call failed")
        self.cut_off.host.namespace.run("link", "set", "eth0", "up")
        self.cut_off.host.wait_granted(self.cut_off.wanted, timeout=BOUND)
        self.assertEqual(self.holder(self.cut_off).svid, 7)

    def test_3_client_in_grace_is_told_again(self):
        self.in_grace.host.grants.wait(2, timeout=2 * BOUND)
        first, second = self.in_grace.tries[:2]
        self.assertGreater(second - first, 4)
        self.assertEqual(self.holder(self.in_grace).svid, 7)

    def test_4_copy_of_an_answer_in_grace(self):
        """It says nothing of the second call, which the client may have accepted: so the lock stays its own."""
        self.copied.host.grants.wait(3, timeout=2 * BOUND)
        self.assertEqual([heard.is_msg for heard in self.copied.host.granted_calls[:2]], [True, False])
        self.until_logged(self.copied, "no clear answer to GRANTED: the client keeps the lock")
        self.assertEqual(self.holder(self.copied).svid, 7)

    def test_4_silent_lockd_is_told_again_and_then_no_more(self):
        """One try is 5 s at most, the next one comes soon after; in all 30 s. It may have taken the lock, and its
        answer be lost: so the lock stays its own."""
        self.until_given_up(self.silent)
        self.assertEqual(self.holder(self.silent).svid, 7)
        self.assertEqual(self.next[self.silent].grants.items, [])
        tries = self.silent.tries
        self.assertGreaterEqual(len(tries), 3)
        self.assertLess(tries[0], self.slack)
        self.assertTrue(TRY - self.slack < tries[1] - tries[0] < TRY + 2 + self.slack, tries)
        self.assertLess(tries[-1], BOUND + self.slack)

    def test_4_silent_lockd_hears_both_kinds(self):
        """Some systems know only one of GRANTED and GRANTED_MSG."""
        for scene in (self.silent, self.silent_msg):
            scene.host.grants.wait(2, timeout=BOUND)
            self.assertEqual({heard.is_msg for heard in scene.host.grants.items}, {False, True})

    def test_4_granted_for_a_host_without_granted_msg(self):
        """The host asked by LOCK_MSG, but understands GRANTED alone. Once GRANTED has reached it, it is not told again."""
        self.no_msg.host.grants.wait(1, lambda heard: not heard.is_msg, timeout=BOUND)
        self.assertEqual(self.holder(self.no_msg).svid, 7)
        self.until_given_up(self.silent)
        self.assertEqual([heard.is_msg for heard in self.no_msg.host.granted_calls], [True, False])

    def test_5_granted_msg_without_granted_res_is_told_again(self):
        self.until_given_up(self.silent_msg)
        self.assertEqual(self.holder(self.silent_msg).svid, 7)
        self.assertGreaterEqual(len(self.silent_msg.tries), 2)

    def test_5_a_try_has_5_seconds_in_all(self):
        """What rpcbind took of them is not there for GRANTED_RES."""
        self.slow.host.grants.wait(2, timeout=BOUND)
        first, second = self.slow.tries[:2]
        self.assertGreater(first, self.SLOW - 1)
        self.assertLess(second - first, TRY - self.SLOW + self.slack, self.slow.tries)

    def test_6_host_without_rpcbind_is_given_up(self):
        """It cannot have heard: the next waiter has it."""
        self.next[self.no_rpcbind].grants.wait(1, timeout=2 * BOUND)
        self.assertEqual(self.holder(self.no_rpcbind).svid, 8)
        self.until_logged(self.no_rpcbind, "client not reached by GRANTED: the next waiter gets the lock")
        told = self.next[self.no_rpcbind].grants.items[0].call.when - self.no_rpcbind.began
        self.assertGreater(told, BOUND / 2, "given up too early: one lost packet loses the turn")

    def test_7_who_was_given_up_is_not_dead(self):
        """A failed GRANTED is no evidence of a crash: the poll queues it again, and its other locks are its own."""
        self.next[self.no_rpcbind].grants.wait(1, timeout=2 * BOUND)
        host = self.no_rpcbind.host
        other = host.lock_of(os.urandom(20), svid=1)
        self.assertEqual(host.lock(other), nlm.S_GRANTED)
        self.assertEqual(host.lock(self.no_rpcbind.wanted), nlm.S_BLOCKED)
        self.assertEqual(host.test(other.but(name="stranger", svid=2)).holder.svid, 1)


if __name__ == "__main__":
    main()
