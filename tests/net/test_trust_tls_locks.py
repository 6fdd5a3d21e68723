#!/usr/bin/env python3
"""Locks in exports that demand TLS. Linux sends NLM and NSM in the clear, beside the TLS connection of its NFS calls: such
a call counts only while its client has that connection, or just had it, and a notice of a restart only with a new one."""

import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
import tls
from commandline import FAILED, CliPlay
from forger import Forger
from play import main
from rpc import UdpCaller, auth_sys, call_message, exchange
from secured import PORT, Secured, nfs
from until import comes
from xdr import In, Out

GRACE = 2  # seconds
FREED = "client crashed, locks released"
WAITS = "a notice of a restart waits"


class TlsLocks(Secured):
    """The host a has the certificate of alpha; b is another host, with that of beta."""

    host_class = nsm.Host
    settings = ("api.listen=127.0.0.1:0", f"tls.grace_seconds={GRACE}", "recovery.notify_timeout_ms=1000")
    share, folder = "/named", "named"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.alpha = cls.ca.issue("alpha", "DNS:alpha.example,DNS:other.example")
        cls.beta = cls.ca.issue("beta", "DNS:beta")
        cls.gamma = cls.ca.issue("gamma", "DNS:gamma")

    def setUp(self):
        super().setUp()
        self.began = len(self.daemon.log)
        for host in self.hosts:
            host.state = 5
            host.name = f"client{host.number}-{self._testMethodName}"  # a client of this test's own
            host.drop_callers()
            host.asked.items.clear()
        self.tls = self.secured(self.alpha)
        self.name = os.path.basename(self.make_file(self.folder))
        self.fh = self.look_up(self.tls, self.share, self.name)

    def tearDown(self):
        for host in self.hosts:
            self.rest.call("DELETE", self.target_of(host), token=True)
            host.drop_callers()
        self.assertEqual(self.stage.broken, [], "a fake service failed")
        self.assertIsNone(self.daemon.process.poll(), "holdfastd is gone")

    @property
    def log(self):
        """Of this test."""
        return self.daemon.log[self.began :]

    def look_up(self, caller, share, name):
        reply = In(self.ask(caller, nfs.LOOKUP, Out().opaque(self.root(share)).string(name).bytes())[24:])
        self.assertEqual(reply.u32(), 0)
        return reply.opaque()

    # What the server shows

    def target_of(self, host):
        return "/api/v1/clients/" + urllib.parse.quote(self.id_of(host), safe="")

    def shown(self, host):
        answer = self.rest.get(self.target_of(host))
        return answer.json if answer.status == 200 else None

    def n_locks(self, host):
        client = self.shown(host)
        return client["lock_count"] if client else 0

    def refused(self, reason):
        return self.metric(f'holdfast_tls_refused_calls_total{{reason="{reason}"}}')

    # What the hosts do

    def secured(self, certificate=None, host=None, **how):
        """A client's handshake is done before the server's: a reply shows that the server's is."""
        made = super().secured(certificate, host, **how)
        self.assertEqual(exchange(made, tls.null_call()), b"")
        return made

    def hold(self, host=None, reserved=False, **more):  # pylint: disable=arguments-differ
        host = host or self.a
        lock = self.lock_of(host, 0, 10, state=5, **more)
        self.assert_granted(host, lock, reserved=reserved)
        comes(host.asked.matching, 5)  # the server has asked the host for its number
        return lock

    def disconnect(self, caller=None):
        """For longer than grace."""
        (caller or self.tls).sock.close()
        probe = self.lock_of(self.a)
        self.until(lambda: self.a.test(probe).stat, "grace ends", passes=lambda stat: stat == nlm.S_FAILED)

    def send(self, host, program, version, procedure, args, transport="udp"):
        """One way: what the server says to it does not matter, if it says anything."""
        host.caller(transport).send(call_message(program, version, procedure, args, cred=auth_sys(host.name)))

    def notify(self, host, state, name=None, send=None):
        """A notice that waits for a proof, and stays unanswered. The server asks the host first."""
        args = Out().string(name or host.name).i32(state).bytes()
        before = self.refused("no_proof")
        (send or self.send)(host, nsm.NSM, 1, nsm.NOTIFY, args, "tcp")
        self.until(lambda: self.refused("no_proof") > before, "the notice waits")

    def settle(self, host):
        """All that was sent so far is served."""
        host.call(nlm.NULL, b"", transport="tcp")

    def reconnect(self):
        """As a client does that was idle: it is in the life that it had."""
        self.tls.sock.close()
        self.tls = self.secured(self.alpha)
        self.settle(self.a)

    def reboot(self, host, state=7):
        """Its memory is gone, and with it the connections in the clear."""
        host.drop_callers()
        host.start_lockd()
        host.state = state

    def assert_untouched(self, lock, host=None):
        self.assertEqual(self.n_locks(host or self.a), 1, "the lock is gone")
        self.assertNotIn(f"{FREED} client={self.id_of(host or self.a)} ", self.log)

    def assert_unanswered(self, lock):
        """The client repeats a reclaim only as long as it is not answered."""
        before = sum(self.refused(reason) for reason in ("no_connection", "name_taken"))
        caller, after = self.a.caller("tcp"), call_message(nlm.PROGRAM, 4, nlm.NULL)
        for message in (call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys(self.a.name)), after):
            caller.send(message)
        self.assertEqual(caller.receive()[:4], after[:4], "the first answer is that to the second call")
        self.assertEqual(sum(self.refused(reason) for reason in ("no_connection", "name_taken")), before + 1)
        self.assert_untouched(lock)


