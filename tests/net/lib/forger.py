"""A host that sends datagrams with any sender, and hears no answer."""

import socket
import struct

import netns


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


class DistantForger(Forger):
    """On a wire of its own to @namespace, with a network behind it, 10.66.0.0/16, that has no host: what is sent there
    is lost without a word. Behind the wire, because absent neighbours fill the kernel's table, which all namespaces
    share: then tests that run beside this one lose packets."""

    SERVER = "10.65.0.1"

    def __init__(self, namespace, port):
        self.near = namespace
        self.namespace = netns.Namespace("forger")
        namespace.batch(
            [
                f"link add forger type veth peer name eth0 netns {self.namespace.path}",
                f"addr add {self.SERVER}/24 dev forger",
                "link set forger up",
            ]
        )
        self.namespace.batch(
            ["addr add 10.65.0.2/24 dev eth0", "link set eth0 up", "route add blackhole 10.66.0.0/16"]
        )
        namespace.batch(["route add 10.66.0.0/16 via 10.65.0.2"])
        super().__init__(self.namespace, (self.SERVER, port))

    def close(self):
        super().close()
        self.near.batch(["link del forger"])  # at once; the end of its namespace takes a while
        self.namespace.close()


def empty_address(number):
    """An address where no host is: one of 60,000."""
    return f"10.66.{number // 250 % 240}.{1 + number % 250}"
