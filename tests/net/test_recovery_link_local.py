#!/usr/bin/env python3
"""A client that is reached by a link-local address: its address is one together with the interface.

The kernel numbers interfaces anew when they are made again, as at a boot; their names stay."""

import os
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from commandline import HOLDFAST, USAGE
from play import main
from recovering import Recovering
from rpc import TcpCaller, call_message, exchange
from until import PATIENCE

HERE, THERE = "fe80::1", "fe80::2"
LINK = "ll0"


class LinkLocal(Recovering):
    n_hosts = 1
    backend = ("store.backend=lmdb",)

    def setUp(self):
        super().setUp()
        self.make_link()
        self.addCleanup(self.network.server.batch, [f"link del {LINK}"])

    def make_link(self):
        server, client = self.network.server, self.network.clients[0]
        server.batch([f"link add {LINK} type veth peer name {LINK} netns {client.path}"])
        for host, address in ((server, HERE), (client, THERE)):
            host.batch([f"link set {LINK} addrgenmode none up", f"addr add {address}/64 dev {LINK} nodad"])

    def number(self, host):
        with host:
            return socket.if_nametoindex(LINK)

    def lock_over_link(self, **how):
        client = self.network.clients[0]
        number = self.number(client)
        caller = TcpCaller((HERE, 2049, 0, number), (THERE, 0, 0, number), client)
        self.addCleanup(caller.close)
        args = self.lock_of(self.a, 0, 10, **how).args(nlm.LOCK)
        return nlm.res_of(nlm.LOCK, exchange(caller, call_message(nlm.PROGRAM, 4, nlm.LOCK, args)), 4).stat

    def ids(self):
        return [client["id"] for client in self.rest.get("/api/v1/clients").json["clients"]]

    def test_the_client_has_its_interface_in_its_name(self):
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        self.assertEqual(self.ids(), [f"nlm:{THERE}%{LINK}:{self.a.name}"])

    def release(self, address):
        words = [HOLDFAST, "--state-dir", f"{self.daemon.state_dir}/state", "release", "--yes", "--address", address]
        with self.daemon.namespace:
            return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)

    def test_its_locks_are_released_by_its_address(self):
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        for other in (THERE, f"{THERE}%{LINK}x", f"{HERE}%{LINK}"):
            self.assertEqual(self.release(other).stdout, "No such client has anything to release.\n", other)
        for wrong in (f"{THERE}%", f"{self.a.address}%{LINK}", f"%{LINK}", f"{'0:' * 40}%{LINK}"):
            self.assertEqual(self.release(wrong).returncode, USAGE, wrong)
        self.assertIn("1 locks released.", self.release(f"fe80:0::2%{LINK}").stdout)
        self.assertEqual(self.rest.get("/api/v1/locks").json["locks"], [])

    def test_told_after_a_restart(self):
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        self.restart()
        self.until_all_are_told()
        self.assertTrue(self.a.told.matching())

    def test_told_when_the_interface_has_another_number(self):
        server = self.network.server
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        before = self.number(server)
        self.daemon.crash()
        server.batch([f"link del {LINK}", "link add other0 type bridge"])
        self.addCleanup(server.batch, ["link del other0"])
        self.make_link()
        self.assertNotEqual(self.number(server), before)
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.until_all_are_told()
        self.assertTrue(self.a.told.matching())
        self.assertEqual(self.ids(), [f"nlm:{THERE}%{LINK}:{self.a.name}"])

    def start_without_the_link(self):
        """The server cannot reach the client. Grace lasts."""
        self.daemon.crash()
        self.network.server.batch([f"link del {LINK}"])
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.until_all_are_told("told of the server's restart; the unreachable ones")
        self.assertEqual(self.ids(), [f"nlm:{THERE}%{LINK}:{self.a.name}"])
        self.assertNotIn("cannot be true", self.log)

    def test_told_when_the_interface_is_back_at_the_next_start(self):
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        self.start_without_the_link()
        self.daemon.stop()
        self.make_link()
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.until_all_are_told()
        self.assertTrue(self.a.told.matching())
        self.assertEqual(self.lock_over_link(reclaim=True), nlm.S_GRANTED)

    def test_told_when_the_interface_is_back(self):
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        self.start_without_the_link()
        self.make_link()
        self.a.told.wait(1)
        self.assertEqual(self.lock_over_link(reclaim=True), nlm.S_GRANTED)
        self.assertEqual(self.ids(), [f"nlm:{THERE}%{LINK}:{self.a.name}"])

    def test_a_call_over_the_interface_that_is_back(self):
        self.assertEqual(self.lock_over_link(), nlm.S_GRANTED)
        self.start_without_the_link()
        self.make_link()
        self.assertEqual(self.lock_over_link(reclaim=True), nlm.S_GRANTED)
        self.assertEqual(self.ids(), [f"nlm:{THERE}%{LINK}:{self.a.name}"])

    def test_reload_of_a_link_local_address(self):
        path = os.path.join(self.daemon.state_dir, "link.yaml")
        with open(path, "w", encoding="ascii") as config:
            config.write(f'server:\n  listen: ["{HERE}%{LINK}", "10.98.0.1", "127.0.0.1"]\n')
        self.restart("--config", path)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: "configuration loaded" in self.log or "configuration not loaded" in self.log, "the reload ends")
        self.assertNotIn("configuration not loaded", self.log)


main()
