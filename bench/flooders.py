"""The floods of floods.py: what each of them sends. A flood runs in a process of its own, until that is killed.

A flood is called with its target (class Target). It makes is_begun true when it is under way.
"""

import itertools
import os
import resource
import selectors
import socket
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(_HERE, "..", "tests", "net", "lib"), os.path.join(_HERE, "..", "tests", "files")]

# pylint: disable=wrong-import-position
import nfs
import nlm
from forger import empty_address
from nsm import MON, NOTIFY, NSM, mon_args
from rpc import TcpCaller, auth_sys, call_message, make_socket, record
from xdr import Out

GREEDY, HONEST, HONEST_NAME = "10.9.1.1", "10.9.2.1", "honest"
CALLBACK = 200300
MIB = 1 << 20


class Target:
    """The server at @remote, as a flood sees it."""

    def __init__(self, namespace, remote, forger, folder, file, huge, is_begun):
        self.namespace = namespace
        self.remote = remote
        self.forger = forger  # sends datagrams with any sender
        self.folder, self.file = folder, file  # handles: a large directory, a file
        self.huge = huge  # the handle of a sparse file
        self.is_begun = is_begun

    def connect(self, address, reserved=True):
        return TcpCaller(self.remote, (address, 0), self.namespace, reserved)

    def forge(self, make):
        """Datagrams with any sender: make(number) gives (address, port, message)."""
        for number in itertools.count():
            self.forger.send(*make(number))
            if number == 1000:
                self.is_begun.set()

    def lock(self, procedure, lock):
        return call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=auth_sys(lock.name))


def many_addresses(n):
    return [f"10.7.{i // 250}.{1 + i % 250}" for i in range(n)]


def forged_mon(target):
    def make(number):
        args = mon_args("server", f"forged{number}", CALLBACK, 1, bytes(16))
        return empty_address(number), 900, call_message(NSM, 1, MON, args)

    target.forge(make)


def forged_locks(target):
    def make(number):
        lock = nlm.Lock(name=f"f{number}", fh=target.file, svid=1, offset=number, length=1)
        return empty_address(number), 900, target.lock(nlm.LOCK, lock)

    target.forge(make)


def forged_notices(target):
    """In the name of the honest client: that it was restarted."""

    def make(number):
        state = 3 + 2 * number
        if number % 2:
            message = call_message(NSM, 1, NOTIFY, Out().string(HONEST_NAME).i32(state).bytes())
        else:
            message = target.lock(nlm.FREE_ALL, nlm.Lock(name=HONEST_NAME, state=state))
        return HONEST, 900, message

    target.forge(make)


def many_names(target):
    """LOCK, and after a while FREE_ALL, of another name each time."""
    greedy = target.connect(GREEDY)
    batch = 100
    for first in itertools.count(0, batch):
        locks = [nlm.Lock(name=f"n{first + i}", fh=target.file, svid=1, offset=first + i, length=1) for i in range(batch)]
        greedy.send_together([target.lock(nlm.LOCK, lock) for lock in locks])
        for _ in locks:
            greedy.receive()
        if first % (20 * batch) == 0:
            greedy.send_together([target.lock(nlm.FREE_ALL, lock) for lock in locks])
            for _ in locks:
                greedy.receive()
        target.is_begun.set()


def raise_limits():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def unread_replies(target):
    call = call_message(nfs.NFS, 3, nfs.READ, Out().opaque(target.huge).u64(0).u32(MIB).bytes(), cred=auth_sys())
    raise_limits()
    socks = []
    for _ in range(1000):
        sock = make_socket(socket.SOCK_STREAM, (GREEDY, 0), target.namespace)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(target.remote)
        sock.sendall(record(call) * 64)
        socks.append(sock)
    target.is_begun.set()
    with selectors.DefaultSelector() as forever:
        forever.select()


def one_byte(target):
    """Connections that send no more than one byte. Those that the server closes are opened again."""
    raise_limits()
    selector = selectors.DefaultSelector()

    def open_one(address):
        sock = make_socket(socket.SOCK_STREAM, (address, 0), target.namespace)
        try:
            sock.connect(target.remote)
            sock.send(b"\0")
            selector.register(sock, selectors.EVENT_READ, address)
        except OSError:
            sock.close()

    for address in many_addresses(9) * 2048:
        open_one(address)
    target.is_begun.set()
    while True:
        for key, _ in selector.select():
            selector.unregister(key.fileobj)
            key.fileobj.close()
            open_one(key.data)


