"""A name server for one test: it answers from a table, on port 53 of a namespace."""

import ipaddress
import socket
import struct
import threading

A, PTR, AAAA = 1, 12, 28
NXDOMAIN = 3


def _encode(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def _decode(message, at):
    parts = []
    while message[at]:
        parts.append(message[at + 1 : at + 1 + message[at]].decode())
        at += 1 + message[at]
    return ".".join(parts), at + 1


class NameServer:
    def __init__(self, namespace):
        self.records = {}  # (name, type): data
        self.asked = []
        self.is_silent = False
        with namespace:
            self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.sock.bind(("127.0.0.1", 53))
        self.sock.settimeout(0.1)
        self.is_over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def add(self, name, address):
        address = ipaddress.ip_address(address)
        self.records[name.lower(), A if address.version == 4 else AAAA] = address.packed

    def add_reverse(self, address, name):
        self.records[ipaddress.ip_address(address).reverse_pointer, PTR] = _encode(name)

    def _answer(self, message):
        name, at = _decode(message, 12)
        kind = struct.unpack(">H", message[at : at + 2])[0]
        self.asked.append((name, kind))
        data = self.records.get((name.lower(), kind))
        is_known = any(known == name.lower() for known, _ in self.records)
        flags = 0x8580 | (0 if is_known else NXDOMAIN)
        head = message[:2] + struct.pack(">HHHHH", flags, 1, 1 if data else 0, 0, 0) + message[12 : at + 4]
        return head + (b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data if data else b"")

    def _run(self):
        while not self.is_over:
            try:
                message, peer = self.sock.recvfrom(512)
            except (TimeoutError, socket.timeout):
                continue
            except OSError:
                return
            if not self.is_silent:
                self.sock.sendto(self._answer(message), peer)

    def close(self):
        self.is_over = True
        self.thread.join()
        self.sock.close()