class Honest(TlsLocks, CliPlay):
    settings = TlsLocks.settings

    def test_it_locks_in_the_clear_beside_its_connection(self):
        lock = self.hold()
        shown = self.shown(self.a)
        self.assertEqual((shown["transport"], shown["identity"], shown["refused_calls"]), ("mtls", "alpha.example", 0))
        self.assertEqual(self.a.test(lock.but(svid=9)).stat, nlm.S_DENIED)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assertEqual(self.n_locks(self.a), 0)

    def test_grace_after_its_connection(self):
        """A client closes an idle connection, and opens it again when it needs it. It asks again only if it is told so: after
        any other refusal of an UNLOCK the lock would stay until the client is restarted."""
        lock = self.hold()
        self.tls.sock.close()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_granted(self.a, lock)
        self.disconnect()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRACE)
        self.assertEqual(self.n_locks(self.a), 1)
        self.assertEqual(self.a.unlock(lock.but(svid=9)), nlm.S_FAILED, "it has nothing there")
        self.secured(self.alpha)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assertEqual(self.n_locks(self.a), 0)

    def test_a_refusal_is_not_remembered(self):
        """The same datagram again, when the client has its connection: it is served, and not answered from memory."""
        self.disconnect()
        lock = self.lock_of(self.a, 0, 10)
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys(self.a.name))
        caller = UdpCaller((self.a.server, PORT), (self.a.address, 0), self.a.namespace)
        self.addCleanup(caller.close)
        self.assertEqual(nlm.res_of(nlm.LOCK, exchange(caller, message)).stat, nlm.S_FAILED)
        self.secured(self.alpha)
        self.assertEqual(nlm.res_of(nlm.LOCK, exchange(caller, message)).stat, nlm.S_GRANTED)

    def test_calls_inside_tls(self):
        """Each is judged by its own connection."""
        lock = self.lock_of(self.a, 0, 10, state=5)

        def inside(caller, procedure, lock):
            message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=auth_sys(lock.name))
            return nlm.res_of(procedure, exchange(caller, message)).stat

        other = self.secured(self.beta)
        self.assertEqual(inside(self.tls, nlm.LOCK, lock), nlm.S_GRANTED)
        self.assertEqual(self.shown(self.a)["identity"], "alpha.example")
        self.assertEqual(inside(other, nlm.UNLOCK, lock), nlm.S_GRACE)
        self.assertEqual(inside(self.secured(self.gamma), nlm.LOCK, lock.but(name="third")), nlm.S_FAILED)
        self.assertEqual(self.n_locks(self.a), 1)
        self.assertEqual(inside(self.tls, nlm.UNLOCK, lock), nlm.S_GRANTED)

    def test_reservations(self):
        mine = self.lock_of(self.a, access=1, deny=3)
        self.assertEqual(self.a.share(mine), nlm.S_GRANTED)
        self.disconnect()
        self.assertEqual(self.a.unshare(mine), nlm.S_FAILED)
        self.assertEqual(self.a.share(mine.but(oh=b"other", access=2)), nlm.S_FAILED)
        self.assertEqual(self.shown(self.a)["reservations"], 1)
        self.secured(self.alpha)
        self.assertEqual(self.a.unshare(mine), nlm.S_GRANTED)

    def restart_while_b_waits(self, **how):
        """For the lock of a, which comes back."""
        self.hold(**how)
        self.secured(self.beta, host=self.b)
        waiting = self.lock_of(self.b, 0, 10, svid=3, block=True)
        self.assert_blocked(self.b, waiting)
        self.tls.sock.close()
        self.reboot(self.a)
        return waiting

    def test_a_restart_with_the_connection_before_the_notice(self):
        waiting = self.restart_while_b_waits()
        self.secured(self.alpha)
        self.a.notify(7, transport="tcp")  # answered
        self.b.wait_granted(waiting)
        self.assertEqual(self.n_locks(self.a), 0)

    def test_a_restart_with_the_notice_before_the_connection(self):
        waiting = self.restart_while_b_waits()
        self.notify(self.a, 7)
        self.assertEqual(self.refused("no_proof"), self.shown(self.a)["refused_calls"])
        self.assert_untouched(None)
        self.secured(self.alpha)
        self.b.wait_granted(waiting)
        self.a.notify(7, transport="tcp")  # its next copy is answered
        self.assertEqual(self.n_locks(self.a), 0)

    def test_a_lock_of_the_new_life_tells_of_the_restart(self):
        lock = self.hold()
        self.tls.sock.close()
        self.reboot(self.a)
        self.secured(self.alpha)
        self.assert_granted(self.a, lock.but(offset=50, svid=8, state=7))
        self.assertEqual(self.n_locks(self.a), 1)
        self.a.notify(7, transport="tcp")
        self.assertEqual(self.n_locks(self.a), 1)

    def test_a_refused_call_of_a_user_does_not_speak_for_the_old_life(self):
        """The client locks from a reserved port. After its restart one of its users tries to unlock from an ordinary one."""
        waiting = self.restart_while_b_waits(reserved=True)
        self.secured(self.alpha)
        for procedure in (nlm.UNLOCK, nlm.CANCEL):
            self.assertEqual(self.a.ask(procedure, self.lock_of(self.a, 0, 10)).stat, nlm.S_FAILED)
        self.a.notify(7, transport="tcp", reserved=True)  # answered
        self.b.wait_granted(waiting)

    def test_a_refused_call_in_an_export_that_became_secure_does_not_speak_for_the_old_life(self):
        """The client locked from an ordinary port, as it may, before the export demanded a reserved one."""
        self.hold()
        self.tls.sock.close()
        self.reboot(self.a)
        self.change_exports("transport: mtls, identities", "secure: true, transport: mtls, identities")
        self.secured(self.alpha)
        for procedure in (nlm.UNLOCK, nlm.CANCEL, nlm.UNSHARE):
            self.assertEqual(self.a.ask(procedure, self.lock_of(self.a, 0, 10, svid=77)).stat, nlm.S_FAILED)
        self.a.notify(7, transport="tcp")  # answered
        self.assertEqual(self.n_locks(self.a), 0)

    def test_free_all_after_a_restart(self):
        self.hold()
        self.tls.sock.close()
        self.reboot(self.a)
        self.secured(self.alpha)
        self.a.free_all(state=7)
        self.assertEqual(self.n_locks(self.a), 0)

    def change_exports(self, old, new):
        """For this test, by a reload."""
        self.write_config([line.replace(old, new) for line in self.exports])
        self.addCleanup(lambda: (self.write_config(self.exports), self.reload()))
        self.reload()

    def test_exports_that_demand_nothing(self):
        """Of the same server, and of the same host: as ever."""
        plain = self.handle_of(self.path)
        self.disconnect()
        lock = self.lock_of(self.b, 0, 10, fh=plain, state=5)
        self.assert_granted(self.b, lock)
        self.assertEqual(self.shown(self.b)["transport"], "clear")
        self.b.notify(7, transport="tcp", reserved=True)
        self.assertEqual(self.n_locks(self.b), 0)
        mine = self.lock_of(self.a, 0, 10, fh=plain)
        self.assert_granted(self.a, mine)
        self.assertEqual(self.a.unlock(mine), nlm.S_GRANTED)

    def test_a_lock_from_before_the_demand(self):
        """A reload makes an export demand TLS: the client can still give up what it has."""
        plain = self.handle_of(self.path)
        lock = self.lock_of(self.b, 0, 10, fh=plain)
        self.assert_granted(self.b, lock)
        self.change_exports("name: /data,", "name: /data, transport: tls,")
        self.assertEqual(self.b.lock(lock.but(offset=20)), nlm.S_FAILED)
        self.assertEqual(self.b.unlock(lock), nlm.S_GRANTED)
        self.assertEqual(self.n_locks(self.b), 0)

    def test_what_operators_see(self):
        self.hold()
        self.disconnect()
        before = self.shown(self.a)["refused_calls"]
        for _ in range(5):
            self.assertEqual(self.a.unlock(self.lock_of(self.a, 0, 10)), nlm.S_GRACE)
        shown = self.shown(self.a)
        self.assertEqual((shown["transport"], shown["identity"], shown["refused_calls"]), ("mtls", "alpha.example", before + 5))
        said = f"the client's address has no such connection client={self.id_of(self.a)}"
        self.assertEqual(self.log.count(said), 1)
        table = self.run_cli("clients").stdout
        self.assertRegex(table, r"TRANSPORT +IDENTITY +TLS NOW +AUTHENTICATED AS +REFUSED")
        self.assertRegex(table, rf"mtls +alpha\.example +none +\S+ +{before + 5}")
        one = self.run_cli("clients", self.id_of(self.a)).stdout
        self.assertIn(f"transport  mtls, identity alpha.example, {before + 5} calls refused for lack of TLS", one)
        self.assertIn("TLS now    none\n", one)
        results = self.rest.get("/metrics").body.decode()
        self.assertIn('nlm_requests_total{procedure="UNLOCK",result="TLS_REQUIRED"}', results)


