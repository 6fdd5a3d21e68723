"""What went over a host's wire, in the kernel's order."""

import socket

from until import PATIENCE, until

ETH_P_ALL = 3


class Sniffer:
    def __init__(self, namespace, interface="eth0"):
        with namespace:
            self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
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