def empty_fragments(target):
    """Records that never end, in fragments without bytes. A connection that the server closes is opened again."""
    marks = bytes(MIB)
    selector = selectors.DefaultSelector()

    def open_one():
        sock = make_socket(socket.SOCK_STREAM, (GREEDY, 0), target.namespace)
        sock.connect(target.remote)
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_WRITE)

    for _ in range(64):
        open_one()
    target.is_begun.set()
    while True:
        for key, _ in selector.select():
            try:
                key.fileobj.send(marks)
            except OSError:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_one()


def many_listings(target):
    args = Out().opaque(target.folder).u64(0).fixed(bytes(8)).u32(MIB).bytes()
    call = call_message(nfs.NFS, 3, nfs.READDIR, args, cred=auth_sys())
    pipelined(target, [target.connect(GREEDY, False) for _ in range(400)], [[call]] * 400, 8)


def pipelined(target, callers, groups, n_under_way):
    """Over each connection its group of calls again and again, @n_under_way groups at a time. A group is a list."""
    room, owed = bytearray(MIB), {}
    with selectors.DefaultSelector() as selector:
        for caller, group in zip(callers, groups):
            calls = b"".join(record(message) for message in group)
            caller.sock.settimeout(None)
            caller.sock.sendall(calls * n_under_way)
            selector.register(caller.sock, selectors.EVENT_READ, (calls, len(group)))
        target.is_begun.set()
        while True:
            for key, _ in selector.select():
                calls, n_calls = key.data
                n_read = key.fileobj.recv_into(room)
                if n_read == 0:
                    raise EOFError("the server closed a connection")
                n = owed.get(key.fileobj, 0) + count_ends(key.fileobj, memoryview(room)[:n_read])
                owed[key.fileobj] = n % n_calls
                key.fileobj.sendall(calls * (n // n_calls))


_unfinished = {}  # by socket: bytes of the record mark that have come, bytes of the record that are still to come


def count_ends(sock, data):
    """How many records end in @data."""
    mark, left = _unfinished.get(sock, (b"", 0))
    n = at = 0
    while at < len(data):
        if left == 0:
            taken = bytes(data[at : at + 4 - len(mark)])
            mark += taken
            at += len(taken)
            if len(mark) == 4:
                left, mark = int.from_bytes(mark, "big") & 0x7FFFFFFF, b""
            continue
        step = min(left, len(data) - at)
        left -= step
        at += step
        n += left == 0
    _unfinished[sock] = (mark, left)
    return n


def ask_all(caller, messages):
    for first in range(0, len(messages), 50):
        batch = messages[first : first + 50]
        caller.send_together(batch)
        for _ in batch:
            caller.receive()


def row(target, addresses, n_under_way):
    """A row of waiters, each behind the one before; then LOCK and CANCEL of its head, from each address."""
    callers = [target.connect(address) for address in addresses]
    n_waiters = 1000

    def lock_of(i, **more):
        k = i % len(addresses)
        return k, nlm.Lock(name=f"row{k}", fh=target.file, svid=i, length=1, **more)

    for is_waiting in (False, True):
        messages = [[] for _ in callers]
        for i in range(is_waiting, n_waiters + 1):
            k, lock = lock_of(i, offset=i - is_waiting, block=is_waiting)
            messages[k].append(target.lock(nlm.LOCK, lock))
        for caller, some in zip(callers, messages):
            ask_all(caller, some)
    calls = []
    for k, caller in enumerate(callers):
        far = nlm.Lock(name=f"row{k}", fh=target.file, svid=5000 + k, offset=5000 + k, length=1)
        ask_all(caller, [target.lock(nlm.LOCK, far)])
        # The head of the row waits for what the next address holds.
        _, head = lock_of(k, offset=5000 + (k + 1) % len(callers) if len(callers) > 1 else 5000, block=True)
        calls.append([target.lock(procedure, head) for procedure in (nlm.LOCK, nlm.CANCEL)])
    pipelined(target, callers, calls, n_under_way)


def row_of_waiters(target):
    row(target, [GREEDY], 100)


def rows_of_many(target):
    row(target, many_addresses(100), 20)