class ReloadedGrace(TlsLocks):
    """A reload changes tls.grace_seconds, also for connections that have ended."""

    settings = ("api.listen=127.0.0.1:0", "recovery.notify_timeout_ms=1000")
    grace = 3600

    @classmethod
    def write_config(cls, exports):
        super().write_config(exports)
        with open(cls.config, "a", encoding="ascii") as out:
            out.write(f"  grace_seconds: {cls.grace}\n")

    def change(self, grace):
        type(self).grace = grace
        self.write_config(self.exports)
        self.reload()

    def test_grace_ends_with_the_reload(self):
        self.addCleanup(self.change, 3600)
        probe = self.lock_of(self.a)
        self.tls.sock.close()
        self.until(lambda: self.metric('holdfast_connections{transport="mtls"}') == 0, "the server sees its end")
        self.assertEqual(self.a.test(probe).stat, nlm.S_GRANTED)
        self.change(0)
        self.assertEqual(self.a.test(probe).stat, nlm.S_FAILED)


class Shown(TlsLocks, CliPlay):
    """What operators see of a client: what it must have, and what it has now, also while grace counts as a connection."""

    settings = ("api.listen=127.0.0.1:0", "tls.grace_seconds=3600", "recovery.notify_timeout_ms=1000")
    keys = "transport", "identity", "tls_connection", "authenticated_as"

    def connection_of(self, host):
        one = self.shown(host)
        return tuple(one[key] for key in self.keys)

    def until_connection(self, host, *shown):
        self.until(lambda: self.connection_of(host), f"{shown} is shown", passes=lambda seen: seen == shown)

    def test_a_certificate_is_shown_whatever_the_export_demands(self):
        names = "alpha.example other.example"
        plain = self.lock_of(self.a, fh=self.handle_of(self.path), svid=2)
        self.assert_granted(self.a, plain)
        self.assertEqual(self.connection_of(self.a), ("clear", None, "mtls", names))
        under_tls = self.lock_of(self.a, svid=3, fh=self.look_up(self.tls, "/tls", os.path.basename(self.make_file("tls"))))
        self.assert_granted(self.a, under_tls)
        self.assertEqual(self.connection_of(self.a), ("tls", None, "mtls", names))
        (listed,) = [one for one in self.rest.get("/api/v1/clients").json["clients"] if one["id"] == self.id_of(self.a)]
        self.assertEqual(tuple(listed[key] for key in self.keys), ("tls", None, "mtls", names))
        one = self.run_cli("clients", self.id_of(self.a)).stdout
        self.assertIn(f"TLS now    mtls, authenticated as {names}\n", one)

    def test_connections_are_shown_as_they_are_now(self):
        self.hold()
        bound = "mtls", "alpha.example"
        self.assertEqual(self.connection_of(self.a), (*bound, "mtls", "alpha.example other.example"))
        self.tls.sock.close()
        self.until_connection(self.a, *bound, "none", None)
        self.secured(self.gamma)
        self.secured()
        self.assertEqual(self.connection_of(self.a), (*bound, "none", None), "others speak for it")
        self.secured(self.alpha)
        self.assertEqual(self.connection_of(self.a), (*bound, "mtls", "alpha.example other.example"))

    def test_a_connection_without_a_certificate_is_shown(self):
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.handle_of(self.path)))
        self.assertEqual(self.connection_of(self.b), ("clear", None, "none", None))
        made = self.secured(host=self.b)
        self.assertEqual(self.connection_of(self.b), ("clear", None, "tls", None))
        made.sock.close()
        self.until_connection(self.b, "clear", None, "none", None)


