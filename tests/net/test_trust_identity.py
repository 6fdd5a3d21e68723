#!/usr/bin/env python3
"""Who may change what a client holds: hosts behind one address, ordinary users of a client's host, hosts that the operator
has taken off the list, and files to which the right is gone."""

import contextlib
import os
import signal
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from exported import Exported
from play import Play, main
from rpc import Refused, TcpCaller, auth_sys, call_message, exchange
from until import until
from xdr import Out


class Neighbour:
    """Another host behind the address of @host: a name and a connection of its own."""

    def __init__(self, host, name, local_port=0, reserved=False):
        self.host, self.name = host, name
        self.caller = TcpCaller((host.server, 2049), (host.address, local_port), host.namespace, reserved)

    def ask(self, procedure, lock):
        message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=auth_sys(self.name))
        return nlm.res_of(procedure, exchange(self.caller, message)).stat


class Addresses(Play):
    """H6: hosts behind one address, whose processes have the same numbers."""

    def setUp(self):
        super().setUp()
        self.alpha, self.beta = (f"{name}-{self._testMethodName}" for name in ("alpha", "beta"))

    def tearDown(self):
        for name in (self.alpha, self.beta):
            self.a.free_all(name)
        super().tearDown()

    @contextlib.contextmanager
    def neighbour(self, name, **how):
        one = Neighbour(self.a, name, **how)
        try:
            yield one
        finally:
            one.caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its port is free
            one.caller.close()

    def assert_nothing_is_released(self, ask):
        """@ask(procedure, lock) calls as the neighbour of the host that holds the lock."""
        mine = self.lock_of(self.a, 0, 10, name=self.alpha, svid=5)
        theirs = mine.but(name=self.beta)
        other = self.lock_of(self.b, 0, 10, svid=9)
        self.assert_granted(self.a, mine)
        self.assertEqual(ask(nlm.LOCK, theirs), nlm.S_DENIED)
        for length in (10, 0):
            self.assertEqual(ask(nlm.UNLOCK, theirs.but(length=length)), nlm.S_GRANTED)
            self.assert_held(mine, by=5)
        self.assert_denied(self.b, other)

    def test_h6_unlock_after_a_refused_lock_releases_nothing(self):
        with self.neighbour(self.beta) as beta:
            self.assert_nothing_is_released(beta.ask)

    def test_h6_unlock_after_a_refused_lock_releases_nothing_through_a_relay(self):
        """One connection speaks for both."""
        self.assert_nothing_is_released(lambda procedure, lock: self.a.ask(procedure, lock).stat)

    def test_h6_unlock_without_a_lock_releases_nothing(self):
        """Some systems send UNLOCK for whatever a program unlocks, held or not."""
        mine = self.lock_of(self.a, 0, 10, name=self.alpha, svid=5)
        self.assert_granted(self.a, mine)
        with self.neighbour(self.beta) as beta:
            self.assertEqual(beta.ask(nlm.UNLOCK, mine.but(name=self.beta, length=0)), nlm.S_GRANTED)
        self.assert_held(mine, by=5)

    def test_h6_unlock_of_what_was_unlocked_releases_nothing(self):
        """A program closes its file after it has unlocked its part."""
        mine = self.lock_of(self.a, 0, 10, name=self.alpha, svid=5)
        theirs = mine.but(name=self.beta, offset=20)
        for ask in (lambda procedure, lock: self.a.ask(procedure, lock).stat, None):
            with self.subTest(relay=ask is not None), self.neighbour(self.beta) as beta:
                ask = ask or beta.ask
                self.assert_granted(self.a, mine)
                self.assertEqual(ask(nlm.LOCK, theirs), nlm.S_GRANTED)
                self.assertEqual(ask(nlm.UNLOCK, theirs), nlm.S_GRANTED)
                self.assertEqual(ask(nlm.UNLOCK, theirs.but(offset=0, length=0)), nlm.S_GRANTED)
                self.assert_held(mine, by=5)

    def test_h6_cancel_ends_no_wait_of_a_neighbour(self):
        held = self.lock_of(self.b)
        self.assert_granted(self.b, held)
        waiting = self.lock_of(self.a, name=self.alpha, svid=5, block=True)
        self.assert_blocked(self.a, waiting)
        with self.neighbour(self.beta) as beta:
            self.assertEqual(beta.ask(nlm.CANCEL, waiting.but(name=self.beta)), nlm.S_GRANTED)
        self.assertEqual(self.b.unlock(held), nlm.S_GRANTED)
        self.a.wait_granted(waiting)

    def test_h6_a_handle_that_does_not_fit_releases_nothing(self):
        mine = self.lock_of(self.a, 0, 10, name=self.alpha, svid=5)
        self.assert_granted(self.a, mine)
        self.assertEqual(self.a.unlock(mine.but(name=self.beta, oh=b"5@gamma")), nlm.S_GRANTED)
        self.assert_held(mine, by=5)

    def test_h6_a_renamed_host_still_unlocks(self):
        """On its connection, or on the next one from the same port; whatever its system makes of its name."""
        for old, new in ((None, None), (b"\0\0\0\5alph", b"\0\0\0\5beta"), (b"same", b"same")):
            mine = self.lock_of(self.a, 0, 10, name=self.alpha, svid=5, oh=old)
            renamed = mine.but(name=self.beta, oh=new, length=0)
            with self.subTest(oh=old), self.neighbour(self.alpha) as host:
                port = host.caller.sock.getsockname()[1]
                self.assertEqual(host.ask(nlm.LOCK, mine), nlm.S_GRANTED)
                self.assertEqual(host.ask(nlm.UNLOCK, renamed), nlm.S_GRANTED)
                self.assert_free(mine)
                self.assertEqual(host.ask(nlm.LOCK, mine), nlm.S_GRANTED)
            with self.subTest(oh=old, again=True), self.neighbour(self.beta, local_port=port) as host:
                self.assertEqual(host.ask(nlm.UNLOCK, renamed), nlm.S_GRANTED)
                self.assert_free(mine)


