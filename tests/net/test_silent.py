#!/usr/bin/env python3
"""recovery.release_silent_seconds: a client that never comes back gives way to those that wait.

    test_silent.py PATH/holdfastd [unittest's own arguments]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from commandline import CliPlay
from play import main
from rest import Events
from rpc import TcpCaller, UdpCaller, call_message, exchange

TIME = 2  # seconds
NFS = 100003
RELEASED = "holdfast_silent_clients_released_total"
REASON = "it is silent, and others wait for its locks"


class Silences(CliPlay):
    n_hosts = 3
    settings = (
        "api.listen=127.0.0.1:0",
        "recovery.notify_timeout_ms=400",
        "store.backend=lmdb",
        "recovery.grace=auto",
        "recovery.after_crash=continue",
    )

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            host.grants.items.clear()
            self.plug(host)

    def filter(self, host, *rules):
        """The host's own firewall drops all of this; nothing: it drops nothing."""
        lines = ["add table inet f", "flush table inet f", "add chain inet f in { type filter hook input priority 0; }"]
        with host.namespace:
            subprocess.run(["nft", "; ".join(lines + [f"add rule inet f in {rule} drop" for rule in rules])], check=True)

    def plug(self, host):
        self.filter(host)

    def unplug(self, host):
        """Nothing reaches it any more."""
        self.filter(host, "iifname eth0")

    def tearDown(self):
        for host in self.hosts:
            self.plug(host)
            host.drop_callers()  # the server may have ended them
        super().tearDown()

    def client_path(self, host):
        return f"/api/v1/clients/{urllib.parse.quote(self.id_of(host), safe='')}"

    def released(self):
        return self.rest.metrics()[RELEASED]

    def is_known(self, host):
        """Its host has answered the server, so that its silence means something."""
        for program in (100021, 100024):
            host.lookups.wait(1, lambda item, program=program: item[1] == program)

    def questions(self, host):
        """How often the host was asked for its lock manager's port."""
        return len(host.lookups.matching(lambda item: item[1] == 100021))

    def registered(self, host):
        """Since when; None: it is not."""
        answer = self.rest.get(self.client_path(host))
        return answer.json["registered_at"] if answer.status == 200 else None

    def await_silence(self, host, seconds):
        path = self.client_path(host)
        self.until(lambda: self.rest.get(path).json["silent_seconds"], "it is silent", passes=lambda silent: silent > seconds)

    def hold(self, host):
        """The server asks a client when it registers. One that is still registered from another test has answered."""
        host.lookups.items.clear()
        lock, before = self.lock_of(host), self.registered(host)
        self.assert_granted(host, lock)
        if before != self.registered(host):
            self.is_known(host)
        return lock


