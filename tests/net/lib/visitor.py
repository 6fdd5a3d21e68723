"""A client that knows of a server only its address: it asks at port 111, mounts, writes a file, locks it, and after a crash
of the server reclaims the lock. What it finds wrong fails @test."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "files"))

import nfs  # noqa: E402
import nlm  # noqa: E402
from rpc import TcpCaller, UdpCaller, call_message, exchange  # noqa: E402
from xdr import In, Out  # noqa: E402

PMAP, GETPORT, PMAP_PORT = 100000, 3, 111
NSM = 100024
PROTOCOLS = {6: TcpCaller, 17: UdpCaller}  # IPPROTO_TCP, IPPROTO_UDP
PROGRAMS = ((nfs.NFS, 3), (nfs.MOUNT, 3), (nlm.PROGRAM, 4), (NSM, 1))
TEXT = b"text"


class Visitor:
    """@namespace: where the server is, at 127.0.0.1. @path: what to mount. It makes a file called @name."""

    def __init__(self, test, namespace, path, uid=1000, name=b"file"):
        self.test = test
        self.namespace = namespace
        self.path = path
        self.uid = uid
        self.name = name
        self.fh = self.lock = None

    def client(self, port, uid=None):
        uid = self.uid if uid is None else uid
        with self.namespace:
            client = nfs.Client(port, uid=uid, gid=uid)
        self.test.addCleanup(client.close)
        return client

    def port(self):
        """The one port of all programs, as the port mapper names it over both transports."""
        ports = set()
        for protocol, caller in PROTOCOLS.items():
            with self.namespace:
                asks = caller(("127.0.0.1", PMAP_PORT))
            for program, version in PROGRAMS:
                args = Out().u32(program).u32(version).u32(protocol).u32(0).bytes()
                ports.add(In(exchange(asks, call_message(PMAP, 2, GETPORT, args))).u32())
            asks.close()
        self.test.assertEqual(len(ports), 1, ports)
        return ports.pop()

    def asks(self, client, lock):
        answer = client.call(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))
        answer.opaque()  # the cookie
        return answer.u32()

    def comes(self):
        client = self.client(self.port())
        made = client.create(client.root(self.path), self.name, mode=0o600)
        self.test.assertEqual(made.stat, nfs.OK)
        self.test.assertEqual(client.write(made.fh, TEXT).stat, nfs.OK)
        self.test.assertEqual(client.read(made.fh).data, TEXT)
        self.fh, self.lock = made.fh, nlm.Lock(fh=made.fh, length=10)
        self.test.assertEqual(self.asks(client, self.lock), nlm.S_GRANTED)
        self.test.assertEqual(self.asks(client, self.lock.but(svid=2)), nlm.S_DENIED)

    def comes_back(self):
        """After a crash: the handle is good, and the lock is kept for its owner."""
        client = self.client(self.port())
        self.test.assertEqual(client.read(self.fh).data, TEXT)
        self.test.assertEqual(self.asks(client, self.lock.but(svid=2)), nlm.S_GRACE)
        self.test.assertEqual(self.asks(client, self.lock.but(reclaim=True)), nlm.S_GRANTED)
        self.test.assertNotEqual(self.asks(client, self.lock.but(svid=2, reclaim=True)), nlm.S_GRANTED)
