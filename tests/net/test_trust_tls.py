#!/usr/bin/env python3
"""Attacks on the gate between clear text and TLS: each ends its own connection, and nothing else."""

import os
import socket
import ssl
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import play
import tls
from rpc import auth_sys, call_message, exchange, record
from secured import Secured, nfs
from until import PATIENCE, until
from xdr import Out

APPLICATION_DATA = 23


class Tapped:
    """A client whose bytes pass through the test's hands: what it would send is here before it is sent."""

    def __init__(self, caller, how):
        self.sock = caller.sock
        self.sock.settimeout(PATIENCE)
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = how.wrap_bio(self.into, self.out, server_hostname="server")
        self.sent = b""

    def take(self):
        """What it wants to send now."""
        return self.out.read()

    def send(self, data):
        self.sent += data
        self.sock.sendall(data)

    def shake_hands(self):
        while True:
            try:
                self.tls.do_handshake()
                self.send(self.take())
                return self
            except ssl.SSLWantReadError:
                self.send(self.take())
                data = self.sock.recv(65536)
                if not data:
                    raise EOFError from None
                self.into.write(data)

    def encrypt(self, data):
        self.tls.write(data)
        return self.take()

    def receive(self):
        """Some of the server's data."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                data = self.sock.recv(65536)
                if not data:
                    raise EOFError from None
                self.into.write(data)


class Gate(Secured):
    def setUp(self):
        super().setUp()
        self.how = tls.context(self.ca.certificate)
        self.bystander = self.secured(host=self.b)
        self.clear = self.caller(self.b)
        self.folder = os.path.join(self.base, "data")
        self.root_of_data = self.root("/data")

    def tearDown(self):
        self.assertEqual(exchange(self.bystander, tls.null_call()), b"", "another connection felt it")
        self.assertEqual(exchange(self.clear, tls.null_call()), b"", "another connection felt it")
        self.assertEqual(self.handshakes("timeout"), 0, "a connection ended only because its time was over")
        super().tearDown()

    def mkdir_call(self, name):
        """A call whose effect shows on the disk."""
        args = Out().opaque(self.root_of_data).string(name).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0).bytes()
        return call_message(nfs.NFS, 3, nfs.MKDIR, args, cred=auth_sys("attacker"))

    def assert_not_made(self, name):
        self.assertNotIn(name, os.listdir(self.folder))

    def assert_ended(self, caller):
        self.assertTrue(caller.is_closed(), "it is still open")

    def asked(self):
        """A connection that got STARTTLS, still without a handshake."""
        caller = self.caller()
        self.assertEqual(tls.verifier_of(caller.ask()), (0, b"STARTTLS"))
        return caller

    def tapped(self):
        return Tapped(self.asked(), self.how).shake_hands()

    # The question

    def test_a_second_question_inside_tls_is_denied_and_ends_it(self):
        caller = self.caller().start_tls(self.how)
        self.assertEqual(tls.auth_error_of(caller.ask()), tls.AUTH_BADCRED)
        self.assert_ended(caller)

    def test_a_long_second_question_inside_tls_ends_it_too(self):
        caller = self.caller().start_tls(self.how)
        self.assertEqual(tls.auth_error_of(caller.ask(args=bytes(100000))), tls.AUTH_BADCRED)
        self.assert_ended(caller)

    def test_a_second_question_in_the_clear_ends_it(self):
        caller = self.asked()
        caller.send(tls.question())
        self.assert_ended(caller)

    def test_two_questions_at_once_end_it(self):
        caller = self.caller()
        caller.send_together([tls.question(), tls.question()])
        self.assert_ended(caller)

    def test_tls_without_the_question_ends_it(self):
        caller = self.caller()
        with self.assertRaises((ssl.SSLError, OSError)):
            caller.shake_hands(self.how)
        self.assert_ended(caller)

    # Clear text in the wrong place

    def test_a_call_behind_the_question_is_not_served(self):
        """An attacker puts it there, and hopes that it counts as the client's, inside TLS."""
        caller = self.caller()
        caller.send_together([tls.question(), self.mkdir_call("injected")])
        with self.assertRaises((OSError, EOFError)):
            caller.receive()
            caller.shake_hands(self.how)  # the client does not know of the attacker
            exchange(caller, tls.null_call())
        self.assert_not_made("injected")

    def test_part_of_a_call_behind_the_question_ends_it(self):
        caller = self.caller()
        caller.sock.sendall(record(tls.question()) + record(self.mkdir_call("part"))[:7])
        self.assert_ended(caller)

    def test_a_question_behind_a_call_that_is_under_way_ends_it(self):
        """The reply to the call would leave inside TLS."""
        caller = self.caller()
        caller.send_together([self.mkdir_call("before"), tls.question()])
        self.assert_ended(caller)

    def test_a_question_after_a_call_is_answered(self):
        """Where nothing is under way any more."""
        caller = self.caller()
        exchange(caller, tls.null_call())
        self.assertEqual(exchange(caller.start_tls(self.how), tls.null_call()), b"")

    def test_clear_text_after_the_answer_is_not_served(self):
        caller = self.asked()
        caller.send(self.mkdir_call("after-answer"))
        self.assert_ended(caller)
        self.assert_not_made("after-answer")

    def test_clear_text_after_the_handshake_is_not_served(self):
        tapped = self.tapped()
        tapped.send(record(self.mkdir_call("clear")))
        self.assertTrue(self.is_over(tapped.sock))
        self.assert_not_made("clear")

    @staticmethod
    def is_over(sock):
        """Whether the server closes it, whatever it says before."""
        try:
            while sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def test_a_hello_after_the_handshake_ends_it(self):
        """A second handshake on the connection, outside the first. unit/tls/session has the one inside it."""
        tapped = self.tapped()
        again = Tapped(self.caller(), self.how)
        with self.assertRaises(ssl.SSLWantReadError):
            again.tls.do_handshake()
        tapped.send(tapped.encrypt(record(tls.null_call())))
        tapped.receive()
        tapped.send(again.take())
        self.assertTrue(self.is_over(tapped.sock))

    # TLS that is cut, changed, repeated

    def test_a_cut_connection_serves_no_half_call(self):
        tapped = self.tapped()
        call = record(self.mkdir_call("cut"))
        tapped.send(tapped.encrypt(call[:-4]))
        tapped.sock.shutdown(socket.SHUT_WR)  # no closing alert: an attacker's FIN
        self.assertTrue(self.is_over(tapped.sock))
        self.assert_not_made("cut")

    def test_a_cut_record_serves_nothing(self):
        tapped = self.tapped()
        tapped.send(tapped.encrypt(record(self.mkdir_call("cut-record")))[:-1])
        tapped.sock.shutdown(socket.SHUT_WR)
        self.assertTrue(self.is_over(tapped.sock))
        self.assert_not_made("cut-record")

    def test_a_changed_bit_ends_it(self):
        tapped = self.tapped()
        changed = bytearray(tapped.encrypt(record(self.mkdir_call("changed"))))
        changed[20] ^= 1
        tapped.send(bytes(changed))
        self.assertTrue(self.is_over(tapped.sock))
        self.assert_not_made("changed")

    def test_reordered_records_end_it(self):
        tapped = self.tapped()
        first, second = (tapped.encrypt(record(self.mkdir_call(name))) for name in ("first", "second"))
        tapped.send(second + first)
        self.assertTrue(self.is_over(tapped.sock))
        self.assert_not_made("first")
        self.assert_not_made("second")

    def test_a_repeated_record_ends_it(self):
        tapped = self.tapped()
        once = tapped.encrypt(record(tls.null_call()))
        tapped.send(once)
        tapped.receive()
        tapped.send(once)
        self.assertTrue(self.is_over(tapped.sock))

    def test_a_replayed_connection_does_nothing(self):
        """All that a client sent, byte for byte, on a new connection."""
        tapped = self.tapped()
        tapped.send(tapped.encrypt(record(self.mkdir_call("replayed"))))
        tapped.receive()
        os.rmdir(os.path.join(self.folder, "replayed"))
        caller = self.asked()
        caller.sock.sendall(tapped.sent)
        self.assert_ended(caller)
        self.assert_not_made("replayed")

    def test_a_downgraded_client_gets_nothing(self):
        """An attacker answered its question with a plain NULL reply, and it goes on in the clear."""
        for share in ("/tls", "/mtls", "/named"):
            self.assertEqual(self.getattr(self.caller(), share), "too weak")

    # Garbage

    def test_a_million_bytes_of_garbage_instead_of_a_handshake(self):
        n = self.handshakes("failed")
        caller = self.asked()
        try:
            caller.sock.sendall(os.urandom(1000000))
        except OSError:
            pass  # it was closed in the middle
        self.assert_ended(caller)
        self.until(lambda: self.handshakes("failed") > n, "it is counted")

    def test_garbage_in_the_middle_of_a_handshake(self):
        tapped = Tapped(self.asked(), self.how)
        with self.assertRaises(ssl.SSLWantReadError):
            tapped.tls.do_handshake()
        tapped.send(tapped.take() + os.urandom(1000))
        self.assertTrue(self.is_over(tapped.sock))

    def test_garbage_in_the_frame_of_records(self):
        """Records whose headers are right: of alerts, of data, of handshakes, of nothing."""
        for kind in (20, 21, 22, APPLICATION_DATA, 99):
            caller = self.asked()
            body = os.urandom(200)
            try:
                for _ in range(64):
                    caller.sock.sendall(struct.pack(">BHH", kind, 0x0303, len(body)) + body)
            except OSError:
                pass
            self.assert_ended(caller)

    def test_the_client_hangs_up(self):
        n = self.handshakes("closed")
        for _ in range(8):
            self.asked().sock.close()
        self.until(lambda: self.handshakes("closed") == n + 8, "they are counted")


