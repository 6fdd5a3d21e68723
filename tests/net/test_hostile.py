"""Hostile and careless peers against the whole daemon, over real sockets.

    test_hostile.py PATH/holdfastd [unittest's own arguments]
"""

import errno
import json
import os
import random
import resource
import selectors
import socket
import statistics
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

import netns  # noqa: E402
from daemon import Daemon  # noqa: E402
from rpc import PATIENCE, NoReply, TcpCaller, UdpCaller, call_message, exchange, record  # noqa: E402
from until import until  # noqa: E402

SKIPPED = 77  # meson's word for it
SERVER = "127.0.0.1"
NFS, PORTMAP = (100003, 3), (100000, 2)
N_IDLE = 10_000
N_SLOW = 200


def null(program=NFS):
    return call_message(*program, 0)


class Hostile(unittest.TestCase):
    program = None

    def setUp(self):
        self.place = netns.Namespace("hostile")
        self.addCleanup(self.place.close)
        self.daemon = Daemon(
            self.program,
            self.place,
            ["server.port=0", "server.portmap=embedded", "api.listen=", "store.backend=memory"],
        )
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        with open(self.daemon.ports_file, encoding="utf-8") as file:
            ports = json.load(file)
        self.rpc, self.portmap = ports["rpc"], ports["portmap"]
        # Whatever was done to it, it still stops as it should, and its sanitizers are content.
        self.addCleanup(self.daemon.stop)

    def tcp(self, port=None, local="0.0.0.0"):
        caller = TcpCaller((SERVER, port or self.rpc), (local, 0), self.place)
        self.addCleanup(caller.close)
        return caller

    def udp(self, port=None):
        caller = UdpCaller((SERVER, port or self.rpc), namespace=self.place)
        self.addCleanup(caller.close)
        return caller

    def connect(self, local="0.0.0.0", rcvbuf=None):
        with self.place:
            sock = socket.socket()
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if local != "0.0.0.0":
            # The port is found when it connects: a bind to port 0 would use up the same few for all.
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            sock.bind((local, 0))
        sock.settimeout(PATIENCE)
        sock.connect((SERVER, self.rpc))
        self.addCleanup(sock.close)
        return sock

    def memory(self):
        """Resident bytes of the daemon."""
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) << 10
        raise AssertionError("no VmRSS")

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def check_served(self):
        exchange(self.tcp(), null())
        exchange(self.udp(), null())
        exchange(self.tcp(self.portmap), null(PORTMAP))
        exchange(self.udp(self.portmap), null(PORTMAP))

    def latencies(self, caller, n=300):
        """What some calls take, in seconds; every one is answered."""
        times = []
        for _ in range(n):
            begin = time.monotonic()
            exchange(caller, null())
            times.append(time.monotonic() - begin)
        return times

    def test_idle_crowd(self):
        caller = self.tcp()
        before = min(self.latencies(caller))  # when nothing else was in the way
        crowd = [self.connect(f"127.0.1.{1 + i % 12}") for i in range(N_IDLE)]
        until(self.n_descriptors, "all are accepted", 60, passes=lambda n: n >= N_IDLE)
        self.assertLess(min(self.latencies(caller)), 10 * before)
        for sock in random.sample(crowd, 50):  # no connection was closed, and each is served
            sock.sendall(record(null()))
            self.assertTrue(sock.recv(100))
        self.check_served()

    def test_slow_crowd(self):
        caller = self.tcp()
        before = statistics.median(self.latencies(caller))
        message = record(null())
        crowd = [self.connect(f"127.0.2.{1 + i % 12}") for i in range(N_SLOW)]
        ended = threading.Event()

        def drip():
            for byte in message[:-1]:
                for sock in crowd:
                    sock.sendall(bytes([byte]))
                if ended.wait(1 if byte else 0.05):
                    return

        dripper = threading.Thread(target=drip)
        dripper.start()
        try:
            after = statistics.median(self.latencies(caller))
        finally:
            ended.set()
            dripper.join()
        self.assertLess(after, 10 * before + 0.02, "who waits for the next drop waits for 0.05 s and more")

    def test_slow_crowd_is_answered(self):
        message = record(null())
        crowd = [self.connect() for _ in range(50)]
        for byte in message:
            for sock in crowd:
                sock.sendall(bytes([byte]))
        for sock in crowd:
            self.assertEqual(len(sock.recv(100)), 28)

    def test_garbage(self):
        chance = random.Random(1)
        for port in (self.rpc, self.portmap):
            for n in (1, 3, 4, 5, 40, 1000, 70000):
                for kind in range(4):
                    data = chance.randbytes(n)
                    if kind == 1:
                        data = record(data)
                    elif kind == 2:
                        data = bytes(n)
                    elif kind == 3:
                        data = record(null()[: n % 40] + data)
                    with self.place:
                        sock = socket.create_connection((SERVER, port), PATIENCE)
                    try:
                        sock.sendall(data)
                        sock.shutdown(socket.SHUT_WR)
                        while sock.recv(65536):
                            pass
                    except ConnectionError:
                        pass
                    except OSError as error:
                        self.assertEqual(error.errno, errno.ENOTCONN)  # the server has hung up before the test could
                    sock.close()
        self.check_served()

    def test_datagram_floods(self):
        chance = random.Random(2)
        callers = [self.udp(port) for port in (self.rpc, self.portmap)]
        before = self.memory()
        for i in range(20000):
            data = chance.randbytes(chance.choice((0, 1, 8, 40, 100, 1400)))
            if i % 3 == 0:
                data = null()[: chance.randrange(41)] + data
            callers[i % 2].send(data)
        for i in range(20):
            callers[i % 2].send(chance.randbytes(60000))
        until(lambda: self.answers(self.rpc) and self.answers(self.portmap, PORTMAP), "both answer")
        self.check_served()
        self.assertLess(self.memory() - before, 64 << 20)

    def answers(self, port, program=NFS):
        try:
            exchange(self.udp(port), null(program), 0.2)
            return True
        except NoReply:
            return False

    def test_never_reads(self):
        calls = record(null()) * 2000
        before = self.memory()
        crowd = [self.connect(rcvbuf=4096) for _ in range(20)]
        selector = selectors.DefaultSelector()
        for sock in crowd:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_WRITE)
        quiet = time.monotonic()
        while time.monotonic() - quiet < 3:  # until none takes anything any more
            for key, _ in selector.select(0.1):
                if key.fileobj.send(calls):
                    quiet = time.monotonic()
            self.assertLess(self.memory() - before, 200 << 20)
        self.check_served()
        self.assertLess(self.memory() - before, 100 << 20)
        # One of them reads at last, and gets what it asked for.
        reader = crowd[0]
        reader.settimeout(PATIENCE)
        got = 0
        while got < 28 * 20000:
            data = reader.recv(1 << 20)
            self.assertTrue(data)
            got += len(data)

    def test_out_of_descriptors(self):
        caller = self.tcp()
        exchange(caller, null())
        limit = self.n_descriptors() + 10
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        crowd = [self.connect() for _ in range(40)]  # the kernel takes them all
        until(self.n_descriptors, "its descriptors are used up", passes=lambda n: n >= limit)
        usage, began = self.cpu(), time.monotonic()
        until(lambda: exchange(caller, null()) == b"" and time.monotonic() > began + 1, "a second is over")
        self.assertLess(self.cpu() - usage, 0.6 * (time.monotonic() - began))  # it does not spin
        exchange(self.udp(), null())
        self.assertIn("cannot accept connections for now; raise the limit of open files", self.daemon.log)
        waiting = crowd[30]
        waiting.sendall(record(null()))
        for sock in crowd[:30]:
            sock.close()
        self.assertEqual(len(waiting.recv(100)), 28)
        for sock in crowd[31:]:
            sock.close()
        self.check_served()

    def cpu(self):
        with open(f"/proc/{self.daemon.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raise_limit():
    wanted = N_IDLE + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))


def main():
    Hostile.program = os.environ.get("HOLDFASTD") or sys.argv.pop(1)
    try:
        raise_limit()
        netns.Namespace("probe").close()
    except (OSError, ValueError) as error:
        print(f"skipped: no namespaces, or too few descriptors ({error})")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
