#!/usr/bin/env python3
"""Locks in an export that demands a certificate, on two nodes. What the client has goes on at the successor; its TLS connections
do not, and nothing in the clear counts there for longer than the grace before the client has connected with its key.
"""

import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import tls
from certs import Authority
from nodes import SERVICE
from play import main
from rpc import NoReply, auth_sys, call_message, exchange
from takeover import EXPORT, Takeover, nfs
from xdr import In, Out

GRACE = 2  # seconds
NAMED = "{{path: {base}/named, name: /named, squash: none, transport: mtls}}"


class TlsTakeover(Takeover):
    """The host a has the certificate of alpha, and b that of beta."""

    more = (f"tls.grace_seconds={GRACE}",)

    @classmethod
    def write_exports(cls, node, *exports):
        if not cls.nodes:
            os.mkdir(os.path.join(cls.base, "named"))
            cls.ca = Authority(os.path.join(cls.base, "ca"))
            cls.server = cls.ca.issue("server", "DNS:server")
            cls.alpha = cls.ca.issue("alpha", "DNS:alpha")
            cls.beta = cls.ca.issue("beta", "DNS:beta")
        super().write_exports(node, *(exports or (EXPORT, NAMED)))
        with open(node.config, "a", encoding="ascii") as out:
            out.write(f"tls:\n  certificate: {cls.server[0]}\n  key: {cls.server[1]}\n  client_ca: {cls.ca.certificate}\n")

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            host.name = f"client{host.number}-{self._testMethodName}"  # a client of this test's own
            host.drop_callers()
        self.tls_a, self.tls_b = self.connect(self.a, self.alpha), self.connect(self.b, self.beta)
        self.path = self.make_file()
        self.named = os.path.join(self.base, "named", os.path.basename(self.path))
        os.rename(self.path, self.named)
        self.fh = self.look_up(self.tls_a)

    # Connections

    def connect(self, host, certificate, address=SERVICE):
        """The reply shows that the server's handshake is done, too."""
        made = tls.TlsCaller((address, 2049), (host.address, 0), host.namespace)
        self.addCleanup(lambda: made.sock.close())
        made.start_tls(tls.context(self.ca.certificate, certificate))
        self.assertEqual(exchange(made, tls.null_call()), b"")
        return made

    def ask(self, caller, program, procedure, args):
        return In(exchange(caller, call_message(program, 3, procedure, args, cred=auth_sys("host", 0, 0, ()))))

    def look_up(self, caller):
        reply = self.ask(caller, nfs.MOUNT, 1, Out().string("/named").bytes())
        self.assertEqual(reply.u32(), 0)
        args = Out().opaque(reply.opaque()).string(os.path.basename(self.named)).bytes()
        reply = self.ask(caller, nfs.NFS, nfs.LOOKUP, args)
        self.assertEqual(reply.u32(), 0)
        return reply.opaque()

    def write(self, caller, data):
        """The status."""
        return self.ask(caller, nfs.NFS, nfs.WRITE, self.write_args(data)).u32()

    def write_args(self, data):
        return Out().opaque(self.fh).u64(0).u32(len(data)).u32(nfs.FILE_SYNC).opaque(data).bytes()

    def read_locally(self):
        with open(self.named, "rb") as file:
            return file.read()

    def until_grace_ends(self, host):
        probe = self.lock_of(host, svid=77)
        self.until(lambda: host.test(probe).stat, "grace ends", passes=lambda stat: stat == nlm.S_FAILED)

    # Tests

    def test_locks_and_waiters_go_on_at_the_successor(self):
        lock, waiter = self.hold(), self.waits(self.b)
        state = self.state_of(self.active)
        _, new = self.kill_active()
        self.assert_continued(new, state)
        self.until_grace_ends(self.a)
        self.connect(self.b, self.beta)
        self.assertEqual(self.b.lock(self.lock_of(self.b, svid=8)), nlm.S_DENIED)
        self.assertEqual(self.write(self.connect(self.a, self.alpha), b"new"), 0)
        self.release(lock)
        self.b.wait_granted(waiter)
        self.assertEqual(self.read_locally(), b"new")

    def test_calls_in_the_clear_right_after_the_takeover(self):
        """The client cannot know yet that its connection is gone: it counts as connected for as long as the grace."""
        lock = self.hold()
        self.kill_active()
        self.release(lock)

    def test_forger_with_the_clients_address_at_the_successor(self):
        """It has no key, or that of another client."""
        lock = self.hold()
        _, new = self.kill_active()
        self.until_grace_ends(self.a)
        for certificate in (None, self.beta):
            if certificate:
                self.connect(self.a, certificate)
            for transport in ("tcp", "udp"):
                self.assertEqual(self.a.unlock(lock, transport=transport), nlm.S_GRACE)
        self.connect(self.b, self.beta)
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_DENIED, "the lock is gone")
        self.connect(self.a, self.alpha)
        self.release(lock)
        self.assertTrue(new.serves())

    def test_planned_move_ends_the_connections(self):
        lock, new = self.hold(), self.standby
        self.active.order("move")
        self.until_serving(new)
        self.assertTrue(self.tls_a.is_closed(), "the old node still has it")
        self.assertEqual(self.write(self.connect(self.a, self.alpha), b"new"), 0)
        self.connect(self.b, self.beta)
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_DENIED, "the lock is gone")
        self.release(lock)

    def test_t1_node_that_stood_still_is_not_heard_over_tls(self):
        """Also at its own address, which stays with it."""
        old, new = self.active, self.standby
        callers = [self.tls_a, self.connect(self.a, self.alpha, old.address)]
        old.pause()
        self.addCleanup(old.go_on)
        for caller in callers:
            caller.send(call_message(nfs.NFS, 3, nfs.WRITE, self.write_args(b"new"), cred=auth_sys("host", 0, 0, ())))
        self.until_serving(new)
        old.go_on()
        old.until_role("standby")
        for caller in callers:
            with contextlib.suppress(EOFError, ConnectionError, OSError):
                self.assertRaises(NoReply, caller.receive, 0.2)
        self.assertEqual(self.read_locally(), b"old")


if __name__ == "__main__":
    main()
