#!/usr/bin/env python3
"""Ranges, POSIX semantics, statuses and shares: what is locked after which request."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from play import Play, each, main
from rpc import call_message, exchange

GIB = 2**30


class Ranges(Play):
    def holder_seen(self, **how):
        """The holder of byte ranges as host b sees it in that version."""
        return self.b.test(self.lock_of(self.b), **how).holder

    @each()
    def test_length_0_is_to_the_end(self, how):
        self.assert_granted(self.a, self.lock_of(self.a, 100, 0), **how)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 100), **how)
        self.assert_denied(self.b, self.lock_of(self.b, nlm.EOF, 1))
        holder = self.c.test(self.lock_of(self.c, 100, 1), **how).holder
        self.assertEqual((holder.offset, holder.length), (100, 0))

    @each((4,))
    def test_length_of_2_to_the_64_minus_1_is_to_the_end(self, how):
        """Windows; off + len wraps around."""
        for offset in (0, 1, 100):
            with self.subTest(offset=offset):
                self.fh = os.urandom(20)
                lock = self.lock_of(self.a, offset, nlm.MAX64)
                self.assert_granted(self.a, lock, **how)
                self.assertEqual(self.holder_seen(**how), nlm.Holder(True, 1, lock.owner, offset, 0))
                self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
                self.assert_free(lock)

    @each((4,))
    def test_end_beyond_the_largest_file_is_to_the_end(self, how):
        for offset, length in ((1, nlm.EOF + 1), (2, nlm.EOF), (nlm.EOF, 2), (nlm.EOF, nlm.MAX64), (5, 2**63 + 7)):
            with self.subTest(offset=offset, length=length):
                self.fh = os.urandom(20)
                lock = self.lock_of(self.a, offset, length)
                self.assert_granted(self.a, lock, **how)
                self.assertEqual(self.holder_seen(**how).length, 0)
                self.assertEqual(self.a.test(lock, **how).stat, nlm.S_GRANTED)
                self.assertEqual(self.a.cancel(lock, **how), nlm.S_DENIED)
                self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
                self.assert_free(self.lock_of(self.a))

    @each((4,))
    def test_the_last_bytes(self, how):
        self.assert_granted(self.a, self.lock_of(self.a, nlm.EOF, 1), **how)
        self.assert_granted(self.b, self.lock_of(self.b, nlm.EOF - 1, 1), **how)
        self.assert_denied(self.c, self.lock_of(self.c, nlm.EOF, 0), **how)
        self.assert_granted(self.c, self.lock_of(self.c, 0, nlm.EOF - 1), **how)

    @each((4,))
    def test_merge_and_split_at_the_end_of_the_largest_file(self, how):
        def held(*ranges):
            """Just these, as others see them: each is shown by its first byte, and what is between is free."""
            end = 0
            for offset, length in ranges:
                if offset > end:
                    self.assertIsNone(self.b.test(self.lock_of(self.b, end, offset - end), **how).holder)
                holder = self.b.test(self.lock_of(self.b, offset, 1), **how).holder
                self.assertEqual((holder.offset, holder.length), (offset, length))
                end = offset + length if length else nlm.EOF + 1
            if end <= nlm.EOF:
                self.assertIsNone(self.b.test(self.lock_of(self.b, end, 0), **how).holder)

        def take(offset, length, exclusive=True):
            self.assert_granted(self.a, self.lock_of(self.a, offset, length, exclusive=exclusive), **how)

        def drop(offset, length):
            self.assertEqual(self.a.unlock(self.lock_of(self.a, offset, length), **how), nlm.S_GRANTED)

        take(0, nlm.EOF)
        held((0, nlm.EOF))
        take(nlm.EOF, 1)
        held((0, 0))
        drop(nlm.EOF, 1)
        held((0, nlm.EOF))
        take(nlm.EOF, nlm.MAX64)
        drop(nlm.EOF - 1, 1)
        held((0, nlm.EOF - 1), (nlm.EOF, 0))
        take(0, 2**63)
        held((0, 0))
        take(nlm.EOF, 1, exclusive=False)
        held((0, nlm.EOF), (nlm.EOF, 0))
        self.assert_granted(self.c, self.lock_of(self.c, nlm.EOF, 0, exclusive=False), **how)
        self.assert_denied(self.a, self.lock_of(self.a, 5, 0), **how)
        drop(1, nlm.MAX64)
        held((0, 1), (nlm.EOF, 0))

    @each((4,))
    def test_offset_beyond_2_to_the_63_is_fbig(self, how):
        for offset in (nlm.EOF + 1, nlm.MAX64):
            for length in (0, 1, nlm.MAX64):
                lock = self.lock_of(self.a, offset, length)
                for procedure in (nlm.LOCK, nlm.TEST, nlm.NM_LOCK, nlm.UNLOCK, nlm.CANCEL):
                    self.assertEqual(self.a.ask(procedure, lock, **how).stat, nlm.S_FBIG)
                self.assertEqual(self.a.lock(lock.but(block=True), **how), nlm.S_FBIG)

    @each((1, 3))
    def test_old_ranges_up_to_2_gib_are_exact(self, how):
        last = 2**31 - 1
        self.assert_granted(self.a, self.lock_of(self.a, last - 9, 10), **how)
        holder = self.b.test(self.lock_of(self.b, last, 1)).holder
        self.assertEqual((holder.offset, holder.length), (last - 9, 10))
        self.assert_granted(self.b, self.lock_of(self.b, last + 1, 1))

    @each((1, 3))
    def test_old_ranges_beyond_2_gib_go_to_the_end(self, how):
        """The end is negative where it is signed: Linux reads that as to the end."""
        for offset, length in ((GIB, 2 * GIB), (5, 2**32 - 1), (2**31 - 1, 2)):
            with self.subTest(offset=offset, length=length):
                self.fh = os.urandom(20)
                lock = self.lock_of(self.a, offset, length)
                self.assert_granted(self.a, lock, **how)
                holder = self.holder_seen()
                self.assertEqual((holder.offset, holder.length), (offset, 0))
                self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
                self.assert_free(lock)

    @each((1, 3))
    def test_old_offsets_beyond_2_gib(self, how):
        """Not what Linux sends, but 32 bits are 32 bits: locked there, not somewhere else."""
        lock = self.lock_of(self.a, 3 * GIB, 10)
        self.assert_granted(self.a, lock, **how)
        self.assertEqual(self.holder_seen().offset, 3 * GIB)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 2 * GIB), **how)
        self.assertEqual(self.a.unlock(lock, **how), nlm.S_GRANTED)
        self.assert_free(lock)

    @each((1, 3))
    def test_old_holders_beyond_2_gib_are_clamped(self, how):
        """What 31 bits cannot say: the offset stops at the last one that they can, and the length becomes 0."""
        for offset, length, seen in (
            (5 * GIB, 10, (2**31 - 1, None)),
            (GIB, 8 * GIB, (GIB, 0)),
            (7, 0, (7, 0)),
            (10, 10, (10, 10)),
            (nlm.EOF, 1, (2**31 - 1, None)),
        ):
            with self.subTest(offset=offset, length=length):
                self.fh = os.urandom(20)
                self.assert_granted(self.a, self.lock_of(self.a, offset, length))
                holder = self.holder_seen(**how)
                self.assertEqual(holder.offset, seen[0])
                if seen[1] is None:
                    self.assertIn(holder.length, (0, 1, 2**31 - 1))
                else:
                    self.assertEqual(holder.length, seen[1])

    def test_versions_see_each_other(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10), version=1)
        self.assert_denied(self.b, self.lock_of(self.b, 5, 1), version=3)
        self.assert_denied(self.b, self.lock_of(self.b, 5, 1), version=4)
        self.assertEqual(self.a.unlock(self.lock_of(self.a, 0, 10), version=4), nlm.S_GRANTED)
        self.assert_granted(self.b, self.lock_of(self.b, 5, 1), version=3)


class Semantics(Play):
    X, S = True, False

    def bytes_of(self, text):
        """'..XXs' -> {2: (1, True), ...}: svid 1 holds it exclusively, or shared."""
        return {i: (1, char == "X") for i, char in enumerate(text) if char != "."}

    def check(self, text):
        self.assertEqual(self.held_bytes(len(text) + 2), self.bytes_of(text))

    def take(self, offset, length, exclusive=True):
        self.assert_granted(self.a, self.lock_of(self.a, offset, length, exclusive=exclusive))

    def drop(self, offset, length):
        self.assertEqual(self.a.unlock(self.lock_of(self.a, offset, length)), nlm.S_GRANTED)

    def test_same_mode_merges(self):
        self.take(0, 3)
        self.take(3, 3)
        self.take(2, 6)
        self.check("XXXXXXXX")
        holder = self.b.test(self.lock_of(self.b)).holder
        self.assertEqual((holder.offset, holder.length), (0, 8))

    def test_other_mode_splits(self):
        self.take(0, 9)
        self.take(3, 3, self.S)
        self.check("XXXsssXXX")

    def test_upgrade(self):
        """chimera 1096: a repeated LOCK with the other mode converts."""
        self.take(0, 5, self.S)
        self.take(0, 5, self.X)
        self.check("XXXXX")
        self.assert_denied(self.b, self.lock_of(self.b, 0, 5, exclusive=False))

    def test_downgrade(self):
        self.take(0, 5, self.X)
        self.take(0, 5, self.S)
        self.check("sssss")
        self.assert_granted(self.b, self.lock_of(self.b, 0, 5, exclusive=False))

    def test_partial_upgrade(self):
        self.take(0, 6, self.S)
        self.take(2, 2, self.X)
        self.check("ssXXss")

    def test_denied_upgrade_keeps_what_was_held(self):
        self.take(0, 5, self.S)
        self.assert_granted(self.b, self.lock_of(self.b, 4, 1, svid=1, exclusive=False))
        self.assert_denied(self.a, self.lock_of(self.a, 0, 5))
        self.check("sssss")

    def test_queued_upgrade_keeps_what_was_held(self):
        self.take(0, 5, self.S)
        self.assert_granted(self.b, self.lock_of(self.b, 4, 1, svid=1, exclusive=False))
        self.assert_blocked(self.a, self.lock_of(self.a, 0, 5))
        self.check("sssss")
        self.assertEqual(self.b.unlock(self.lock_of(self.b)), nlm.S_GRANTED)
        self.a.wait_granted(self.lock_of(self.a))
        self.check("XXXXX")

    def test_unlock_of_the_middle(self):
        self.take(0, 9)
        self.drop(3, 3)
        self.check("XXX...XXX")

    def test_unlock_of_the_ends(self):
        self.take(2, 6)
        self.drop(0, 4)
        self.drop(6, 10)
        self.check("....XX")

    def test_unlock_of_several(self):
        self.take(0, 2)
        self.take(4, 2, self.S)
        self.take(8, 2)
        self.drop(1, 8)
        self.check("X........X")

    def test_unlock_of_all(self):
        """What a Linux client sends on close, whatever it held."""
        self.take(0, 2)
        self.take(4, 2, self.S)
        self.take(nlm.EOF, 1)
        self.drop(0, 0)
        self.assert_free(self.lock_of(self.a))

    def test_unlock_of_nothing(self):
        self.drop(0, 0)
        self.drop(5, 5)
        self.check("")

    def test_unlock_twice(self):
        self.take(0, 5)
        self.drop(0, 5)
        self.drop(0, 5)
        self.check("")

    def test_unlock_of_the_end_of_a_lock_to_the_end(self):
        self.take(0, 0)
        self.drop(4, 0)
        self.check("XXXX")

    def test_lock_again_is_granted(self):
        self.take(2, 3)
        self.take(2, 3)
        self.take(3, 1)
        self.check("..XXX")

    def test_shared_locks_go_together(self):
        self.take(0, 5, self.S)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 5, exclusive=False))
        self.assert_denied(self.c, self.lock_of(self.c, 0, 5, exclusive=True))

    def test_test_with_the_mode_that_fits(self):
        self.take(0, 5, self.S)
        self.assertEqual(self.b.test(self.lock_of(self.b, exclusive=False)).stat, nlm.S_GRANTED)
        denied = self.b.test(self.lock_of(self.b, exclusive=True))
        self.assertEqual((denied.stat, denied.holder.exclusive), (nlm.S_DENIED, False))

    def test_own_locks_never_conflict(self):
        self.take(0, 5)
        self.assertEqual(self.a.test(self.lock_of(self.a)).stat, nlm.S_GRANTED)


class Shares(Play):
    NONE, READ, WRITE, BOTH = range(4)

    def share(self, host, access, deny, **more):
        return host.share(self.lock_of(host, access=access, deny=deny, **more))

    def unshare(self, host, access, deny, **more):
        return host.unshare(self.lock_of(host, access=access, deny=deny, **more))

    def test_every_pair_of_modes(self):
        """A's access against B's deny, and A's deny against B's access."""
        for a in range(16):
            for b in range(16):
                self.fh = os.urandom(16)
                access_a, deny_a, access_b, deny_b = a & 3, a >> 2, b & 3, b >> 2
                conflict = access_a & deny_b or deny_a & access_b
                self.assertEqual(self.share(self.a, access_a, deny_a), nlm.S_GRANTED)
                self.assertEqual(
                    self.share(self.b, access_b, deny_b), nlm.S_DENIED if conflict else nlm.S_GRANTED, (a, b)
                )

    def test_the_owner_is_host_and_oh(self):
        self.assertEqual(self.share(self.a, self.BOTH, self.BOTH, oh=b"one"), nlm.S_GRANTED)
        self.assertEqual(self.share(self.a, self.READ, self.NONE, oh=b"two"), nlm.S_DENIED)
        self.assertEqual(self.share(self.b, self.READ, self.NONE, oh=b"one"), nlm.S_DENIED)
        self.assertEqual(self.share(self.a, self.READ, self.NONE, oh=b"one"), nlm.S_GRANTED)

    def test_counted_as_windows_does(self):
        """Opened twice, closed once: still open."""
        for _ in range(2):
            self.assertEqual(self.share(self.a, self.READ, self.WRITE), nlm.S_GRANTED)
        self.assertEqual(self.unshare(self.a, self.READ, self.WRITE), nlm.S_GRANTED)
        self.assertEqual(self.share(self.b, self.WRITE, self.NONE), nlm.S_DENIED)
        self.assertEqual(self.unshare(self.a, self.READ, self.WRITE), nlm.S_GRANTED)
        self.assertEqual(self.share(self.b, self.WRITE, self.NONE), nlm.S_GRANTED)

    def test_several_modes_of_one_owner_are_kept_apart(self):
        self.assertEqual(self.share(self.a, self.READ, self.NONE), nlm.S_GRANTED)
        self.assertEqual(self.share(self.a, self.WRITE, self.READ), nlm.S_GRANTED)
        self.assertEqual(self.unshare(self.a, self.WRITE, self.READ), nlm.S_GRANTED)
        self.assertEqual(self.share(self.b, self.READ, self.NONE), nlm.S_GRANTED)
        self.assertEqual(self.share(self.b, self.NONE, self.READ), nlm.S_DENIED)

    def test_a_repeated_share_call_counts_once(self):
        """The same xid is the same call."""
        lock = self.lock_of(self.a, access=self.READ, deny=self.WRITE)
        message = call_message(nlm.PROGRAM, 4, nlm.SHARE, lock.args(nlm.SHARE))
        for transport in ("udp", "tcp"):
            with self.subTest(transport=transport):
                for _ in range(3):
                    exchange(self.a.caller(transport), message)
                self.assertEqual(self.unshare(self.a, self.READ, self.WRITE), nlm.S_GRANTED)
                self.assertEqual(self.share(self.b, self.WRITE, self.NONE), nlm.S_GRANTED)
                self.assertEqual(self.unshare(self.b, self.WRITE, self.NONE), nlm.S_GRANTED)
                message = message[:3] + bytes([message[3] ^ 1]) + message[4:]

    def test_unshare_of_nothing(self):
        self.assertEqual(self.unshare(self.a, self.BOTH, self.BOTH), nlm.S_GRANTED)

    def test_unshare_of_another_ones_share(self):
        self.assertEqual(self.share(self.a, self.BOTH, self.BOTH), nlm.S_GRANTED)
        self.assertEqual(self.unshare(self.b, self.BOTH, self.BOTH), nlm.S_GRANTED)
        self.assertEqual(self.unshare(self.b, self.BOTH, self.BOTH, name=self.a.name, oh=b"1@client0"), nlm.S_GRANTED)
        self.assertEqual(self.share(self.c, self.READ, self.NONE), nlm.S_DENIED)

    def test_shares_and_locks_do_not_meet(self):
        self.assertEqual(self.share(self.a, self.BOTH, self.BOTH), nlm.S_GRANTED)
        self.assert_granted(self.b, self.lock_of(self.b))


if __name__ == "__main__":
    main()
