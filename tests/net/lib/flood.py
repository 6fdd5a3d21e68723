#!/usr/bin/env python3
"""Calls that never end: a program of its own, so that what it does is no burden to the test.

    flood.py ADDRESS PORT N_CONNECTIONS N_CALLS MESSAGE

Opens the connections and keeps as many calls under way on each. MESSAGE is one call, in hexadecimal; the first four bytes
are overwritten with the number of the call. Says "under way" when all are sent and the first is answered, and stops when
its input ends.
"""

import selectors
import socket
import struct
import subprocess
import sys

LAST = 0x80000000


class Connection:
    """Reads replies without keeping them."""

    def __init__(self, remote, message):
        self.sock = socket.create_connection(remote)
        self.sock.setblocking(False)
        self.message = message
        self.n_sent = 0
        self.unsent = b""
        self.mark = b""  # as much of it as has come
        self.is_last = False
        self.left = 0  # of the fragment that is coming

    def ask(self, n):
        for _ in range(n):
            self.n_sent += 1
            self.unsent += struct.pack(">II", len(self.message) | LAST, self.n_sent) + self.message[4:]
        self.send()

    def send(self):
        try:
            self.unsent = self.unsent[self.sock.send(self.unsent) :] if self.unsent else b""
        except BlockingIOError:
            pass

    def receive(self, room):
        """How many replies have ended."""
        n_ended = 0
        n = self.sock.recv_into(room)
        if n == 0:
            raise EOFError("the server closed a connection")
        at = 0
        while at < n:
            if self.left == 0:
                taken = bytes(room[at : at + 4 - len(self.mark)])
                self.mark += taken
                at += len(taken)
                if len(self.mark) < 4:
                    break
                mark = struct.unpack(">I", self.mark)[0]
                self.mark, self.left, self.is_last = b"", mark & ~LAST, bool(mark & LAST)
            step = min(self.left, n - at)
            self.left -= step
            at += step
            n_ended += self.left == 0 and self.is_last
        return n_ended


def main():
    address, port, n_connections, n_calls, message = sys.argv[1:]
    connections = [Connection((address, int(port)), bytes.fromhex(message)) for _ in range(int(n_connections))]
    room = memoryview(bytearray(1 << 20))
    is_under_way = False
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for connection in connections:
            connection.ask(int(n_calls))
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        while True:
            for key, _ in selector.select():
                if not key.data:
                    return
                n_ended = key.data.receive(room)
                if n_ended or key.data.unsent:
                    key.data.ask(n_ended)
                if n_ended and not is_under_way:
                    is_under_way = True
                    print("under way", flush=True)


class Flood:
    """One that a test has running, from @host."""

    def __init__(self, host, message, n_connections, n_calls, port=2049):
        with host.namespace:
            self.process = subprocess.Popen(
                [sys.executable, __file__, host.server, str(port), str(n_connections), str(n_calls), message.hex()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert self.process.stdout.readline() == "under way\n", "the flood has ended early"

    def close(self):
        """It was under way until now."""
        assert self.process.poll() is None, "the flood has ended early"
        self.process.communicate("")


if __name__ == "__main__":
    main()
