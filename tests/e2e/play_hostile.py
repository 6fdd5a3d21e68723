"""A third host on the wire lies about who it is: nothing is freed by it."""

import socket
import struct

import nlm
import nsm
from fakehost import NSM
from rpc import Refused, TcpCaller, UdpCaller, auth_sys, call_message, exchange
from stage import Play
from xdr import Out

SERVER = ("10.98.0.1", 2049)


class Hostile(Play):
    def setUp(self):
        super().setUp()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")
        self.ada.locks(0, 10)
        self.bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)
        self.namespace, address = self.third_host()
        namespace = self.namespace
        self.callers = [kind(SERVER, (address, 0), namespace, reserved=True) for kind in (UdpCaller, TcpCaller)]
        for caller in self.callers:
            self.addCleanup(caller.close)

    def sends(self, program, version, procedure, args):
        """From a reserved port of the third host, over each transport, in clienta's name. It must be answered: what did
        not arrive proves nothing."""
        for caller in self.callers:
            message = call_message(program, version, procedure, args, cred=auth_sys("clienta"))
            try:
                answer = exchange(caller, message)
            except Refused as refusal:
                answer = repr(refusal)
            self.note(f"third host: {program} v{version} procedure {procedure}: {answer}")

    def assert_nothing_is_freed(self):
        self.server.has(locks=1, waiters=1)
        self.bob.still_waits()
        (lock,) = self.server.locks
        self.assertIn("clienta", lock["owner"])
        self.b.opens("f").is_denied(0, 1)
        self.ada.unlocks(0, 10)
        self.bob.gets()

    def forges(self, program, version, procedure, args):
        """A datagram with clienta's address for its sender."""
        payload = call_message(program, version, procedure, args, cred=auth_sys("clienta"))
        udp = struct.pack(">HHHH", 800, SERVER[1], 8 + len(payload), 0) + payload
        addresses = socket.inet_aton(self.a.address) + socket.inet_aton(SERVER[0])
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0)
        with self.namespace:
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        raw.sendto(head + addresses + udp, (SERVER[0], 0))
        raw.close()
        self.note(f"third host: {program} v{version} procedure {procedure} as if from clienta")

    def is_denied(self, where, *call):
        before = self.server.answers("DENIED", *where)
        self.forges(*call)
        self.server.wait("the server denies it", lambda server: server.answers("DENIED", *where) > before)

    def test_notices_with_a_forged_sender(self):
        """clienta's kernel and its statd deny them, in a second at most."""
        for name, state in (("clienta", 99), ("any-host", 101), ("clienta", 2**31 - 1)):
            self.is_denied(("nsm", "NOTIFY"), NSM, 1, nsm.NOTIFY, Out().string(name).i32(state).bytes())
        for state in (0, 99):
            self.is_denied(("nlm", "FREE_ALL"), nlm.PROGRAM, 4, nlm.FREE_ALL,
                           nlm.Lock(name="clienta", state=state).args(nlm.FREE_ALL))  # fmt: skip
        self.assert_nothing_is_freed()

    def test_spoofed_sm_notify(self):
        for name in ("clienta", self.a.address, "clientb", self.b.address):
            for state in (0, 1, 4, 5, 99, 2**31 - 1):
                self.sends(NSM, 1, nsm.NOTIFY, Out().string(name).i32(state).bytes())
        self.assert_nothing_is_freed()

    def test_forged_unlock(self):
        (held,) = self.server.locks
        _, name, svid, oh = held["owner"].split(":")
        lock = nlm.Lock(fh=bytes.fromhex(held["handle"]), offset=0, length=0, svid=int(svid), name=name,
                        oh=bytes.fromhex(oh))  # fmt: skip
        for forged in (lock, lock.but(length=10)):
            self.sends(nlm.PROGRAM, 4, nlm.UNLOCK, forged.args(nlm.UNLOCK))
        self.assert_nothing_is_freed()

    def test_forged_cancel(self):
        (waiting,) = self.server.get("waiters")["waiters"]
        (held,) = self.server.locks
        _, name, svid, oh = waiting["owner"].split(":")
        lock = nlm.Lock(fh=bytes.fromhex(held["handle"]), offset=0, length=10, svid=int(svid), name=name,
                        oh=bytes.fromhex(oh), block=True)  # fmt: skip
        self.sends(nlm.PROGRAM, 4, nlm.CANCEL, lock.args(nlm.CANCEL))
        self.assert_nothing_is_freed()

    def test_forged_free_all_and_notices_to_lockd(self):
        for name in ("clienta", "clientb"):
            lock = nlm.Lock(name=name, state=99)
            self.sends(nlm.PROGRAM, 4, nlm.FREE_ALL, lock.args(nlm.FREE_ALL))
            self.sends(nlm.PROGRAM, 4, nlm.SM_NOTIFY, lock.args(nlm.SM_NOTIFY))
        self.assert_nothing_is_freed()

    def test_forged_lock_with_a_newer_state(self):
        """What would be proof of a reboot, had clienta itself sent it."""
        (held,) = self.server.locks
        lock = nlm.Lock(fh=bytes.fromhex(held["handle"]), offset=0, length=10, svid=77, name="clienta", state=99)
        self.sends(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        self.assert_nothing_is_freed()
