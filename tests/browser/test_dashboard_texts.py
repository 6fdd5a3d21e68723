#!/usr/bin/env python3
"""What the dashboard says, in real Chromium: owners, the time line, grace, the scale of the plots."""

import json
import unittest

import chromium
import test_dashboard_cluster as beside

LOCK = {"share": "/data", "file": "/srv/data/a", "handle": "00", "client": "nlm:10.0.0.1:one", "mode": "exclusive", "state": "held",
        "offset": 0, "length": 0}  # fmt: skip


class Texts(beside.PageOfApi):
    def tell(self, number, kind, **data):
        self.events.put(f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n")

    def lines(self):
        return self.page.evaluate(code="[...document.querySelectorAll('#events li')].map(n => n.lastChild.textContent)")

    def test_an_owner_is_shown_as_its_host_writes_it(self):
        hosts_word = {"1200@one": b"1200@one", "1200, vi": b"vi", "nlm:one:1200:00ff": b"\0\xff", "nlm:one:1200:": b""}
        locks = [{**LOCK, "offset": i, "owner": f"nlm:one:1200:{word.hex()}"} for i, word in enumerate(hosts_word.values())]
        self.api.answers[("GET", "/api/v1/locks")] = lambda: self.list("locks", locks)
        self.open()
        self.page.wait(selector="#locks td", text=LOCK["file"])
        shown = self.page.evaluate(code="[...document.querySelectorAll('#locks tbody td:last-child')].map(n => n.textContent)")
        self.assertEqual(sorted(shown), sorted(hosts_word))

    def test_an_owner_of_a_reservation_has_no_number(self):
        self.status["reservations"] = 1
        reservation = {**LOCK, "owner": "nlm:one:" + b"1200@one".hex(), "access": "read", "mode": "deny_write", "count": 1, "unreclaimed": 0}
        self.api.answers[("GET", "/api/v1/reservations")] = lambda: self.list("reservations", [reservation])
        self.open()
        self.page.wait(selector="#reservations td", text=LOCK["file"])
        self.assertEqual(self.page.text(selector="#reservations tbody td:last-child"), "1200@one")

    def test_ranges_are_exact(self):
        ranges = ((5, 7), (0, 2**63 - 1), (2**53 + 1, 0), (2**53, 2**53 + 1), (2**63 - 1, 1))
        owner = 'nlm:one:12:"offset": 99999999999999999'
        locks = [{**LOCK, "offset": offset, "length": length, "owner": owner} for offset, length in ranges]
        self.api.answers[("GET", "/api/v1/locks")] = lambda: self.list("locks", locks)
        self.open()
        self.page.wait(selector="#locks td", text=LOCK["file"])
        sort = "document.querySelector('#locks [data-key=offset]').click()"
        shown = "[...document.querySelectorAll('#locks tbody td:nth-child(4)')].map(n => n.textContent)"
        self.page.evaluate(code=sort)
        expected = [f"0 + {2**63 - 1}", "5 + 7", f"{2**53} + {2**53 + 1}", f"{2**53 + 1} to end", f"{2**63 - 1} + 1"]
        self.assertEqual(self.page.evaluate(code=shown), expected)
        self.page.click(selector=f'#locks button[aria-label*="{2**53 + 1} to end"]')
        self.page.click(selector="#ask-yes")
        self.page.wait(selector="#banner", text="Nothing was released")
        order = next(path for method, path in self.api.calls if method == "DELETE")
        self.assertIn(f"&offset={2**53 + 1}&length=0&", order)

    def test_silence_is_measured_by_the_server(self):
        """The clocks of the two machines may differ."""
        silent = {"one": (1.0, r"\d+(\.\d)? s"), "two": (7300.0, "2 h"), "three": (90000.0, "1 d"), "never seen": (180000.0, "2 d")}
        clients = [{**beside.CLIENT, "id": name, "locks": 1, "silent_seconds": seconds,
                    "last_seen": None if name == "never seen" else "2001-01-01T00:00:00.000Z"}
                   for name, (seconds, _) in silent.items()]  # fmt: skip
        self.api.answers[("GET", "/api/v1/clients")] = lambda: self.list("clients", clients)
        self.open()
        self.page.wait(selector="#clients td", text="never seen")
        rows = "[...document.querySelectorAll('#clients tbody tr')].map(r => [...r.cells].map(c => [c.textContent, c.className]))"
        shown = {cells[0][0]: cells[-1] for cells in self.page.evaluate(code=rows)}
        self.assertEqual(set(shown), set(silent))
        for name, (_, text) in silent.items():
            with self.subTest(name=name):
                self.assertRegex(shown[name][0], f"^{text}$")
                self.assertEqual("warn" in shown[name][1], silent[name][0] > 86400)

    def test_the_token_is_asked_for_only_where_it_is_missing(self):
        self.api.answers[("GET", "/api/v1/waiters")] = (500, {"error": {"code": "internal", "message": "Broken."}})
        self.open()
        self.page.wait(selector="#banner:not([hidden])", text="Broken.")
        self.assertEqual(self.page.evaluate(code="document.getElementById('token-form').getClientRects().length"), 0)

    def test_a_client_is_news_when_it_is_registered_first(self):
        self.open()
        one, two = "nlm:10.0.0.1:one", "nlm:10.0.0.2:two"
        kinds = ((one, "registered"), (one, "registered"), (one, "crash"), (one, "registered"), (one, "unregistered"), (one, "registered"),
                 (two, "registered"))  # fmt: skip
        for number, (client, kind) in enumerate(kinds, 1):
            self.tell(number, kind, client=client, time=number)
        self.page.wait(selector="#events li", text=f"{two} registered")
        self.assertEqual(self.lines(), [f"{two} registered", f"{one} registered", f"{one} unregistered", f"{one} crashed", f"{one} registered"])

    def test_what_is_still_to_be_reclaimed(self):
        self.status["grace"].update(active=True, ends_in_seconds=50, unreclaimed=2)
        self.open()
        self.page.wait(selector="#state-why", text="2 locks still to be reclaimed")
        reservation = {**LOCK, "owner": "nlm:one:00", "access": "read", "mode": "deny_write", "count": 0, "unreclaimed": 1}
        self.api.answers[("GET", "/api/v1/reservations")] = lambda: self.list("reservations", [reservation])
        self.status["reservations"] = 1
        self.page.wait(selector="#state-why", text="2 locks or reservations still to be reclaimed")
        self.status["grace"].update(unreclaimed=1)
        self.page.wait(selector="#state-why", text="1 lock or reservation still to be reclaimed")

    def test_a_long_limit_leaves_room_for_the_others(self):
        limit = {"name": "x", "what": "Memory for the locks, waiters and reservations of one address, each counted at its greatest cost",
                 "used": 10**9, "max": 2**31, "refused": 0, "by": "nlm:10.98.0.15:app2.example.org"}  # fmt: skip
        self.api.answers[("GET", "/api/v1/limits")] = (200, {"limits": [limit]})
        self.open()
        self.page.wait(selector="#limits td", text=limit["by"])
        wide = "document.getElementById('limits').parentElement"
        self.assertLessEqual(self.page.evaluate(code=f"{wide}.scrollWidth - {wide}.clientWidth"), 0, "no sideways scrolling")

    def test_a_plot_says_its_scale(self):
        calls = iter(range(0, 10**6, 100))
        self.api.answers[("GET", "/metrics")] = lambda: (200, f'nfs_requests_total{{procedure="READ"}} {next(calls)}\n')
        self.open()
        self.page.wait(selector="#rate-scale", text="2.0 s, at most ")
        self.page.wait(selector="#latency-scale", text="s, at most 0 µs")
        self.page.wait(selector="#rate-scale", text="4.0 s, at most ")
        self.assertRegex(self.page.text(selector="#rate-scale"), r"at most [1-9][0-9]*(\.[0-9])?$")


if __name__ == "__main__":
    chromium.check()
    unittest.main(verbosity=2)