class Attackers(TlsLocks):
    """Each of them calls in the name of a, which has a lock and its handle."""

    def setUp(self):
        super().setUp()
        self.lock = self.hold()

    def assert_refused(self, host, procedure, lock, stat=nlm.S_FAILED, **how):
        self.assertEqual(host.ask(procedure, lock, **how).stat, stat)
        self.assert_untouched(lock)

    # From another address, under the client's name

    def test_unlock_from_another_address(self):
        before = self.refused("no_connection")
        for transport in ("tcp", "udp"):
            self.assert_refused(self.b, nlm.UNLOCK, self.lock.but(length=0), transport=transport)
        self.assertEqual(self.refused("no_connection"), before + 2)

    def test_cancel_from_another_address(self):
        waiting = self.waiting()
        self.b.cancel(waiting)  # b has a connection, but the client is another one
        self.assert_still_waits(waiting)

    def test_reclaim_from_another_address(self):
        self.assert_refused(self.b, nlm.LOCK, self.lock.but(reclaim=True))

    def test_free_all_from_another_address(self):
        self.b.free_all(self.a.name, 7)
        self.assert_untouched(self.lock)

    def test_notice_from_another_address(self):
        self.b.notify(7, self.a.name)
        self.assert_untouched(self.lock)

    def test_granted_res_from_another_address(self):
        self.refuse_grant(self.b)

    # With the client's address in the sender of datagrams, while it is connected

    def test_forged_datagrams(self):
        forger = Forger(self.network.server, (self.a.server, PORT))
        self.addCleanup(forger.close)
        before = self.refused("datagram")
        for procedure in (nlm.UNLOCK, nlm.CANCEL):
            args = self.lock.but(length=0).args(procedure)
            forger.send(self.a.address, 700, call_message(nlm.PROGRAM, 4, procedure, args))
        self.until(lambda: self.refused("datagram"), "both are refused", passes=lambda n: n == before + 2)
        self.assert_untouched(self.lock)

    # From the client's own address, without its connection

    def waiting(self):
        """A wait of a's for what b has. The connection of b stays."""
        self.secured(self.beta, host=self.b)
        theirs = self.lock_of(self.b, 100, 10, svid=3)
        self.assert_granted(self.b, theirs)
        waiting = self.lock_of(self.a, 100, 10, svid=4, block=True, state=5)
        self.assert_blocked(self.a, waiting)
        return waiting

    def assert_still_waits(self, waiting):
        self.assertEqual(self.b.unlock(waiting.but(name=self.b.name, svid=3)), nlm.S_GRANTED)
        self.a.wait_granted(waiting)

    def refuse_grant(self, attacker, disconnect=False):
        """The answer to a grant, with the cookie that only the client knows: the attacker saw it on its way."""
        waiting = self.waiting()
        self.a.script = lambda heard: self.a.DEFER
        self.assertEqual(self.b.unlock(waiting.but(name=self.b.name, svid=3)), nlm.S_GRANTED)
        heard = self.a.wait_granted(waiting)
        if disconnect:
            self.disconnect()
        denied = nlm.put_res(heard.grant.cookie, nlm.S_DENIED)
        self.send(attacker, nlm.PROGRAM, 4, nlm.GRANTED_RES, denied, "tcp")
        self.settle(attacker)
        self.assertEqual(self.n_locks(self.a), 2)

    def test_unlock_without_a_connection(self):
        self.disconnect()
        before = self.refused("no_connection")
        for version in nlm.VERSIONS:
            self.assertEqual(self.a.unlock(self.lock, version=version), nlm.S_GRACE)
        self.assert_untouched(self.lock)
        self.assertEqual(self.refused("no_connection"), before + 3)

    def test_unlock_msg_without_a_connection(self):
        self.disconnect()
        lock = self.lock.but(cookie=b"forged")
        self.send(self.a, nlm.PROGRAM, 4, nlm.UNLOCK_MSG, lock.args(nlm.UNLOCK_MSG), "tcp")
        (answer,) = self.a.answers.wait(1, lambda answer: answer[1].cookie == b"forged")
        self.assertEqual(answer[1].stat, nlm.S_GRACE)
        self.assert_untouched(lock)

    def test_cancel_without_a_connection(self):
        waiting = self.waiting()
        self.disconnect()
        self.assertEqual(self.a.cancel(waiting), nlm.S_GRACE)
        self.assert_still_waits(waiting)

    def test_a_poll_without_a_connection_ends_no_wait(self):
        """The client still waits, as it does for the server: it is told to ask again."""
        waiting = self.waiting()
        self.disconnect()
        before = self.refused("no_connection")
        for version in nlm.VERSIONS:
            self.assertEqual(self.a.lock(waiting, version=version), nlm.S_GRACE)
        self.assertEqual(self.a.lock(waiting.but(svid=5)), nlm.S_FAILED, "another owner, which does not wait")
        self.assertEqual(self.a.lock(waiting.but(offset=110)), nlm.S_FAILED, "another range")
        self.assertEqual(self.refused("no_connection"), before + 5)
        self.assert_still_waits(waiting)

    def test_reclaim_without_a_connection(self):
        self.disconnect()
        self.assert_unanswered(self.lock.but(reclaim=True))
        self.assert_refused(self.a, nlm.LOCK, self.lock.but(reclaim=True, offset=50))
        self.assert_refused(self.a, nlm.LOCK, self.lock.but(reclaim=True, svid=9))

    def test_lock_without_a_connection(self):
        """One with a newer number tells of a restart."""
        self.disconnect()
        for lock in (self.lock.but(offset=50), self.lock.but(svid=9, offset=50, state=7)):
            self.assert_refused(self.a, nlm.LOCK, lock)
            self.assert_refused(self.a, nlm.NM_LOCK, lock)

    def test_lock_of_what_the_client_has_without_a_connection(self):
        """A shared one of the same owner would downgrade its lock. The reply to the first may be lost, so it is not refused."""
        self.disconnect()
        for lock in (self.lock, self.lock.but(exclusive=False), self.lock.but(offset=5, state=7)):
            for procedure in (nlm.LOCK, nlm.NM_LOCK):
                self.assertEqual(self.a.ask(procedure, lock).stat, nlm.S_GRACE)
                self.assert_untouched(lock)
        self.secured(self.alpha)
        self.assertEqual(self.a.test(self.lock.but(svid=9, exclusive=False)).stat, nlm.S_DENIED, "it is still exclusive")
        self.assertEqual(self.a.lock(self.lock), nlm.S_GRANTED)

    def test_a_newer_number_in_an_export_that_demands_nothing(self):
        plain = self.handle_of(self.path)
        self.a.state = 7
        for reserved in (False, True):
            self.assert_granted(self.a, self.lock_of(self.a, 0, 10, fh=plain, svid=9, state=7), reserved=reserved)
        self.assertEqual(self.n_locks(self.a), 2)

    def test_granted_res_without_a_connection(self):
        self.refuse_grant(self.a, disconnect=True)

    def test_free_all_without_a_connection(self):
        self.disconnect()
        self.reboot(self.a)
        self.send(self.a, nlm.PROGRAM, 4, nlm.FREE_ALL, nlm.Lock(name=self.a.name, state=7).args(nlm.FREE_ALL), "tcp")
        self.settle(self.a)
        self.assert_untouched(self.lock)

    def test_free_all_while_the_client_is_connected(self):
        """Its connection is older than its lock."""
        before = self.refused("no_proof")
        self.send(self.a, nlm.PROGRAM, 4, nlm.FREE_ALL, nlm.Lock(name=self.a.name, state=7).args(nlm.FREE_ALL), "tcp")
        self.settle(self.a)
        self.assert_untouched(self.lock)
        self.assertEqual(self.refused("no_proof"), before + 1)

    def test_notice_without_a_new_connection(self):
        """While the client is connected, in grace, and after that; a host that denies nothing."""
        before = self.refused("no_proof")
        self.reboot(self.a)
        self.notify(self.a, 7)
        self.assert_untouched(self.lock)
        self.disconnect()
        self.notify(self.a, 7)
        self.assert_untouched(self.lock)
        self.assertEqual(self.log.count(WAITS), 1)
        self.assertEqual(self.refused("no_proof"), before + 2)

    def test_forged_notice_does_not_wait_for_the_next_connection(self):
        """The host's statd does not say that it was not restarted."""
        forger = Forger(self.b.namespace, (self.a.server, PORT))
        self.addCleanup(forger.close)
        self.a.state = None

        def forge(host, program, version, procedure, args, _transport):
            forger.send(host.address, 700, call_message(program, version, procedure, args))

        self.notify(self.a, 7, send=forge)
        self.reconnect()
        self.assert_untouched(self.lock)

    def test_notice_from_its_address_is_checked_before_it_waits(self):
        """From a reserved port and over TCP, and a statd that denies it."""
        args = Out().string(self.a.name).i32(7).bytes()
        self.a.caller("tcp", reserved=True).send(call_message(nsm.NSM, 1, nsm.NOTIFY, args))
        self.until(lambda: "a notice of a restart" in self.log, "it is denied, or waits for a proof")
        self.reconnect()
        self.assert_untouched(self.lock)

    def test_client_that_goes_on_refutes_the_notice_that_waits(self):
        """The attacker is on the wire, and answers in the name of its statd."""
        self.a.state = 7
        self.notify(self.a, 7)
        other = self.lock.but(offset=50, svid=8)
        self.assert_granted(self.a, other)
        self.assertEqual(self.a.unlock(other), nlm.S_GRANTED)
        self.reconnect()
        self.assert_untouched(self.lock)

    def test_notice_with_the_connection_of_another(self):
        self.disconnect()
        self.reboot(self.a)
        self.notify(self.a, 7)
        self.secured(self.beta)
        self.secured()
        self.secured(self.alpha, host=self.b)
        self.notify(self.a, 7)
        self.assert_untouched(self.lock)
        self.secured(self.alpha)
        self.until(lambda: self.n_locks(self.a), "the notice is believed", passes=lambda n: n == 0)

    # The name

    def test_the_name_belongs_to_another_identity(self):
        """A host that has the client's address now, and a certificate of its own that the export accepts."""
        self.disconnect()
        self.secured(self.beta)
        before = self.refused("name_taken")
        self.assert_refused(self.a, nlm.UNLOCK, self.lock, nlm.S_GRACE)
        self.assert_refused(self.a, nlm.LOCK, self.lock.but(offset=50))
        # What the client may have is not refused: behind one address the call may be its own.
        self.assert_unanswered(self.lock.but(reclaim=True))
        self.assertEqual(self.a.lock(self.lock), nlm.S_GRACE)
        self.assertEqual(self.refused("name_taken"), before + 4)
        self.assertIn("the client's name belongs to another certificate", self.log)
        self.assert_granted(self.a, self.lock.but(name="beta", offset=50))  # by its own name
        mine = self.secured(self.alpha)
        self.assertEqual(self.a.unlock(self.lock), nlm.S_GRANTED)
        self.rest.call("DELETE", f"/api/v1/clients/nlm:{self.a.address}:beta", token=True)
        mine.sock.close()

    def test_a_name_that_is_free_again(self):
        self.assertEqual(self.a.unlock(self.lock), nlm.S_GRANTED)
        self.disconnect()
        self.secured(self.beta)
        self.assert_granted(self.a, self.lock)
        self.assertEqual(self.shown(self.a)["identity"], "beta")

    def test_a_certificate_that_the_export_does_not_accept(self):
        self.disconnect()
        self.secured(self.gamma)
        before = self.refused("identity")
        self.assert_refused(self.a, nlm.UNLOCK, self.lock, nlm.S_GRACE)
        self.assertEqual(self.refused("identity"), before + 1)

    def test_tls_without_a_certificate(self):
        self.disconnect()
        self.secured()
        self.assert_refused(self.a, nlm.UNLOCK, self.lock, nlm.S_GRACE)