def most_under_way():
    """Of one address 64 stay on each loop; there is one for each core, and at most 16."""
    return 64 * min(os.cpu_count(), 16)


class Half(Secured):
    """Handshakes that are begun and never finished, by the hundred."""

    N = 1000
    N_SIGNED, BURST = 600, 30  # a burst is less than what one loop has under way
    LIMIT_SECONDS = 10

    def test_half_open_handshakes_are_bounded_in_number_and_time(self):
        n = self.handshakes("too_many")
        socks = []
        self.addCleanup(lambda: [sock.close() for sock in socks])
        begun = time.monotonic()
        for _ in range(self.N):
            caller = self.caller()
            caller.send(tls.question())
            socks.append(caller.sock)
            if len(socks) % 100 == 0:  # while others come and work
                honest = self.secured(host=self.b)
                self.assertEqual(exchange(honest, tls.null_call()), b"")
                honest.sock.close()
        self.until(lambda: self.handshakes("too_many") - n >= self.N - most_under_way(), "the oldest made room")
        honest = self.secured()
        self.assertEqual(exchange(honest, tls.null_call()), b"", "a client of the same address")
        late = self.handshakes("timeout")
        until(lambda: self.handshakes("timeout") > late, "the rest ran out of time", PATIENCE + self.LIMIT_SECONDS)
        self.assertGreater(time.monotonic() - begun, self.LIMIT_SECONDS - 1)
        self.assertEqual(exchange(honest, tls.null_call()), b"")

    def hello(self):
        """What a client sends first when it got STARTTLS."""
        client = Tapped(self.caller(), tls.context(self.ca.certificate))
        with self.assertRaises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        return client.take()

    def test_handshakes_that_stop_after_the_hello_are_bounded_too(self):
        """The server has paid for its answer, with a signature. In bursts, while others come and work."""
        before = {result: self.handshakes(result) for result in ("too_many", "timeout")}
        callers, hello = [], self.hello()
        working = self.secured(host=self.b)
        for _ in range(self.N_SIGNED // self.BURST):
            burst = [self.caller() for _ in range(self.BURST)]
            for caller in burst:
                self.assertEqual(tls.verifier_of(caller.ask()), (0, b"STARTTLS"))
            for caller in burst:
                caller.sock.sendall(hello)
            self.assertEqual(exchange(working, tls.null_call()), b"", "one that works")
            honest = self.secured(host=self.b)
            self.assertEqual(exchange(honest, tls.null_call()), b"", "one that comes")
            honest.sock.close()
            callers += burst
        last = time.monotonic()
        for caller in callers[-self.BURST :]:
            caller.sock.settimeout(PATIENCE)
            self.assertEqual(caller.sock.recv(1), b"\x16", "the server's answer")
        neighbour = self.secured()
        self.assertEqual(exchange(neighbour, tls.null_call()), b"", "a client of the same address")
        until(lambda: sum(self.handshakes(result) - n for result, n in before.items()) == self.N_SIGNED,
              "each made room, or ran out of time", PATIENCE + self.LIMIT_SECONDS)  # fmt: skip
        self.assertGreater(time.monotonic() - last, self.LIMIT_SECONDS - 1)
        self.assertGreaterEqual(self.handshakes("too_many") - before["too_many"], self.N_SIGNED - most_under_way())
        for caller in callers:
            self.assertTrue(caller.is_closed())
        for caller in (working, neighbour):
            self.assertEqual(exchange(caller, tls.null_call()), b"")


if __name__ == "__main__":
    play.main()
