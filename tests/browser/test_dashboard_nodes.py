#!/usr/bin/env python3
"""The dashboards of two real nodes of a service in real Chromium: what each shows, and orders that the nodes carry out.

    test_dashboard_nodes.py PATH/holdfastd
"""

import os
import sys

import chromium
from chromium import HERE, Page

sys.path.insert(0, os.path.join(HERE, "..", "net"))

# pylint: disable=wrong-import-position
import play
from test_cluster_surface import Nodes, why_not

PORTS = {"a": 8049, "b": 8050}  # a page stays where it is when the API of its node starts anew


class Dashboards(Nodes):
    @classmethod
    def make_node(cls, name):
        node = super().make_node(name)
        node.settings.append(f"api.listen=127.0.0.1:{PORTS[name]}")
        return node

    def open(self, name):
        page = Page(self.namespace)
        self.addCleanup(page.close)
        page.open(url=f"http://127.0.0.1:{PORTS[name]}/#token={self.rest(name).token}")
        page.wait(selector="#live", text="live")
        return page

    @staticmethod
    def wait_roles(pages, active, standby):
        for name, page in pages.items():
            role = "active" if name == active else "standby"
            page.wait(selector="#cluster-role.good", text=f"nfs: this node, {name}, is {role}")
            page.wait(selector="#cluster-lease", text=f"{active} has the lease of 2 s")
            page.wait(selector="#nodes tr", text=f"{name} (this node){role}")
        pages[active].wait(selector="#state.good", text="serving")
        pages[standby].wait(selector="#state.good", text="standby")
        pages[standby].wait(selector="#clients-more", text=f"{active} has them")

    def test_the_service_moves_there_and_back(self):
        pages = {name: self.open(name) for name in PORTS}
        self.wait_roles(pages, "a", "b")

        move = '#nodes button[aria-label="Move the service to b"]'
        pages["a"].wait(selector=move, text="Move here")
        pages["a"].click(selector=move)
        pages["a"].click(selector="#ask-yes")
        self.wait_roles(pages, "b", "a")
        for page in pages.values():
            page.wait(selector="#cluster-takeover", text="b took over from a")
            page.wait(selector="#cluster-takeover", text="handed over; all locks were held.")

        pages["a"].click(selector="#take")
        pages["a"].wait(selector="#ask[open] p", text="b hands the service over to a")
        pages["a"].click(selector="#ask-yes")
        self.wait_roles(pages, "a", "b")
        pages["a"].wait(selector="#events li", text="a took the service over from b continued")


if __name__ == "__main__":
    chromium.check()
    play.main(why_not)
