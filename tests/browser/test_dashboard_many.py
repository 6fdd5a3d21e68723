#!/usr/bin/env python3
"""The dashboard with many clients: it loads, filters, sorts and stays live, and costs little.

    test_dashboard_many.py PATH/holdfastd; CLIENTS=10000 for as many
"""

import os
import time

import chromium
import nlm
from chromium import PagePlay
from rpc import call_message
from until import lapse

CLIENTS = int(os.environ.get("CLIENTS", "2500"))
FILES = CLIENTS // 2  # each with two readers
SECONDS = 6


class Many(PagePlay):
    settings = (
        "api.listen=127.0.0.1:0",
        "log.level=warn",
        f"recovery.max_clients={CLIENTS + 100}",
        f"recovery.max_clients_per_address={CLIENTS + 100}",
    )
    n_hosts = 2

    def fill(self):
        """Many clients at one address; each has a name of its own, and a lock."""
        caller = self.a.caller("tcp")
        for first in range(0, CLIENTS, 100):
            for i in range(first, min(first + 100, CLIENTS)):
                lock = nlm.Lock(name=self.name_of(i), fh=b"f%08d" % (i % FILES), svid=i + 1, exclusive=False)
                caller.send(call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), xid=i + 1))
            for _ in range(first, min(first + 100, CLIENTS)):
                caller.receive()

    def name_of(self, i):
        return f"node-{i:05d}"

    def count(self, selector):
        return self.page.evaluate(code=f"document.querySelectorAll('{selector}').length")

    def first_cell(self):
        return self.page.evaluate(code="document.querySelector('#clients tbody td').textContent")

    def asked(self):
        """(how often the page asked for one client, how often for all of them) since it was last asked."""
        requests = self.page.requests()
        return sum(r.startswith("/api/v1/clients/") for r in requests), requests.count("/api/v1/clients?limit=1000")

    def cost_of(self, seconds, act):
        """The share of one core that the page takes while @act is done again and again."""
        before, began = self.page.cost(), time.monotonic()
        while time.monotonic() < began + seconds:
            act()
        after, took = self.page.cost(), time.monotonic() - began
        return round((after["TaskDuration"] - before["TaskDuration"]) / took, 3)

    def took(self, act):
        began = time.monotonic()
        act()
        return round(time.monotonic() - began, 3)

    def open_page(self):
        self.page.open(url=self.url())
        for name in ("clients", "locks"):
            self.page.wait(selector=f"#{name}-more", text=f"{CLIENTS:,}")

    def lock_and_unlock(self):
        lock = self.lock_of(self.b)
        self.assert_granted(self.b, lock)
        self.b.unlock(lock)
        lapse(0.02)  # its pace

    def test_many(self):
        page, report = self.page, {"clients": CLIENTS}
        self.fill()
        self.assertEqual(self.rest.get("/api/v1/status").json["locks"], CLIENTS)
        report["load"] = self.took(self.open_page)
        report["loading"] = round(page.cost()["TaskDuration"], 3)  # CPU seconds
        report["quiet"] = self.cost_of(SECONDS, lambda: lapse(0.1))  # of nothing, for so long

        # One client locks and unlocks all the time: the page asks for that client, and seldom for all clients
        self.asked()
        report["busy"] = self.cost_of(SECONDS, self.lock_and_unlock)
        self.assertLess(SECONDS * report["busy"], 8 * report["loading"], "what was loaded once is loaded again and again")
        one, all_clients = self.asked()
        while one < 8:
            self.lock_and_unlock()
            one, all_clients = (sum(pair) for pair in zip((one, all_clients), self.asked()))
        report["asked"] = one, all_clients
        self.assertLessEqual(2 * all_clients, one + 2)

        # What happens is on the page soon, whatever else is there
        self.assert_granted(self.b, self.lock_of(self.b))
        self.assert_blocked(self.a, self.lock_of(self.a))
        report["live"] = self.took(lambda: page.wait(selector="#waiters td", text=self.id_of(self.a)))
        page.wait(selector="#locks-more", text=f"{CLIENTS + 1:,}")
        page.wait(selector="#clients-more", text=f"{CLIENTS + 2:,}")  # which may come later than its waiter

        # Rows of one page alone, whatever there is; pages, filter and sort reach the rest
        self.assertEqual((self.count("#clients tbody tr"), self.count("#locks tbody tr")), (50, 50))
        report["nodes"] = page.cost()["Nodes"]
        self.assertLess(report["nodes"], 6000)
        page.click(selector="#clients th button[data-key=id]")
        self.assertIn(min(self.id_of(self.a), f"nlm:{self.a.address}:{self.name_of(0)}"), self.first_cell())
        seen = self.first_cell()
        page.click(selector="#clients-pages button >> text=Next")
        self.assertNotEqual(self.first_cell(), seen)
        self.assertIn("Rows 51 to 100 of", page.text(selector="#clients-pages"))
        page.click(selector="#clients-pages button >> text=Previous")
        self.assertEqual(self.first_cell(), seen)
        report["sort"] = self.took(lambda: page.click(selector="#clients th button[data-key=id]"))
        self.assertNotEqual(self.first_cell(), seen)
        wanted = self.name_of(CLIENTS - 7)

        def filter_for_one():
            page.fill(selector="#clients-filter", text=wanted.upper())
            page.wait(selector="#clients tbody tr:only-child td", text=wanted)

        report["filter"] = self.took(filter_for_one)
        self.assertIn("1 of", page.text(selector="#clients-more"))
        self.assertEqual(page.faults(), [])
        print(report, end=" ")


if __name__ == "__main__":
    chromium.main()
