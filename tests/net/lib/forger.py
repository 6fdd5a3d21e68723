"""A host that sends datagrams with any sender, and hears no answer."""

import socket
import struct


def forged(source, port, remote, payload):
    """A UDP datagram over IPv4 with any sender."""
    length = 8 + len(payload)
    udp = struct.pack(">HHHH", port, remote[1], length, 0)
    addresses = socket.inet_aton(source) + socket.inet_aton(remote[0])
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, socket.IPPROTO_UDP, 0) + addresses + udp + payload


class Forger:
    def __init__(self, namespace, remote):
        self.remote = remote
        with namespace:
            self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send(self, source, port, payload):
        self.raw.sendto(forged(source, port, self.remote, payload), (self.remote[0], 0))

    def close(self):
        self.raw.close()
