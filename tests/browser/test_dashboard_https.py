#!/usr/bin/env python3
"""The dashboard over HTTPS, with the token that may do everything and with the one that may only look.

    test_dashboard_https.py PATH/holdfastd
"""

import os

import chromium
from chromium import PagePlay
from https import HttpsPlay

VISIBLE = "[...document.querySelectorAll('.act')].filter(b => b.checkVisibility()).map(b => b.ariaLabel ?? b.textContent)"


class Https(PagePlay, HttpsPlay):
    n_hosts = 2

    @classmethod
    def setUpClass(cls):
        cls.settings = (*cls.settings, "api.view_token_file=/tmp/hf-browser-view.token")
        cls.addClassCleanup(os.remove, "/tmp/hf-browser-view.token")
        super().setUpClass()

    def open_with(self, token):
        self.page.open(url=f"https://127.0.0.1:{self.rest.port}/#token={token}")
        self.page.wait(selector="#live", text="live")
        for host in (self.a, self.b):
            self.page.wait(selector="#clients td", text=self.id_of(host))
        self.page.wait(selector="#locks td", text=self.id_of(self.a))

    def setUp(self):
        super().setUp()
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assert_blocked(self.b, self.lock_of(self.b))

    def test_the_token_that_may_change_something(self):
        self.open_with(self.rest.token)
        self.assertIn(f"Release the locks of {self.id_of(self.a)}", self.page.evaluate(code=VISIBLE))
        self.assertTrue(self.page.evaluate(code="document.getElementById('access').hidden"))
        self.page.click(selector=f'#clients button[aria-label="Release the locks of {self.id_of(self.a)}"]')
        self.page.click(selector="#ask-yes")
        self.page.wait(selector="#events li", text=self.id_of(self.a))
        self.rest.wait("/api/v1/locks", lambda answer: {lock["client"] for lock in answer["locks"]} == {self.id_of(self.b)}, "the grant")
        self.assertEqual(self.page.faults(), [])

    def test_the_token_that_may_only_look(self):
        with open("/tmp/hf-browser-view.token", encoding="ascii") as file:
            self.open_with(file.read().strip())
        self.page.wait(selector="#access:not([hidden])", text="view only")
        self.assertEqual(self.page.evaluate(code=VISIBLE), [])
        # What is drawn later has no button, either, and no key reaches one.
        self.assert_granted(self.b, self.lock_of(self.b, fh=bytes(12)))
        self.page.wait(selector="#locks td", text=bytes(8).hex())
        self.assertEqual(self.page.evaluate(code=VISIBLE), [])
        for _ in range(40):
            self.page.press(key="Tab")
            self.assertFalse(self.page.evaluate(code="document.activeElement.classList.contains('act')"))
        self.assertEqual(self.page.faults(), [])
        self.shoot("view-only")

    def test_the_role_follows_the_token(self):
        with open("/tmp/hf-browser-view.token", encoding="ascii") as file:
            self.open_with(file.read().strip())
        self.page.wait(selector="#access:not([hidden])", text="view only")
        self.open_with(self.rest.token)
        self.assertNotEqual(self.page.evaluate(code=VISIBLE), [])


if __name__ == "__main__":
    chromium.main()
