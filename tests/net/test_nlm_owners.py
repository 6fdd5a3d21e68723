#!/usr/bin/env python3
"""Which owner a lock has, and that no request of another owner takes it away."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import FakeHost
from play import Play, main
from rpc import UdpCaller, call_message, exchange, result_of


class Owners(Play):
    """One client is (address, name), one owner is that and svid."""

    def test_same_name_on_two_hosts(self):
        """Cloned machines, containers: their locks are two, and neither's UNLOCK or FREE_ALL is the other's."""
        mine, theirs = (self.lock_of(host, name="localhost", svid=1) for host in (self.a, self.b))
        self.assert_granted(self.a, mine)
        self.assert_denied(self.b, theirs)
        self.assertEqual(self.b.unlock(theirs), nlm.S_GRANTED)
        self.b.free_all("localhost")
        self.assert_held(mine, by=1)
        self.assert_denied(self.b, theirs)

    def test_two_names_at_one_address(self):
        """Behind NAT, or two network namespaces behind one address: same svid, two owners."""
        one, two = (self.lock_of(self.a, name=name, svid=1) for name in ("nat-one", "nat-two"))
        self.assert_granted(self.a, one)
        self.assert_denied(self.a, two)
        self.a.free_all("nat-two")
        self.assert_held(one, by=1)
        self.a.free_all("nat-one")
        self.assert_free(one)

    def test_two_names_at_one_address_with_the_same_svid_in_one_file(self):
        """Each owner unlocks its own locks."""
        one, two = self.lock_of(self.a, 0, 5, name="nat-three"), self.lock_of(self.a, 5, 5, name="nat-four")
        self.assert_granted(self.a, one)
        self.assert_granted(self.a, two)
        self.assertEqual(self.a.unlock(self.lock_of(self.a, 0, 0, name="nat-three")), nlm.S_GRANTED)
        self.assertEqual(self.held_bytes(12), {byte: (1, True) for byte in range(5, 10)})

    def test_free_all_says_the_new_state(self):
        """SHARE has no state number: what it took after FREE_ALL is not from before the first LOCK."""
        lock = self.lock_of(self.a, name="dos", state=3, access=1, deny=3)
        self.assert_granted(self.a, lock)
        self.a.free_all("dos", state=5)
        self.assert_free(lock)
        self.assertEqual(self.a.share(lock), nlm.S_GRANTED)
        self.assert_granted(self.a, lock.but(state=5))
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_DENIED)
        self.assert_granted(self.a, lock.but(state=7, svid=lock.svid + 1))  # and this is the next restart
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_GRANTED)
        self.a.free_all("dos", state=7)

    def test_two_hosts_at_one_address_where_one_has_nothing(self):
        """nat-six called after the server met nat-five, so it is not an old name of nat-five. An UNLOCK of nat-five takes
        nothing from it."""
        self.assert_granted(self.a, self.lock_of(self.a, name="nat-five", fh=os.urandom(20)))
        lock = self.lock_of(self.a, 0, 5, name="nat-six")
        self.assert_granted(self.a, lock)
        self.assertEqual(self.a.unlock(lock.but(name="nat-five")), nlm.S_GRANTED)
        self.assert_held(lock, by=lock.svid)

    def test_two_hosts_at_one_address_with_other_states(self):
        """A host that is renamed keeps its state number."""
        lock = self.lock_of(self.a, 0, 5, name="nat-seven", state=3)
        self.assert_granted(self.a, lock)
        self.assert_granted(self.a, lock.but(name="nat-eight", state=5, fh=os.urandom(20)))
        self.assertEqual(self.a.unlock(lock.but(name="nat-eight")), nlm.S_GRANTED)
        self.assert_held(lock, by=lock.svid)
        self.assert_granted(self.a, lock.but(name="nat-nine", state=3, fh=os.urandom(20), svid=9))
        self.assertEqual(self.a.unlock(lock.but(name="nat-nine")), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_name_changed_where_locks_say_an_older_number_than_the_notice(self):
        """The statd of the host was started too early, and says the number of the last boot."""
        lock = self.lock_of(self.a, 0, 5, name="early", state=3)
        self.assert_granted(self.a, lock)
        self.a.free_all("early", state=5)
        self.assert_free(lock)
        self.assert_granted(self.a, lock)
        self.assert_granted(self.a, lock.but(name="later", fh=os.urandom(20), svid=9))
        self.assert_granted(self.a, lock.but(name="other", fh=os.urandom(20), svid=9, state=5))
        self.assertEqual(self.a.unlock(lock.but(name="other")), nlm.S_GRANTED)
        self.assert_held(lock, by=lock.svid)
        self.assertEqual(self.a.unlock(lock.but(name="later")), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_name_changed_between_lock_and_unlock(self):
        """DHCP, cloud-init: name and oh change, address and svid do not."""
        lock = self.lock_of(self.a, 0, 10, name="before", svid=21)
        self.assert_granted(self.a, lock)
        renamed = lock.but(name="after", offset=0, length=0)
        self.assertNotEqual(renamed.owner, lock.owner)
        self.assertEqual(self.a.unlock(renamed), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_name_changed_between_lock_and_test(self):
        """A lock that the owner took under its old name is not in its way, even if another host calls from that address."""
        self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(20), name="another-host", svid=7))
        lock = self.lock_of(self.a, 0, 10, name="before", svid=23)
        self.assert_granted(self.a, lock)
        self.assertEqual(self.a.test(lock.but(name="after")).stat, nlm.S_GRANTED)
        self.assertEqual(self.a.test(lock.but(name="after", svid=24)).holder.svid, 23)
        self.assert_granted(self.b, self.lock_of(self.b, 20, 10, fh=lock.fh, svid=25))
        self.assertEqual(self.a.test(lock.but(name="after", length=0)).holder.svid, 25)

    def test_name_changed_between_lock_and_cancel(self):
        held = self.lock_of(self.b)
        self.assert_granted(self.b, held)
        waiting = self.lock_of(self.a, name="before", svid=22, block=True)
        self.assert_blocked(self.a, waiting)
        self.assertEqual(self.a.cancel(waiting.but(name="after")), nlm.S_GRANTED)
        self.assertEqual(self.b.unlock(held), nlm.S_GRANTED)
        self.assert_free(held)

    def test_name_changed_while_others_are_at_that_address(self):
        """Two old names have locks with that svid in that file. The server cannot know whose lock is meant, so both stay."""
        for name, offset in (("before-one", 0), ("before-two", 20)):
            self.assert_granted(self.a, self.lock_of(self.a, offset, 10, name=name, svid=23))
        self.assertEqual(self.a.unlock(self.lock_of(self.a, name="after", svid=23)), nlm.S_GRANTED)
        self.assert_held(self.lock_of(self.a, 0, 10), by=23)
        self.assert_held(self.lock_of(self.a, 20, 10), by=23)

    def test_name_changed_where_hundreds_are_at_that_address(self):
        """That is address translation. The server takes no host for another one, and no request makes it look at all."""
        lock = self.lock_of(self.a, name="before", svid=5)
        self.assert_granted(self.a, lock)
        names = [f"translated{number}" for number in range(300)]
        for number, name in enumerate(names):
            self.assertEqual(self.a.ask(nlm.NM_LOCK, self.lock_of(self.a, number, 1, fh=b"other", name=name)).stat, 0)
        self.assertEqual(self.a.unlock(lock.but(name="after")), nlm.S_GRANTED)
        self.assert_held(lock, by=5)
        for name in names:
            self.a.free_all(name)
        self.assertEqual(self.a.unlock(lock.but(name="after")), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_name_changed_does_not_take_another_svids_lock(self):
        lock = self.lock_of(self.a, name="before", svid=24)
        self.assert_granted(self.a, lock)
        self.assertEqual(self.a.unlock(lock.but(name="after", svid=25)), nlm.S_GRANTED)
        self.assert_held(lock, by=24)

    def test_oh_is_not_part_of_the_owner(self):
        lock = self.lock_of(self.a, 0, 10, oh=b"one")
        self.assert_granted(self.a, lock)
        self.assert_granted(self.a, lock.but(oh=b"two", length=20))
        self.assertEqual(self.a.unlock(lock.but(oh=b"three", length=0)), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_svids_of_one_host_are_different_owners(self):
        self.assert_granted(self.a, self.lock_of(self.a, svid=1))
        self.assert_denied(self.a, self.lock_of(self.a, svid=2))

    def test_udp_for_one_call_and_tcp_for_the_next(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock, transport="udp")
        self.assert_granted(self.a, lock, transport="tcp")
        self.assertEqual(self.a.unlock(lock, transport="tcp"), nlm.S_GRANTED)
        self.assert_free(lock)
        self.assert_granted(self.a, lock, transport="tcp")
        self.assertEqual(self.a.unlock(lock, transport="udp"), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_version_3_for_one_call_and_4_for_the_next(self):
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock, version=3)
        self.assertEqual(self.a.unlock(lock, version=4), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_ports_and_connections_do_not_matter(self):
        """Linux closes idle connections: a lock does not hang on one."""
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.a.drop_callers()
        self.assert_held(lock, by=1)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_free(lock)

    def test_a_broken_connection_ends_no_wait(self):
        held, waiting = self.lock_of(self.a), self.lock_of(self.b, svid=31)
        self.assert_granted(self.a, held)
        self.assert_blocked(self.b, waiting)
        self.b.drop_callers()
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.b.wait_granted(waiting)

    def test_one_client_two_addresses(self):
        """Two clients for the server: nothing on the wire says that they are one. The locks do conflict."""
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_denied(self.a, lock, local=self.a.other_address)
        self.assertEqual(self.a.unlock(lock, local=self.a.other_address), nlm.S_GRANTED)
        self.assert_held(lock, by=1)

    def test_ipv4_and_ipv6_of_one_host_are_two(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_denied(self.a, lock, server=self.network.SERVER6[0])

    def test_ipv4_mapped_is_ipv4(self):
        """nfs-ganesha 318: the same owner as one that calls from that IPv4 address. The server calls it back there, by
        PMAP 2."""
        stranger = self.add_host()
        held, waiting = self.lock_of(self.a), self.lock_of(stranger, svid=8)
        mapped = {"server": f"::ffff:{self.a.server}", "local": f"::ffff:{self.a.address}"}
        self.assert_granted(self.a, held, **mapped)
        self.assert_blocked(stranger, waiting, server=mapped["server"], local=f"::ffff:{stranger.address}")
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        heard = stranger.wait_granted(waiting)
        self.assertEqual(heard.call.peer[0].removeprefix("::ffff:"), self.a.server)
        self.assertEqual(stranger.lookups.items[0][0], 2)
        self.assertEqual(stranger.unlock(waiting), nlm.S_GRANTED)
        self.assert_free(waiting)

    def test_credentials_do_not_matter(self):
        """Some clients send AUTH_NONE or a daemon's uid in lock calls."""
        lock = self.lock_of(self.a)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        self.assertEqual(nlm.res_of(nlm.LOCK, exchange(self.a.caller(), message)).stat, nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_free(lock)


class Thieves(Play):
    """A third host names another host and a lock of that host."""

    def test_forged_unlock_frees_nothing(self):
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock)
        for version in nlm.VERSIONS:
            for transport in ("tcp", "udp"):
                self.assertEqual(self.b.unlock(lock, version=version, transport=transport), nlm.S_GRANTED)
                self.assert_held(lock, by=1)

    def test_forged_unlock_msg_frees_nothing(self):
        lock = self.lock_of(self.a, cookie=b"forged")
        self.assert_granted(self.a, lock)
        self.b.caller("udp").send(call_message(nlm.PROGRAM, 4, nlm.UNLOCK_MSG, lock.args(nlm.UNLOCK_MSG)))
        self.b.answers.wait(1, lambda answer: answer[1].cookie == b"forged")
        self.assert_held(lock, by=1)

    def test_forged_cancel_cancels_nothing(self):
        held, waiting = self.lock_of(self.a), self.lock_of(self.b, svid=5, block=True)
        self.assert_granted(self.a, held)
        self.assert_blocked(self.b, waiting)
        self.assertEqual(self.c.cancel(waiting), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.b.wait_granted(waiting)

    def test_forged_free_all_frees_nothing(self):
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        for transport in ("tcp", "udp"):
            for state in (0, 3, 5, 2**31 - 1):
                self.b.free_all(self.a.name, state, transport=transport)
                self.b.free_all(self.a.address, state, transport=transport)
                self.b.free_all("", state, transport=transport)
        self.assert_held(lock, by=1)

    def test_forged_granted_res_frees_nothing(self):
        held, waiting = self.lock_of(self.a), self.lock_of(self.b, svid=6)
        self.assert_granted(self.a, held)
        self.b.script = FakeHost.DEFER
        self.assert_blocked(self.b, waiting)
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        heard = self.b.wait_granted(waiting)
        for version in nlm.VERSIONS:
            self.c.call(nlm.GRANTED_RES, nlm.put_res(heard.grant.cookie, nlm.S_DENIED), version=version)
        self.assert_held(waiting, by=6)
        self.b.answer(heard, nlm.S_GRANTED)

    def test_forged_lock_with_a_new_state_is_no_reboot(self):
        """Evidence counts only from the client's own address."""
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        self.assert_denied(self.b, lock.but(state=5, svid=2))
        self.assert_held(lock, by=1)

    def test_forged_lock_does_not_join_the_owner(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_denied(self.b, lock)

    def test_sm_notify_by_proc_16_from_a_stranger(self):
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        message = call_message(nlm.PROGRAM, 4, nlm.SM_NOTIFY, nlm.Lock(name=self.a.name, state=7).args(nlm.SM_NOTIFY))
        caller = self.b.caller("udp", reserved=True)
        caller.send(message)
        self.assertEqual(self.b.call(nlm.NULL, b"", transport="udp"), b"")
        self.assert_held(lock, by=1)


class Deaths(Play):
    """Evidence of a client's end, sent by the client."""

    def test_free_all_frees_all_of_that_client(self):
        """Locks, waiters, shares, grants in flight, in every file; and serves those behind."""
        files = [os.urandom(20) for _ in range(4)]
        mine = [self.lock_of(self.a, fh=fh, svid=svid) for svid, fh in enumerate(files)]
        for lock in mine:
            self.assert_granted(self.a, lock)
        waiting = self.lock_of(self.b, fh=files[0], svid=9)
        self.assert_blocked(self.b, waiting)
        behind = self.lock_of(self.a, fh=self.fh, svid=77)
        self.assert_granted(self.c, self.lock_of(self.c))
        self.assert_blocked(self.a, behind)
        self.a.free_all()
        self.b.wait_granted(waiting)
        for lock in mine[1:]:
            self.assert_free(lock)
        self.assertEqual(self.c.unlock(self.lock_of(self.c)), nlm.S_GRANTED)
        self.assert_free(behind)

    def test_free_all_with_several_shares(self):
        """nfs-ganesha f83ab0532"""
        modes = [(1, 0), (2, 1), (1, 0), (3, 0)]
        for access, deny in modes:
            self.assertEqual(self.a.share(self.lock_of(self.a, access=access, deny=deny)), nlm.S_GRANTED)
        self.a.free_all()
        self.assertEqual(self.b.share(self.lock_of(self.b, access=3, deny=3)), nlm.S_GRANTED)

    def test_free_all_frees_nm_locks(self):
        lock = self.lock_of(self.a)
        self.assertEqual(self.a.ask(nlm.NM_LOCK, lock).stat, nlm.S_GRANTED)
        self.a.free_all()
        self.assert_free(lock)

    def test_free_all_of_an_unknown_client(self):
        self.a.free_all("unknown")
        self.a.free_all("")

    def test_free_all_over_udp_and_version_3(self):
        for version in (3, 4):
            lock = self.lock_of(self.a)
            self.assert_granted(self.a, lock)
            self.a.free_all(version=version, transport="udp")
            self.assert_free(lock)

    def test_lock_with_a_newer_state_is_a_reboot(self):
        """The client's statd did not tell the server, its next LOCK does: what is older goes, and no more."""
        name = "rebooter"
        old, kept = self.lock_of(self.a, 0, 5, name=name, svid=1, state=3), self.lock_of(self.a, 50, 5, name="other")
        self.assert_granted(self.a, old)
        self.assert_granted(self.a, kept)
        self.assert_granted(self.a, self.lock_of(self.a, 10, 5, name=name, svid=2, state=5))
        self.assert_free(old)
        self.assert_held(kept, by=1)
        self.assert_held(self.lock_of(self.a, 10, 5), by=2)

    def test_lock_with_state_0_is_no_reboot(self):
        """Linux says 0 in reclaims, and before its statd has answered."""
        name = "zero"
        old = self.lock_of(self.a, 0, 5, name=name, svid=1, state=3)
        self.assert_granted(self.a, old)
        self.assert_granted(self.a, self.lock_of(self.a, 10, 5, name=name, svid=2, state=0))
        self.assert_held(old, by=1)

    def test_a_straggler_from_before_the_reboot_is_no_reboot(self):
        name = "straggler"
        self.assert_granted(self.a, self.lock_of(self.a, 20, 5, name=name, svid=9, state=3))
        new = self.lock_of(self.a, 0, 5, name=name, svid=1, state=5)
        self.assert_granted(self.a, new)
        self.a.lock(self.lock_of(self.a, 10, 5, name=name, svid=2, state=3))
        self.assert_held(new, by=1)

    def test_waiters_go_with_a_rebooted_client(self):
        """nfs-ganesha 922: a waiter was left behind, and crashed it."""
        held = self.lock_of(self.b)
        self.assert_granted(self.b, held)
        wanted = self.lock_of(self.a, name="waiter", svid=1, state=3)
        self.assert_blocked(self.a, wanted)
        self.assert_granted(self.a, self.lock_of(self.a, name="waiter", svid=2, state=5, fh=os.urandom(20)))
        self.assertEqual(self.b.unlock(held), nlm.S_GRANTED)
        self.assert_free(held)
        self.assertEqual(self.a.grants.matching(lambda heard: heard.grant.fh == self.fh), [])


class Duplicates(Play):
    def test_udp_duplicate_of_lock_after_unlock_does_not_lock_again(self):
        lock = self.lock_of(self.a)
        caller = self.a.caller("udp")
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        exchange(caller, message)
        self.assertEqual(self.a.unlock(lock, transport="udp"), nlm.S_GRANTED)
        self.assert_free(lock)
        again = nlm.res_of(nlm.LOCK, exchange(caller, message))
        self.assertEqual(again, nlm.Res(lock.cookie, nlm.S_GRANTED), "the stored reply")
        self.assert_free(lock)

    def test_udp_duplicate_from_another_port_after_unlock(self):
        """A restarted lockd may use another socket; a network that delays may not care. Same host, same xid."""
        lock = self.lock_of(self.a)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        first = UdpCaller((self.a.server, 2049), (self.a.address, 0), self.a.namespace)
        exchange(first, message)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        first.send(message)
        self.assertEqual(nlm.res_of(nlm.LOCK, result_of(first.receive())).stat, nlm.S_GRANTED)
        first.close()
        self.assert_free(lock)

    def test_udp_duplicate_of_a_blocked_lock_after_cancel(self):
        held, wanted = self.lock_of(self.b), self.lock_of(self.a, block=True)
        self.assert_granted(self.b, held)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, wanted.args(nlm.LOCK))
        caller = self.a.caller("udp")
        exchange(caller, message)
        self.assertEqual(self.a.cancel(wanted, transport="udp"), nlm.S_GRANTED)
        exchange(caller, message)
        self.assertEqual(self.b.unlock(held), nlm.S_GRANTED)
        self.assert_free(held)

    def test_udp_duplicate_of_unlock_after_a_new_lock(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock, transport="udp")
        message = call_message(nlm.PROGRAM, 4, nlm.UNLOCK, lock.args(nlm.UNLOCK))
        caller = self.a.caller("udp")
        exchange(caller, message)
        self.assert_granted(self.a, lock, transport="udp")
        exchange(caller, message)
        self.assert_held(lock, by=1)

    def test_udp_duplicate_of_free_all_after_a_new_lock(self):
        """A client that starts anew frees all and locks; a copy of the first that was delayed frees nothing."""
        lock = self.lock_of(self.a, name="anew")
        caller = self.a.caller("udp")
        message = call_message(nlm.PROGRAM, 4, nlm.FREE_ALL, nlm.Lock(name="anew", state=7).args(nlm.FREE_ALL))
        self.assert_granted(self.a, lock)
        exchange(caller, message)
        self.assert_free(lock)
        self.assert_granted(self.a, lock, transport="udp")
        exchange(caller, message)
        self.assert_held(lock, by=1)

    def test_udp_same_xid_for_another_call_is_another_call(self):
        caller = self.a.caller("udp")
        for offset in (0, 10):
            lock = self.lock_of(self.a, offset, 5)
            exchange(caller, call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), xid=4711))
            self.assert_held(lock, by=1)

    def test_udp_duplicates_with_the_longest_cookie(self):
        """Their replies are the longest, and kept as any other."""
        lock = self.lock_of(self.a, cookie=os.urandom(1024), access=1, deny=2)
        caller = self.a.caller("udp")
        for procedure, undo in ((nlm.LOCK, nlm.UNLOCK), (nlm.NM_LOCK, nlm.UNLOCK), (nlm.SHARE, nlm.UNSHARE)):
            with self.subTest(procedure=procedure):
                message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure))
                first = exchange(caller, message)
                self.assertEqual(nlm.res_of(procedure, first).stat, nlm.S_GRANTED)
                self.assertEqual(self.a.ask(undo, lock, transport="udp").stat, nlm.S_GRANTED)
                self.assertEqual(exchange(caller, message), first)
                self.assert_free(lock)
                self.assertEqual(self.b.share(self.lock_of(self.b, access=2)), nlm.S_GRANTED)
                self.assertEqual(self.b.unshare(self.lock_of(self.b, access=2)), nlm.S_GRANTED)

    def test_udp_duplicate_of_lock_msg_with_the_longest_cookie(self):
        lock = self.lock_of(self.a, cookie=os.urandom(1024))
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK_MSG, lock.args(nlm.LOCK_MSG))
        mine = lambda answer: answer[1].cookie == lock.cookie
        self.a.caller("udp").send(message)
        self.a.answers.wait(1, mine)
        self.assertEqual(self.a.unlock(lock, transport="udp"), nlm.S_GRANTED)
        self.a.caller("udp").send(message)
        self.a.answers.wait(2, mine)
        self.assert_free(lock)

    def test_udp_duplicate_of_lock_msg_after_unlock_does_not_lock_again(self):
        """Its _RES is said again, but nothing is done again."""
        lock = self.lock_of(self.a, cookie=b"dupmsg")
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK_MSG, lock.args(nlm.LOCK_MSG))
        caller = self.a.caller("udp")
        mine = lambda answer: answer[1].cookie == b"dupmsg"
        caller.send(message)
        self.a.answers.wait(1, mine)
        caller.send(message)
        self.a.answers.wait(2, mine)
        self.assertEqual(self.a.unlock(lock, transport="udp"), nlm.S_GRANTED)
        caller.send(message)
        self.assertEqual(self.a.call(nlm.NULL, b"", transport="udp"), b"")
        self.assert_free(lock)


if __name__ == "__main__":
    main()