class Unhurried(TlsLocks):
    """The server gives a host some time to answer."""

    settings = ("api.listen=127.0.0.1:0", f"tls.grace_seconds={GRACE}", "recovery.notify_timeout_ms=10000")

    def lock_while_checked(self, number, *call):
        """The server checks @call while the client takes its first lock under TLS. Its statd gives @number then."""
        plain = self.lock_of(self.a, 0, 10, fh=self.handle_of(self.path), state=5)
        self.assert_granted(self.a, plain)
        comes(self.a.asked.matching, 5)
        self.a.deaf = True
        self.addCleanup(setattr, self.a, "deaf", False)
        before = self.refused("no_proof")
        self.send(self.a, *call)
        self.settle(self.a)
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10, state=5))
        self.a.state, self.a.deaf = number, False
        self.until(lambda: self.refused("no_proof") > before, "the call needs a proof")

    def test_a_lock_under_way_is_not_refused(self):
        """The server still asks the host about its number when the LOCK comes again. It is served when the client is back."""
        self.hold()
        self.reconnect()
        self.a.deaf = True
        self.addCleanup(setattr, self.a, "deaf", False)
        lock = self.lock_of(self.a, 50, 10, svid=8, state=7)
        self.send(self.a, nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), "tcp")
        self.settle(self.a)
        self.a.drop_callers()
        self.disconnect()
        self.assertEqual(self.a.lock(lock), nlm.S_GRACE)
        self.assertEqual(self.a.lock(lock.but(svid=9)), nlm.S_FAILED)
        self.secured(self.alpha)
        self.a.state, self.a.deaf = 7, False
        self.until(lambda: self.a.lock(lock), "it is served", passes=lambda stat: stat == nlm.S_GRANTED)

    def test_a_free_all_that_is_checked_while_the_client_takes_its_first_such_lock(self):
        args = nlm.Lock(name=self.a.name, state=7).args(nlm.FREE_ALL)
        self.lock_while_checked(7, nlm.PROGRAM, 4, nlm.FREE_ALL, args)
        self.assertEqual(self.n_locks(self.a), 2)

    def test_a_notice_that_is_checked_meanwhile_does_not_wait(self):
        """The host gives no number."""
        args = Out().string(self.a.name).i32(7).bytes()
        self.lock_while_checked(None, nsm.NSM, 1, nsm.NOTIFY, args)
        self.reconnect()
        self.assertEqual(self.n_locks(self.a), 2)


