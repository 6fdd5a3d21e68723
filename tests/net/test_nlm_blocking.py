#!/usr/bin/env python3
"""Waiters: BLOCKED at once, then GRANTED from the right address to the right port, and what the answer does."""

import itertools
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import TCP, UDP, FakeHost
from play import each, main
from rpc import call_message
from sniffer import Sniffer
from waiting import Waiting


def address_of(heard):
    return heard.call.peer[0].removeprefix("::ffff:")


def lookups_of_lockd(host):
    """Of its lock manager's port; the server asks for that of its statd, too."""
    return [lookup[:4] for lookup in host.lookups.matching(lambda lookup: lookup[1] == nlm.PROGRAM)]


class Blocking(Waiting):
    # BLOCKED

    @each()
    def test_blocked_at_once(self, how):
        held = self.hold()
        before = time.monotonic()
        self.assert_blocked(self.b, self.lock_of(self.b, cookie=b"waiter"), **how)
        self.assertLess(time.monotonic() - before, 5, "a machine may be busy, but nothing is waited for")
        self.release(held)
        self.assertEqual(self.b.wait_granted(held).call.version, how["version"])

    def test_who_does_not_wait_is_never_blocked(self):
        self.hold()
        self.assert_denied(self.b, self.lock_of(self.b))

    def test_the_connection_goes_on_while_one_waits(self):
        """The RPC is not held open: the same connection serves other calls."""
        self.hold()
        self.waits(self.b)
        self.assert_granted(self.b, self.lock_of(self.b, fh=os.urandom(20)))

    # Where GRANTED goes

    @each()
    def test_granted_says_what_was_asked(self, how):
        held = self.hold()
        wanted = self.lock_of(self.b, 100, 17, svid=77, oh=b"owner handle", exclusive=False, cookie=b"client's")
        self.assert_blocked(self.b, wanted, **how)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        grant = heard.grant
        self.assertEqual((grant.fh, grant.svid, grant.offset, grant.length), (self.fh, 77, 100, 17))
        self.assertEqual((grant.exclusive, grant.oh), (False, b"owner handle"))
        self.assertTrue(0 < len(grant.cookie) <= 8, "old kernels take no longer cookies")
        self.assertEqual(heard.call.version, how["version"])
        self.assertEqual(heard.call.transport, how["transport"])
        self.assertEqual(self.b.lockd.tcp_port if heard.call.transport == "tcp" else self.b.lockd.udp_port,
                         heard.call.local[1])  # fmt: skip

    @each((4,))
    def test_granted_to_the_end_says_length_0(self, how):
        for length in (0, nlm.MAX64):
            self.fh = os.urandom(20)
            held = self.hold()
            wanted = self.lock_of(self.b, 5, length, svid=length % 1000)
            self.assert_blocked(self.b, wanted, **how)
            self.release(held)
            self.assertEqual(self.b.wait_granted(wanted).grant.length, length)

    def test_granted_of_version_3_beyond_2_gib_says_what_was_asked(self):
        """The client compares start and end with what it asked for."""
        for offset, length in ((2**31, 10), (2**32 - 5, 5), (2**31 - 1, 1), (10, 2**32 - 1), (2**32 - 1, 0)):
            with self.subTest(offset=offset, length=length):
                self.fh = os.urandom(20)
                held = self.hold()
                wanted = self.lock_of(self.b, offset, length, svid=3)
                self.assert_blocked(self.b, wanted, version=3)
                self.release(held)
                grant = self.b.wait_granted(wanted).grant
                self.assertEqual((grant.offset, grant.length), (offset, length))

    def test_granted_comes_from_the_address_that_was_used(self):
        for server in (*self.network.SERVER, *self.network.SERVER6):
            for transport in ("tcp", "udp"):
                with self.subTest(server=server, transport=transport):
                    self.fh = os.urandom(20)
                    held = self.hold()
                    wanted = self.lock_of(self.b)
                    self.assert_blocked(self.b, wanted, server=server, transport=transport)
                    self.release(held)
                    self.assertEqual(address_of(self.b.wait_granted(wanted)), server)

    def test_granted_comes_from_the_address_of_that_lock(self):
        """A client that mounted two addresses of the server hears of each lock from the one that it asked."""
        held = self.hold()
        first, second = self.network.SERVER
        wanted = self.lock_of(self.b, svid=5)
        self.assert_blocked(self.b, wanted, server=second)
        self.assert_granted(self.b, self.lock_of(self.b, svid=6, fh=os.urandom(20)), server=first)
        self.release(held)
        self.assertEqual(address_of(self.b.wait_granted(wanted)), second)

    def test_granted_goes_to_the_port_that_rpcbind_names(self):
        """Asked as Linux registers it: this program, the LOCK's version, its transport."""
        for version in nlm.VERSIONS:
            with self.subTest(version=version):
                self.fh = os.urandom(20)
                host = self.add_host()
                held = self.hold()
                wanted = self.lock_of(host)
                self.assert_blocked(host, wanted, version=version)
                self.release(held)
                host.wait_granted(wanted)
                self.assertIn((2, nlm.PROGRAM, version, TCP), lookups_of_lockd(host))
                self.assertLessEqual({lookup[2] for lookup in lookups_of_lockd(host)}, {version, 4})

    def test_granted_over_ipv6_asks_rpcbind_4_then_3(self):
        for has, refused in (((2, 3, 4), []), ((2, 3), [4])):
            for transport, protocol in (("tcp", TCP), ("udp", UDP)):
                with self.subTest(has=has, transport=transport):
                    self.fh = os.urandom(20)
                    host = self.add_host()
                    host.portmap_versions = has
                    held = self.hold()
                    wanted = self.lock_of(host)
                    self.assert_blocked(host, wanted, server=self.network.SERVER6[0], transport=transport)
                    self.release(held)
                    host.wait_granted(wanted)
                    self.assertIn((max(has), nlm.PROGRAM, 4, protocol), lookups_of_lockd(host))
                    self.assertEqual({lookup[0] for lookup in host.lookups.items}, {max(has)})
                    self.assertEqual(set(host.refused_lookups.items), set(refused))

    def test_granted_over_the_other_transport_where_only_that_is_registered(self):
        for have, ask in (("udp", "tcp"), ("tcp", "udp")):
            for server in (self.network.SERVER[0], self.network.SERVER6[0]):
                with self.subTest(have=have, ask=ask, server=server):
                    self.fh = os.urandom(20)
                    host = self.add_host(lockd=(have,))
                    held = self.hold()
                    wanted = self.lock_of(host)
                    self.assert_blocked(host, wanted, server=server, transport=ask)
                    self.release(held)
                    heard = host.wait_granted(wanted)
                    self.assert_no_try_has_failed(host)
                    self.assertEqual((heard.call.transport, address_of(heard)), (have, server))

    def pass_a_lock_to(self, host, **more):
        """Of a file of its own, for which it waits."""
        self.fh = os.urandom(20)
        held = self.hold()
        wanted = self.lock_of(host, **more)
        self.assert_blocked(host, wanted)
        self.release(held)
        host.wait_granted(wanted)

    def test_granted_finds_a_lockd_that_moved(self):
        """After a restart of the client's lockd its old port is dead: rpcbind is asked again."""
        host = self.add_host()
        for svid in range(2):
            self.pass_a_lock_to(host, svid=svid)
            host.start_lockd()

    def test_granted_needs_no_new_connection_each_time(self):
        host = self.add_host()
        for svid in range(5):
            self.pass_a_lock_to(host, svid=svid)
        self.assertLessEqual(host.lockd.n_connections, 2)
        self.assertLessEqual(len(lookups_of_lockd(host)), 2)

    # How it is answered

    def test_taken_in_the_table_first(self):
        """No other client gets the lock between the release and the waiter's answer."""
        held = self.hold()
        self.b.script = FakeHost.DEFER
        wanted = self.waits(self.b)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        self.assert_denied(self.c, self.lock_of(self.c))
        self.b.answer(heard, nlm.S_GRANTED)
        self.assert_held(wanted, by=wanted.svid)
        self.assert_denied(self.c, self.lock_of(self.c))

    def test_refused_grant_releases_exactly_that_range(self):
        for stat in (nlm.S_DENIED, nlm.S_NOLOCKS, nlm.S_FAILED, 4711):
            with self.subTest(stat=stat):
                self.fh = os.urandom(20)
                held = self.hold(offset=10, length=10)
                kept = self.lock_of(self.b, 0, 5)
                self.assert_granted(self.b, kept)
                self.b.script = stat
                wanted = self.waits(self.b, 12, 3)
                self.release(held)
                self.b.wait_granted(wanted)
                later = self.lock_of(self.c, 10, 10)
                self.await_free(later)
                self.assertEqual(self.held_bytes(20), {byte: (1, True) for byte in range(5)})

    def test_refused_upgrade_keeps_the_shared_lock(self):
        other = self.lock_of(self.a, 0, 10, exclusive=False)
        mine = self.lock_of(self.b, 0, 10, exclusive=False, svid=4)
        self.assert_granted(self.a, other)
        self.assert_granted(self.b, mine)
        self.b.script = nlm.S_DENIED
        self.assert_blocked(self.b, mine.but(exclusive=True))
        self.release(other)
        self.b.wait_granted(mine)
        self.await_granted(self.c, self.lock_of(self.c, 0, 10, exclusive=False))
        holder = self.c.test(self.lock_of(self.c, 0, 10)).holder
        self.assertEqual((holder.svid, holder.exclusive), (4, False))

    def test_refused_grant_serves_the_next(self):
        held = self.hold()
        self.b.script = nlm.S_DENIED
        self.waits(self.b)
        wanted = self.waits(self.c)
        self.release(held)
        self.c.wait_granted(wanted)

    def test_denied_after_a_lost_answer_does_not_take_the_lock_away(self):
        """The Linux client took the lock at the first GRANTED, and its answer was lost. At the second GRANTED none of its
        processes waits, so it answers DENIED."""
        held = self.hold()
        answers = iter([FakeHost.DEFER, FakeHost.DEFER])
        self.b.script = lambda heard: next(answers, nlm.S_DENIED)
        wanted = self.lock_of(self.b, block=True)
        self.assert_blocked(self.b, wanted, transport="udp")
        self.waits(self.c)
        self.release(held)
        self.b.wait_granted(wanted, count=3)
        self.assertEqual(self.b.test(self.lock_of(self.b, svid=99)).holder.svid, wanted.svid)
        self.assert_denied(self.a, self.lock_of(self.a))
        self.assert_held(wanted, by=wanted.svid)

    def test_a_grant_that_its_owner_has_changed_is_not_told_again(self):
        """The owner has heard of the grant, and its answer was lost. It might take a second GRANTED for the answer to a
        new request."""
        held = self.hold()
        self.b.script = self.c.script = lambda heard: FakeHost.DEFER
        mine = self.lock_of(self.b, 0, 10, block=True)
        other = self.lock_of(self.c, 20, 10, block=True)
        for host, lock in ((self.b, mine), (self.c, other)):
            self.assert_blocked(host, lock, transport="udp")
        self.release(held)
        self.b.wait_granted(mine)
        self.assertEqual(self.b.unlock(mine.but(length=5)), nlm.S_GRANTED)
        self.assert_granted(self.b, mine.but(length=5), transport="tcp")
        told = len(self.b.grants.items)
        self.c.wait_granted(other, count=len(self.c.grants.items) + 3)  # an owner that has changed nothing is told again and again
        self.assertEqual(len(self.b.grants.items), told)
        self.assert_denied(self.a, self.lock_of(self.a, 5, 5))

    def test_a_shared_grant_is_not_told_again_to_who_waits_for_the_exclusive_one(self):
        """Clients know a grant by its owner and its range: the old one would pass for the new one."""
        held = self.hold()
        self.b.script = self.c.script = lambda heard: FakeHost.DEFER
        mine = self.lock_of(self.b, 0, 10, exclusive=False, block=True)
        other = self.lock_of(self.c, 0, 10, exclusive=False, block=True)
        for host, lock in ((self.b, mine), (self.c, other)):
            self.assert_blocked(host, lock, transport="udp")
        self.release(held)
        self.b.wait_granted(mine)
        self.c.wait_granted(other)
        self.assert_blocked(self.b, mine.but(exclusive=True), transport="tcp")
        told = len(self.b.grants.items)
        self.c.wait_granted(other, count=len(self.c.grants.items) + 3)
        self.assertEqual(len(self.b.grants.items), told)

    def test_granted_is_retried_where_lockd_was_not_there(self):
        """lockd is not there at all at first (the port is refused): the turn is not lost."""
        host = self.add_host(lockd=("tcp",))
        host.lockd.close()
        held = self.hold()
        wanted = self.waits(host)
        self.release(held)
        host.lookups.wait(1, lambda lookup: lookup[1] == nlm.PROGRAM)
        self.assert_denied(self.c, self.lock_of(self.c))
        host.start_lockd()
        host.wait_granted(wanted)
        self.assert_held(wanted, by=wanted.svid)

    def test_granted_is_retried_where_rpcbind_was_not_there(self):
        host = self.add_host(portmap=False)
        held = self.hold()
        wanted = self.waits(host)
        self.release(held)
        self.assert_held(wanted, by=wanted.svid)
        host.start_portmap()
        host.wait_granted(wanted)

    def test_granted_msg_for_a_host_without_granted(self):
        """HP-UX is such a host. Its answer to GRANTED_MSG is then its first answer: a refusal is a refusal."""
        for transport in ("tcp", "udp"):
            for stat in (nlm.S_GRANTED, nlm.S_DENIED):
                with self.subTest(transport=transport, stat=stat):
                    self.fh = os.urandom(20)
                    host = self.add_host()
                    host.script = lambda heard, stat=stat: stat if heard.is_msg else FakeHost.UNKNOWN
                    held = self.hold()
                    wanted = self.lock_of(host)
                    self.assert_blocked(host, wanted, transport=transport)
                    self.release(held)
                    self.until(lambda host=host: len(host.granted_calls) == 2, "it has heard both kinds")
                    self.assertEqual([heard.is_msg for heard in host.granted_calls], [False, True])
                    if stat == nlm.S_DENIED:
                        self.await_free(self.lock_of(self.c, svid=9))
                    else:
                        self.assert_held(wanted, by=wanted.svid)

    def test_granted_answered_with_a_wrong_cookie_is_no_nonsense(self):
        """Linux answers GRANTED inline; what the cookie is then says nothing. The lock is the waiter's."""
        held = self.hold()
        self.b.script = FakeHost.WRONG_COOKIE
        wanted = self.waits(self.b)
        self.release(held)
        self.b.wait_granted(wanted)
        self.assert_held(wanted, by=wanted.svid)

    def test_granted_res_is_matched_by_cookie_and_sender(self):
        """A third host cannot answer for the waiter, neither without the server's cookie nor with it."""
        held = self.hold()
        self.b.script = FakeHost.DEFER
        wanted = self.waits(self.b)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        for cookie in (heard.grant.cookie, b"", bytes(8), heard.grant.cookie[:-1] + b"\xff"):
            args = nlm.put_res(cookie, nlm.S_DENIED)
            self.assertEqual(self.c.call(nlm.GRANTED_RES, args), b"")
            self.assert_held(wanted, by=wanted.svid)
        args = nlm.put_res(heard.grant.cookie[:-1] + bytes([heard.grant.cookie[-1] ^ 1]), nlm.S_DENIED)
        self.b.call(nlm.GRANTED_RES, args)
        self.assert_held(wanted, by=wanted.svid)
        self.b.call(nlm.GRANTED_RES, nlm.put_res(heard.grant.cookie, nlm.S_DENIED))
        self.assert_free(wanted)

    def test_cookies_of_grants_differ_and_cannot_be_guessed(self):
        cookies = set()
        for svid in range(8):
            fh = os.urandom(20)
            self.assert_granted(self.a, self.lock_of(self.a, fh=fh))
            wanted = self.lock_of(self.b, fh=fh, svid=svid)
            self.assert_blocked(self.b, wanted)
            self.release(self.lock_of(self.a, fh=fh))
            cookies.add(self.b.wait_granted(wanted).grant.cookie)
        self.assertEqual(len(cookies), 8)
        numbers = sorted(int.from_bytes(cookie, "big") for cookie in cookies)
        self.assertGreater(min(b - a for a, b in zip(numbers, numbers[1:])), 1000, "they are counted up")

    def test_late_granted_res_of_a_settled_grant_changes_nothing(self):
        held = self.hold()
        wanted = self.waits(self.b)
        self.release(held)
        heard = self.b.wait_granted(wanted)
        self.assertEqual(self.b.lock(wanted), nlm.S_GRANTED)
        self.b.call(nlm.GRANTED_RES, nlm.put_res(heard.grant.cookie, nlm.S_DENIED))
        self.assert_held(wanted, by=wanted.svid)

    def test_silent_waiters_do_not_delay_healthy_ones(self):
        """nfs-ganesha held eight healthy ones up for 9 s. Silent are: lockd, rpcbind, and the wire itself."""
        silent = [self.add_host() for _ in range(3)]
        healthy = [self.add_host() for _ in range(8)]
        silent[0].script = FakeHost.SILENT
        silent[1].has_silent_portmap = True
        self.addCleanup(silent[2].namespace.run, "link", "set", "eth0", "up")
        held = []
        for host in silent + healthy:
            mine = self.lock_of(self.a, fh=os.urandom(20))
            held.append(mine)
            self.assert_granted(self.a, mine)
            self.assert_blocked(host, self.lock_of(host, fh=mine.fh))
        silent[2].namespace.run("link", "set", "eth0", "down")
        for mine in held:
            self.release(mine)
        for host in healthy:
            host.grants.wait(1)
        self.assert_no_try_has_failed(*silent)  # not even the first one has ended by then
        for host, mine in zip(healthy, held[len(silent) :]):
            self.assert_held(mine, by=1)
            self.assertEqual(host.grants.items[0].grant.fh, mine.fh)
        for host in silent:
            self.hosts.remove(host)
            host.close()


