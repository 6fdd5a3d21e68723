#!/usr/bin/env python3
"""Events: each is sent when it happens and only then. A reader that does not read delays no lock."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from play import Play, main
from rest import Events


class ApiPlay(Play):
    settings = ("api.listen=127.0.0.1:0",)


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
        unlock = events.wait("unlock", ours)
        self.assertNotIn("mode", unlock["data"], "an UNLOCK ends locks of either")
        granted = events.wait("granted", ours)
        self.assertEqual((granted["data"]["client"], granted["data"]["mode"]), (self.id_of(self.b), "exclusive"))
        self.assertLess(int(unlock["id"]), int(granted["id"]), "one after the other, as they hold it")

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

    def time_pairs(self, lock, n):
        """What the median pair of LOCK and UNLOCK takes."""
        times = []
        for _ in range(n):
            began = time.monotonic()
            self.assert_granted(self.a, lock)
            self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
            times.append(time.monotonic() - began)
        return sorted(times)[n // 2]

    def test_a_slow_reader_delays_no_lock_and_hears_what_it_lost(self):
        lock = self.lock_of(self.a, svid=3, oh=os.urandom(1000))
        diligent = Events(self.rest)
        alone = self.time_pairs(lock, 250)
        diligent.close()
        lazy = self.rest.raw(room=4096)
        self.addCleanup(lazy.close)
        lazy.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        lazy.recv(16)
        self.assertLess(self.time_pairs(lock, 2500), 20 * alone + 0.02)
        data = b""
        while b"event: lost" not in data:
            more = lazy.recv(1 << 16)
            self.assertTrue(more, "the server hung up before the reader heard of it")
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
        Events(self.rest).close()  # readers that hung up are forgotten


if __name__ == "__main__":
    main()