class Nameless(TlsLocks):
    """transport: mtls, and any name of the CA"""

    share, folder = "/mtls", "mtls"

    def test_a_certificate_without_a_name(self):
        """No name could own the lock, so every host with the address could release it."""
        self.disconnect()
        caller = self.secured(self.ca.issue("Two Words"))
        self.assertEqual(self.getattr(caller, self.share), 0)
        before = self.refused("identity")
        self.assertEqual(self.a.lock(self.lock_of(self.a, 0, 10, state=5)), nlm.S_FAILED)
        self.assertEqual(self.refused("identity"), before + 1)
        self.secured(self.alpha)
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10, state=5))
        self.assertEqual(self.shown(self.a)["identity"], "alpha.example")


class WithoutCertificates(TlsLocks):
    """transport: tls"""

    share, folder = "/tls", "tls"

    def test_the_connection_counts_and_no_name(self):
        lock = self.hold()
        shown = self.shown(self.a)
        self.assertEqual((shown["transport"], shown["identity"]), ("tls", None))
        self.disconnect()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRACE)
        self.reboot(self.a)
        self.notify(self.a, 7)
        self.assert_untouched(lock)
        self.secured()
        self.until(lambda: self.n_locks(self.a), "the notice is believed", passes=lambda n: n == 0)