class Ports(Play):
    """M1: where a client locks from reserved ports, an ordinary user of its host changes nothing."""

    settings = ("api.listen=127.0.0.1:0",)

    def test_m1_unlock_and_cancel_count_from_reserved_ports_only(self):
        for version in nlm.VERSIONS:
            refused = nlm.S_FAILED if version == 4 else nlm.S_NOLOCKS
            for transport in ("tcp", "udp"):
                with self.subTest(version=version, transport=transport):
                    how = {"version": version, "transport": transport}
                    self.fh = os.urandom(28)
                    held, other = self.lock_of(self.a, 0, 10), self.lock_of(self.b, 20, 10, svid=3)
                    waiting = self.lock_of(self.a, 20, 10, svid=4, block=True)
                    self.assert_granted(self.a, held, reserved=True, **how)
                    self.assert_granted(self.b, other)
                    self.assert_blocked(self.a, waiting, reserved=True)
                    self.assertEqual(self.a.unlock(held.but(length=0), **how), refused)
                    self.assertEqual(self.a.cancel(waiting, **how), refused)
                    self.assert_held(held, by=1)
                    self.assertEqual(self.b.unlock(other), nlm.S_GRANTED)
                    self.a.wait_granted(waiting)
                    for lock in (held, waiting):
                        self.assertEqual(self.a.unlock(lock, reserved=True, **how), nlm.S_GRANTED)
                        self.assert_free(lock)

    def test_m1_unlock_msg_too(self):
        held = self.lock_of(self.a, cookie=b"by-user")
        self.assert_granted(self.a, held, reserved=True)
        self.a.caller("udp").send(call_message(nlm.PROGRAM, 4, nlm.UNLOCK_MSG, held.args(nlm.UNLOCK_MSG)))
        (answer,) = self.a.answers.wait(1, lambda answer: answer[1].cookie == b"by-user")
        self.assertEqual(answer[1].stat, nlm.S_FAILED)
        self.assert_held(held, by=1)

    def test_m1_locks_neither(self):
        """Neither downgrades a lock, nor takes the place of a wait, nor tells of a restart, nor reclaims."""
        held = self.lock_of(self.a, 0, 10, state=3)
        other = self.lock_of(self.b, 20, 10, svid=3)
        waiting = self.lock_of(self.a, 20, 10, svid=4, block=True, state=3)
        self.assert_granted(self.a, held, reserved=True)
        self.assert_granted(self.b, other)
        self.assert_blocked(self.a, waiting, reserved=True)
        for lock in (held.but(exclusive=False), held.but(svid=7, offset=50, state=5), held.but(reclaim=True), waiting):
            self.assertEqual(self.a.lock(lock), nlm.S_FAILED)
            self.assertEqual(self.a.ask(nlm.NM_LOCK, lock).stat, nlm.S_FAILED)
        self.assertTrue(self.assert_held(held, by=1).exclusive)
        self.assertEqual(self.b.unlock(other), nlm.S_GRANTED)
        self.a.wait_granted(waiting)

    def test_m1_reservations_neither(self):
        mine, other = (self.lock_of(host, access=1, deny=3) for host in (self.a, self.b))
        self.assertEqual(self.a.share(mine, reserved=True), nlm.S_GRANTED)
        self.assertEqual(self.a.unshare(mine), nlm.S_FAILED)
        self.assertEqual(self.b.share(other), nlm.S_DENIED)
        self.assertEqual(self.a.unshare(mine, reserved=True), nlm.S_GRANTED)
        self.assertEqual(self.b.share(other), nlm.S_GRANTED)
        self.assertEqual(self.b.unshare(other), nlm.S_GRANTED)

    def test_m1_it_is_in_the_log_once(self):
        held = self.lock_of(self.a)
        self.assert_granted(self.a, held, reserved=True)
        for _ in range(20):
            self.assertEqual(self.a.unlock(held), nlm.S_FAILED)
        self.assertEqual(self.daemon.log.count("its client locks from ports below 1024"), 1)

    def test_m1_a_host_that_has_nothing_left_may_change_its_mount(self):
        held = self.lock_of(self.a)
        self.assert_granted(self.a, held, reserved=True)
        self.assertEqual(self.a.unlock(held, reserved=True), nlm.S_GRANTED)
        self.assert_granted(self.a, held)
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.assert_free(held)

    def tearDown(self):
        for host in self.hosts:
            host.free_all(reserved=True)
        super().tearDown()


