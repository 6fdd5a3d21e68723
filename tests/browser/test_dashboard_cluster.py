#!/usr/bin/env python3
"""The dashboard of a node of a cluster in real Chromium, beside an API that answers as the test wants."""

import contextlib
import copy
import os
import queue
import re
import unittest

import chromium
from chromium import HERE, Page
from fakeapi import FakeApi

DASHBOARD = os.path.join(HERE, "..", "..", "src", "api", "dashboard")
ACCEPTED = (202, {"status": "accepted"})
STATUS = {"name": "nfs", "version": "1.0", "uptime_seconds": 5, "epoch": 7, "sm_state": 3, "role": "active",
          "store": {"backend": "postgres", "lock_durability": "process", "healthy": True},
          "grace": {"active": False, "ends_in_seconds": 0, "reason": "", "unreclaimed": 0}, "clients": 1, "locks": 0, "waiters": 0}  # fmt: skip
CLUSTER = {
    "service": "nfs", "node": "a", "role": "active", "reason": None, "epoch": 7,
    "lease": {"holder": "a", "renewed_seconds_ago": 0.25, "seconds": 3.0, "seconds_left": 2.75},
    "nodes": [{"name": "a", "role": "active", "reason": None, "version": "1.0", "last_seen": "2026-01-15T09:00:00.000Z"},
              {"name": "b", "role": "standby", "reason": None, "version": "1.1", "last_seen": "2026-01-15T08:59:59.000Z"}],
    "last_takeover": {"at": "2026-01-15T08:00:00.250Z", "from": "b", "to": "a", "reason": "the lease of b was over",
                      "result": "continued", "seconds": 3.912},
    "addresses": [], "fence": True, "automatic": True,
}  # fmt: skip
CLIENT = {"id": "nlm:10.0.0.1:one", "protocol": "nlm", "mon_name": "one", "address": "10.0.0.1", "callback": None, "sm_state": 1,
          "status": "active", "locks": 0, "waiters": 0, "registered_at": None, "last_seen": None, "silent_seconds": 0.0}  # fmt: skip


def read(name):
    with open(os.path.join(DASHBOARD, name), encoding="utf-8") as file:
        return file.read()


def page_text():
    """As the program has it: one file."""
    text = re.sub(r'<link rel="stylesheet" href="([^":]+)">', lambda m: f"<style>{read(m[1])}</style>", read("page.html"))
    return re.sub(r'<script src="([^":]+)"></script>', lambda m: f"<script>{read(m[1])}</script>", text)


class PageOfApi(unittest.TestCase):
    """A page beside an API that the test answers for."""

    def setUp(self):
        self.page = Page(contextlib.nullcontext())
        self.addCleanup(self.page.close)
        self.api = FakeApi()
        self.addCleanup(self.api.close)
        self.events = queue.Queue()
        self.addCleanup(self.events.put, None)
        self.status, self.cluster = copy.deepcopy(STATUS), copy.deepcopy(CLUSTER)
        self.api.answers.update({
            ("GET", "/"): (200, page_text()),
            ("GET", "/metrics"): (200, ""),
            ("GET", "/api/v1/status"): lambda: (200, self.status),
            ("GET", "/api/v1/cluster"): lambda: (200, self.cluster),
            ("GET", "/api/v1/limits"): (200, {"limits": []}),
            ("GET", "/api/v1/events"): lambda: (200, self.events),
        })  # fmt: skip
        for name, items in (("clients", [CLIENT]), ("locks", []), ("waiters", []), ("reservations", [])):
            self.api.answers[("GET", f"/api/v1/{name}")] = lambda name=name, items=items: self.list(name, items)

    def list(self, name, items):
        if self.status["sm_state"] is None:
            return 503, {"error": {"code": "standby", "message": "The node a is a standby; b is active."}}
        return 200, {name: items, "next": None}

    def open(self):
        self.page.open(url=f"http://{self.api.address}/#token=x")
        self.page.wait(selector="#live", text="live")