class Restarts(TlsLocks, CliPlay):
    """The server is killed: what it knew of its clients' certificates is stored."""

    settings = (*TlsLocks.settings, "store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=120")

    def crash(self):
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.daemon.start()

    def test_the_binding_after_kill_9(self):
        lock = self.hold()
        self.crash()
        self.assertEqual(self.shown(self.a)["identity"], "alpha.example")
        # Another identity at the address, when the time after the start is over.
        self.disconnect()
        other = self.secured(self.beta)
        self.assert_unanswered(lock.but(reclaim=True))
        self.assertEqual(self.a.unlock(lock), nlm.S_GRACE)
        self.assertEqual(self.n_locks(self.a), 1)
        self.disconnect(other)
        self.secured(self.alpha)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)

    def test_forged_datagrams_after_kill_9(self):
        """Before the client has called: nothing else shows that it locks over TCP."""
        lock = self.hold()
        self.crash()
        before = self.refused("datagram")
        forger = Forger(self.b.namespace, (self.a.server, PORT))
        self.addCleanup(forger.close)
        for procedure in (nlm.UNLOCK, nlm.UNLOCK_MSG, nlm.CANCEL, nlm.LOCK):
            args = lock.but(reclaim=True).args(procedure)
            forger.send(self.a.address, 700, call_message(nlm.PROGRAM, 4, procedure, args, cred=auth_sys(self.a.name)))
        self.until(lambda: self.refused("datagram"), "they are refused", passes=lambda n: n == before + 4)
        self.assert_untouched(lock)
        self.secured(self.alpha)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_it_reclaims_before_it_is_connected_again(self):
        """The client hears of the restart, and its lock manager reclaims at once."""
        lock = self.hold()
        self.crash()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.b.lock(lock.but(reclaim=True)), nlm.S_FAILED)

    def test_back_to_the_format_of_an_older_version(self):
        """The lock stays; the client must show its certificate again."""
        lock = self.hold()
        back = ("store", "downgrade", f"{self.daemon.state_dir}/state")
        self.assertIn("stop holdfastd first", self.run_cli(*back, "1", code=FAILED).stderr)
        self.daemon.stop()
        for host in self.hosts:
            host.drop_callers()
        try:
            self.assertIn("format=2 error=Invalid argument", self.run_cli(*back, "3", code=FAILED).stderr)
            self.assertRegex(self.run_cli(*back, "1").stderr, r"format=1 clients_changed=[1-9]")
            self.assertRegex(self.run_cli(*back, "1").stderr, r"format=1 clients_changed=0")
        finally:
            self.daemon.start()
        self.assertEqual(self.n_locks(self.a), 1)
        self.assertNotIn("identity", {key for key, value in self.shown(self.a).items() if value})
        self.secured(self.alpha)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.shown(self.a)["identity"], "alpha.example")

    def test_a_notice_after_kill_9(self):
        lock = self.hold()
        self.crash()
        self.reboot(self.a)
        self.notify(self.a, 7)
        self.assert_untouched(lock)
        self.secured(self.alpha)
        self.until(lambda: self.n_locks(self.a), "the notice is believed", passes=lambda n: n == 0)


if __name__ == "__main__":
    main()