class SecureNotices(Play):
    """nsm.secure: an ordinary user of a client's host cannot say that the host was restarted, also if it locks from ordinary ports."""

    settings = ("api.listen=127.0.0.1:0", "nsm.secure=true", "recovery.notify_timeout_ms=1000")
    host_class = nsm.Host
    said = "a notice of a restart is refused: nsm.secure demands a port below 1024"
    n_names = 0

    def tearDown(self):
        for host in self.hosts:
            host.free_all(reserved=True)
            host.drop_callers()
        self.assertEqual(self.stage.broken, [], "a fake service failed")
        self.assertIsNone(self.daemon.process.poll(), "holdfastd is gone")

    def hold(self, reserved=False):
        """A lock of host a under a new name, after which the server has asked it for its number. Then it is restarted."""
        type(self).n_names += 1
        self.a.name = f"client{self.n_names}"
        self.a.state = 5
        self.a.asked.items.clear()
        lock = self.lock_of(self.a, state=5)
        self.assert_granted(self.a, lock, reserved=reserved)
        self.a.asked.wait()
        self.a.test(lock)
        self.a.state = 7
        return lock

    def play(self, tell, *counted):
        """@tell of a restart in each way, from an ordinary port and then from a reserved one."""
        before = self.refused(*counted)
        for locks_from_reserved in (False, True):
            for transport in ("tcp", "udp"):
                with self.subTest(locks_from_reserved=locks_from_reserved, transport=transport):
                    lock = self.hold(locks_from_reserved)
                    self.assertRaises(Refused, tell, 7, transport=transport)
                    self.assert_held(lock)
                    tell(7, transport=transport, reserved=True)
                    self.assert_free(lock)
        self.assertEqual(self.refused(*counted), before + 4)

    def refused(self, program, procedure):
        return self.rest.metrics().get(f'{program}_requests_total{{procedure="{procedure}",result="AUTH_ERROR"}}', 0)

    def test_notices(self):
        self.play(self.a.notify, "nsm", "NOTIFY")

    def test_free_all(self):
        self.play(lambda state, **how: self.a.free_all(state=state, **how), "nlm", "FREE_ALL")

    def test_it_is_in_the_log_once_for_each_host(self):
        for host in (self.b, self.c):
            for _ in range(5):
                self.assertRaises(Refused, host.notify, 7)
                self.assertRaises(Refused, host.free_all)
            self.assertEqual(self.daemon.log.count(f"{self.said} peer={host.address}:"), 1)

    def test_users_of_the_servers_host_neither(self):
        lock = self.hold()
        notice = nsm.NOTIFY, Out().string(self.a.name).i32(7).bytes()
        user, root = (nsm.Local(self.network.server, reserved) for reserved in (False, True))
        self.addCleanup(user.close)
        self.addCleanup(root.close)
        self.assertRaises(Refused, user.ask, *notice)
        self.assert_held(lock)
        root.ask(*notice)
        self.assert_free(lock)


