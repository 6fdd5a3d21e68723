#!/usr/bin/env python3
"""The queue: asking again, CANCEL, whose turn it is, and deadlocks."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import FakeHost
from play import each, main
from waiting import Waiting


class Queue(Waiting):
    # Asking again

    def test_repoll_keeps_its_place(self):
        """New xid, new cookie: the same waiter, and its turn is still before the next one's."""
        held = self.hold()
        first = self.waits(self.b, cookie=b"one")
        second = self.waits(self.c, cookie=b"one")
        for number in range(5):
            self.assert_blocked(self.b, first.but(cookie=b"poll%d" % number))
        self.release(held)
        self.b.wait_granted(first)
        self.assertEqual(self.c.grants.matching(), [])
        self.release(first, self.b)
        self.c.wait_granted(second)
        self.assertEqual(len(self.b.grants.items), 1, "a repeated request made a second waiter")

    def test_repoll_does_not_use_up_the_queue(self):
        """A hundred polls are one waiter."""
        held = self.hold()
        wanted = self.waits(self.b)
        for number in range(1500):
            self.assertEqual(self.b.lock(wanted.but(cookie=b"%d" % number)), nlm.S_BLOCKED)
        self.release(held)
        self.b.wait_granted(wanted)

    def test_repoll_over_another_transport_and_version(self):
        held = self.hold()
        wanted = self.waits(self.b)
        self.assert_blocked(self.b, wanted, transport="udp")
        self.assert_blocked(self.b, wanted, version=3)
        self.release(held)
        self.b.wait_granted(wanted)
        self.release(wanted, self.b)
        self.assert_free(wanted)

    def test_repoll_finds_the_lock_whose_grant_was_lost(self):
        """The call-back did not arrive; the poll does: GRANTED, and the call-back is dropped."""
        held = self.hold()
        self.b.script = FakeHost.SILENT
        wanted = self.waits(self.b)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        self.assertEqual(self.b.lock(wanted.but(cookie=b"poll")), nlm.S_GRANTED)
        self.b.answer(heard, nlm.S_DENIED)  # too late: it is settled
        self.assert_held(wanted, by=wanted.svid)

    # CANCEL

    def test_cancel_needs_owner_range_and_mode(self):
        """What it finds not is GRANTED, and what it does not mean stays."""
        held = self.hold()
        wanted = self.waits(self.b, 10, 5, svid=3)
        for other in (
            wanted.but(svid=4), wanted.but(offset=11), wanted.but(length=6), wanted.but(exclusive=False),
            wanted.but(fh=os.urandom(20)),
        ):  # fmt: skip
            self.assertEqual(self.b.cancel(other), nlm.S_GRANTED)
        self.release(held)
        self.b.wait_granted(wanted)

    def test_cancel_does_not_need_the_cookie(self):
        held = self.hold()
        wanted = self.waits(self.b, cookie=b"first")
        self.assertEqual(self.b.cancel(wanted.but(cookie=b"second")), nlm.S_GRANTED)
        self.release(held)
        self.assert_free(wanted)

    def test_cancel_of_what_is_held_is_denied(self):
        """So that the client unlocks it."""
        held = self.hold()
        self.assertEqual(self.a.cancel(held.but(block=True)), nlm.S_DENIED)
        self.assert_held(held, by=1)

    def test_cancel_of_nothing_is_granted(self):
        self.assertEqual(self.a.cancel(self.lock_of(self.a, block=True)), nlm.S_GRANTED)

    def test_cancel_with_the_other_mode_cancels_nothing(self):
        """chimera 47033e71"""
        held = self.hold()
        wanted = self.waits(self.b, exclusive=False)
        self.assertEqual(self.b.cancel(wanted.but(exclusive=True)), nlm.S_GRANTED)
        self.release(held)
        self.b.wait_granted(wanted)

    def test_cancel_serves_those_behind(self):
        held = self.hold(exclusive=False)
        writer = self.waits(self.b)
        reader = self.waits(self.c, exclusive=False)
        self.assertEqual(self.b.cancel(writer), nlm.S_GRANTED)
        self.c.wait_granted(reader)
        self.assert_held(held)

    def test_cancel_beats_a_grant_in_flight(self):
        held = self.hold()
        self.b.script = FakeHost.DEFER
        wanted = self.waits(self.b)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        self.assertEqual(self.b.cancel(wanted), nlm.S_GRANTED)
        self.assert_free(wanted)
        self.b.answer(heard, nlm.S_GRANTED)
        self.b.call(nlm.GRANTED_RES, nlm.put_res(heard.grant.cookie, nlm.S_GRANTED))
        self.assert_free(wanted)
        self.assert_granted(self.c, self.lock_of(self.c))

    def test_cancel_of_an_upgrade_in_flight_gives_the_shared_lock_back(self):
        other = self.lock_of(self.a, 0, 10, exclusive=False)
        mine = self.lock_of(self.b, 0, 10, exclusive=False, svid=4)
        self.assert_granted(self.a, other)
        self.assert_granted(self.b, mine)
        self.b.script = FakeHost.DEFER
        upgrade = mine.but(exclusive=True, block=True)
        self.assert_blocked(self.b, upgrade)
        self.release(other)
        self.b.wait_granted(upgrade)
        self.assertEqual(self.b.cancel(upgrade), nlm.S_GRANTED)
        self.assert_granted(self.c, self.lock_of(self.c, 0, 10, exclusive=False))
        self.assert_denied(self.c, self.lock_of(self.c, 0, 10, svid=9))

    def test_unlock_also_cancels(self):
        """A lost GRANTED answer: the client unlocks what it does not know to have."""
        held = self.hold()
        wanted = self.waits(self.b, 5, 5)
        self.release(self.lock_of(self.b, 0, 0), self.b)
        self.release(held)
        self.assert_free(wanted)
        # One for another file may still come from the play before.
        self.assertEqual([heard for heard in self.b.grants.matching() if heard.grant.fh == wanted.fh], [])

    def test_unlock_beats_a_grant_in_flight(self):
        held = self.hold()
        self.b.script = FakeHost.DEFER
        wanted = self.waits(self.b)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        self.release(wanted, self.b)
        self.assert_free(wanted)
        self.b.answer(heard, nlm.S_GRANTED)
        self.assert_free(wanted)

    # Order

    def test_first_come_first_served(self):
        held = self.hold()
        hosts = [self.hosts[i % 4 + 1] for i in range(20)]
        waiting = [self.lock_of(host, svid=100 + i, block=True) for i, host in enumerate(hosts)]
        for host, wanted in zip(hosts, waiting):
            self.assert_blocked(host, wanted)
        self.release(held)
        for i, (host, wanted) in enumerate(zip(hosts, waiting)):
            host.wait_granted(wanted)
            self.assertEqual(sum(len(one.grants.items) for one in self.hosts), i + 1)
            self.release(wanted, host)

    def test_readers_are_granted_together(self):
        held = self.hold()
        readers = [self.waits(host, exclusive=False) for host in self.hosts[1:]]
        self.release(held)
        for host, wanted in zip(self.hosts[1:], readers):
            host.wait_granted(wanted)

    def test_a_reader_does_not_overtake_a_waiting_writer(self):
        """nfs-ganesha 1126: else writers starve."""
        reading = self.hold(exclusive=False)
        writer = self.waits(self.b)
        self.assert_denied(self.c, self.lock_of(self.c, exclusive=False))
        late = self.waits(self.c, exclusive=False)
        self.release(reading)
        self.b.wait_granted(writer)
        self.assertEqual(self.c.grants.matching(), [])
        self.release(writer, self.b)
        self.c.wait_granted(late)

    def test_requests_without_a_conflict_pass(self):
        held = self.hold(offset=0, length=10)
        far = self.lock_of(self.c, 20, 5)
        self.waits(self.b, 0, 10)
        self.assert_granted(self.c, far)
        self.release(held)

    def test_part_of_the_range_free_is_not_enough(self):
        left, right = self.lock_of(self.a, 0, 5), self.lock_of(self.a, 5, 5)
        self.assert_granted(self.a, left)
        self.assert_granted(self.c, self.lock_of(self.c, 5, 5))
        wanted = self.waits(self.b, 0, 10)
        self.release(left)
        self.assert_free(left)
        self.release(right.but(name=self.c.name), self.c)
        self.b.wait_granted(wanted)

    def test_who_has_thousands_of_locks_there_is_told(self):
        """Without asking again: some clients never do."""
        held = self.lock_of(self.a, 10_000, 1)
        self.assert_granted(self.a, held)
        for number in range(4097):
            self.assertEqual(self.b.lock(self.lock_of(self.b, 2 * number, 1, exclusive=False)), nlm.S_GRANTED)
        wanted = self.waits(self.b, 0, 10_001)
        self.release(held)
        self.b.wait_granted(wanted)
        self.assert_held(self.lock_of(self.b, 1, 1))
        self.release(wanted, self.b)
        self.assert_free(wanted)

    def test_a_downgrade_serves_waiting_readers(self):
        held = self.hold()
        reader = self.waits(self.b, exclusive=False)
        self.assert_granted(self.a, held.but(exclusive=False))
        self.b.wait_granted(reader)
        self.assert_denied(self.c, self.lock_of(self.c, exclusive=True))

    # Deadlock

    def test_deadlock_of_two(self):
        for version, answer in ((4, nlm.S_DEADLCK), (3, nlm.S_DENIED), (1, nlm.S_DENIED)):
            with self.subTest(version=version):
                self.fh = os.urandom(20)
                self.assert_granted(self.a, self.lock_of(self.a, 0, 1))
                self.assert_granted(self.b, self.lock_of(self.b, 1, 1))
                self.waits(self.a, 1, 1)
                self.assertEqual(self.b.lock(self.lock_of(self.b, 0, 1, block=True), version=version), answer)
                self.release(self.lock_of(self.b, 1, 1), self.b)
                self.a.wait_granted(self.lock_of(self.a))
                self.a.grants.items.clear()

    def test_deadlock_over_two_files_and_three_hosts(self):
        other = os.urandom(20)
        self.assert_granted(self.a, self.lock_of(self.a, 0, 1))
        self.assert_granted(self.b, self.lock_of(self.b, 5, 1))
        self.assert_granted(self.c, self.lock_of(self.c, fh=other))
        self.waits(self.a, 5, 1)
        self.waits(self.b, fh=other)
        self.assertEqual(self.c.lock(self.lock_of(self.c, 0, 1, block=True)), nlm.S_DEADLCK)
        self.release(self.lock_of(self.c, fh=other), self.c)
        self.b.wait_granted(self.lock_of(self.b, fh=other))

    def test_deadlock_of_two_upgrades(self):
        mine, theirs = (self.lock_of(host, exclusive=False) for host in (self.a, self.b))
        self.assert_granted(self.a, mine)
        self.assert_granted(self.b, theirs)
        self.assert_blocked(self.a, mine.but(exclusive=True))
        self.assertEqual(self.b.lock(theirs.but(exclusive=True, block=True)), nlm.S_DEADLCK)
        self.release(theirs, self.b)
        self.a.wait_granted(mine)

    def test_a_lock_that_does_not_wait_is_no_deadlock(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 1))
        self.assert_granted(self.b, self.lock_of(self.b, 1, 1))
        self.waits(self.a, 1, 1)
        self.assert_denied(self.b, self.lock_of(self.b, 0, 1))

    # NM_LOCK

    def test_nm_lock_never_queues(self):
        held = self.hold()
        answer = self.b.ask(nlm.NM_LOCK, self.lock_of(self.b, block=True)).stat
        self.assertEqual(answer, nlm.S_DENIED)
        self.release(held)
        self.assert_free(held)
        self.assertEqual(self.b.grants.matching(), [])


