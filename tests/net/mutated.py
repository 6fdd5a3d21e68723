#!/usr/bin/env python3
"""Valid messages of every program, damaged at random and sent by the thousand, while an honest client goes on.

    mutated.py PATH/holdfastd [--rate N] [--seconds S] [--seed N]

The daemon must answer the honest client throughout, end with status 0, and leave no report of a sanitizer. The whole run
is decided by the seed, but for the order in which the kernel delivers what was sent.
"""

import argparse
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "..", "files")]

# pylint: disable=wrong-import-position
import netns
import nfs
import nlm
import nsm
from daemon import Daemon
from rpc import TcpCaller, auth_sys, call_message, exchange, make_socket, record
from until import lapse
from xdr import Out

SKIPPED = 77
SERVER = "127.0.0.1"
FLOOD, HONEST = "127.0.0.2", "127.0.0.3"
N_CONNECTIONS = 16
TICK = 0.01
# Lengths, counts and enums go wrong at their ends.
WORDS = (0, 1, 2, 3, 4, 64, 65, 1024, 1025, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFC)


class Recorder:
    """Stands for a caller: what a client sends through it is remembered."""

    def __init__(self, caller):
        self.caller = caller
        self.sent = []

    def send(self, message):
        self.sent.append(message)
        self.caller.send(message)

    def __getattr__(self, name):
        return getattr(self.caller, name)


def file_calls(port):
    """One good call of each procedure of MOUNT and NFS, and the handle of a file."""
    with nfs.Client(port) as client:
        recorder = client.caller = Recorder(client.caller)
        root = client.root("/data")
        made = client.create(root, b"file", mode=0o666).fh
        client.dump()
        client.exports()
        client.getattr(made)
        client.setattr(made, mode=0o644)
        client.lookup(root, b"file")
        client.access(made)
        client.symlink(root, b"link", b"file")
        client.readlink(client.lookup(root, b"link").fh)
        client.write(made, bytes(3000))
        client.read(made)
        client.mkdir(root, b"folder")
        client.mknod(root, b"pipe", nfs.FIFO)
        client.link(made, root, b"second")
        client.rename(root, b"second", root, b"third")
        client.remove(root, b"third")
        client.rmdir(root, b"folder")
        client.readdir(root)
        client.readdirplus(root)
        client.fsstat(root)
        client.fsinfo(root)
        client.pathconf(root)
        client.commit(made)
        client.umnt("/data")
        return recorder.sent, made


def lock_calls(fh):
    lock = nlm.Lock(fh=fh, name="flood", block=True, state=3)
    cred = auth_sys("flood")
    for version in nlm.VERSIONS:
        for procedure in (*range(1, 11), nlm.SHARE, nlm.UNSHARE, nlm.NM_LOCK, nlm.FREE_ALL):
            yield call_message(nlm.PROGRAM, version, procedure, lock.args(procedure, version), cred=cred)
        for procedure in range(nlm.TEST_RES, nlm.GRANTED_RES + 1):
            yield call_message(nlm.PROGRAM, version, procedure, nlm.put_res(lock.cookie, 0), cred=cred)


def status_calls():
    me = Out().string("flood").u32(200100).u32(1).u32(7).bytes()
    yield call_message(nsm.NSM, 1, nsm.STAT, Out().string("flood").bytes())
    yield call_message(nsm.NSM, 1, nsm.MON, Out().string("flood").bytes() + me + bytes(16))
    yield call_message(nsm.NSM, 1, nsm.UNMON, Out().string("flood").bytes() + me)
    yield call_message(nsm.NSM, 1, nsm.UNMON_ALL, me)
    yield call_message(nsm.NSM, 1, nsm.NOTIFY, Out().string("flood").i32(5).bytes())


def portmap_calls():
    mapping = Out().u32(200100).u32(1).u32(6).u32(4000).bytes()
    address = Out().u32(200100).u32(1).string("tcp").string("127.0.0.1.15.160").string("flood").bytes()
    for procedure in range(1, 6):
        yield call_message(100000, 2, procedure, mapping)
    for version in (3, 4):
        for procedure in range(1, 13):
            yield call_message(100000, version, procedure, address)


def damage(message, others, dice):
    """@message with one to four wounds. Most spare the header: behind it are the decoders."""
    data = bytearray(message)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(0 if dice.random() < 0.2 else min(40, len(data)), len(data) + 1)
        kind = dice.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = dice.randrange(256)
        elif kind in (1, 2):
            at -= at % 4
            data[at : at + 4] = dice.choice(WORDS).to_bytes(4, "big")
        elif kind == 3:
            del data[at : at + dice.randrange(1, 40)]
        elif kind == 4:
            data[at:at] = dice.randbytes(dice.randrange(1, 200))
        else:
            data[at:] = dice.choice(others)[at:]
        if not data:
            data += b"\0\0\0\0"
    return bytes(data)


