"""ONC RPC (RFC 5531) for tests: callers over TCP and UDP, and services that fake hosts offer.

All fake services run on one thread, the Stage. A service's handler gets a Call; it may answer at once, later, or
never.
"""

import errno
import os
import selectors
import socket
import struct
import threading
import time

from until import PATIENCE
from xdr import In, Out

CALL, REPLY = 0, 1
SUCCESS, PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR = range(6)
AUTH_NONE, AUTH_SYS = 0, 1


class NoReply(Exception):
    pass


class Refused(Exception):
    """The call was not accepted, or not with SUCCESS."""

    def __init__(self, stat, low=None, high=None):
        super().__init__(f"accept status {stat}" + (f", versions {low} to {high}" if low is not None else ""))
        self.stat = stat
        self.low = low
        self.high = high


def auth_sys(machine="host", uid=0, gid=0, gids=()):
    body = Out().u32(0).string(machine).u32(uid).u32(gid).u32(len(gids))
    for one in gids:
        body.u32(one)
    return AUTH_SYS, body.bytes()


def new_xid():
    return int.from_bytes(os.urandom(4), "big")


def call_message(program, version, procedure, args=b"", xid=None, cred=(AUTH_NONE, b"")):
    out = Out().u32(new_xid() if xid is None else xid).u32(CALL).u32(2)
    out.u32(program).u32(version).u32(procedure)
    out.u32(cred[0]).opaque(cred[1]).u32(AUTH_NONE).u32(0)
    return out.bytes() + args


def result_of(reply):
    """The results in a reply message; Refused where it has none."""
    message = In(reply)
    message.u32()
    if message.u32() != REPLY:
        raise ValueError("not a reply")
    if message.u32() != 0:
        raise Refused(-1)
    message.u32()
    message.opaque()
    stat = message.u32()
    if stat == PROG_MISMATCH:
        raise Refused(stat, message.u32(), message.u32())
    if stat != SUCCESS:
        raise Refused(stat)
    return reply[message.at :]