class Silent(Silences):
    settings = (*Silences.settings, f"recovery.release_silent_seconds={TIME}")

    def test_a_client_that_is_gone_gives_way_to_one_that_waits(self):
        before, began = self.released(), time.monotonic()
        events = Events(self.rest)
        self.addCleanup(events.close)
        self.hold(self.a)
        self.unplug(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.b.grants.wait(1)
        self.assertGreaterEqual(time.monotonic() - began, TIME)
        self.assertEqual(self.released() - before, 1)
        for kind in ("crash", "cleanup"):
            event = events.wait(kind, lambda data: data["client"] == self.id_of(self.a))
            self.assertEqual(event["data"]["reason"], REASON)
        shown = self.rest.get(self.client_path(self.a)).json
        self.assertEqual((shown["status"], shown["locks"]), ("crashed", []))
        self.assertRegex(self.daemon.log, r"a client is silent: its locks are released.*client=\S*" + self.a.name)

    def test_a_quiet_client_is_asked_and_keeps_its_locks(self):
        before = self.released()
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        asked = self.questions(self.a)
        self.until(lambda: self.questions(self.a), "it is asked again and again", passes=lambda n: n >= asked + 3)
        self.assertEqual(self.released(), before)
        self.assert_held(self.lock_of(self.c))
        self.assertEqual(self.b.grants.items, [])
        self.unplug(self.a)  # and now it is gone
        self.b.grants.wait(1)
        self.assertEqual(self.released() - before, 1)

    def test_without_a_waiter_nothing_is_released_and_no_host_is_asked(self):
        before = self.released()
        self.hold(self.a)
        self.await_silence(self.a, TIME)  # the questions about its return after the test before have ended
        asked = self.questions(self.a)
        self.await_silence(self.a, 3 * TIME)
        self.assertEqual((self.released(), self.questions(self.a)), (before, asked))
        self.assert_held(self.lock_of(self.c))

    def test_a_server_that_is_cut_off_releases_nothing(self):
        before = self.released()
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.unplug(self.a)
        self.unplug(self.b)
        reason = "the host of the waiter does not answer either"
        self.until(lambda: self.daemon.log, "the server says why", passes=lambda log: reason in log)
        self.assertRegex(self.daemon.log, f"another client waits for the locks of a silent client, and they stay .*{reason}")
        self.assertEqual(self.released(), before)
        self.plug(self.b)
        self.b.grants.wait(1)
        self.assertEqual(self.released() - before, 1)

    def test_a_client_that_has_never_answered_keeps_its_locks(self):
        """After a start that goes on, no host has answered yet."""
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.daemon.crash()
        self.unplug(self.a)
        self.c.drop_callers()
        self.daemon.start()
        reason = "its host has never answered the server"
        self.until(lambda: self.daemon.log, "the server says why", passes=lambda log: reason in log)
        self.assertEqual(self.released(), 0)
        self.assert_held(self.lock_of(self.c))
        self.plug(self.a)
        asked = self.questions(self.a)
        self.until(lambda: self.questions(self.a), "it answers", passes=lambda n: n > asked)
        self.unplug(self.a)
        self.b.grants.wait(1)

    def test_a_client_behind_a_new_firewall_keeps_its_locks_while_it_is_connected(self):
        """Every question is dropped; its connection still acknowledges the kernel's."""
        before = self.released()
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.filter(self.a, "tcp flags & (syn|ack) == syn", "meta l4proto udp")
        self.await_silence(self.a, 3 * TIME)
        self.assertEqual(self.released(), before)
        ended = time.monotonic()
        self.a.drop_callers()
        self.b.grants.wait(1)  # nothing tells it from a host that is gone
        self.assertGreaterEqual(time.monotonic() - ended, TIME)
        self.assertEqual(self.released() - before, 1)

    def test_connections_that_come_and_go_are_signs_of_life(self):
        """Every question is dropped, and most of the time no connection is open."""
        before = self.released()
        self.hold(self.a)
        self.a.drop_callers()
        self.filter(self.a, "tcp flags & (syn|ack) == syn", "meta l4proto udp")
        self.assert_blocked(self.b, self.lock_of(self.b))
        began = time.monotonic()
        while time.monotonic() - began < 4 * TIME:
            TcpCaller((self.network.SERVER[0], 2049), (self.a.address, 0), self.a.namespace).close()
            ended = time.monotonic()
            self.until(lambda: time.monotonic() - ended, "no connection is open", passes=lambda passed: passed > TIME / 2)
        self.assertEqual((self.released(), self.b.grants.items), (before, []))
        self.b.grants.wait(1)
        self.assertGreaterEqual(time.monotonic() - ended, TIME)

    def test_calls_of_any_program_over_udp_are_signs_of_life(self):
        """Its firewall lets in only the answers to what it asks itself."""
        before = self.released()
        self.hold(self.a)
        self.a.drop_callers()
        self.filter(self.a, "tcp flags & (syn|ack) == syn", "udp sport != 2049", "udp dport 111")
        self.assert_blocked(self.b, self.lock_of(self.b))
        caller = UdpCaller((self.network.SERVER[0], 2049), (self.a.address, 0), self.a.namespace)
        self.addCleanup(caller.close)
        began = time.monotonic()
        while time.monotonic() - began < 4 * TIME:
            exchange(caller, call_message(NFS, 3, 0))
            called = time.monotonic()
            self.until(lambda: time.monotonic() - called, "it is quiet", passes=lambda passed: passed > TIME / 2)
        self.assertEqual((self.released(), self.b.grants.items), (before, []))
        self.b.grants.wait(1)
        self.assertGreaterEqual(time.monotonic() - called, TIME)

    def test_a_server_that_stood_still_asks_anew(self):
        """What came meanwhile is in its sockets."""
        before = self.released()
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        began = time.monotonic()
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.until(lambda: time.monotonic() - began, "the time is over", passes=lambda passed: passed > 2 * TIME)
        self.daemon.process.send_signal(signal.SIGCONT)
        asked = self.questions(self.a)
        self.until(lambda: self.questions(self.a), "it is asked", passes=lambda n: n >= asked + 2)
        self.assertEqual(self.released(), before)
        self.assert_held(self.lock_of(self.c))


class TurnedOn(Silences):
    """By a reload, while others wait already."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="hf-silent-")
        cls.addClassCleanup(folder.cleanup)
        cls.config = os.path.join(folder.name, "holdfast.yaml")
        cls.write(0)
        cls.flags = ("--config", cls.config)
        super().setUpClass()

    @classmethod
    def write(cls, seconds):
        with open(cls.config, "w", encoding="ascii") as out:
            out.write(f"recovery: {{release_silent_seconds: {seconds}}}\n")

    def change(self, seconds):
        self.write(seconds)
        answer = self.rest.call("POST", "/api/v1/reload", token=True).json
        self.assertEqual((answer["loaded"], answer["at_next_start"]), (True, []))

    def tearDown(self):
        self.change(0)
        super().tearDown()

    def test_a_client_with_an_open_connection_gives_way(self):
        """The kernel asks after that connection, too, which came before the reload."""
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.unplug(self.a)
        self.await_silence(self.a, 3 * TIME)
        self.assertEqual((self.released(), self.b.grants.items), (0, []))
        began = time.monotonic()
        self.change(TIME)
        self.b.grants.wait(1)
        self.assertGreaterEqual(time.monotonic() - began, TIME, "its silence of before does not count")
        self.assertEqual(self.released(), 1)

    def test_turned_off_again(self):
        before = self.released()
        self.change(TIME)
        self.hold(self.a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.change(0)
        self.unplug(self.a)
        asked = self.questions(self.a)
        self.await_silence(self.a, 3 * TIME)
        self.assertEqual((self.released(), self.b.grants.items), (before, []))
        self.assertLessEqual(self.questions(self.a), asked + 1)
        self.change(TIME)
        self.b.grants.wait(1)
        self.assertEqual(self.released() - before, 1)


del Silences

if __name__ == "__main__":
    main()