class Cluster(PageOfApi):
    def be_standby(self):
        self.cluster["role"] = "standby"
        self.cluster["lease"].update(holder="b", seconds_left=0)
        self.cluster["nodes"][0]["role"], self.cluster["nodes"][1]["role"] = "standby", "active"
        self.status.update(role="standby", sm_state=None, clients=0)
        self.status["store"].update(lock_durability=None, healthy=None)
        self.status["grace"]["reason"] = "this node is a standby; b is active"

    def orders(self):
        return [call for call in self.api.calls if call[0] == "POST"]

    def test_the_active_node(self):
        self.open()
        self.page.wait(selector="#cluster-role.good", text="nfs: this node, a, is active")
        self.page.wait(selector="#cluster-lease", text="a has the lease of 3 s, renewed 0.3 s ago.")
        self.page.wait(selector="#cluster-takeover", text="a took over from b")
        self.page.wait(selector="#cluster-takeover", text="in 3.9 s: the lease of b was over; all locks were held.")
        self.page.wait(selector="#nodes tr", text="a (this node)")
        self.page.wait(selector="#nodes tr", text="standby1.1")
        self.page.wait(selector="#clients td", text=CLIENT["id"])
        self.page.wait(selector="#state.good", text="serving")
        self.assertEqual(self.page.evaluate(code="document.getElementById('take').hidden"), True)
        self.assertEqual(self.page.faults(), [])
        if "SCREENSHOTS" in os.environ:
            self.page.shot(path=os.path.join(os.environ["SCREENSHOTS"], "dashboard-cluster.png"))

    def test_a_move_is_confirmed(self):
        self.api.answers[("POST", "/api/v1/cluster/move")] = ACCEPTED
        self.open()
        button = '#nodes button[aria-label="Move the service to b"]'
        self.page.wait(selector=button, text="Move here")
        self.page.click(selector=button)
        self.page.wait(selector="#ask[open] h2", text="Move the service to b?")
        self.assertIn("ask-no", self.page.focused(), "the safe answer is the first")
        self.page.press(key="Escape")
        self.page.gone(selector="#ask[open]", text="")
        self.assertIn("Move the service to b", self.page.focused())
        self.assertEqual(self.orders(), [])
        self.page.click(selector=button)
        self.page.click(selector="#ask-yes")
        self.page.wait(selector="#live", text="moving to b")
        self.assertEqual(self.orders(), [("POST", "/api/v1/cluster/move?to=b")])

    def test_a_refusal_is_shown(self):
        refusal = {"error": {"code": "refused", "message": "No standby is ready."}}
        self.api.answers[("POST", "/api/v1/cluster/move")] = (409, refusal)
        self.open()
        self.page.click(selector='#nodes button[aria-label="Move the service to b"]')
        self.page.click(selector="#ask-yes")
        self.page.wait(selector="#banner", text="The service stays where it is: No standby is ready.")

    def test_a_standby(self):
        self.be_standby()
        self.api.answers[("POST", "/api/v1/cluster/take")] = ACCEPTED
        self.open()
        self.page.wait(selector="#state.good", text="standby")
        self.page.wait(selector="#state-why", text="this node is a standby; b is active")
        for name in ("clients", "locks", "waiters"):
            self.page.wait(selector=f"#{name}-more", text="b has them")
            self.page.wait(selector=f"#n-{name}", text="–")
        self.page.gone(selector="#graph", text="No client waits")
        self.assertEqual(self.page.faults(), [])
        self.assertEqual(self.page.evaluate(code="document.getElementById('banner').hidden"), True)
        self.page.click(selector="#take")
        self.page.wait(selector="#ask[open] p", text="b hands the service over to a")
        self.page.click(selector="#ask-yes")
        self.page.wait(selector="#live", text="taking the service")
        self.assertEqual(self.orders(), [("POST", "/api/v1/cluster/take")])

    def test_the_role_changes(self):
        """The page follows, with what the node has then."""
        self.be_standby()
        self.open()
        self.page.wait(selector="#clients-more", text="b has them")
        self.status, self.cluster = copy.deepcopy(STATUS), copy.deepcopy(CLUSTER)
        self.events.put(None)  # the API of the standby ends
        self.page.wait(selector="#state", text="serving")
        self.page.wait(selector="#clients td", text=CLIENT["id"])
        self.page.gone(selector="#clients-more", text="b has them")
        self.be_standby()
        self.events.put(None)
        self.page.wait(selector="#clients-more", text="b has them")
        self.page.gone(selector="#clients td", text=CLIENT["id"])

    def test_trouble(self):
        self.cluster.update(role="stopping", reason="the lease is over")
        self.open()
        self.page.wait(selector="#state.bad", text="not serving")
        self.page.wait(selector="#state-why", text="the lease is over")
        self.cluster.update(role="mismatched", reason="/data is missing here")
        self.page.wait(selector="#cluster-role.bad", text="is mismatched: /data is missing here")

    def test_a_takeover_is_an_event(self):
        self.open()
        self.events.put('id: 1\nevent: takeover\ndata: {"at":"x","from":"b","to":"a","reason":"moved","result":"continued","seconds":1,"time":1}\n\n')
        self.page.wait(selector="#events li", text="a took the service over from b continued (moved)")
        self.page.wait(selector="#say", text="a took the service over")


if __name__ == "__main__":
    chromium.check()
    unittest.main(verbosity=2)