class InOrder(Waiting):
    """What an owner sends without waiting for replies, while they wait for the store: a process that was killed, or two
    threads of one. Another owner's lock comes first, so that there is something to be stored."""

    settings = ("store.backend=lmdb",)

    def ask(self, how, *calls):
        other = self.lock_of(self.a, fh=os.urandom(20), svid=99)
        return self.a.ask_together([(nlm.LOCK, other), *calls], how["transport"])[1:]

    def held(self):
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock)
        return lock, lock.but(exclusive=False)

    @each((4,))
    def test_downgrade_and_unlock(self, how):
        exclusive, shared = self.held()
        self.assertEqual(self.ask(how, (nlm.LOCK, shared), (nlm.UNLOCK, exclusive)), [nlm.S_GRANTED] * 2)
        self.assert_free(exclusive)

    @each((4,))
    def test_downgrade_and_unlock_of_a_part(self, how):
        exclusive, shared = self.held()
        part = exclusive.but(offset=5, length=0)
        self.assertEqual(self.ask(how, (nlm.LOCK, shared), (nlm.UNLOCK, part)), [nlm.S_GRANTED] * 2)
        self.assertEqual(self.held_bytes(12), {byte: (1, False) for byte in range(5)})

    @each((4,))
    def test_downgrade_and_upgrade(self, how):
        exclusive, shared = self.held()
        calls = [(nlm.LOCK, shared), (nlm.LOCK, exclusive)] * 3
        self.assertEqual(self.ask(how, *calls), [nlm.S_GRANTED] * 6)
        self.assertTrue(self.assert_held(exclusive).exclusive)

    @each((4,))
    def test_downgrade_and_wait_for_the_upgrade(self, how):
        """Another client waits for a shared lock. It gets that lock before the upgrade, and the upgrade has to wait."""
        exclusive, shared = self.held()
        reader = self.waits(self.b, 0, 10, exclusive=False, svid=how["version"])
        upgrade = exclusive.but(block=True)
        self.assertEqual(self.ask(how, (nlm.LOCK, shared), (nlm.LOCK, upgrade)), [nlm.S_GRANTED, nlm.S_BLOCKED])
        self.b.wait_granted(reader)
        self.assertFalse(self.assert_held(shared).exclusive)
        self.assertEqual(self.a.cancel(upgrade), nlm.S_GRANTED)

    @each((4,))
    def test_lock_and_unlock(self, how):
        lock = self.lock_of(self.a)
        calls = [(nlm.LOCK, lock), (nlm.UNLOCK, lock)] * 3
        self.assertEqual(self.ask(how, *calls), [nlm.S_GRANTED] * 6)
        self.assert_free(lock)
        self.assertEqual(self.ask(how, *calls, (nlm.LOCK, lock)), [nlm.S_GRANTED] * 7)
        self.assert_held(lock)


class InOrderWhenSynced(InOrder):
    settings = ("store.backend=lmdb", "store.lock_durability=machine")


if __name__ == "__main__":
    main()
