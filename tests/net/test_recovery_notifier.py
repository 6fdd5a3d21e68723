#!/usr/bin/env python3
"""The end of the notifier's patience: with one try, which has a total for everything, and with a client at all."""

import os
import re
import sys
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from play import main
from recovering import Recovering

GIVEN_UP = "client not told of the server's restart: giving up"
NOT_TOLD = "client could not be told of the server's restart"
WAVE = re.compile(r"clients told of the server's restart.* told=(\d+) failed=(\d+) ms=(\d+)")


class Patience(Recovering):
    backend = ("store.backend=lmdb",)

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            host.portmap_delay = 0
            host.has_silent_portmap = False
            host.lookups.items.clear()

    def wave(self):
        """The daemon's own report of the first wave: told, failed, milliseconds."""
        self.until(lambda: WAVE.search(self.log), "the first wave is over")
        return tuple(int(number) for number in WAVE.search(self.log).groups())

    def notifications(self):
        """As the metrics count them since the last start."""
        metrics = self.rest.metrics()
        return {
            result: metrics[f'nsm_notifications_total{{result="{result}"}}']
            for result in ("started", "success", "failed")
        }

    def shown(self, host):
        return self.rest.get(f"/api/v1/clients/{quote(self.id_of(host))}").json

    def in_grace(self):
        return self.rest.get("/api/v1/grace").json["active"]

    def give_up(self, host):
        """After a restart that @host never answers: two tries, 2 s apart, and a third at the end, before the gap of 4 s is over."""
        host.deaf = True
        self.restart(recovery__notify_timeout_ms="300", recovery__notify_retry_seconds="6")
        self.until(lambda: GIVEN_UP in self.log, "it is given up")
        self.assertIn(f"{GIVEN_UP} client={self.id_of(host)}", self.log)

    # The end of the retries

    def test_the_retries_end(self):
        self.held(self.a)
        self.give_up(self.a)
        self.assertEqual(self.notifications(), {"started": 3, "success": 0, "failed": 3})
        self.assertEqual(self.log.count(NOT_TOLD), 3)
        self.assertEqual(self.shown(self.a)["status"], "crashed")
        told = self.rest.get("/api/v1/status").json["notifications"]
        self.assertEqual((told["waiting"], told["in_flight"]), (0, 0), "no client is to be told any more")
        self.assertEqual(self.rest.get("/api/v1/status").json["locks"], 0, "its locks are released")

    def test_who_can_be_reached_again_by_the_end_is_told(self):
        """However wide the gaps are by then: the last try is at the end."""
        self.held(self.a)
        self.a.deaf = True
        self.restart(recovery__notify_timeout_ms="300", recovery__notify_retry_seconds="6")
        self.until(lambda: self.log.count(NOT_TOLD) == 2, "the next try would be after the end")
        self.a.deaf = False
        self.until(lambda: self.shown(self.a)["status"] == "notified", "it is told")
        self.assertEqual(self.notifications(), {"started": 3, "success": 1, "failed": 2})
        self.assertNotIn(GIVEN_UP, self.log)

    def test_who_was_given_up_may_reclaim_in_grace(self):
        lock = self.held(self.a)
        self.give_up(self.a)
        self.assertEqual(self.b.lock(self.lock_of(self.b)), nlm.S_GRACE, "no other client gets it before")
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.shown(self.a)["status"], "active")

    def test_who_was_given_up_keeps_grace_open(self):
        """The client is as unreachable as before. That the server has stopped trying makes nothing safe."""
        lost, kept = self.held(self.a, 0, 5), self.held(self.b, 10, 5)
        self.give_up(self.a)
        self.b.told.wait()
        self.assertEqual(self.b.lock(kept.but(reclaim=True)), nlm.S_GRANTED)
        self.stage.settle()
        self.assertTrue(self.in_grace())
        self.assertEqual(self.a.lock(lost.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.in_grace(), "grace ends early: every client has reclaimed")

    def test_an_operator_tells_who_was_given_up(self):
        self.held(self.a)
        self.give_up(self.a)
        self.a.deaf = False
        n = len(self.a.told.matching())
        path = f"/api/v1/notify?client={quote(self.id_of(self.a))}"
        self.assertEqual(self.rest.call("POST", path, token=True).status, 202)
        self.a.told.wait(n + 1)
        self.until(lambda: self.shown(self.a)["status"] == "notified", "it is shown")
        self.assertEqual(self.notifications(), {"started": 4, "success": 1, "failed": 3}, "no other try in between")

    # The total of one try

    def test_a_slow_portmap_has_no_time_of_its_own(self):
        """One client's portmap answers late, and its statd then does not answer. Another client's portmap never answers."""
        self.held(self.a)
        self.held(self.b, fh=os.urandom(20))
        self.a.deaf, self.a.portmap_delay = True, 5
        self.b.has_silent_portmap = True
        self.restart(recovery__notify_timeout_ms="8000")
        told, failed, ms = self.wave()
        self.assertEqual((told, failed), (0, 2))
        self.assertTrue(self.a.told.matching(), "its statd was reached, and said nothing")
        self.assertEqual(self.b.told.matching(), [])
        self.assertLess(ms, 12_500, "with a time for each step it is 13,000 and more")
        metrics = self.rest.metrics()
        self.assertEqual(metrics["nsm_notification_duration_seconds_count"], 2)
        self.assertLess(metrics["nsm_notification_duration_seconds_sum"], 2 * 12.5)
        self.assertEqual([self.shown(host)["status"] for host in (self.a, self.b)], ["crashed", "crashed"])

    def test_a_slow_portmap_may_take_its_time(self):
        """The same, but its statd answers."""
        self.held(self.a)
        self.a.portmap_delay = 2
        self.restart(recovery__notify_timeout_ms="20000")
        self.assertEqual(self.wave()[:2], (1, 0))
        self.assertEqual(self.shown(self.a)["status"], "notified")

    # What is not the client's fault

    def test_too_few_sockets_are_no_silence_of_the_client(self):
        """Clients that are gone used so many of the server's addresses that it has no socket left to tell another one."""
        addresses = [f"10.98.7.{1 + i}" for i in range(70)]
        server = self.network.server
        server.batch([f"addr add {address}/16 dev wire" for address in addresses])
        self.addCleanup(server.batch, [f"addr del {address}/16 dev wire" for address in addresses])
        for i, address in enumerate(addresses):
            self.assertEqual(self.a.lock(self.lock_of(self.a, 100 + i, 1, name=f"vm{i}"), server=address), nlm.S_GRANTED)
        lock = self.held(self.b, 0, 10)
        self.a.has_silent_portmap = True
        self.restart(recovery__notify_timeout_ms="3000")
        self.b.told.wait()
        self.until(lambda: self.shown(self.b)["status"] == "notified", "it is told when others have given up")
        self.assertNotIn(f"{NOT_TOLD} client={self.id_of(self.b)}", self.log)
        self.assertEqual(self.b.lock(lock.but(reclaim=True)), nlm.S_GRANTED)


if __name__ == "__main__":
    main()