class AfterRestart(Play):
    settings = ("store.backend=lmdb", "recovery.grace=auto")

    def test_h6_a_neighbour_that_was_there_first_reclaims_nothing(self):
        """A host takes its name before it takes its locks: the name that was registered first is no new name of the other."""
        elsewhere = self.lock_of(self.a, name="first", svid=5, fh=os.urandom(8))
        theirs = self.lock_of(self.a, name="second", svid=5)
        self.assert_granted(self.a, elsewhere)
        self.assert_granted(self.a, theirs)
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()
        self.assertEqual(self.a.lock(theirs.but(name="first", reclaim=True)), nlm.S_GRACE)
        for lock in (theirs, elsewhere):
            self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        for name in ("first", "second"):
            self.a.free_all(name)

    def test_a_neighbour_of_another_life_reclaims_nothing(self):
        """It is behind the same address, unknown to the server, had that lock before, and says its own state number: the reclaim must not end
        the life of the client that has the lock now."""
        theirs = self.lock_of(self.a, 0, 10, name="first", svid=5, state=5)
        other = self.lock_of(self.a, 50, 10, name="first", svid=6, state=5)
        for lock in (theirs, other):
            self.assert_granted(self.a, lock, reserved=True)
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()
        self.assertNotEqual(self.a.lock(theirs.but(name="neighbour", state=13, reclaim=True), reserved=True), nlm.S_GRANTED)
        for lock in (theirs, other):
            self.assertEqual(self.a.lock(lock.but(reclaim=True), reserved=True), nlm.S_GRANTED)
        self.assertNotIn("client crashed, locks released", self.daemon.log)
        self.a.free_all("first", reserved=True)

    def test_m1_holds_after_our_restart(self):
        held = self.lock_of(self.a)
        self.assert_granted(self.a, held, reserved=True)
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()
        self.assertEqual(self.a.unlock(held), nlm.S_FAILED)
        self.assertEqual(self.a.lock(held.but(reclaim=True)), nlm.S_FAILED)
        self.assertEqual(self.a.lock(held.but(reclaim=True), reserved=True), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(held, reserved=True), nlm.S_GRANTED)


