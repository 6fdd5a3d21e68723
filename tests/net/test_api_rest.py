#!/usr/bin/env python3
"""REST as the contract has it: fields, pages, errors, who may, and what an operator may order."""

import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "files"))

# pylint: disable=wrong-import-position
import nfs
import nlm
from commandline import CliPlay
from play import Play, main
from rest import Rest

CLIENT_FIELDS = {
    "id", "protocol", "mon_name", "address", "callback", "sm_state", "status", "locks", "waiters",
    "reservations", "registered_at", "last_seen", "silent_seconds", "transport", "identity",
    "tls_connection", "authenticated_as", "refused_calls",
}  # fmt: skip
LOCK_FIELDS = {"share", "file", "handle", "client", "owner", "offset", "length", "mode", "state"}
WAITER_FIELDS = {"share", "file", "client", "owner", "offset", "length", "mode", "waiting_seconds", "blocked_by"}


def quote(text):
    return urllib.parse.quote(text, safe="")


class RestPlay(Play):
    settings = ("api.listen=127.0.0.1:0",)

    def owner_of(self, lock):
        return f"nlm:{lock.name}:{lock.svid}:{lock.owner.hex()}"


class Shows(RestPlay):
    def test_health(self):
        for path in ("/healthz", "/readyz"):
            answer = self.rest.get(path)
            self.assertEqual((answer.status, answer.json), (200, {"status": "ok"}))

    def test_status(self):
        status = self.rest.get("/api/v1/status").json
        self.assertLessEqual(
            {"name", "version", "uptime_seconds", "epoch", "sm_state", "store", "grace", "clients", "locks", "waiters"},
            set(status),
        )
        self.assertEqual(status["name"], "server")
        self.assertEqual((status["store"]["backend"], status["store"]["lock_durability"]), ("memory", "process"))
        self.assertEqual(set(status["grace"]), {"active", "ends_in_seconds", "reason", "unreclaimed"})
        self.assertFalse(status["grace"]["active"])
        self.assertEqual(status["sm_state"] % 2, 1)

    def test_seconds_are_thousandths(self):
        """And not 1.0329999999999999: people read them, too."""
        for _ in range(50):  # half of all numbers look well in any case
            body = self.rest.get("/api/v1/status").body.decode()
            self.assertRegex(body, r'"uptime_seconds":\d+\.\d{1,3},')

    def test_a_lock_is_shown(self):
        before = self.rest.get("/api/v1/status").json
        lock = self.lock_of(self.a, 100, 17, svid=7, oh=b"\xff\0 oh")
        self.assert_granted(self.a, lock)
        after = self.rest.get("/api/v1/status").json
        self.assertEqual(after["locks"], before["locks"] + 1)
        shown = [l for l in self.rest.get(f"/api/v1/locks?client={quote(self.id_of(self.a))}").json["locks"]
                 if l["handle"] == self.fh.hex()]
        self.assertEqual(len(shown), 1)
        self.assertEqual(set(shown[0]), LOCK_FIELDS)
        self.assertEqual(
            {k: shown[0][k] for k in ("client", "owner", "offset", "length", "mode", "state", "file")},
            {"client": self.id_of(self.a), "owner": self.owner_of(lock), "offset": 100, "length": 17,
             "mode": "exclusive", "state": "held", "file": None},
        )  # fmt: skip
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assertEqual(self.rest.get("/api/v1/status").json["locks"], before["locks"])

    def test_to_the_end_is_length_0_and_readers_share(self):
        self.assert_granted(self.a, self.lock_of(self.a, 5, 0, exclusive=False))
        shown = [l for l in self.rest.get("/api/v1/locks?limit=1000").json["locks"] if l["handle"] == self.fh.hex()]
        self.assertEqual([(l["offset"], l["length"], l["mode"]) for l in shown], [(5, 0, "shared")])

    def test_a_client_is_shown(self):
        self.assert_granted(self.b, self.lock_of(self.b))
        client = next(c for c in self.rest.get("/api/v1/clients?protocol=nlm").json["clients"]
                      if c["id"] == self.id_of(self.b))  # fmt: skip
        self.assertEqual(set(client), CLIENT_FIELDS)
        self.assertEqual((client["address"], client["status"], client["callback"]), (self.b.address, "active", None))
        self.assertGreaterEqual(client["locks"], 1)
        self.assertRegex(client["registered_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        one = self.rest.get(f"/api/v1/clients/{quote(self.id_of(self.b))}").json
        self.assertIn(self.fh.hex(), [lock["handle"] for lock in one["locks"]])
        self.assertEqual(self.rest.get("/api/v1/clients?status=crashed").json["clients"], [])

    def test_a_waiter_is_shown_with_who_blocks_it(self):
        held = self.lock_of(self.a)
        self.assert_granted(self.a, held)
        wanted = self.lock_of(self.b, 10, 5, svid=9)
        self.assert_blocked(self.b, wanted)
        waiter = next(w for w in self.rest.get("/api/v1/waiters").json["waiters"] if w["handle"] == self.fh.hex())
        self.assertLessEqual(WAITER_FIELDS, set(waiter))
        self.assertEqual(waiter["owner"], self.owner_of(wanted))
        self.assertEqual(waiter["blocked_by"], [self.owner_of(held)])
        self.assertEqual(waiter["blocked_by_clients"], [self.id_of(self.a)])
        self.assertGreaterEqual(waiter["waiting_seconds"], 0)
        # Asking again is not a new wait.
        self.rest.wait("/api/v1/waiters", lambda all: any(
            w["handle"] == self.fh.hex() and w["waiting_seconds"] >= 0.05 for w in all["waiters"]))  # fmt: skip
        self.assert_blocked(self.b, wanted)
        again = [w for w in self.rest.get("/api/v1/waiters").json["waiters"] if w["handle"] == self.fh.hex()]
        self.assertEqual(len(again), 1)
        self.assertGreaterEqual(again[0]["waiting_seconds"], 0.05)
        self.a.unlock(held)
        self.rest.wait("/api/v1/waiters", lambda all: self.fh.hex() not in [w["handle"] for w in all["waiters"]])

    def waits_behind(self, readers, wanted):
        """(owner, client) of those in the way of @wanted, as they are shown."""
        for host, lock in readers:
            self.assert_granted(host, lock)
        self.assert_blocked(self.c, wanted)
        waiter = next(w for w in self.rest.get("/api/v1/waiters").json["waiters"] if w["handle"] == self.fh.hex())
        for host, lock in readers:
            host.unlock(lock)
        return sorted(zip(waiter["blocked_by"], waiter["blocked_by_clients"]))

    def test_all_readers_in_the_way_are_shown(self):
        readers = [(self.a, self.lock_of(self.a, 0, 10, exclusive=False)),
                   (self.a, self.lock_of(self.a, 5, 20, exclusive=False, svid=77)),
                   (self.b, self.lock_of(self.b, exclusive=False)),
                   (self.b, self.lock_of(self.b, 100, 1, exclusive=False, svid=78))]  # fmt: skip
        shown = self.waits_behind(readers, self.lock_of(self.c, 2, 10))
        self.assertEqual(shown, sorted((self.owner_of(lock), self.id_of(host)) for host, lock in readers[:3]))

    def test_of_very_many_readers_some_are_shown(self):
        readers = [(self.b, self.lock_of(self.b, exclusive=False, svid=1000 + i)) for i in range(100)]
        shown = self.waits_behind(readers, self.lock_of(self.c))
        self.assertEqual((len(shown), len(set(shown))), (8, 8))

    def test_shares_count(self):
        before = self.rest.get("/api/v1/shares").json["shares"]
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_blocked(self.b, self.lock_of(self.b))
        after = self.rest.get("/api/v1/shares").json["shares"]
        self.assertLessEqual({"name", "path", "clients", "locks", "waiters"}, set(after[0]))
        count = lambda shares, key: sum(share[key] for share in shares)
        self.assertEqual(count(after, "locks"), count(before, "locks") + 1)
        self.assertEqual(count(after, "waiters"), count(before, "waiters") + 1)
        self.assertGreaterEqual(count(after, "clients"), 1)
        self.a.unlock(lock)

    def test_pages_are_stable_under_change(self):
        locks = [self.lock_of(self.c, 10 * i, 5, svid=i + 1) for i in range(25)]
        for lock in locks:
            self.assert_granted(self.c, lock)
        seen, cursor, pages = [], "", 0
        scope = f"/api/v1/locks?client={quote(self.id_of(self.c))}&limit=4"
        while cursor is not None:
            page = self.rest.get(scope + (f"&cursor={quote(cursor)}" if cursor else "")).json
            self.assertLessEqual(len(page["locks"]), 4)
            seen += [l["owner"] for l in page["locks"] if l["handle"] == self.fh.hex()]
            cursor = page["next"]
            pages += 1
            if pages == 2:  # what was seen goes, and something new comes
                self.c.unlock(locks[0])
                self.assert_granted(self.c, self.lock_of(self.c, 5000, 5, svid=1))
        self.assertGreater(pages, 6)
        for lock in locks[1:]:
            self.assertEqual(seen.count(self.owner_of(lock)), 1, "exactly once")


class LongNames(CliPlay, RestPlay):
    n_hosts = 2
    LONGEST = 1024  # of a name and of an owner handle

    def longest(self, host, i, **more):
        return self.lock_of(host, name=host.name[0] * self.LONGEST, oh=b"%04d" % i * (self.LONGEST // 4), svid=i, **more)

    def pages_of(self, name):
        pages, cursor = [], ""
        while cursor is not None:
            answer = self.rest.get(f"/api/v1/{name}?limit=1000" + (f"&cursor={quote(cursor)}" if cursor else ""))
            self.assertEqual(answer.status, 200, answer.json)
            pages.append(answer.json[name])
            cursor = answer.json["next"]
        return pages

    def test_long_rows_make_short_pages(self):
        """A client chooses the names, and so the length of a row. The list of waiters is there all the same, and complete."""
        readers = [self.longest(self.a, i, exclusive=False) for i in range(1, 9)]
        waiters = [self.longest(self.b, i, block=True) for i in range(1, 701)]
        for lock in readers:
            self.assert_granted(self.a, lock)
        for at in range(0, len(waiters), 50):
            answers = self.b.ask_together([(nlm.LOCK, lock) for lock in waiters[at : at + 50]])
            self.assertEqual(set(answers), {nlm.S_BLOCKED})
        pages = self.pages_of("waiters")
        self.assertGreater(len(pages), 1)
        self.assertTrue(all(pages), "no page is empty")
        shown = [waiter["owner"] for page in pages for waiter in page]
        self.assertEqual(sorted(shown), sorted(map(self.owner_of, waiters)))
        in_the_way = sorted(map(self.owner_of, readers))
        for page in pages:
            for waiter in page:
                self.assertEqual(sorted(waiter["blocked_by"]), in_the_way)
        listed = json.loads(self.run_cli("--json", "waiters").stdout)
        self.assertEqual(sorted(waiter["owner"] for waiter in listed), sorted(shown))


class Refuses(RestPlay):
    n_hosts = 1

    def assert_refused(self, answer, status, code):
        self.assertEqual((answer.status, answer.code), (status, code))
        self.assertEqual(answer.headers["Content-Type"], "application/json")

    def test_what_is_not_there(self):
        for target in ("/nowhere", "/api/v1", "/api/v1/clients/nlm:10.0.0.1:unknown", "/api/v2/status", "/api/v1/locks/x"):
            self.assert_refused(self.rest.get(target), 404, "not_found")

    def test_wrong_methods(self):
        for method, target, allowed in (
            ("POST", "/api/v1/status", "GET, HEAD"),
            ("DELETE", "/api/v1/clients", "GET, HEAD"),
            ("POST", "/api/v1/clients/x", "GET, HEAD, DELETE"),
            ("GET", "/api/v1/notify", "POST"),
            ("PUT", "/", "GET, HEAD"),
            ("OPTIONS", "/api/v1/locks", "GET, HEAD, DELETE"),
        ):
            answer = self.rest.call(method, target, token=True)
            self.assert_refused(answer, 405, "method_not_allowed")
            self.assertEqual(answer.headers["Allow"], allowed)

    def test_bad_queries(self):
        for query in ("limit=0", "limit=-1", "limit=x", "limit=", "limit=1&limit=2", "cursor=zz", "cursor=1.2",
                      "cursor=" + "f" * 200, "unknown=1", "client=%zz", "client=%00", "client=%ff", "share=%"):  # fmt: skip
            self.assert_refused(self.rest.get(f"/api/v1/locks?{query}"), 400, "bad_request")
        self.assert_refused(self.rest.get("/api/v1/clients?status=happy"), 400, "bad_request")
        for target in ("/api//v1/status", "/api/v1/clients/%00", "/a/b/c/d/e/f/g/h/i/j"):
            self.assert_refused(self.rest.get(target), 400, "bad_request")

    def test_forged_cursors_do_no_harm(self):
        for cursor in ("ffffffffffffffff." * 5 + "1", "0.0.0.0.0.0", "1.ffffffffffffffff.0.0.ff.1"):
            for kind in ("locks", "waiters", "clients", "shares"):
                self.assertEqual(self.rest.get(f"/api/v1/{kind}?cursor={cursor}").status, 200)

    def test_a_large_limit_is_the_largest(self):
        self.assertEqual(self.rest.get("/api/v1/locks?limit=99999999999999999999").status, 200)

    def test_long_things(self):
        self.assertIn(self.rest.get("/" + "x" * 9000).status, (400, 414, 431))
        self.assertIn(self.rest.get("/healthz", headers={"X-Long": "x" * 40000}).status, (413, 431))
        self.assert_refused(self.rest.call("POST", "/api/v1/notify", token=True, body=b"x" * 5000), 413, "too_large")

    def test_changes_need_the_token(self):
        changes = (("DELETE", "/api/v1/clients/nlm:10.0.0.1:x"), ("POST", "/api/v1/grace/end"), ("POST", "/api/v1/notify"))
        token = self.rest.token
        for method, target in changes:
            self.assert_refused(self.rest.call(method, target), 401, "no_token")
            for wrong in (token[:-1], token + "0", token[:-1] + ("1" if token[-1] == "0" else "0"), "", token.swapcase() + "x", "x" * 64):
                answer = self.rest.call(method, target, headers={"Authorization": f"Bearer {wrong}"})
                self.assert_refused(answer, 401, "wrong_token")
            self.assert_refused(self.rest.call(method, target, headers={"Authorization": f"Basic {token}"}), 401, "no_token")
        self.assertIn("refused an API call that changes something", self.daemon.log)

    def test_the_token_is_ours_alone(self):
        path = os.path.join(self.daemon.state_dir, "state", "api.token")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertRegex(self.rest.token, r"^[0-9a-f]{64}$")

    def test_foreign_hosts_and_pages(self):
        for host in ("evil.example", "10.98.0.1", "127.0.0.1.evil.example", "localhost.evil.example:80", ""):
            self.assert_refused(self.rest.get("/api/v1/status", headers={"Host": host}), 421, "wrong_host")
        for host in ("localhost", f"127.0.0.1:{self.rest.port}", "[::1]:80", "LOCALHOST:1"):
            self.assertEqual(self.rest.get("/api/v1/status", headers={"Host": host}).status, 200)
        here = f"127.0.0.1:{self.rest.port}"
        for origin in ("http://evil.example", "null", f"https://{here}", f"http://{here}.evil.example", "http://localhost"):
            self.assert_refused(self.rest.get("/api/v1/status", headers={"Origin": origin}), 403, "wrong_origin")
        self.assertEqual(self.rest.get("/api/v1/status", headers={"Origin": f"http://{here}"}).status, 200)
        for site in ("cross-site", "same-site"):
            answer = self.rest.get("/api/v1/status", headers={"Sec-Fetch-Site": site})
            self.assert_refused(answer, 403, "wrong_origin")
            self.assertEqual(self.rest.get("/", headers={"Sec-Fetch-Site": site}).status, 200, "a link to the page")

    def test_headers_keep_browsers_out(self):
        for target in ("/", "/api/v1/status", "/metrics", "/nowhere"):
            headers = self.rest.get(target).headers
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Cache-Control"], "no-store")
            self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_a_header_sent_twice(self):
        for header in (b"Host: localhost", b"Authorization: Bearer x"):
            with self.subTest(header=header), self.rest.raw() as s:
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n" + header + b"\r\n\r\n")
                self.assertRegex(s.recv(4096), rb"(?s)^HTTP/1.1 400 .*is sent twice")

    def test_head_is_a_get_without_a_body(self):
        answer = self.rest.call("HEAD", "/api/v1/status")
        self.assertEqual((answer.status, answer.body), (200, b""))


class HoldsOn(RestPlay):
    """Connections that bring nothing have 15 seconds: those of all kinds have them together here."""

    n_hosts = 1
    NONSENSE = (b"\0" * 100, b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50)
    N_CROWD, N_PLACES = 300, 192

    def connect(self):
        s = self.rest.raw()
        self.addCleanup(s.close)
        return s

    def talk_nonsense(self, text):
        s = self.connect()
        s.sendall(text)
        s.shutdown(socket.SHUT_WR)  # the library may miss that; then the connection's time ends
        return s

    @staticmethod
    def n_connections(s):
        """As the server tells the one at the other end of @s."""
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = http.client.HTTPResponse(s)
        response.begin()
        return int(re.search(rb'holdfast_connections\{transport="http"\} (\d+)', response.read())[1])

    def crowd(self):
        """More connections than there is room for: the server closes the oldest, and locks are not delayed. Returns some
        that stay."""
        crowd = [self.connect() for _ in range(self.N_CROWD)]
        self.until(lambda: self.n_connections(crowd[-1]), "there is room", passes=lambda n: n <= self.N_PLACES)
        self.assert_granted(self.a, self.lock_of(self.a))
        return crowd[-3:]

    def heard(self, s):
        """What came until the end; None: it goes on."""
        try:
            got = s.recv(4096)
        except ConnectionError:
            got = b""
        self.texts[s] = self.texts.get(s, b"") + got
        return None if got else self.texts[s]

    def test_who_only_holds_on_is_hung_up_on(self):
        self.texts = {}
        drips = self.connect()
        drips.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        open_ = {drips: "who drips", **{self.talk_nonsense(text): f"{text[:8]}" for text in self.NONSENSE}}
        open_ |= {s: "one of many" for s in self.crowd()}
        end = time.monotonic() + 120
        while open_ and time.monotonic() < end:
            for s in select.select(list(open_), [], [], 0.5)[0]:
                if self.heard(s) is not None:
                    del open_[s]
            if drips in open_:  # a byte now and then does not hold a connection for ever
                with contextlib.suppress(OSError):
                    drips.sendall(b"x")
        self.assertEqual(list(open_.values()), [], "still open")
        self.rest.wait("/healthz", lambda answer: answer == {"status": "ok"})


class Refused(RestPlay):
    settings = (*RestPlay.settings, "recovery.max_clients=1")

    def test_a_host_that_was_refused_is_no_client(self):
        """The host is not registered and holds nothing: the server would not learn when it is gone."""
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        for offset, answer in ((100, nlm.S_NOLOCKS), (5, nlm.S_DENIED)):
            self.assertEqual(self.b.lock(self.lock_of(self.b, offset, 5)), answer)
            listed = self.rest.get("/api/v1/clients").json["clients"]
            self.assertEqual([client["id"] for client in listed], [self.id_of(self.a)])
            self.assertEqual(self.b.lock(self.lock_of(self.b, offset, 5)), answer)
            self.assertEqual(self.rest.get("/api/v1/status").json["clients"], 1)
            self.assertEqual(self.b.lock(self.lock_of(self.b, offset, 5)), answer)
            self.assertEqual(self.rest.get(f"/api/v1/clients/{quote(self.id_of(self.b))}").status, 404)

    def test_who_has_something_is_a_client(self):
        lock = self.lock_of(self.b, 200, 5)
        self.assertEqual(self.b.ask(nlm.NM_LOCK, lock).stat, nlm.S_GRANTED)
        listed = {client["id"]: client for client in self.rest.get("/api/v1/clients").json["clients"]}
        self.assertEqual((listed[self.id_of(self.b)]["registered_at"], listed[self.id_of(self.b)]["locks"]), (None, 1))
        self.assertEqual(self.b.unlock(lock), nlm.S_GRANTED)


class Orders(RestPlay):
    def test_release(self):
        held = self.lock_of(self.a)
        self.assert_granted(self.a, held)
        self.assert_blocked(self.b, self.lock_of(self.b))
        answer = self.rest.call("DELETE", f"/api/v1/clients/{quote(self.id_of(self.a))}", token=True)
        self.assertEqual(answer.status, 200)
        self.assertGreaterEqual(answer.json["locks_released"], 1)
        self.b.wait_granted(held)
        self.assertEqual(self.rest.get(f"/api/v1/locks?client={quote(self.id_of(self.a))}").json["locks"], [])
        self.assertRegex(self.daemon.log, r"an operator declares a client crashed.*peer=127\.0\.0\.1:\d+ client=nlm:10")

    def test_release_of_an_unknown_client(self):
        answer = self.rest.call("DELETE", "/api/v1/clients/nlm:10.0.0.1:unknown", token=True)
        self.assertEqual((answer.status, answer.code), (404, "not_found"))

    def test_no_grace_to_end(self):
        answer = self.rest.call("POST", "/api/v1/grace/end", token=True)
        self.assertEqual((answer.status, answer.code), (409, "not_in_grace"))
        self.assertRegex(self.daemon.log, r"an operator ends grace peer=\S+ answer=nothing to do\n")

    def test_notify(self):
        self.assert_granted(self.c, self.lock_of(self.c))
        answer = self.rest.call("POST", f"/api/v1/notify?client={quote(self.id_of(self.c))}", token=True)
        self.assertEqual(answer.status, 202)
        self.c.notices.wait()
        answer = self.rest.call("POST", "/api/v1/notify?client=nlm:10.0.0.1:unknown", token=True)
        self.assertEqual((answer.status, answer.code), (404, "not_found"))
        self.assertEqual(self.rest.call("POST", "/api/v1/notify", token=True).status, 202)
        self.assertEqual(len(re.findall("has SM_NOTIFY sent again", self.daemon.log)), 2)


class Grace(RestPlay):
    settings = ("api.listen=127.0.0.1:0", "recovery.grace=always", "recovery.early_end=false")
    n_hosts = 1

    def test_grace_is_shown_and_ended(self):
        grace = self.rest.get("/api/v1/grace").json
        self.assertTrue(grace["active"])
        self.assertTrue(0 < grace["ends_in_seconds"] <= 90)
        self.assertEqual(self.rest.get("/api/v1/status").json["grace"]["active"], True)
        answer = self.rest.call("POST", "/api/v1/grace/end", token=True)
        self.assertEqual((answer.status, answer.json["active"]), (200, False))
        self.assertIn("an operator ends grace", self.daemon.log)


class Beyond(RestPlay):
    """Not on loopback: everything needs the token, but for the page, which shows nothing without it, and for probes."""

    settings = ("api.listen=10.98.0.1:0",)
    n_hosts = 1

    def test_everything_needs_the_token(self):
        rest = Rest(self.daemon, "10.98.0.1", self.hosts[0].namespace)
        for target in ("/metrics", "/api/v1/status", "/api/v1/events", "/api/v1/openapi.json", "/x"):
            self.assertEqual(rest.get(target).status, 401, target)
        for target in ("/", "/healthz", "/readyz"):
            self.assertEqual(rest.get(target).status, 200, target)
        self.assertEqual(rest.get("/api/v1/status", token=True).status, 200)


class Exporting(RestPlay):
    """With a directory to share, and a client of files."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hf-export-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.mkdir(f"{cls.folder}/data")
        os.chmod(f"{cls.folder}/data", 0o777)
        cls.flags = cls.share()
        super().setUpClass()
        with open(cls.daemon.ports_file, encoding="utf-8") as ports, cls.daemon.namespace:
            cls.nfs = nfs.Client(json.load(ports)["rpc"])
        cls.addClassCleanup(cls.nfs.close)


class Files(Exporting):
    """Paths where they can be known, shares by their name, and NFS that is counted."""

    @classmethod
    def share(cls):
        return "--export", f"{cls.folder}/data:/data"

    def test_files_shares_and_bytes(self):
        root = self.nfs.root("/data")
        name = "a \u00e4 \"file\""
        made = self.nfs.create(root, name.encode(), mode=0o666)
        self.assertEqual(made.stat, 0)
        self.fh = made.fh
        before = self.rest.metrics()
        self.assertEqual(before['nlm_locks_held{share="/data"}'], 0)
        self.nfs.write(self.fh, b"x" * 1000)
        self.nfs.read(self.fh, 0, 400)
        after = self.rest.metrics()
        change = lambda key: after[key] - before.get(key, 0)
        self.assertEqual(change('nfs_bytes_total{direction="written"}'), 1000)
        self.assertEqual(change('nfs_bytes_total{direction="read"}'), 400)
        self.assertEqual(change('nfs_requests_total{procedure="WRITE",result="OK"}'), 1)
        self.assertEqual(change('nfs_request_duration_seconds_count{procedure="READ"}'), 1)
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        shown = self.rest.get("/api/v1/locks?share=/data").json["locks"]
        self.assertEqual([(l["share"], l["file"], l["handle"]) for l in shown],
                         [("/data", f"{self.folder}/data/{name}", self.fh.hex())])  # fmt: skip
        self.assertEqual(self.rest.get("/api/v1/locks?share=/other").json["locks"], [])
        share = self.rest.get("/api/v1/shares").json["shares"]
        self.assertEqual([(s["name"], s["path"], s["clients"], s["locks"], s["access"], s["allowed"]) for s in share],
                         [("/data", f"{self.folder}/data", 1, 1, "rw", ["private"])])  # fmt: skip
        self.assertEqual(self.rest.metrics()['nlm_locks_held{share="/data"}'], 1)
        self.nfs.remove(root, name.encode())
        self.assertIsNone(self.rest.get("/api/v1/locks").json["locks"][0]["file"], "it has no name any more")


class Renamed(Exporting):
    """An export gets another name: what was locked under the old one is still there, and still counted."""

    n_hosts = 2

    @classmethod
    def share(cls, *more):
        with open(f"{cls.folder}/holdfast.yaml", "w", encoding="utf-8") as config:
            config.write("\n  ".join([f"exports:\n- path: {cls.folder}/data", *more, ""]))
        return "--config", config.name

    def lock_a_file(self, host, share, name):
        made = self.nfs.create(self.nfs.root(share), name, mode=0o666)
        self.assert_granted(host, self.lock_of(host, fh=made.fh))

    def test_both_names_are_counted(self):
        before = f"{self.folder}/data"
        self.lock_a_file(self.a, before, b"before")
        self.assertEqual([s["sync"] for s in self.rest.get("/api/v1/shares").json["shares"]], [True])
        self.share("name: /data", "sync: false")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: "configuration loaded again" in self.daemon.log, "it has reloaded")
        self.lock_a_file(self.b, "/data", b"after")
        self.lock_a_file(self.b, "/data", b"after, too")
        shares = self.rest.get("/api/v1/shares").json["shares"]
        self.assertEqual([(s["name"], s["path"], s["clients"], s["locks"], s.get("sync")) for s in shares],
                         [("/data", before, 1, 2, False), (before, None, 1, 1, None)])  # fmt: skip
        for share, n in (("/data", 2), (before, 1)):
            self.assertEqual(len(self.rest.get(f"/api/v1/locks?share={quote(share)}").json["locks"]), n)
            self.assertEqual(self.rest.metrics()[f'nlm_locks_held{{share="{share}"}}'], n)


class Unix(RestPlay):
    path = f"/tmp/hf-api-test-{os.getpid()}.sock"
    settings = (f"api.listen=unix:{path}",)
    n_hosts = 1

    def test_over_a_socket(self):
        rest = Rest(self.daemon, path=self.path)
        self.assertEqual(rest.get("/healthz").json, {"status": "ok"})
        self.assertEqual(rest.call("POST", "/api/v1/notify").status, 401)
        self.assertEqual(rest.call("POST", "/api/v1/notify", token=True).status, 202)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o660)
        self.assertRegex(self.daemon.log, f"peer=unix,uid={os.getuid()},pid={os.getpid()} ")


if __name__ == "__main__":
    main()
