#!/usr/bin/env python3
"""The dashboard in real Chromium: a lock, a waiter, a release from the page, grace after a restart; screenshots.

    test_dashboard.py PATH/holdfastd; SCREENSHOTS=DIR keeps the pictures
"""

import json
import os

import chromium
from chromium import PagePlay


class Dashboard(PagePlay):
    settings = ("api.listen=127.0.0.1:0", "store.backend=lmdb", "recovery.grace=auto", "recovery.early_end=false",
                "recovery.window_seconds=300")  # fmt: skip

    def show_it_everywhere(self):
        """In the dark, on a phone, and in the light again."""
        page, lock = self.page, self.lock_of(self.c, fh=os.urandom(12))
        for name, how in (("dark", {"dark": True}), ("phone", {"width": 390, "height": 844}), ("light", {})):
            page.open(url=self.url(), **how)
            page.wait(selector="#waiters td", text=self.id_of(self.b))
            if "SCREENSHOTS" in os.environ:  # a load to be seen
                page.wait(selector="#rate", text="0")
                self.assert_granted(self.c, lock)
                self.c.unlock(lock)
                page.wait(selector="#latency", text="µs")
            self.shoot(name)
        page.wait(selector="#live", text="live")
        self.assertEqual(page.faults(), [])

    def test_a_night_at_the_desk(self):
        page, a, b = self.page, self.id_of(self.a), self.id_of(self.b)
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        page.wait(selector="#state", text="serving")
        self.assertNotIn("token", page.evaluate(code="location.href"), "it leaves the address bar")

        # A lock, and a waiter, without a reload
        self.assert_granted(self.a, self.lock_of(self.a))
        page.wait(selector="#clients td", text=a)
        page.wait(selector="#locks td", text=a)
        self.assert_blocked(self.b, self.lock_of(self.b))
        page.wait(selector="#waiters td", text=b)
        page.wait(selector="#graph title", text=a)
        self.assertIn(f"{b} waits for {a}", page.evaluate(code="document.querySelector('#graph svg').getAttribute('aria-label')"))
        self.show_it_everywhere()

        # Filter and sort
        page.fill(selector="#clients-filter", text=self.b.name)
        page.gone(selector="#clients td", text=a)
        page.fill(selector="#clients-filter", text="")
        page.click(selector="#clients th button[data-key=id]")
        page.wait(selector="#clients th[aria-sort=ascending]", text="")

        # By keyboard: open the dialog, change one's mind
        button = f'#clients button[aria-label="Release the locks of {a}"]'
        page.evaluate(code=f"document.querySelector({json.dumps(button)}).focus()")
        page.press(key="Enter")
        page.wait(selector="#ask[open] p", text="1 lock released")
        self.assertIn("ask-no", page.focused(), "the safe answer is the first")
        page.press(key="Escape")
        page.gone(selector="#ask[open]", text="")
        self.assert_held(self.lock_of(self.a), by=1)

        # And do it
        page.click(selector=button)
        page.click(selector="#ask-yes")
        page.wait(selector="#events li", text=f"{a} cleaned up")
        self.b.wait_granted(self.lock_of(self.b))
        page.wait(selector="#locks td", text=b)
        page.gone(selector="#waiters td", text=b)
        page.wait(selector="#graph", text="No client waits")
        self.assertEqual(page.faults(), [])

        # A restart: the page comes back by itself, and counts
        port = self.rest.port
        self.daemon.crash()
        self.daemon.start(f"api.listen=127.0.0.1:{port}")
        for host in self.hosts:
            host.drop_callers()
        page.wait(selector="#state", text="grace")
        page.wait(selector="#state-why", text="1 lock still to be reclaimed")
        first = int(page.text(selector="#state").split()[1])
        page.evaluate(code=f"new Promise(done => {{ const look = () => parseInt(document.querySelector('#state').textContent.split(' ')[1]) < {first} ? done() : setTimeout(look, 50); look(); }})")
        page.wait(selector="#live", text="live")
        page.wait(selector="#events li", text="grace has begun")
        page.wait(selector="#locks td", text="unreclaimed")
        self.shoot("grace")
        self.rest.call("POST", "/api/v1/grace/end", token=True)
        page.wait(selector="#state", text="serving")
        page.wait(selector="#events li", text="grace has ended")
        page.faults()  # the connections that broke

        # Without the token the page looks, and may not touch
        page.open(url=self.url(token=False))
        self.assert_granted(self.c, self.lock_of(self.c, fh=os.urandom(12)))
        page.wait(selector="#clients td", text=self.id_of(self.c))
        page.click(selector=f'#clients button[aria-label="Release the locks of {self.id_of(self.c)}"]')
        page.click(selector="#ask-yes")
        page.wait(selector="#banner", text="Nothing was released")


class Beyond(PagePlay):
    """Not on loopback: the page itself needs no token, and asks for it."""

    settings = ("api.listen=10.98.0.1:0",)
    n_hosts = 1

    def test_it_asks_for_the_token(self):
        page = self.page
        page.open(url=f"http://10.98.0.1:{self.rest.port}/")
        page.wait(selector="#banner:not([hidden])", text="The server needs its token")
        page.fill(selector="#token", text="wrong")
        page.press(key="Enter")
        page.wait(selector="#live", text="not connected")
        page.fill(selector="#token", text=self.rest.token)
        page.press(key="Enter")
        page.wait(selector="#live", text="live")
        page.wait(selector="#state", text="serving")
        page.wait(selector="#banner[hidden]", text="")


if __name__ == "__main__":
    chromium.main()
