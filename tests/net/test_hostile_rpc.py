#!/usr/bin/env python3
"""Messages that no sane client sends, each from a host of its own: how they are cut into records, which sender they name,
and how much they make the server answer."""

import os
import random
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import NSM, PORTMAP
from play import Play, main
from rpc import AUTH_NONE, AUTH_SYS, PATIENCE, NoReply, Refused, TcpCaller, UdpCaller, auth_sys, call_message, exchange
from xdr import Out

MOUNT = 100005
LAST = 0x80000000
AUTH_SHORT, AUTH_DH, RPCSEC_GSS = 2, 3, 6
LISTS_AT_ONCE, LISTS_A_SECOND = 100, 20


class Records(Play):
    """How a call is cut into fragments is the caller's business."""

    def connect(self):
        caller = TcpCaller((self.a.server, 2049), (self.a.address, 0), self.a.namespace)
        self.addCleanup(caller.close)
        return caller

    def test_cut_anywhere_also_into_nothing(self):
        chance = random.Random(1)
        for _ in range(60):
            message = call_message(nlm.PROGRAM, 4, nlm.TEST, self.lock_of(self.a).args(nlm.TEST))
            cuts = sorted(chance.randrange(len(message) + 1) for _ in range(chance.randrange(12)))
            pieces = [message[a:b] for a, b in zip([0, *cuts], [*cuts, len(message)])] + [b""] * chance.randrange(3)
            marks = [len(piece) for piece in pieces]
            marks[-1] |= LAST
            data = b"".join(struct.pack(">I", mark) + piece for mark, piece in zip(marks, pieces))
            caller, step = self.connect(), chance.choice((1, 3, 7, len(data)))
            for at in range(0, len(data), step):
                caller.sock.sendall(data[at : at + step])
            self.assertEqual(caller.receive()[:4], message[:4])

    def test_a_hundred_thousand_empty_fragments(self):
        caller, message = self.connect(), call_message(nlm.PROGRAM, 4, nlm.NULL)
        caller.sock.sendall(bytes(4 * 100_000) + struct.pack(">I", LAST | len(message)) + message)
        self.assertEqual(caller.receive()[:4], message[:4])

    def test_an_empty_record_is_hung_up_on(self):
        caller = self.connect()
        caller.sock.sendall(struct.pack(">I", LAST))
        self.assertRaises(EOFError, caller.receive)


class Senders(Play):
    def test_who_has_no_port(self):
        """No reply can be sent to port 0. The server takes a call from there, and no other client suffers."""
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        with self.b.namespace:
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        self.addCleanup(raw.close)
        theirs = self.lock_of(self.b, svid=7)
        for program, version, procedure, args in (
            (nlm.PROGRAM, 4, nlm.NULL, b""),
            (nlm.PROGRAM, 4, nlm.TEST, theirs.args(nlm.TEST)),
            (nlm.PROGRAM, 4, nlm.LOCK_MSG, theirs.args(nlm.LOCK_MSG)),
            (nlm.PROGRAM, 4, nlm.SM_NOTIFY, nlm.Lock(name=self.a.name, state=99).args(nlm.SM_NOTIFY)),
            (NSM, 1, 6, Out().string(self.a.name).i32(99).bytes()),
            (NSM, 1, 5, b""),
        ):
            message = call_message(program, version, procedure, args)
            raw.sendto(struct.pack(">HHHH", 0, 2049, 8 + len(message), 0) + message, (self.b.server, 0))
        self.b.answers.wait(1, lambda answer: answer[0] == nlm.LOCK_RES)
        self.assert_held(lock, by=1)

    def test_flavours(self):
        """None and any user of AUTH_SYS may lock, with up to 16 groups; the rest is told so, and the connection stays."""
        lock, caller = self.lock_of(self.a), self.a.caller("tcp")

        def ask(cred):
            message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=cred)
            return nlm.res_of(nlm.LOCK, exchange(caller, message)).stat

        for cred in ((AUTH_NONE, b""), (AUTH_NONE, bytes(400)), auth_sys(uid=2**32 - 1), auth_sys(gids=range(16))):
            self.assertEqual(ask(cred), nlm.S_GRANTED)
        for cred in (auth_sys(gids=range(17)), (AUTH_SYS, bytes(8)), (AUTH_SYS, bytes(4) + b"\xff" * 4 + bytes(16)),
                     *((flavour, bytes(20)) for flavour in (AUTH_SHORT, AUTH_DH, RPCSEC_GSS, 390003, 2**32 - 1))):  # fmt: skip
            with self.assertRaises(Refused) as caught:
                ask(cred)
            self.assertEqual(caught.exception.stat, -1, "denied, not an error of the call")
        self.assertEqual(ask(auth_sys()), nlm.S_GRANTED)


class Lists(Play):
    """A short datagram with a forged sender makes the server send a long one to that address."""

    def count_answers(self, caller, program, version, procedure, n):
        """To @n questions at once: those that are answered are so before NULL, which is asked afterwards."""
        message, null = call_message(program, version, procedure), call_message(program, version, 0)
        answered, end = 0, time.monotonic() + PATIENCE
        for _ in range(n):
            caller.send(message)
        caller.send(null)
        while time.monotonic() < end:
            try:
                reply = caller.receive(1)
            except NoReply:
                caller.send(null)
                continue
            if reply[:4] == null[:4]:
                return answered
            answered += reply[:4] == message[:4]
        raise AssertionError("it does not answer any more")

    def test_by_udp_to_other_hosts_there_are_few(self):
        for port, *what in ((111, PORTMAP, 4, 4), (2049, MOUNT, 3, 5)):
            with self.subTest(what=what):
                caller = UdpCaller((self.a.server, port), (self.a.address, 0), self.a.namespace)
                self.addCleanup(caller.close)
                begun = time.monotonic()
                answered = sum(self.count_answers(caller, *what, 50) for _ in range(10))
                seconds = time.monotonic() - begun
                self.assertGreaterEqual(answered, 50)
                self.assertLessEqual(answered, LISTS_AT_ONCE + 2 + LISTS_A_SECOND * seconds)

    def test_by_tcp_and_on_this_host_there_is_no_limit(self):
        message = call_message(PORTMAP, 4, 4)
        far = TcpCaller((self.a.server, 111), (self.a.address, 0), self.a.namespace)
        near = UdpCaller(("127.0.0.1", 111), ("127.0.0.1", 0), self.network.server)
        for caller in (far, near):
            self.addCleanup(caller.close)
            for _ in range(300):
                self.assertGreater(len(exchange(caller, message)), 1000)


if __name__ == "__main__":
    main()
