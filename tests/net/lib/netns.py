"""Network namespaces without names: they live as long as this process holds them, so that none is left behind,
not even by a test that was killed.

A thread enters one (`with namespace:`), makes its sockets or starts its programs there, and leaves it again; what
was made inside stays inside.
"""

import ctypes
import fcntl
import os
import struct
import subprocess
import threading

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _own_namespace():
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Namespace:
    def __init__(self, name):
        self.name = name
        self._back = threading.local()
        made = []

        def make():
            try:
                _check(_libc.unshare(CLONE_NEWNET), "unshare")
                made.append(_own_namespace())
            except OSError as error:
                made.append(error)

        # A thread of its own, so that the caller's stays where it is.
        maker = threading.Thread(target=make)
        maker.start()
        maker.join()
        if isinstance(made[0], OSError):
            raise made[0]
        self.fd = made[0]
        self.run("link", "set", "lo", "up")

    @property
    def path(self):
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def __enter__(self):
        stack = self._back.__dict__.setdefault("stack", [])
        stack.append(_own_namespace())
        _check(_libc.setns(self.fd, CLONE_NEWNET), "setns")
        return self

    def __exit__(self, *_):
        back = self._back.stack.pop()
        try:
            _check(_libc.setns(back, CLONE_NEWNET), "setns")
        finally:
            os.close(back)

    def run(self, *words):
        """One ip(8) command in here."""
        with self:
            subprocess.run(["ip", *words], check=True)

    def batch(self, lines):
        """Many ip(8) commands in here, in one go."""
        with self:
            subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), check=True)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def tap(namespace, name):
    """An interface whose other end is the test's: what is written to it arrives there."""
    with namespace:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    os.set_blocking(fd, False)
    return fd


class Network:
    """A server and its clients on one wire: the server has 10.98.0.1, 10.98.0.2 and fd98::1, fd98::2; client N has
    10.98.0.(10+N) and fd98::(10+N), and the second addresses 10.98.1.(10+N)."""

    SERVER = ("10.98.0.1", "10.98.0.2")
    SERVER6 = ("fd98::1", "fd98::2")

    def __init__(self):
        self.server = Namespace("server")
        self.clients = []
        # The bridge has a fixed address. Else it changes with every client, and no client finds the server for a while.
        # Link-local addresses would come a second later, and a browser in here gives up its requests whenever an address
        # comes (ERR_NETWORK_CHANGED).
        lines = ["link add wire address 02:00:00:00:00:01 type bridge", "link set wire addrgenmode none up"]
        lines += [f"addr add {address}/16 dev wire" for address in self.SERVER]
        lines += [f"addr add {address}/64 dev wire nodad" for address in self.SERVER6]
        self.server.batch(lines)

    def add_client(self, wire=None):
        """@wire: a BadWire that carries what goes to and from this client."""
        number = len(self.clients)
        client = Namespace(f"client{number}")
        self.clients.append(client)
        if wire:
            wire.connect(tap(self.server, f"p{number}"), tap(client, "eth0"))
        else:
            self.server.batch([f"link add p{number} type veth peer name eth0 netns {client.path}"])
        self.server.batch([f"link set p{number} master wire addrgenmode none up"])
        client.batch(
            [
                f"addr add 10.98.0.{10 + number}/16 dev eth0",
                f"addr add 10.98.1.{10 + number}/16 dev eth0",
                f"addr add fd98::{10 + number:x}/64 dev eth0 nodad",
                "link set eth0 up",
            ]
        )
        return client, number

    def close(self):
        for namespace in [*self.clients, self.server]:
            namespace.close()


def is_possible():
    """None, or why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "needs root: network namespaces and port 111"
    try:
        Namespace("probe").close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"
    return None
