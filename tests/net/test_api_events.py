#!/usr/bin/env python3
"""Events and metrics: each is told and counted when it happens and only then; who does not read delays nobody."""

import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from play import Play, main
from rest import Events, Rest


class ApiPlay(Play):
    settings = ("api.listen=127.0.0.1:0",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rest = Rest(cls.daemon)

    def id_of(self, host):
        return f"nlm:{host.address}:{host.name}"


class Told(ApiPlay):
    def test_the_life_of_a_lock(self):
        events = Events(self.rest)
        self.addCleanup(events.close)
        ours = lambda data: data["handle"] == self.fh.hex()
        held = self.lock_of(self.a, 1, 2)
        self.assert_granted(self.a, held)
        told = events.wait("lock", ours)["data"]
        self.assertEqual((told["client"], told["offset"], told["length"], told["mode"]), (self.id_of(self.a), 1, 2, "exclusive"))
        self.assertEqual(told["owner"], f"nlm:{held.name}:{held.svid}:{held.owner.hex()}")
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.assertEqual(events.wait("blocked", ours)["data"]["client"], self.id_of(self.b))
        self.a.unlock(held)
        events.wait("unlock", ours)
        self.assertEqual(events.wait("granted", ours)["data"]["client"], self.id_of(self.b))

    def test_registrations_and_crashes(self):
        events = Events(self.rest)
        self.addCleanup(events.close)
        self.assert_granted(self.c, self.lock_of(self.c))
        self.assert_granted(self.c, self.lock_of(self.c, 0, 1, name="another", svid=9, fh=os.urandom(16)))
        another = f"nlm:{self.c.address}:another"
        events.wait("registered", lambda data: data["client"] == another)
        self.assertEqual(self.rest.call("DELETE", f"/api/v1/clients/{another}", token=True).json, {"locks_released": 1})
        self.assertIn("operator", events.wait("crash", lambda data: data["client"] == another)["data"]["reason"])
        self.assertEqual(events.wait("cleanup", lambda data: data["client"] == another)["data"]["locks"], 1)

    def test_notify(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        events = Events(self.rest)
        self.addCleanup(events.close)
        self.rest.call("POST", f"/api/v1/notify?client={self.id_of(self.a)}", token=True)
        told = events.wait("notify", lambda data: data["client"] == self.id_of(self.a))["data"]
        self.assertEqual(told["result"], "success")

    def test_going_on_where_one_left_off(self):
        first = Events(self.rest)
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        last = first.wait("lock", lambda data: data["handle"] == self.fh.hex())
        self.a.unlock(lock)
        first.wait("unlock", lambda data: data["handle"] == self.fh.hex())
        first.close()
        second = Events(self.rest, headers={"Last-Event-ID": last["id"]})
        self.addCleanup(second.close)
        second.wait("unlock", lambda data: data["handle"] == self.fh.hex())
        third = Events(self.rest, f"/api/v1/events?since={last['id']}")
        self.addCleanup(third.close)
        third.wait("lock", lambda data: data["handle"] == self.fh.hex())
        self.assertEqual(self.rest.get("/api/v1/events?since=x").status, 400)

    def test_who_does_not_read_delays_nobody_and_hears_what_he_lost(self):
        lazy = self.rest.raw(room=4096)
        self.addCleanup(lazy.close)
        lazy.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        lazy.recv(16)
        lock = self.lock_of(self.a, svid=3, oh=os.urandom(1000))
        times = []
        for _ in range(2500):
            began = time.monotonic()
            self.assert_granted(self.a, lock)
            self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
            times.append(time.monotonic() - began)
        times.sort()
        self.assertLess(times[len(times) * 99 // 100], 0.25)
        data = b""
        while b"event: lost" not in data:
            more = lazy.recv(1 << 16)
            self.assertTrue(more, "hung up on before he heard of it")
            data = data[-100:] + more
        self.assertGreater(self.rest.metrics()["holdfast_events_lost_total"], 0)

    def test_not_more_readers_than_there_is_room_for(self):
        readers = []
        self.addCleanup(lambda: [reader.close() for reader in readers])
        for _ in range(64):
            readers.append(Events(self.rest))
        self.assertEqual(self.rest.get("/api/v1/events").code, "too_many_readers")
        self.assertEqual(self.rest.get("/healthz").status, 200)
        while readers:
            readers.pop().close()
        Events(self.rest).close()  # those who hung up are forgotten


class Counted(ApiPlay):
    def change(self, act):
        before = self.rest.metrics()
        act()
        after = self.rest.metrics()
        return {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)
                and "_bucket" not in key and "_seconds_sum" not in key}  # fmt: skip

    def test_a_lock_moves_what_it_should(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(8)))  # known and registered
        change = self.change(lambda: self.assert_granted(self.a, lock))
        change.pop("holdfast_lock_table_bytes", None)
        change = {key: value for key, value in change.items() if "holdfast_store_commit" not in key}
        self.assertEqual(
            change,
            {'nlm_requests_total{procedure="LOCK",result="GRANTED"}': 1,
             'nlm_request_duration_seconds_count{procedure="LOCK"}': 1,
             'nlm_locks_held{share="0"}': 1},
        )  # fmt: skip
        change = self.change(lambda: self.assert_denied(self.b, self.lock_of(self.b)))
        self.assertEqual(change['nlm_requests_total{procedure="LOCK",result="DENIED"}'], 1)
        change = self.change(lambda: self.assert_blocked(self.b, self.lock_of(self.b)))
        self.assertEqual(change["nlm_waiters"], 1)
        self.assertEqual(change['nlm_requests_total{procedure="LOCK",result="BLOCKED"}'], 1)
        self.assertEqual(change["nsm_clients_registered"], 1)

        def hand_over():
            self.a.unlock(lock)
            self.b.wait_granted(lock)
            end = time.monotonic() + 5
            while self.rest.metrics()['nlm_grants_total{result="told"}'] == told and time.monotonic() < end:
                time.sleep(0.01)

        told = self.rest.metrics()['nlm_grants_total{result="told"}']
        change = self.change(hand_over)
        self.assertEqual(change['nlm_grants_total{result="told"}'], 1)
        self.assertEqual(change["nlm_waiters"], -1)
        self.assertNotIn('nlm_locks_held{share="0"}', change, "one goes, one comes")

    def test_a_crash_and_a_notice(self):
        self.assert_granted(self.c, self.lock_of(self.c))
        client = self.id_of(self.c)
        locks = self.rest.get(f"/api/v1/clients/{client}").json["lock_count"]

        def notify():
            self.c.notices.items.clear()
            self.rest.call("POST", f"/api/v1/notify?client={client}", token=True)
            self.c.notices.wait()
            self.rest.wait("/api/v1/status", lambda s: s["notifications"]["in_flight"] == 0)

        change = self.change(notify)
        self.assertEqual(change['nsm_notifications_total{result="started"}'], 1)
        self.assertEqual(change['nsm_notifications_total{result="success"}'], 1)
        self.assertEqual(change["nsm_notification_duration_seconds_count"], 1)
        change = self.change(lambda: self.rest.call("DELETE", f"/api/v1/clients/{client}", token=True))
        self.assertEqual(change["nsm_crashes_detected_total"], 1)
        self.assertEqual(change["nsm_crash_cleanups_total"], 1)
        self.assertEqual(change["nsm_locks_cleaned_on_crash_total"], locks)

    def test_connections(self):
        self.assertGreaterEqual(self.rest.metrics()['holdfast_connections{transport="tcp"}'], 0)

    def test_every_metric_of_the_contract_is_there(self):
        text = self.rest.get("/metrics").body.decode()
        for name in ("nsm_requests_total nsm_request_duration_seconds nsm_clients_registered nsm_notifications_total "
                     "nsm_notification_duration_seconds nsm_crashes_detected_total nsm_crash_cleanups_total "
                     "nsm_locks_cleaned_on_crash_total nlm_requests_total nlm_request_duration_seconds nlm_locks_held "
                     "nlm_waiters nlm_grants_total nfs_requests_total nfs_request_duration_seconds nfs_bytes_total "
                     "holdfast_grace_active holdfast_store_commit_seconds holdfast_connections").split():  # fmt: skip
            self.assertIn(f"# TYPE {name} ", text)
            self.assertIn(f"# HELP {name} ", text)

    def test_promtool_takes_it(self):
        promtool = shutil.which("promtool")
        if not promtool:
            self.skipTest("no promtool (Debian package prometheus)")
        self.assert_granted(self.a, self.lock_of(self.a))
        text = self.rest.get("/metrics").body
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout)


class Uncounted(ApiPlay):
    settings = ("api.listen=127.0.0.1:0", "metrics.enabled=false")
    n_hosts = 1

    def test_nothing_is_counted(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        answer = self.rest.get("/metrics")
        self.assertEqual((answer.status, answer.code), (404, "not_found"))


if __name__ == "__main__":
    main()