class Order(Waiting):
    """What a waiter hears first."""

    numbers = itertools.count()

    def test_granted_comes_after_the_blocked_reply(self):
        """Seen on the wire, with the port known and the connection warm: the waits and the releases that end them
        arrive in one piece, and are served in one turn."""
        for transport in ("udp", "tcp"):
            with self.subTest(transport=transport), Sniffer(self.b.namespace) as sniffer:
                scenes, messages = [], []
                for svid in range(10, 30):
                    fh = os.urandom(20)
                    mine = self.lock_of(self.b, fh=fh, svid=svid)
                    wanted = self.lock_of(self.b, fh=fh, svid=svid + 100, block=True)
                    self.assert_granted(self.b, mine, transport=transport)
                    asks = call_message(nlm.PROGRAM, 4, nlm.LOCK, wanted.args(nlm.LOCK))
                    scenes.append((wanted, asks))
                    messages += [asks, call_message(nlm.PROGRAM, 4, nlm.UNLOCK, mine.args(nlm.UNLOCK)), self.more(fh)]
                    if svid == 10:  # warms the way
                        self.b.caller(transport).send_together(messages)
                        self.b.wait_granted(wanted)
                        messages = []
                self.b.caller(transport).send_together(messages)
                for wanted, asks in scenes:
                    heard = self.b.wait_granted(wanted)
                    reply = sniffer.find(asks[:4] + b"\0\0\0\1")
                    grant = sniffer.find(heard.grant.cookie)
                    self.assertLess(reply, grant, "GRANTED overtook the BLOCKED reply")
                self.b.drop_callers()

    def test_granted_comes_after_the_blocked_res(self):
        """The same for a host that asks by LOCK_MSG. BLOCKED is then a call of the server, as GRANTED_MSG is. The first
        time the server knows the port of neither."""
        for transport in ("udp", "tcp"):
            with self.subTest(transport=transport):
                host = self.add_host()
                with Sniffer(host.namespace) as sniffer:
                    for svid in range(10, 20):
                        mine = self.lock_of(host, fh=os.urandom(20), svid=svid)
                        wanted = mine.but(svid=svid + 100, block=True, cookie=os.urandom(8))
                        self.assert_granted(host, mine, transport=transport)
                        asks = call_message(nlm.PROGRAM, 4, nlm.LOCK_MSG, wanted.args(nlm.LOCK_MSG))
                        gives = call_message(nlm.PROGRAM, 4, nlm.UNLOCK, mine.args(nlm.UNLOCK))
                        host.caller(transport).send_together([self.more(mine.fh), asks, gives, self.more(mine.fh)])
                        heard = host.wait_granted(wanted)
                        self.assertTrue(heard.is_msg)
                        blocked = sniffer.find(nlm.put_res(wanted.cookie, nlm.S_BLOCKED))
                        self.assertLess(blocked, sniffer.find(heard.grant.cookie), "GRANTED_MSG overtook LOCK_RES")

    def more(self, fh):
        """What has nothing to do with it: a lock beside it, whose reply may be held until it is stored."""
        beside = self.lock_of(self.b, 10_000 + 2 * next(self.numbers), 1, fh=fh[:-1], svid=1)
        return call_message(nlm.PROGRAM, 4, nlm.LOCK, beside.args(nlm.LOCK))


class OrderOfWhatIsStored(Order):
    """The same where replies wait for the store."""

    settings = ("store.backend=lmdb",)


class OrderOfWhatIsSynced(Order):
    settings = ("store.backend=lmdb", "store.lock_durability=machine")


if __name__ == "__main__":
    main()
