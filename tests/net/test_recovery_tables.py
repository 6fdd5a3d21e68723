#!/usr/bin/env python3
"""Every row of the tables of the recovery model, over real sockets, with SIGKILL for the daemon, once for each store.

What is remembered, the kinds of registration, the restart, and what is evidence that a client is dead.
"""

import os
import re
import signal
import sys
import time
import uuid
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from nsm import FAIL, NOTIFY, SUCC, Local, Registrar, state_of
from play import main
from recovering import OverPostgres, Recovering
from rpc import NoReply, Service, call_message, result_of
from xdr import Out


class Base(Recovering):
    more_settings = ("recovery.notify_timeout_ms=3000",)

    def in_grace(self):
        return self.hosts[-1].test(nlm.Lock(fh=os.urandom(16), name="stranger")).stat == nlm.S_GRACE

    def state(self):
        return state_of(self.network.server)

    def reclaim(self, host, lock):
        return host.lock(lock.but(reclaim=True))


class Evidence(Base):
    """When is a client dead? The same for every store."""

    def test_evidence_notice(self):
        lock = self.held(self.a, state=3)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.a.notify(5)
        self.b.wait_granted(lock)

    def test_evidence_free_all(self):
        self.held(self.a)
        self.a.free_all()
        self.assert_free(self.lock_of(self.a))

    def test_evidence_newer_state(self):
        self.held(self.a, offset=0, length=5, state=3)
        new = self.held(self.a, offset=10, length=5, state=5)
        self.assert_free(self.lock_of(self.a, 0, 5))
        self.a.notify(5)  # the late notice of that same restart
        self.assert_held(new)

    def test_no_evidence_from_elsewhere(self):
        lock = self.held(self.a, state=3)
        self.b.notify(5, name=self.a.name)
        self.b.notify(7, name=self.a.name, reserved=True)
        self.a.notify(9, name="any-host", local=self.a.other_address)
        self.assert_held(lock)
        self.assertEqual(self.log.count("a notice of a restart is ignored"), 2, "once a source")

    def test_evidence_short_and_long_names(self):
        self.held(self.a, state=3)
        self.a.notify(5, name=f"{self.a.name.upper()}.example.org")
        self.assert_free(self.lock_of(self.a))

    def test_evidence_another_name_from_the_only_client_there(self):
        """Its own statd says the number of the notice; it said another one before."""
        lock = self.held_and_seen(self.a, 3, state=3)
        self.a.notify(5, name="renamed")
        self.assert_held(lock)
        self.a.state = 5
        self.a.notify(5, name="renamed")
        self.assert_free(lock)

    def test_no_evidence_another_name_where_statd_says_nothing(self):
        lock = self.held(self.a, state=3)
        self.a.notify(5, name="renamed")
        self.assert_held(lock)

    def test_no_evidence_another_name_where_several_are(self):
        lock = self.held(self.a, state=3)
        self.held(self.a, name="twin", fh=os.urandom(8), state=3)
        self.a.notify(5, name="renamed")
        self.assert_held(lock)
        self.a.notify(5)
        self.assert_free(lock)

    def test_no_evidence_broken_connection(self):
        lock = self.held(self.a)
        self.a.drop_callers()
        self.assert_held(lock)

    def test_operator_on_the_host(self):
        self.held(self.a, state=3)
        stranger = Local(self.network.server)
        stranger.ask(NOTIFY, Out().string(self.a.name).i32(5).bytes())
        self.assert_held(self.lock_of(self.a))
        stranger.close()
        root = Local(self.network.server, reserved=True)
        root.ask(NOTIFY, Out().string(self.a.name).i32(5).bytes())
        root.close()
        self.assert_free(self.lock_of(self.a))

    def test_evidence_operator(self):
        lock = self.held(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        answer = self.rest.call("DELETE", f"/api/v1/clients/{quote(f'nlm:{self.a.address}:{self.a.name}')}", token=True)
        self.assertEqual((answer.status, answer.json), (200, {"locks_released": 1}))
        self.b.wait_granted(lock)

    def test_evidence_takes_everything(self):
        """Locks in several files, a reservation, a place in the queue and a grant on its way; others keep theirs."""
        files = [os.urandom(20) for _ in range(5)]
        for fh in files:
            self.held(self.a, fh=fh, state=3)
        waiters = [self.lock_of(self.b, fh=fh) for fh in files]
        for waiter in waiters:
            self.assert_blocked(self.b, waiter)
        self.assertEqual(self.a.share(self.lock_of(self.a, access=1, deny=3)), nlm.S_GRANTED)
        theirs = self.held(self.c, 100, 5)
        self.assert_blocked(self.a, self.lock_of(self.a, 100, 5, svid=9, state=3))
        first = self.held(self.c, 200, 5)
        self.a.script = self.a.SILENT
        self.assert_blocked(self.a, self.lock_of(self.a, 200, 5, svid=10, state=3))
        self.assertEqual(self.c.unlock(first), nlm.S_GRANTED)
        self.a.grants.wait(1, lambda heard: heard.grant.svid == 10)
        self.a.notify(5)
        for waiter in waiters:
            self.b.grants.wait(1, lambda heard, fh=waiter.fh: heard.grant.fh == fh)
        self.assertEqual(self.b.share(self.lock_of(self.b, access=3)), nlm.S_GRANTED)
        self.assert_free(first)
        self.assertEqual(self.c.unlock(theirs), nlm.S_GRANTED)
        self.assert_free(theirs)

    def test_no_evidence_refused_grant(self):
        lock = self.held(self.b, 0, 5)
        theirs = self.held(self.a, 10, 5)
        self.b.script = nlm.S_DENIED
        self.assert_blocked(self.b, self.lock_of(self.b, 10, 5))
        self.assertEqual(self.a.unlock(theirs), nlm.S_GRANTED)
        self.b.wait_granted(theirs)
        self.until(lambda: self.holder_of(theirs) is None, "B does not want it")
        self.assert_held(lock)

    def test_no_evidence_unanswered_grant(self):
        lock, theirs = self.held(self.b, 0, 5), self.held(self.a, 10, 5)
        self.b.script = self.b.SILENT
        self.assert_blocked(self.b, self.lock_of(self.b, 10, 5))
        self.assertEqual(self.a.unlock(theirs), nlm.S_GRANTED)
        self.b.wait_granted(theirs)
        self.b.drop_callers()
        self.assert_held(lock)
        self.assert_held(theirs)

    def test_evidence_is_passed_on_to_watchers(self):
        local, registrar = Local(self.network.server), Registrar(self.stage, self.network.server)
        self.assertEqual(nsm.mon(local.ask, self.a.address, registrar.name, 200300, 16, b"p" * 16)[0], SUCC)
        local.close()
        lock = self.held(self.a, state=3)
        self.a.notify(5)
        self.assertEqual([(s.name, s.state) for s in registrar.heard.wait()], [(self.a.address, 5)])
        self.assert_free(lock)
        registrar.close()

    # Who may register, and how many

    def test_only_this_host_may_register(self):
        self.restart(nsm__allow_mon="local")
        for transport in ("udp", "tcp"):
            self.assertEqual(self.a.mon("server", transport=transport)[0], FAIL)
        local = Local(self.network.server)
        self.assertEqual(nsm.mon(local.ask, self.a.address, "127.0.0.1", 200300, 16, bytes(16))[0], SUCC)
        local.close()

    def test_one_client_too_many(self):
        self.restart(recovery__max_clients="2")
        self.held(self.a, offset=0, length=1)
        self.assertEqual(self.b.mon("server", transport="tcp")[0], SUCC)
        self.assertEqual(self.c.mon("server")[0], FAIL)
        self.assertEqual(self.c.lock(self.lock_of(self.c, 5, 1)), nlm.S_NOLOCKS)
        self.assertEqual(self.b.mon("server", priv=b"b" * 16)[0], SUCC, "B is registered")
        registered = [c for c in self.rest.get("/api/v1/clients").json["clients"] if c["registered_at"]]
        self.assertEqual({client["address"] for client in registered}, {self.a.address, self.b.address})

    def test_registering_again_is_no_second_client(self):
        for procedure in (7, 9):
            self.assertEqual(self.a.mon("server", procedure=procedure)[0], SUCC)
        clients = self.rest.get("/api/v1/clients").json["clients"]
        self.assertEqual([client["callback"]["procedure"] for client in clients], [9])


class Table(Evidence):
    """What a store that remembers is for."""

    # What is remembered

    def test_epoch_and_state_number(self):
        before = self.state()
        self.assertEqual(before % 2, 1)
        for kill in (True, False, True):
            self.restart(kill=kill)
            self.assertEqual(self.state(), before + 2)
            before += 2

    def test_clean_stop_marker(self):
        lock = self.held(self.a)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.restart(kill=False)
        self.assertFalse(self.in_grace())
        self.held(self.a)
        self.restart(kill=False)
        self.assertTrue(self.in_grace(), "A could reclaim")

    def test_registration_before_granted(self):
        self.held(self.a)
        self.restart()
        self.a.told.wait()

    def test_registration_before_blocked(self):
        self.held(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.restart()
        self.b.told.wait()

    def test_registration_knows_the_address_that_was_used(self):
        self.assert_granted(self.a, self.lock_of(self.a), server=self.network.SERVER[1])
        self.restart()
        notices = self.a.told.wait(2)
        self.assertEqual({notice.source for notice in notices}, {self.network.SERVER[1]})
        self.assertEqual([notice.name for notice in notices], ["server", self.network.SERVER[1]])
        self.assertTrue(all(notice.port < 1024 for notice in notices))

    def test_locks(self):
        locks = [self.held(self.a, offset=10 * i, length=5, svid=i % 3, exclusive=i % 2 == 0) for i in range(9)]
        self.restart()
        self.assertTrue(self.in_grace())
        for lock in locks:
            self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name)), nlm.S_GRACE, "it is not B's")
        for lock in locks:
            self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")
        for lock in locks:
            self.assert_held(lock, by=lock.svid)

    def test_locks_with_machine_durability(self):
        self.restart(store__lock_durability="machine")
        lock = self.held(self.a)
        self.restart(store__lock_durability="machine")
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)

    def test_no_locks_with_durability_none(self):
        self.restart(store__lock_durability="none")
        lock = self.held(self.a)
        self.restart(store__lock_durability="none")
        self.assertTrue(self.in_grace())
        self.a.told.wait()
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name)), nlm.S_DENIED, "it conflicts")
        self.assertTrue(self.in_grace(), "the list is not known to be complete")

    def test_waiters_are_not(self):
        held = self.held(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.restart()
        self.assertEqual(self.reclaim(self.a, held), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.assert_free(held)

    def test_shares(self):
        share = self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_DENIED)

    def test_a_share_that_is_reclaimed_twice_is_one(self):
        """The answer to the first was lost, or its host heard of the restart twice."""
        share, other = self.lock_of(self.a, access=2, deny=1), self.held(self.a)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        for _ in range(2):
            self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.a, other), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.a.unshare(share), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1, deny=3)), nlm.S_GRANTED)

    def test_a_share_that_was_not_held_is_not_reclaimed(self):
        """Else a client that lost its reservation in an earlier grace period could reclaim it from its next owner."""
        share = self.lock_of(self.a, access=2, deny=3)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        self.assertEqual(self.b.share(self.lock_of(self.b, access=2, deny=3, reclaim=True)), nlm.S_GRACE)
        self.assertEqual(self.a.share(share.but(access=3, reclaim=True)), nlm.S_GRACE)
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")

    def test_a_share_is_given_up_in_grace(self):
        share = self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.a.unshare(share), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "nothing is left to reclaim")
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1, deny=3)), nlm.S_GRANTED)

    def test_a_copy_of_the_first_notice_takes_no_share(self):
        """The notice came before the share, and a SHARE has no number. A LOCK said it."""
        self.a.notify(7, transport="tcp")
        share = self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.assert_granted(self.a, self.lock_of(self.a, state=7, fh=os.urandom(16)))
        self.restart()
        self.a.notify(7, transport="tcp")
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)

    def let_go(self, how):
        """Something is held and given up again; the answer has come when this returns."""
        if how == "unshare":
            share = self.lock_of(self.a, access=2, deny=1)
            self.assertEqual(self.a.share(share), nlm.S_GRANTED)
            self.assertEqual(self.a.unshare(share), nlm.S_GRANTED)
            return
        lock = self.held(self.a)
        if how == "unlock":
            self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        elif how == "free_all":
            self.a.free_all()
        else:  # cancel: of a grant that is on its way
            theirs = self.lock_of(self.b, block=True)
            self.b.script = self.b.SILENT
            self.assert_blocked(self.b, theirs)
            self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
            self.b.wait_granted(theirs)
            self.assertEqual(self.b.cancel(theirs), nlm.S_GRANTED)

    def test_what_was_given_up_stays_so(self):
        """The answer means that it is gone. After a crash the server waits for no reclaim that never comes."""
        for durability in ("process", "machine"):
            for how in 2 * ("unlock", "unshare", "free_all", "cancel"):
                with self.subTest(durability=durability, how=how):
                    self.let_go(how)
                    self.restart(store__lock_durability=durability)
                    self.assertFalse(self.in_grace())

    # Three kinds of registration

    def test_kind_nlm(self):
        self.held(self.a)
        self.restart()
        notice = self.a.told.wait()[0]
        self.assertEqual((notice.name, notice.state), ("server", self.state()))

    def test_kind_nlm_statd_by_tcp(self):
        self.held(self.a)
        udp = self.a.statd.udp_port
        self.a.statd.udp_port = 0  # as its portmap has it
        try:
            self.restart()
            self.assertEqual(self.a.told.wait()[0].transport, "tcp")
        finally:
            self.a.statd.udp_port = udp

    def test_kind_nsm_local(self):
        local, registrar = Local(self.network.server), Registrar(self.stage, self.network.server)
        answer = nsm.mon(local.ask, self.a.address, registrar.name, 200300, 16, b"0123456789abcdef")
        self.assertEqual(answer[0], SUCC)
        local.close()
        self.restart()
        self.assertEqual(self.a.told.wait()[0].name, "server")  # the peer hears of the server's restart
        self.a.notify(5)  # and the lock manager of the peer's
        status = registrar.heard.wait()[0]
        self.assertEqual((status.name, status.state, status.priv), (self.a.address, 5, b"0123456789abcdef"))
        self.assertEqual(status.procedure, (200300, 1, 16))
        self.a.notify(5)  # says nothing new, and the next one does
        self.a.notify(7)
        self.assertEqual([status.state for status in registrar.heard.wait(2)], [5, 7])
        registrar.close()

    def test_kind_nsm_remote(self):
        state = self.state()
        self.assertEqual(self.a.mon("server", priv=b"fedcba9876543210"), (SUCC, state))
        n_before = self.a.own.n_connections
        self.restart()
        status = self.a.statuses.wait()[0]
        self.assertEqual((status.name, status.state, status.priv), ("server", state + 2, b"fedcba9876543210"))
        self.assertEqual((status.transport, status.source), ("tcp", self.network.SERVER[0]))
        self.assertEqual(self.a.own.n_connections, n_before + 1, "a fresh connection")
        self.assertEqual(self.a.told.matching(), [], "and no SM_NOTIFY")

    def test_kind_nsm_remote_with_a_port_in_its_name(self):
        other = self.registrar_at(self.a)
        self.assertEqual(self.a.mon("server", f"{self.a.address}:{other.tcp_port}")[0], SUCC)
        self.restart()
        self.until(lambda: other.n_connections == 1, "called at the port that was given")
        other.close()

    def test_kind_nsm_remote_is_called_where_it_called_from(self):
        self.assertEqual(self.a.mon("server", f"{self.b.address}:{self.b.own.tcp_port}")[0], SUCC)
        self.restart()
        self.a.statuses.wait()
        self.assertEqual(self.b.statuses.matching(), [])

    def registrar_at(self, host):
        return Service(self.stage, lambda call: call.answer(), ["::"], 0, host.namespace)

    def test_allow_mon(self):
        self.restart(nsm__allow_mon="local")
        self.assertEqual(self.a.mon("server")[0], FAIL)
        self.held(self.b)
        self.restart(nsm__allow_mon="local")
        self.until_all_are_told()
        self.assertEqual(self.a.statuses.matching(), [])

    def test_second_mon_updates(self):
        self.assertEqual(self.a.mon("server", priv=b"a" * 16)[0], SUCC)
        self.assertEqual(self.a.mon("server", priv=b"b" * 16, procedure=9)[0], SUCC)
        self.restart()
        status = self.a.statuses.wait()[0]
        self.assertEqual((status.priv, status.procedure[2]), (b"b" * 16, 9))
        self.until_all_are_told()
        self.assertEqual(len(self.a.statuses.matching()), 1)

    def test_max_clients(self):
        self.restart(recovery__max_clients="2")
        self.held(self.a, offset=0, length=1)
        self.assertEqual(self.b.mon("server", transport="tcp")[0], SUCC)
        self.assertEqual(self.c.mon("server")[0], FAIL)
        self.assertEqual(self.c.lock(self.lock_of(self.c, 5, 1)), nlm.S_NOLOCKS)
        self.assert_free(self.lock_of(self.c, 5, 1))
        self.held(self.a, offset=7, length=1)
        self.restart()
        self.a.told.wait()
        self.b.statuses.wait()

    # Restart

    def test_unreclaimed_locks_conflict(self):
        lock = self.held(self.a)
        self.restart(recovery__window_seconds="3", recovery__early_end="false")
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.until(lambda: self.b.lock(self.lock_of(self.b)) == nlm.S_DENIED, "grace ends")

    def test_grace_of_the_protocol(self):
        self.held(self.a)
        began = time.monotonic()
        self.restart(recovery__nlm_grace_seconds="3")
        self.assertTrue(self.in_grace())
        self.until(lambda: not self.in_grace(), "its own window")
        self.assertGreater(time.monotonic() - began, 2.9)

    def test_grace_rules(self):
        self.restart(recovery__grace="always")
        self.assertTrue(self.in_grace())
        self.restart(recovery__grace="auto")
        self.assertFalse(self.in_grace())
        self.held(self.a)
        self.restart(recovery__grace="never")
        self.assertFalse(self.in_grace())

    def test_notified_when_everything_is_served(self):
        lock = self.held(self.a)
        self.restart()
        self.a.told.wait()
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)

    def test_serving_never_waits_for_notifications(self):
        self.held(self.a)
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="60000")
        self.assertTrue(self.in_grace())
        self.assertNotIn("client could not be told", self.log, "its time is not over yet")

    def test_unreachable_client_may_still_reclaim(self):
        lock = self.held(self.a)
        self.held(self.b, fh=os.urandom(8))
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="300")
        self.until(lambda: re.search("failed=[1-9]", self.log), "the first wave is over")
        self.assertTrue(self.in_grace())
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.assertTrue(self.in_grace())

    def test_unreachable_client_delays_no_other(self):
        for host in self.hosts:
            self.held(host, fh=os.urandom(8))
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="60000", recovery__notify_parallel="1")
        for host in (self.b, self.c):
            host.told.wait()
        self.assertNotIn("failed=", self.log, "its time is not over yet")

    def test_unreachable_clients_locks_go_with_grace(self):
        lock = self.held(self.a)
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="300")
        self.until(lambda: re.search("failed=[1-9]", self.log), "the first wave is over")
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE, "no other client gets it before")
        self.assertEqual(self.rest.call("POST", "/api/v1/grace/end", token=True).status, 200)
        self.assert_granted(self.b, lock.but(name=self.b.name))

    def test_unreachable_client_is_tried_again(self):
        self.held(self.a)
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="300")
        self.until(lambda: re.search("failed=[1-9]", self.log), "the first wave is over")
        self.a.deaf = False
        n = len(self.a.told.matching())
        self.a.told.wait(n + 1)

    def test_during_grace(self):
        held, other = self.held(self.a, offset=0, length=5), self.held(self.a, offset=10, length=5)
        share = self.lock_of(self.a, access=1, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        new = self.lock_of(self.b, 100, 5)
        self.assertEqual(self.b.lock(new), nlm.S_GRACE)
        self.assertEqual(self.b.lock(new.but(block=True)), nlm.S_GRACE)
        self.assertEqual(self.b.ask(nlm.NM_LOCK, new).stat, nlm.S_GRACE)
        self.assertEqual(self.b.test(new).stat, nlm.S_GRACE)
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_GRACE)
        self.assertEqual(self.a.unshare(share), nlm.S_GRANTED)
        self.assertEqual(self.a.cancel(held), nlm.S_DENIED)  # not waiting, but holding
        self.assertEqual(self.b.cancel(new), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.a, held), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(other), nlm.S_GRANTED)
        self.a.free_all()
        self.until(lambda: not self.in_grace(), "everything is accounted for")

    def test_reclaim_of_more_than_was_held(self):
        lock = self.held(self.a, offset=10, length=5)
        self.restart()
        self.assertEqual(self.reclaim(self.a, lock.but(length=6)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, lock.but(svid=2)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)

    def test_early_end_counts_locks(self):
        first, second = self.held(self.a, offset=0, length=5), self.held(self.a, offset=10, length=5)
        self.restart()
        self.assertEqual(self.reclaim(self.a, first), nlm.S_GRANTED)
        self.assertTrue(self.in_grace())
        self.assertEqual(self.a.unlock(second), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "everything is accounted for")

    def test_late_reclaim(self):
        lock = self.held(self.a, offset=0, length=5)
        taken = self.held(self.a, offset=10, length=5)
        self.restart(recovery__window_seconds="1")
        self.until(lambda: not self.in_grace(), "grace ends")
        theirs = taken.but(name=self.b.name)
        self.assert_granted(self.b, theirs)
        self.assertEqual(self.b.unlock(theirs), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.a, taken), nlm.S_GRACE, "B had it in between")
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)

    def test_late_reclaim_before_a_waiter(self):
        """A waiter has nothing: what A had was never another's."""
        lock = self.held(self.a, offset=0, length=5, exclusive=False)
        self.restart(recovery__window_seconds="1")
        self.until(lambda: not self.in_grace(), "grace ends")
        theirs = lock.but(name=self.b.name)
        self.assert_granted(self.b, theirs)
        self.assert_blocked(self.c, self.lock_of(self.c, 0, 5))
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.assertEqual(self.b.unlock(theirs), nlm.S_GRANTED)
        self.assertEqual(self.c.grants.matching(lambda heard: heard.grant.fh == self.fh), [], "A has it")
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.c.wait_granted(lock)

    def test_late_reclaim_of_what_its_owner_has_unlocked(self):
        """A reclaim that comes after the UNLOCK is a delayed copy, or forged."""
        lock = self.held(self.a, offset=0, length=5)
        part = self.held(self.a, offset=10, length=5)
        self.restart(recovery__window_seconds="1")
        self.until(lambda: not self.in_grace(), "grace ends")
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        for unlocked in (lock, part.but(offset=10, length=2)):
            self.assertEqual(self.a.unlock(unlocked), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, part), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, part.but(offset=12, length=3)), nlm.S_GRANTED)

    def test_late_reclaim_of_a_share(self):
        kept = self.lock_of(self.a, access=1, deny=2)
        taken = kept.but(fh=b"another file")
        for share in (kept, kept, taken):
            self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart(recovery__window_seconds="1")
        self.until(lambda: not self.in_grace(), "grace ends")
        theirs = self.lock_of(self.b, access=2, fh=taken.fh)
        self.assertEqual(self.b.share(theirs), nlm.S_GRANTED)
        self.assertEqual(self.b.unshare(theirs), nlm.S_GRANTED)
        self.assertEqual(self.a.share(taken.but(reclaim=True)), nlm.S_GRACE, "B had it in between")
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1)), nlm.S_GRANTED, "they do not conflict")
        for _ in range(3):  # it had two; the third is a copy
            self.assertEqual(self.a.share(kept.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.a.unshare(kept), nlm.S_GRANTED)
        self.assertEqual(self.b.share(theirs.but(fh=kept.fh)), nlm.S_DENIED)
        self.assertEqual(self.a.unshare(kept), nlm.S_GRANTED)
        self.assertEqual(self.b.share(theirs.but(fh=kept.fh)), nlm.S_GRANTED)

    def test_second_crash_inside_grace(self):
        first, second = self.held(self.a, offset=0, length=5), self.held(self.b, offset=10, length=5)
        self.restart()
        self.assertEqual(self.reclaim(self.a, first), nlm.S_GRANTED)
        self.restart()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.reclaim(self.c, first.but(name=self.c.name)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.a, first), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.b, second), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")

    def test_registration_keeps_its_times(self):
        self.held(self.a, state=3)
        path = f"/api/v1/clients/{quote(f'nlm:{self.a.address}:{self.a.name}')}"
        before = self.rest.get(path).json
        self.restart()
        after = self.rest.get(path).json
        for key in ("registered_at", "sm_state", "mon_name", "address"):
            self.assertEqual(after[key], before[key])

    def test_grants_on_their_way_are_the_waiters(self):
        """The waiter's place in the queue is gone. It may reclaim a grant that it was told of, whether or not its answer
        arrived."""
        held, theirs = self.held(self.a), self.lock_of(self.b)
        self.b.script = self.b.SILENT
        self.assert_blocked(self.b, theirs)
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.b.wait_granted(theirs)
        self.restart()
        self.assertEqual(self.reclaim(self.c, theirs.but(name=self.c.name)), nlm.S_GRACE)
        self.assertEqual(self.reclaim(self.b, theirs), nlm.S_GRANTED)

    def test_state_number_of_a_lock(self):
        """After the server's restart a lock from before its client's restart is known as that."""
        lock = self.held(self.a, state=3)
        self.restart()
        self.a.notify(5)
        self.until(lambda: not self.in_grace(), "nothing is left to be reclaimed")
        self.assert_granted(self.b, lock.but(name=self.b.name))

    def lose_machine(self):
        """What else dies with it."""

    def reboot(self, **settings):
        """As if the machine had been started anew: another boot id."""
        with open(os.path.join(self.daemon.state_dir, "boot_id"), "w", encoding="ascii") as file:
            file.write(f"{uuid.uuid4()}\n")
        self.daemon.over = {"/proc/sys/kernel/random/boot_id": file.name}
        self.daemon.crash()
        self.lose_machine()
        try:
            self.restart(**settings)
        finally:
            self.daemon.over = {}

    def test_reboot_of_the_machine(self):
        """What was not synced may be there in part: registrations are trusted, locks are not."""
        lock = self.held(self.a, 0, 5)
        self.reboot()
        self.a.told.wait()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name, offset=10)), nlm.S_GRANTED, "who knows")
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name)), nlm.S_DENIED, "it conflicts")
        self.assertTrue(self.in_grace(), "there may be others")

    def test_reboot_of_the_machine_with_synced_locks(self):
        self.restart(store__lock_durability="machine")
        lock = self.held(self.a, 0, 5)
        self.reboot(store__lock_durability="machine")
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name, offset=10)), nlm.S_GRACE, "B had none")
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")

    def test_grace_ended_by_hand(self):
        lock = self.held(self.a)
        self.restart()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.rest.call("POST", "/api/v1/grace/end", token=True).status, 200)
        self.assertFalse(self.in_grace())
        self.assert_granted(self.b, lock.but(name=self.b.name))

    def test_unreachable_client_is_shown_as_crashed(self):
        self.held(self.a)
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="300")
        self.until(lambda: re.search("failed=[1-9]", self.log), "the first wave is over")
        path = f"/api/v1/clients/{quote(f'nlm:{self.a.address}:{self.a.name}')}"
        self.assertEqual(self.rest.get(path).json["status"], "crashed")
        self.assertEqual(self.rest.get("/api/v1/status").json["locks"], 0, "its locks are released")
        self.assertEqual(sum(share["locks"] for share in self.rest.get("/api/v1/shares").json["shares"]), 0)

    def test_unreachable_client_without_locks_is_shown_as_that(self):
        lock = self.held(self.a)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="300")
        path = f"/api/v1/clients/{quote(f'nlm:{self.a.address}:{self.a.name}')}"
        self.until(lambda: re.search("failed=[1-9]", self.log), "the first wave is over")
        self.assertEqual(self.rest.get(path).json["status"], "unreachable")
        metrics = self.rest.metrics()
        self.assertEqual((metrics["nsm_crashes_detected_total"], metrics["nsm_crash_cleanups_total"]), (0, 0))
        self.a.lock(lock)
        self.assertEqual(self.rest.get(path).json["status"], "active", "it calls")

    def test_evidence_operator_survives_our_crash(self):
        lock = self.held(self.a)
        self.rest.call("DELETE", f"/api/v1/clients/{quote(f'nlm:{self.a.address}:{self.a.name}')}", token=True)
        self.restart()
        self.assertFalse(self.in_grace())
        self.assert_granted(self.b, lock.but(name=self.b.name))

    # Evidence, through a crash of the server

    def test_evidence_survives_our_crash(self):
        """The answer to SM_NOTIFY means that it need not be said again."""
        lock = self.held(self.a, state=3)
        self.a.notify(5)
        self.restart()
        self.assertFalse(self.in_grace())
        self.assert_granted(self.b, lock.but(name=self.b.name))

    def test_no_evidence_replay(self):
        self.held(self.a, state=3)
        self.a.notify(5)
        lock = self.held(self.a, state=5)
        self.a.notify(5)
        self.a.notify(5, name=f"{self.a.name}.example.org")
        self.a.notify(3)  # a straggler
        self.assert_held(lock)
        self.restart()
        self.a.notify(5)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)