class Flood:
    def __init__(self, place, rpc, portmap, messages, dice):
        self.place, self.rpc, self.portmap, self.messages, self.dice = place, rpc, portmap, messages, dice
        self.datagrams = make_socket(socket.SOCK_DGRAM, (FLOOD, 0), place)
        self.datagrams.setblocking(False)
        self.connections = {}
        self.n_sent = self.n_refused = self.n_connects = 0

    def _connection(self):
        key = self.dice.randrange(N_CONNECTIONS)
        if key not in self.connections:
            sock = make_socket(socket.SOCK_STREAM, (FLOOD, 0), self.place)
            sock.settimeout(5)
            sock.connect((SERVER, self.portmap if key == 0 else self.rpc))
            sock.setblocking(False)
            self.connections[key] = sock
            self.n_connects += 1
        return key, self.connections[key]

    def _stream(self, message):
        data = bytearray(record(message, self.dice.choice((1, 1, 1, 2, 5))))
        if self.dice.random() < 0.02:  # a wrong mark: the server cannot go on with this connection
            data[self.dice.randrange(4)] ^= 1 << self.dice.randrange(8)
        key, sock = self._connection()
        try:
            if sock.send(data) < len(data):
                raise BlockingIOError
            while sock.recv(1 << 16):
                pass
            raise ConnectionError
        except BlockingIOError as error:
            if error.errno is None:  # half a record would make the next one half a record, too
                self.connections.pop(key).close()
        except OSError:
            self.n_refused += 1
            self.connections.pop(key).close()

    def _datagram(self, message):
        to = self.portmap if self.dice.random() < 0.1 else self.rpc
        try:
            self.datagrams.sendto(message[:60000], (SERVER, to))
            while self.datagrams.recv(1 << 16):
                pass
        except BlockingIOError:
            pass

    def send(self, n):
        for _ in range(n):
            message = damage(self.dice.choice(self.messages), self.messages, self.dice)
            (self._stream if self.dice.random() < 0.5 else self._datagram)(message)
        self.n_sent += n

    def close(self):
        self.datagrams.close()
        for sock in self.connections.values():
            sock.close()


class Honest:
    """Another host with a file of its own: locks it, unlocks it, and says how long that took."""

    def __init__(self, place, port, fh):
        self.caller = TcpCaller((SERVER, port), (HONEST, 0), place)
        self.lock = nlm.Lock(fh=fh, name="honest")
        self.times = []

    def goes_on(self):
        for procedure in (nlm.LOCK, nlm.UNLOCK):
            begin = time.monotonic()
            args = self.lock.args(procedure)
            results = exchange(
                self.caller, call_message(nlm.PROGRAM, 4, procedure, args, cred=auth_sys("honest", 0, 0)))
            self.times.append(time.monotonic() - begin)
            stat = nlm.res_of(procedure, results).stat
            assert stat == nlm.S_GRANTED, f"the honest client was answered {stat}"

    def close(self):
        self.caller.close()


def handle_of_honest(port):
    with nfs.Client(port) as client:
        return client.create(client.root("/honest"), b"file", mode=0o666).fh


def play(daemon, place, options):
    dice = random.Random(options.seed)
    with open(daemon.ports_file, encoding="utf-8") as file:
        ports = json.load(file)
    with place:
        messages, fh = file_calls(ports["rpc"])
        honest = Honest(place, ports["rpc"], handle_of_honest(ports["rpc"]))
    messages += [*lock_calls(fh), *status_calls(), *portmap_calls()]
    flood = Flood(place, ports["rpc"], ports["portmap"], messages, dice)
    begin = time.monotonic()
    tick = 0
    while time.monotonic() < begin + options.seconds:
        flood.send(int(options.rate * TICK))
        honest.goes_on()
        tick += 1
        lapse(max(0, begin + tick * TICK - time.monotonic()))
    elapsed = time.monotonic() - begin
    flood.close()
    honest.goes_on()
    honest.close()
    times = sorted(honest.times)
    print(
        f"seed {options.seed}: {flood.n_sent} damaged messages in {elapsed:.0f} s ({flood.n_sent / elapsed:.0f} a second), "
        f"{flood.n_connects} connections of which the server ended {flood.n_refused}; {len(times)} honest calls, "
        f"median {times[len(times) // 2] * 1e3:.1f} ms, 99th percentile {times[len(times) * 99 // 100] * 1e3:.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", nargs="?", default=os.environ.get("HOLDFASTD"))
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    try:
        place = netns.Namespace("mutated")
    except PermissionError:
        print("no network namespace may be made here")
        return SKIPPED
    base = tempfile.mkdtemp(prefix="hf-mutated-")
    flags = []
    for name in ("data", "honest"):
        folder = os.path.join(base, name)
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        flags += ["--export", f"{folder}:/{name}"]
    daemon = Daemon(
        options.program, place, ["server.port=0", "server.portmap=embedded", "api.listen=", "log.level=error"], flags)
    try:
        daemon.start()
        play(daemon, place, options)
        daemon.stop()
    except BaseException:
        print(f"seed {options.seed}", file=sys.stderr)
        print(daemon.log[-20000:], file=sys.stderr)
        raise
    finally:
        daemon.close()
        place.close()
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
