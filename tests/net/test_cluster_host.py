#!/usr/bin/env python3
"""What a node of a cluster does to its host, over real kernels: two nodes and a client on one wire, each with a
namespace of its own. The nodes run src/cluster in the daemon's sandbox (cluster_host.c)."""

import errno
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import netns
from until import PATIENCE, until

PROGRAM = os.environ.get("CLUSTER_HOST", "build/tests/net/cluster_host")
SERVICE, SERVICE6 = "10.97.0.100", "fd97::100"
ADDRESSES = (f"{SERVICE}/16%eth0", f"{SERVICE6}/64%eth0")
PORT = 2049
ETH_P_ALL = 3
# The kernel looks at lifetimes in its own rhythm: it is a quarter of a second late, and 20 ms early, at most.
EARLY, LATE = 0.05, 0.25


class Node:
    """One run of the program in a namespace."""

    def __init__(self, namespace, *words):
        with namespace:
            self.process = subprocess.Popen(
                [PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )  # fmt: skip
        self.first = self._answer()

    def _answer(self):
        return self.process.stdout.readline().strip()

    def tell(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class HostCase(unittest.TestCase):
    """Nodes 0 and 1 have 10.97.0.1 and .2, the client has .9; all have the interface eth0."""

    def setUp(self):
        self.wire = self.namespace("wire")
        self.wire.batch(["link add wire address 02:00:00:00:00:01 type bridge", "link set wire up"])
        self.hosts = [self.host(number) for number in (1, 2)]
        self.client = self.host(9)

    def namespace(self, name):
        namespace = netns.Namespace(name)
        self.addCleanup(namespace.close)
        return namespace

    def host(self, number):
        namespace = self.namespace(f"host{number}")
        self.wire.batch(
            [
                f"link add p{number} type veth peer name eth0 netns {namespace.path}",
                f"link set p{number} master wire",
                f"link set p{number} up",
            ]
        )
        namespace.batch(
            [
                f"addr add 10.97.0.{number}/16 dev eth0",
                f"addr add fd97::{number}/64 dev eth0 nodad",
                "link set eth0 up",
            ]
        )
        until(lambda: self.flags_of(namespace) >= {"UP", "LOWER_UP"}, "the wire is connected")
        return namespace

    @staticmethod
    def flags_of(namespace):
        with namespace:
            said = subprocess.run(["ip", "-j", "link", "show", "eth0"], check=True, capture_output=True).stdout
        return set(json.loads(said)[0]["flags"])

    def node(self, number, *words):
        node = Node(self.hosts[number], *(words or ADDRESSES))
        self.addCleanup(node.close)
        self.assertEqual(node.first, "ok ready")
        return node

    @staticmethod
    def addresses(namespace):
        """Those of eth0: address to (prefix, seconds left, seconds preferred, words)."""
        with namespace:
            said = subprocess.run(["ip", "-j", "addr", "show", "eth0"], check=True, capture_output=True).stdout
        return {
            one["local"]: (one["prefixlen"], one["valid_life_time"], one["preferred_life_time"], one)
            for one in json.loads(said)[0]["addr_info"]
        }

    def sniffer(self, namespace):
        with namespace:
            sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        sniffer.bind(("eth0", 0))
        self.addCleanup(sniffer.close)
        return sniffer

    @staticmethod
    def packets(sniffer, is_wanted, n):
        """The first @n that are wanted."""
        found = []

        def look():
            while select.select([sniffer], [], [], 0)[0]:
                packet = sniffer.recv(65536)
                if is_wanted(packet):
                    found.append(packet)
            return len(found) >= n

        until(look, f"{n} packets have come")
        return found

    @staticmethod
    def hardware_of(namespace):
        with namespace:
            said = subprocess.run(["ip", "-j", "link", "show", "eth0"], check=True, capture_output=True).stdout
        return bytes.fromhex(json.loads(said)[0]["address"].replace(":", ""))


class Addresses(HostCase):
    def test_addresses_come_and_go(self):
        node = self.node(0)
        self.assertEqual(node.tell("hold 100000"), "ok")
        found = self.addresses(self.hosts[0])
        self.assertEqual(found[SERVICE][0], 16)
        self.assertIn(found[SERVICE][1], (99, 100))
        self.assertEqual(found[SERVICE6][0], 64)
        self.assertIn(found[SERVICE6][1], (99, 100))
        self.assertTrue(found[SERVICE6][3].get("nodad"))
        self.assertFalse(found[SERVICE6][3].get("tentative"))
        # No call of the host's own leaves from it.
        self.assertEqual(found[SERVICE6][2], 0)
        # Renewed, and rounded up.
        self.assertEqual(node.tell("hold 200001"), "ok")
        found = self.addresses(self.hosts[0])
        self.assertIn(found[SERVICE][1], (200, 201))
        self.assertIn(found[SERVICE6][1], (200, 201))
        self.assertEqual(node.tell("give_up"), "ok")
        self.assertFalse({SERVICE, SERVICE6} & set(self.addresses(self.hosts[0])))
        self.assertEqual(node.tell("give_up"), "ok")  # nothing is there any more

    def test_what_waits_to_be_sent_goes_with_the_addresses(self):
        """The kernel would send it when the neighbour answers, up to three seconds later."""
        silent = {"10.97.0.77", "fd97::77"}

        def waiting():
            with self.hosts[0]:
                said = subprocess.run(["ip", "-j", "neigh", "show", "dev", "eth0"], check=True, capture_output=True).stdout
            return {one["dst"] for one in json.loads(said) if "INCOMPLETE" in one["state"]}

        node = self.node(0)
        self.assertEqual(node.tell("hold 100000"), "ok")
        for family, source, to in ((socket.AF_INET, SERVICE, "10.97.0.77"), (socket.AF_INET6, SERVICE6, "fd97::77")):
            with self.hosts[0], socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.bind((source, 0))
                sender.sendto(b"late", (to, PORT))
        self.assertEqual(waiting(), silent)
        self.assertEqual(node.tell("give_up"), "ok")
        self.assertEqual(waiting(), set())

    def test_own_addresses_stay(self):
        """Those that the host had before, in the same subnets."""
        before = self.addresses(self.hosts[0])
        node = self.node(0)
        node.tell("hold 100000")
        node.tell("give_up")
        self.assertEqual(set(self.addresses(self.hosts[0])), set(before))

    def test_addresses_leave_a_host_whose_server_was_killed(self):
        """In time for a successor, and not before the lease is over."""
        gone = {}

        def look():
            found = self.addresses(self.hosts[0])
            for one in {SERVICE, SERVICE6} - set(found) - set(gone):
                gone[one] = time.monotonic() - began
            return len(gone) == 2

        node = Node(self.hosts[0], *ADDRESSES)
        self.addCleanup(node.close)
        began = time.monotonic()
        self.assertEqual(node.tell("hold 1500"), "ok")
        held = time.monotonic()
        node.kill()
        until(look, "both addresses are gone", pause=0.005)
        print("gone after", {one: round(seconds, 3) for one, seconds in gone.items()}, "of 2 s")
        for seconds in gone.values():
            self.assertGreater(seconds, 2 - EARLY)
            # Seen by a program that is started for each look, on a machine that may have much else to do.
            self.assertLess(seconds - (held - began), 2 + LATE + 1)

    def test_a_static_address_is_refused(self):
        self.hosts[0].batch([f"addr add {SERVICE}/16 dev eth0"])
        node = self.node(0)
        said = node.tell("hold 3000")
        self.assertTrue(said.startswith("failed ") and SERVICE in said and "network configuration" in said, said)
        self.assertEqual(node.tell("give_up"), "ok")
        self.assertEqual(self.addresses(self.hosts[0])[SERVICE][1], 2**32 - 1)  # not the node's to remove
        # The other one is held all the same, until it is given up.
        node.tell("hold 100000")
        self.assertIn(SERVICE6, self.addresses(self.hosts[0]))

    def test_a_missing_interface_is_named(self):
        node = self.node(0, f"{SERVICE}/16%eth7")
        self.assertEqual(node.tell("hold 3000"), f"failed cannot add the address {SERVICE}: there is no interface eth7")
        self.assertEqual(node.tell("give_up"), "ok")

    def test_a_restart_takes_over_its_own_address(self):
        first = Node(self.hosts[0], *ADDRESSES)
        self.addCleanup(first.close)
        first.tell("hold 50000")
        first.kill()
        second = self.node(0)
        self.assertEqual(second.tell("hold 100000"), "ok")
        self.assertGreaterEqual(self.addresses(self.hosts[0])[SERVICE][1], 99)

    def test_as_another_user(self):
        """server.user: with no right but to addresses and low ports."""
        folder = tempfile.mkdtemp(prefix="hf-host-")
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        node = self.node(0, "--user", "nobody", os.path.join(folder, "state"), *ADDRESSES)
        self.assertEqual(node.tell("hold 100000"), "ok")
        self.assertIn(SERVICE, self.addresses(self.hosts[0]))
        self.assertEqual(node.tell("announce"), "ok")
        with open(f"/proc/{node.process.pid}/status", encoding="ascii") as status:
            caps = dict(line.split(":\t") for line in status if line.startswith("Cap"))
        self.assertEqual(int(caps["CapPrm"], 16), 1 << 12 | 1 << 10)  # NET_ADMIN, NET_BIND_SERVICE
        self.assertEqual(int(caps["CapEff"], 16), 1 << 10)


class Announcements(HostCase):
    def test_gratuitous_arp(self):
        node, sniffer = self.node(0), self.sniffer(self.client)
        node.tell("hold 100000")
        self.assertEqual(node.tell("announce"), "ok")
        ip, mac = socket.inet_aton(SERVICE), self.hardware_of(self.hosts[0])
        found = self.packets(sniffer, lambda p: p[12:14] == b"\x08\x06" and p[28:32] == ip, 2)
        for packet, operation in zip(found, (1, 2)):
            self.assertEqual(packet[:12], b"\xff" * 6 + mac)
            self.assertEqual(struct.unpack(">H", packet[20:22])[0], operation)
            self.assertEqual(packet[22:32], mac + ip)  # sender
            self.assertEqual(packet[38:42], ip)  # target

    def neighbour(self, address):
        with self.client:
            said = subprocess.run(["ip", "-j", "neigh", "show", "dev", "eth0"], check=True, capture_output=True)
        return {one["dst"]: one.get("lladdr") for one in json.loads(said.stdout)}.get(address)

    def learn(self, address, family):
        """Until the client knows whose the address is."""
        with self.client:
            asking = socket.socket(family, socket.SOCK_DGRAM)
        self.addCleanup(asking.close)
        asking.sendto(b"", (address, 9))
        until(lambda: self.neighbour(address), f"the client knows {address}")

    def move(self, address, family):
        first, second = self.node(0), self.node(1)
        first.tell("hold 100000")
        self.learn(address, family)
        macs = [self.hardware_of(host).hex(":") for host in self.hosts]
        self.assertEqual(self.neighbour(address), macs[0])
        first.tell("give_up")
        second.tell("hold 100000")
        self.assertEqual(self.neighbour(address), macs[0])
        self.assertEqual(second.tell("announce"), "ok")
        until(lambda: self.neighbour(address) == macs[1], "the client knows the second node")

    def test_a_neighbour_follows_the_ipv4_address(self):
        self.move(SERVICE, socket.AF_INET)

    def test_a_neighbour_follows_the_ipv6_address(self):
        self.move(SERVICE6, socket.AF_INET6)


class Nudges(HostCase):
    def connected(self, address, family):
        """A client that has sent its request and waits for the answer, with the node that dies."""
        with self.hosts[0]:
            listener = socket.create_server((address, PORT), family=family)
        with self.client:
            client = socket.create_connection((address, PORT), timeout=PATIENCE)
        server, _ = listener.accept()
        client.sendall(b"a call")
        self.assertEqual(server.recv(100), b"a call")
        for one in (listener, client, server):
            self.addCleanup(one.close)
        return client

    def takeover(self, address, family):
        """The first node's wire is cut. The second one has a listener, as a server has."""
        first, second = self.node(0), self.node(1)
        first.tell("hold 100000")
        client = self.connected(address, family)
        self.hosts[0].batch(["link set eth0 down"])
        self.assertEqual(second.tell("hold 100000"), "ok")
        with self.hosts[1]:
            listener = socket.create_server((address, PORT), family=family)
        self.addCleanup(listener.close)
        second.tell("announce")
        return client, second

    @staticmethod
    def text_of(address, port):
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    def wait_for_reset(self, address, family):
        client, second = self.takeover(address, family)
        # It has nothing to say, so it hears nothing.
        self.assertFalse(select.select([client], [], [], 1)[0])
        began = time.monotonic()
        own = client.getsockname()
        self.assertEqual(second.tell(f"nudge {self.text_of(address, PORT)} {self.text_of(own[0], own[1])}"), "ok")
        with self.assertRaises(OSError) as caught:
            client.recv(100)
        print(f"{address}: reset {(time.monotonic() - began) * 1000:.1f} ms after the nudge")
        self.assertEqual(caught.exception.errno, errno.ECONNRESET)
        self.assertLess(time.monotonic() - began, 1)

    def test_a_waiting_client_is_reset(self):
        self.wait_for_reset(SERVICE, socket.AF_INET)

    def test_a_waiting_client_is_reset_over_ipv6(self):
        self.wait_for_reset(SERVICE6, socket.AF_INET6)

    def test_a_connection_that_is_known_here_lives(self):
        node = self.node(0)
        node.tell("hold 100000")
        client = self.connected(SERVICE, socket.AF_INET)
        sniffer = self.sniffer(self.client)
        own = self.text_of(*client.getsockname())
        self.assertEqual(node.tell(f"nudge {self.text_of(SERVICE, PORT)} {own}"), "ok")
        # Two nudges come; the client's kernel has answered when it sends what follows.
        self.packets(sniffer, lambda p: p[12:14] == b"\x08\x00" and p[26:30] == socket.inet_aton(SERVICE), 2)
        client.sendall(b"another call")
        self.assertFalse(select.select([client], [], [], 0.3)[0])


class Links(HostCase):
    def test_a_lost_carrier_is_seen(self):
        node = self.node(0)
        self.assertEqual(node.tell("link"), "ok")
        self.wire.batch(["link set p1 down"])
        began = time.monotonic()
        until(lambda: node.tell("wait_link 5000") == "down eth0", "the node sees that its wire is cut")
        print(f"seen after {(time.monotonic() - began) * 1000:.0f} ms")
        self.wire.batch(["link set p1 up"])
        until(lambda: node.tell("wait_link 5000") == "ok", "the node sees its wire again")

    def rename(self, old, new):
        """While it is up, which kernels before 6.2 refuse."""
        try:
            self.hosts[0].batch([f"link set {old} name {new}"])
        except subprocess.CalledProcessError:
            self.hosts[0].batch([f"link set {old} down", f"link set {old} name {new}", f"link set {new} up"])

    def test_an_interface_that_comes_and_goes(self):
        node = self.node(0, f"{SERVICE}/16%eth7")
        self.assertEqual(node.tell("link"), "missing eth7")
        self.hosts[0].batch(["link add eth7 type veth peer name eth9", "link set eth9 up", "link set eth7 up"])
        until(lambda: node.tell("wait_link 100") == "ok", "the interface is seen")
        self.rename("eth7", "eth8")
        until(lambda: node.tell("wait_link 100") == "missing eth7", "it has another name")
        self.rename("eth8", "eth7")
        until(lambda: node.tell("wait_link 100") == "ok", "it is back")
        self.hosts[0].batch(["link del eth7"])
        until(lambda: node.tell("wait_link 100") == "missing eth7", "it is gone")

    def test_lost_reports_are_made_good(self):
        """More changes than the socket has room for, and the one that matters among them."""
        node = self.node(0)
        lines = ["link add d0 type veth peer name d1"] + ["link set d0 mtu 1400", "link set d0 mtu 1500"] * 500
        self.hosts[0].batch(lines)
        self.wire.batch(["link set p1 down"])
        until(lambda: "LOWER_UP" not in self.flags_of(self.hosts[0]), "the carrier is lost")
        until(lambda: node.tell("link") == "down eth0", "the node has read everything")


class Fence(HostCase):
    def test_the_command_runs_although_the_server_is_in_its_sandbox(self):
        node = self.node(0, "--fence", "/bin/echo switched off", *ADDRESSES)
        self.assertEqual(node.tell("fence node2 20000"), "ok exit status 0: switched off node2")
        node = self.node(0, "--fence", "/bin/false", *ADDRESSES)
        self.assertEqual(node.tell("fence node2 20000"), "failed exit status 1")


if __name__ == "__main__":
    WHY_NOT = netns.is_possible()
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}")
        sys.exit(77)
    unittest.main(verbosity=2)