class Lists(Exported):
    """What `secure` and `clients` say holds for every call, and as they are now."""

    settings = ("api.listen=127.0.0.1:0",)
    folders = ("data", "secure", "other")
    exports = (
        "{{path: {base}/data, name: /data, squash: none}}",
        "{{path: {base}/secure, name: /secure, squash: none, secure: true}}",
        "{{path: {base}/other, name: /other, squash: none, clients: [127.0.0.1]}}",
    )
    secured = (exports[0].replace("squash: none", "squash: none, secure: true"), *exports[1:])

    def setUp(self):
        super().setUp()
        self.addCleanup(self.load, self.exports)

    def tearDown(self):
        for host in self.hosts:
            host.free_all(reserved=True)
        super().tearDown()

    def load(self, exports):
        """A reload, until it is done."""
        before = self.daemon.log.count("configuration loaded again")
        self.write_config(exports)
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        until(lambda: self.daemon.log.count("configuration loaded again") > before, "it has reloaded")

    def without(self, *hosts):
        """The list without @hosts."""
        others = ", ".join(one.address for one in self.hosts if one not in hosts)
        return (self.exports[0].replace("squash: none", f"squash: none, clients: [127.0.0.1, {others}]"), *self.exports[1:])

    def locks(self, what="locks"):
        return self.rest.get(f"/api/v1/{what}").json[what]

    def test_m1_secure_holds_for_every_call(self):
        fh = self.handle_of_secure()
        lock = self.lock_of(self.a, fh=fh, access=1)
        self.assert_granted(self.a, lock, reserved=True)
        for procedure in (nlm.LOCK, nlm.NM_LOCK, nlm.TEST, nlm.UNLOCK, nlm.CANCEL, nlm.SHARE, nlm.UNSHARE):
            for host in (self.a, self.b):
                with self.subTest(procedure=procedure, host=host.name):
                    self.assertEqual(host.ask(procedure, lock.but(name=host.name)).stat, nlm.S_FAILED)
        self.assertEqual(len(self.locks()), 1)
        self.assertEqual(self.a.unlock(lock, reserved=True), nlm.S_GRANTED)
        self.assertEqual(self.locks(), [])

    def test_m1_secure_holds_for_every_name_of_an_address(self):
        """Another client of the same address has the locks."""
        fh = self.handle_of_secure()
        lock = self.lock_of(self.a, 0, 10, fh=fh, name="neighbour", access=1)
        waiting = lock.but(offset=20, svid=2, block=True)
        theirs = self.lock_of(self.b, 20, 10, fh=fh, svid=3)
        self.assert_granted(self.a, lock, reserved=True)
        self.assertEqual(self.a.share(lock, reserved=True), nlm.S_GRANTED)
        self.assert_granted(self.b, theirs, reserved=True)
        self.assert_blocked(self.a, waiting, reserved=True)
        for name in (lock.name, "stranger"):
            for ask, what in ((self.a.unlock, lock), (self.a.cancel, waiting), (self.a.unshare, lock), (self.a.unlock, waiting)):
                with self.subTest(name=name, ask=ask.__name__):
                    self.assertEqual(ask(what.but(name=name)), nlm.S_FAILED)
        self.assertEqual(len(self.locks()), 2)
        self.assertEqual(len(self.locks("waiters")), 1)
        self.assertEqual(len(self.locks("reservations")), 1)
        self.assertEqual(self.a.cancel(waiting, reserved=True), nlm.S_GRANTED)
        self.a.free_all(name=lock.name, reserved=True)

    def handle_of_secure(self):
        """The handle, looked up as a client may that calls from a reserved port."""
        path = self.make_file("secure")
        self.load((self.exports[0], self.exports[1].replace(", secure: true", ""), self.exports[2]))
        fh = self.handle_of(path, "/secure", "secure")
        self.load(self.exports)
        return fh

    def test_m1_what_was_locked_before_secure_is_given_back(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.load(self.secured)
        self.assertEqual(self.a.lock(lock.but(svid=2)), nlm.S_FAILED)
        self.assertEqual(self.a.unlock(lock.but(svid=2)), nlm.S_FAILED, "it has nothing")
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assertEqual(self.locks(), [])

    def test_low_test_tells_a_stranger_nothing(self):
        fh = self.handle_of(self.make_file("other"), "/other", "other")
        for exclusive in (False, True):
            found = self.a.test(self.lock_of(self.a, fh=fh, exclusive=exclusive))
            self.assertEqual((found.stat, found.holder), (nlm.S_FAILED, None))
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assertEqual(self.c.test(lock.but(name=self.c.name, svid=9)).holder.svid, 1)
        self.load(self.without(self.c))
        found = self.c.test(lock.but(name=self.c.name, svid=9))
        self.assertEqual((found.stat, found.holder), (nlm.S_FAILED, None))

    def test_low_a_client_that_a_reload_removed_is_granted_nothing_more(self):
        """At once, although it locked the same file just before; what it holds it may give up, and is seen until then."""
        lock, more = self.lock_of(self.a, 0, 10), self.lock_of(self.a, 50, 10)
        self.assert_granted(self.a, lock)
        self.load(self.without(self.a))
        for procedure in (nlm.LOCK, nlm.NM_LOCK, nlm.SHARE):
            self.assertEqual(self.a.ask(procedure, more).stat, nlm.S_FAILED)
        self.assertEqual([one["client"] for one in self.locks()], [self.id_of(self.a)])
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assertEqual(self.locks(), [])

    def test_low_a_waiter_that_a_reload_removed_does_not_wait_any_more(self):
        held, waiting = self.lock_of(self.a), self.lock_of(self.b, block=True, svid=2)
        self.assert_granted(self.a, held)
        self.assert_blocked(self.b, waiting)
        last = self.lock_of(self.c, block=True, svid=3)
        self.assert_blocked(self.c, last)
        self.load(self.without(self.b))
        self.assertIn("the exports changed: waiters whose clients may not lock any more left the queue waiters=1", self.daemon.log)
        self.assertEqual([one["client"] for one in self.locks("waiters")], [self.id_of(self.c)])
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.c.wait_granted(last)
        self.assertEqual(self.b.grants.matching(), [])
        self.assertEqual(self.b.lock(waiting), nlm.S_FAILED)
        self.assertEqual(self.b.cancel(waiting), nlm.S_GRANTED)

    def test_low_a_waiter_that_a_reload_removed_is_not_granted_because_another_left(self):
        """Both leave the queue. The first one to leave was all that the second one waited for."""
        held = self.lock_of(self.a, exclusive=False)
        first = self.lock_of(self.b, block=True, svid=2)
        second = self.lock_of(self.c, block=True, svid=3, exclusive=False)
        self.assert_granted(self.a, held)
        self.assert_blocked(self.b, first)
        self.assert_blocked(self.c, second)
        self.load(self.without(self.b, self.c))
        self.assertEqual(self.locks("waiters"), [])
        self.assertEqual([one["client"] for one in self.locks()], [self.id_of(self.a)])
        self.assertEqual(self.a.unlock(held), nlm.S_GRANTED)
        self.assertEqual(self.c.lock(second), nlm.S_FAILED)
        self.assertEqual(self.c.grants.matching(), [])


class Rights(Exported):
    """M2: the right to a file is what it is at the time of the LOCK, however lately it was asked for."""

    settings = ("api.listen=127.0.0.1:0",)
    USER = auth_sys(uid=1000, gid=1000)

    def lock_as_user(self, lock, procedure=nlm.LOCK):
        message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=self.USER)
        return nlm.res_of(procedure, exchange(self.a.caller("tcp"), message)).stat

    def assert_right_ends(self, change, wanted):
        """A client locks and unlocks, and then the right is gone."""
        lock = self.lock_of(self.a)
        for _ in range(3):
            self.assertEqual(self.lock_as_user(lock), nlm.S_GRANTED)
            self.assertEqual(self.lock_as_user(lock, nlm.UNLOCK), nlm.S_GRANTED)
        change()
        self.assertEqual(self.lock_as_user(lock), wanted)
        self.assertEqual(self.rest.get("/api/v1/locks").json["locks"], [])

    def setUp(self):
        super().setUp()
        os.chown(self.path, 1000, 1000)

    def with_nfs(self, do):
        """@do(client, root) as root, through the server."""
        import nfs  # pylint: disable=import-outside-toplevel

        with self.network.server, nfs.Client(2049) as client:
            return do(client, client.root("/data"))

    def test_m2_after_a_local_unlink(self):
        self.assert_right_ends(lambda: os.unlink(self.path), nlm.S_STALE_FH)

    def test_m2_after_a_local_rename_over_it(self):
        other = self.make_file()
        self.assert_right_ends(lambda: os.rename(other, self.path), nlm.S_STALE_FH)

    def test_m2_after_a_local_chmod(self):
        os.chown(self.path, 2000, 2000)
        os.chmod(self.path, 0o666)
        self.assert_right_ends(lambda: os.chmod(self.path, 0o600), nlm.S_FAILED)

    def test_m2_after_a_local_chown(self):
        os.chmod(self.path, 0o600)
        self.assert_right_ends(lambda: os.chown(self.path, 2000, 2000), nlm.S_FAILED)

    def test_m2_after_remove(self):
        name = os.path.basename(self.path).encode()
        self.assert_right_ends(lambda: self.with_nfs(lambda client, root: client.remove(root, name)), nlm.S_STALE_FH)

    def test_m2_after_rename_over_it(self):
        name, other = (os.path.basename(path).encode() for path in (self.path, self.make_file()))
        rename = lambda client, root: client.rename(root, other, root, name)
        self.assert_right_ends(lambda: self.with_nfs(rename), nlm.S_STALE_FH)

    def test_m2_each_time(self):
        """Whatever the moment."""
        for _ in range(50):
            self.path = self.make_file()
            self.fh = self.handle_of(self.path)
            os.chown(self.path, 1000, 1000)
            self.assert_right_ends(lambda: os.unlink(self.path), nlm.S_STALE_FH)

    def test_m2_a_right_that_comes_is_there_at_once(self):
        os.chown(self.path, 2000, 2000)
        os.chmod(self.path, 0o600)
        lock = self.lock_of(self.a)
        self.assertEqual(self.lock_as_user(lock), nlm.S_FAILED)
        os.chmod(self.path, 0o666)
        self.assertEqual(self.lock_as_user(lock), nlm.S_GRANTED)


if __name__ == "__main__":
    main()
