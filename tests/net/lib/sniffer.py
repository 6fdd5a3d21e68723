"""What went over a host's wire, in the kernel's order."""

import socket
import struct

from until import PATIENCE, until

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33  # what the system calls it; Python does not
ETHERNET_LEN, IPV4 = 14, b"\x08\x00"


class Sniffer:
    def __init__(self, namespace, interface="eth0"):
        with namespace:
            self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.sock.bind((interface, 0))
        self.sock.setblocking(False)
        self.frames = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def _drain(self):
        while True:
            try:
                frame, where = self.sock.recvfrom(65536)
            except BlockingIOError:
                return
            if where[2] != socket.PACKET_OUTGOING:
                self.frames.append(frame)

    def find(self, needle, timeout=PATIENCE):
        """Where @needle came in first: the number of the frame, and the place in it."""
        what = f"{needle!r} was on the wire"
        return until(lambda: self._place_of(needle), what, timeout, passes=lambda place: place is not None)

    def _place_of(self, needle):
        self._drain()
        return next(((i, frame.index(needle)) for i, frame in enumerate(self.frames) if needle in frame), None)

    def count(self, needle):
        """The frames with @needle that came in so far."""
        self._drain()
        return sum(needle in frame for frame in self.frames)

    def segments(self):
        """The TCP segments over IPv4 that came in so far: where from, where to, and what was in them."""
        self._drain()
        for frame in self.frames:
            packet = frame[ETHERNET_LEN:]
            if frame[12:14] != IPV4 or packet[9] != socket.IPPROTO_TCP:
                continue
            segment = packet[4 * (packet[0] & 15) : struct.unpack_from(">H", packet, 2)[0]]
            ports = struct.unpack_from(">HH", segment)
            source, destination = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
            yield (source, ports[0]), (destination, ports[1]), segment[4 * (segment[12] >> 4) :]