def record(message, n_fragments=1):
    """@message with its record mark, cut into pieces."""
    size = max(1, -(-len(message) // n_fragments))
    pieces = [message[i : i + size] for i in range(0, len(message), size)] or [b""]
    marks = [len(piece) | (0x80000000 if piece is pieces[-1] else 0) for piece in pieces]
    return b"".join(struct.pack(">I", mark) + piece for mark, piece in zip(marks, pieces))


def split_records(buffer):
    """Takes the complete messages out of @buffer, a bytearray."""
    messages = []
    message, at = b"", 0
    while len(buffer) >= at + 4:
        mark = struct.unpack_from(">I", buffer, at)[0]
        length = mark & 0x7FFFFFFF
        if len(buffer) < at + 4 + length:
            break
        message += bytes(buffer[at + 4 : at + 4 + length])
        at += 4 + length
        if mark & 0x80000000:
            messages.append(message)
            del buffer[:at]
            message, at = b"", 0
    return messages


def make_socket(kind, local, namespace=None, reserved=False, below=1024):
    """A bound socket of @namespace; @local is (address, port). With @reserved a port under @below, port being 0."""
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    if namespace:
        with namespace:
            sock = socket.socket(family, kind)
    else:
        sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if local[0] == "::" or "." in local[0] else 1)
    if reserved and not local[1]:
        for port in range(below - 1, 600, -1):
            try:
                sock.bind((local[0], port))
                return sock
            except OSError:
                continue
    sock.bind(local)
    return sock


def connect(remote, local, namespace, reserved, timeout):
    """A reserved port may be bound while its last connection to @remote is not forgotten yet; then the next one serves."""
    below = 1024
    while True:
        sock = make_socket(socket.SOCK_STREAM, local, namespace, reserved, below)
        sock.settimeout(timeout)
        try:
            sock.connect(remote)
            return sock
        except OSError as error:
            below = sock.getsockname()[1]
            sock.close()
            if error.errno != errno.EADDRNOTAVAIL or not reserved or local[1] or below < 620:
                raise


class TcpCaller:
    def __init__(self, remote, local=("0.0.0.0", 0), namespace=None, reserved=False, timeout=PATIENCE):
        self.sock = connect(remote, local, namespace, reserved, timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.arrived = []

    def send(self, message, n_fragments=1):
        self.sock.sendall(record(message, n_fragments))

    def send_together(self, messages):
        self.sock.sendall(b"".join(record(message) for message in messages))

    def receive(self, timeout=PATIENCE):
        """The next message; NoReply after @timeout, EOFError where the server closed."""
        end = time.monotonic() + timeout
        while not self.arrived:
            self.sock.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self.sock.recv(65536)
            except (TimeoutError, socket.timeout):
                raise NoReply from None
            if not data:
                raise EOFError("the server closed the connection")
            self.buffer += data
            self.arrived += split_records(self.buffer)
        return self.arrived.pop(0)

    def close(self):
        self.sock.close()


class UdpCaller:
    """As most clients it takes a reply only from where its call went to: a server with several addresses must say
    which it is."""

    def __init__(self, remote, local=("0.0.0.0", 0), namespace=None, reserved=False):
        self.sock = make_socket(socket.SOCK_DGRAM, local, namespace, reserved)
        self.remote = remote

    def send(self, message):
        self.sock.sendto(message, self.remote)

    def send_together(self, messages):
        for message in messages:
            self.send(message)

    def receive(self, timeout=PATIENCE):
        end = time.monotonic() + timeout
        while True:
            self.sock.settimeout(max(0.001, end - time.monotonic()))
            try:
                data, sender = self.sock.recvfrom(65536)
            except (TimeoutError, socket.timeout):
                raise NoReply from None
            if sender[:2] == self.remote[:2]:
                return data

    def close(self):
        self.sock.close()


def exchange(caller, message, timeout=PATIENCE):
    """Sends @message and gives the results of its reply; those of others are dropped."""
    caller.send(message)
    end = time.monotonic() + timeout
    while True:
        reply = caller.receive(max(0.001, end - time.monotonic()))
        if reply[:4] == message[:4]:
            return result_of(reply)


class Call:
    """What a fake service received, and the way back."""

    def __init__(self, message, transport, peer, local, respond):
        header = In(message)
        self.xid = header.u32()
        self.is_call = header.u32() == CALL
        if not self.is_call:
            raise ValueError("not a call")
        header.u32()
        self.program, self.version, self.procedure = header.u32(), header.u32(), header.u32()
        self.cred = header.u32(), header.opaque()
        header.u32()
        header.opaque()
        self.args = message[header.at :]
        self.transport = transport
        self.peer = peer
        self.local = local
        self.when = time.monotonic()
        self._respond = respond

    def answer(self, results=b"", stat=SUCCESS):
        out = Out().u32(self.xid).u32(REPLY).u32(0).u32(AUTH_NONE).u32(0).u32(stat)
        if stat == PROG_MISMATCH:
            out.u32(0).u32(0)
        self._respond(out.bytes() + results)


class Stage(threading.Thread):
    """The thread on which all fake services run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.selector = selectors.DefaultSelector()
        self.lock = threading.RLock()
        self.wakers = socket.socketpair()
        self.is_over = False
        self.settling = []  # events of threads that wait until nothing is left to be handled
        self.broken = []  # exceptions in handlers; the play fails with them
        self.selector.register(self.wakers[0], selectors.EVENT_READ, lambda: self.wakers[0].recv(1))
        self.start()

    def run(self):
        while not self.is_over:
            settling = list(self.settling)
            ready = self.selector.select(0 if settling else None)
            if not ready:
                for event in settling:
                    self.settling.remove(event)
                    event.set()
            for key, _ in ready:
                with self.lock:
                    if self.selector.get_map().get(key.fd) is not key:
                        continue  # forgotten since
                    try:
                        key.data()
                    except Exception as error:  # pylint: disable=broad-except
                        self.broken.append(error)

    def settle(self):
        """Returns when all that has arrived so far, at any service, has been handled."""
        event = threading.Event()
        self.settling.append(event)
        self.wakers[1].send(b"x")
        event.wait(PATIENCE)

    def watch(self, sock, on_readable):
        with self.lock:
            self.selector.register(sock, selectors.EVENT_READ, on_readable)
        self.wakers[1].send(b"x")

    def forget(self, sock):
        with self.lock:
            try:
                self.selector.unregister(sock)
            except (KeyError, ValueError):
                pass
            sock.close()

    def close(self):
        self.is_over = True
        self.wakers[1].send(b"x")
        self.join()
        for sock in self.wakers:
            sock.close()
        self.selector.close()


class Service:
    """Something on a port, TCP and UDP or one of them: gives each call to @handler on the stage's thread."""

    def __init__(self, stage, handler, addresses, port=0, namespace=None, tcp=True, udp=True):
        self.stage = stage
        self.handler = handler
        self.namespace = namespace
        self.sockets = []
        self.replies = {}  # {(peer, XID): what was answered by UDP}
        self.tcp_port = self.udp_port = 0
        self.n_connections = 0
        for address in addresses:
            if tcp:
                self.tcp_port = self._listen(address, port or self.tcp_port)
            if udp:
                self.udp_port = self._open_udp(address, port or self.udp_port)

    def _listen(self, address, port):
        listener = make_socket(socket.SOCK_STREAM, (address, port), self.namespace)
        listener.listen(64)
        self.sockets.append(listener)
        self.stage.watch(listener, lambda: self._accept(listener))
        return listener.getsockname()[1]

    def _open_udp(self, address, port):
        sock = make_socket(socket.SOCK_DGRAM, (address, port), self.namespace)
        self.sockets.append(sock)
        self.stage.watch(sock, lambda: self._on_datagram(sock))
        return sock.getsockname()[1]

    def _accept(self, listener):
        sock, peer = listener.accept()
        self.n_connections += 1
        self.sockets.append(sock)
        buffer = bytearray()
        self.stage.watch(sock, lambda: self._on_stream(sock, peer, buffer))

    def _on_stream(self, sock, peer, buffer):
        try:
            data = sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.sockets.remove(sock)
            self.stage.forget(sock)
            return
        buffer += data

        def respond(reply):
            try:
                sock.sendall(record(reply))
            except ConnectionError:
                pass  # the caller has given the call up

        for message in split_records(buffer):
            self.handler(Call(message, "tcp", peer, sock.getsockname(), respond))

    def _on_datagram(self, sock):
        """A call that comes again, because the answer was late, is answered again, and is not another one."""
        message, peer = sock.recvfrom(65536)
        call = peer, message[:4]

        def respond(reply):
            self.replies[call] = reply
            sock.sendto(reply, peer)

        if call in self.replies:
            sock.sendto(self.replies[call], peer)
        elif int.from_bytes(message[4:8], "big") != REPLY:  # that is a late one, to a caller that had this port before
            self.handler(Call(message, "udp", peer, sock.getsockname(), respond))

    def close(self):
        for sock in list(self.sockets):
            self.stage.forget(sock)
        self.sockets.clear()