class Lmdb(Table):
    backend = ("store.backend=lmdb",)


class Postgres(OverPostgres, Table):
    def lose_machine(self):
        self.cluster.kill()
        self.cluster.start()

    def test_crash_within_the_database(self):
        """It goes on after the death of one of its processes, and has lost what was not synced."""
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        backends = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
        os.kill(int(self.cluster.query(backends)), signal.SIGKILL)
        self.until(lambda: self.cluster.query("SELECT count(*) FROM holdfast_database") == "0", "it has recovered")
        self.restart()
        self.a.told.wait()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name, offset=10)), nlm.S_GRANTED, "locks may be missing")
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)

    def test_orderly_restart_of_the_database(self):
        """It has synced everything: the list of locks is complete."""
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        self.cluster.server.send_signal(signal.SIGINT)
        self.cluster.server.wait()
        self.cluster.start()
        self.restart()
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name, offset=10)), nlm.S_GRACE, "B had none")
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "all is reclaimed")

    def test_given_up_is_said_when_it_is_stored(self):
        for procedure in (nlm.UNLOCK, nlm.UNSHARE, nlm.FREE_ALL):
            with self.subTest(procedure=procedure):
                lock = self.held(self.a, access=2, deny=1)
                self.assertEqual(self.a.share(lock), nlm.S_GRANTED)
                self.cluster.signal(signal.SIGSTOP)
                caller = self.a.caller()
                try:
                    caller.send(call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure)))
                    # A turn in which it is done is one in which it would have been said.
                    if procedure == nlm.UNSHARE:
                        self.until_heard()
                    else:
                        self.until(lambda: self.holder_of(lock) is None, "it is done")
                    with self.assertRaises(NoReply):
                        caller.receive(0.01)
                finally:
                    self.cluster.signal(signal.SIGCONT)
                result_of(caller.receive())
                self.a.free_all()

    def until_heard(self):
        """What came before on another connection has been read: turns have gone by since."""
        for _ in range(3):
            self.in_grace()

    def test_database_killed(self):
        """Nothing new is promised while it is away; then everything is as it was."""
        lock = self.held(self.a, offset=0, length=5)
        self.cluster.kill()
        self.until(lambda: self.a.lock(self.lock_of(self.a, 10, 5)) == nlm.S_NOLOCKS, "no promise")
        self.assertEqual(self.a.unlock(self.lock_of(self.a, 10, 5)), nlm.S_GRANTED)
        self.cluster.start()
        self.until(lambda: self.a.lock(self.lock_of(self.a, 10, 5)) == nlm.S_GRANTED, "service goes on")
        self.restart()
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED)
        self.assertEqual(self.reclaim(self.a, self.lock_of(self.a, 10, 5)), nlm.S_GRANTED)


class Memory(Evidence):
    """A store that forgets: after a restart the server knows no client, and none could reclaim a lock."""

    backend = ("store.backend=memory",)

    def test_restart(self):
        lock = self.held(self.a)
        self.assertEqual(self.b.mon("server")[0], SUCC)
        for kill in (True, False):
            self.restart(kill=kill)
            self.assertEqual(self.state() % 2, 1)
            self.assertFalse(self.in_grace())
            self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRACE, "it may have been another's since")
            self.held(self.c)
        self.assertEqual((self.a.told.matching(), self.b.statuses.matching()), ([], []))

    def test_grace_rules(self):
        self.restart(recovery__grace="always")
        self.assertTrue(self.in_grace())
        lock = self.lock_of(self.a)
        self.assertEqual(self.reclaim(self.a, lock), nlm.S_GRANTED, "the list is not known to be complete")
        self.assertEqual(self.reclaim(self.b, lock.but(name=self.b.name)), nlm.S_DENIED)


del Base, Evidence, Table  # they are played by their children only

if __name__ == "__main__":
    main()
