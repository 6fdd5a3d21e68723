#!/usr/bin/env python3
"""The dashboard for users who do not see it, or have no mouse: Chromium's accessibility tree, focus, contrast, size."""

import json
import os

import chromium
from chromium import HERE, PagePlay

with open(os.path.join(HERE, "contrast.js"), encoding="utf-8") as source:
    CONTRAST = source.read()

# Roles that a user acts on: without a name the user cannot know what they do.
ACTORS = {"button", "link", "textbox", "searchbox", "checkbox", "combobox"}


class Access(PagePlay):
    n_hosts = 2

    def setUp(self):
        super().setUp()
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assert_blocked(self.b, self.lock_of(self.b))

    def open_page(self, **how):
        self.page.open(url=self.url(), **how)
        self.page.wait(selector="#live", text="live")
        self.page.wait(selector="#waiters td", text=self.id_of(self.b))
        self.page.wait(selector="#locks td", text=self.id_of(self.a))
        self.page.wait(selector="#limits td", text="Locks and waiters")
        for host in (self.a, self.b):
            self.page.wait(selector="#clients td", text=self.id_of(host))

    def tree(self):
        """[(role, name, {property: value})] of what is not ignored, in order."""
        value = lambda node, key: node.get(key, {}).get("value", "")
        return [(value(node, "role"), value(node, "name"),
                 {p["name"]: p["value"].get("value") for p in node.get("properties", ())} | {"description": value(node, "description")})
                for node in self.page.tree() if not node["ignored"]]  # fmt: skip

    def names(self, role):
        return [name for found, name, _ in self.tree() if found == role]

    def open_dialog(self):
        button = f'#clients button[aria-label="Release the locks of {self.id_of(self.a)}"]'
        self.page.evaluate(code=f"document.querySelector({json.dumps(button)}).focus()")
        self.page.press(key="Enter")
        self.page.wait(selector="#ask[open] p", text="1 lock released")

    def test_everything_has_a_role_and_a_name(self):
        self.open_page()
        tree = self.tree()
        roles = [role for role, _, _ in tree]
        for role in ("banner", "main", "status"):
            self.assertEqual(roles.count(role), 1, role)
        self.assertEqual(self.names("heading"), ["Holdfast server", "Waiters", "Clients", "Locks", "Limits", "Time line", "Load"])
        self.assertLessEqual({"Waiters", "Clients", "Locks", "Limits", "Time line", "Load"}, set(self.names("region")))
        self.assertEqual(self.names("table"), ["Waiters", "Clients", "Locks", "Limits"])
        self.assertEqual(self.names("image"), [f"{self.id_of(self.b)} waits for {self.id_of(self.a)}"])
        self.assertEqual([(role, props) for role, name, props in tree if role in ACTORS and not name.strip()], [])
        self.assertNotIn("", self.names("columnheader"))
        self.assertIn("Release the locks of " + self.id_of(self.a), self.names("button"))
        for label in ("State", "Store", "Clients", "Locks", "Waiters"):
            self.assertIn(label, self.names("term") + self.names("StaticText"))
        self.assertEqual(self.page.evaluate(code="document.documentElement.lang"), "en")

    def test_what_is_sorted_says_so(self):
        self.open_page()
        sort = "[...document.querySelectorAll('#clients th[aria-sort]')].map(t => [t.textContent, t.ariaSort])"
        self.assertEqual(self.page.evaluate(code=sort), [["Locks", "descending"]])
        self.page.click(selector="#clients th button[data-key=status]")
        self.assertEqual(self.page.evaluate(code=sort), [["Status", "ascending"]])
        self.assertIn('data-key="status"', self.page.focused(), "the focus stays")

    def test_what_happens_is_said_and_not_too_much_of_it(self):
        self.open_page()
        self.assertIn("polite", [props.get("live") for _, _, props in self.tree()])
        self.page.fill(selector="#clients-filter", text=self.a.name)
        self.page.wait(selector="#say", text="1 client found")
        inside = "[...document.querySelectorAll('#events, table, #state')].some(n => n.closest('[aria-live], [role=status], [role=log]'))"
        self.assertFalse(self.page.evaluate(code=inside), "lists and the countdown would never be silent")
        self.page.fill(selector="#clients-filter", text="")
        self.rest.call("DELETE", f"/api/v1/clients/{self.id_of(self.b)}", token=True)
        self.page.wait(selector="#say", text=f"{self.id_of(self.b)} crashed")

    def test_in_order_by_keyboard(self):
        self.open_page()
        order, where = [], "document.activeElement.id || document.activeElement.dataset.key || " \
                           "document.activeElement.ariaLabel || document.activeElement.className"  # fmt: skip
        for _ in range(40):
            self.page.press(key="Tab")
            order.append(self.page.evaluate(code=where))
            if order[-1] == "events":
                break
        release = [f"Release the locks of {self.id_of(host)}" for host in (self.a, self.b)]
        revoke = f"Release the lock of {self.id_of(self.a)} on handle {self.fh.hex()[:16]}…, all"
        # A list that is wider than the page is itself a stop, to scroll it.
        self.assertEqual([stop for stop in order if stop != "wide"], [
            "waiting_seconds", "file", "offset", "mode", "client", "blocked_by_clients",
            "clients-filter", "id", "status", "locks", "waiters", "sm_state", "transport", "tls_connection", "refused_calls", "registered_at", "silent_seconds", *release,
            "locks-filter", "share", "file", "offset", "mode", "state", "client", "owner", revoke,
            "what", "share", "used", "max", "refused", "by", "events"])  # fmt: skip

    def test_the_dialog_keeps_the_focus_and_gives_it_back(self):
        self.open_page()
        self.open_dialog()
        dialog = next((name, props) for role, name, props in self.tree() if role == "dialog")
        self.assertEqual(dialog[0], "Release this client's locks?")
        self.assertTrue(dialog[1]["modal"])
        self.assertIn("will be declared crashed: 1 lock released", dialog[1]["description"])
        self.assertIn("may write to files", dialog[1]["description"])
        self.assertNotIn("Filter clients", self.names("searchbox"), "what is behind is out of reach")
        for key in ["Tab"] * 5 + ["Shift+Tab"] * 5:
            self.page.press(key=key)
            outside = "document.activeElement !== document.body && !document.activeElement.closest('#ask')"
            self.assertFalse(self.page.evaluate(code=outside), self.page.focused())
        self.page.press(key="Escape")
        self.page.gone(selector="#ask[open]", text="")
        self.assertIn(f"Release the locks of {self.id_of(self.a)}", self.page.focused())

    def test_the_focus_stays_while_rows_come_and_go(self):
        self.open_page()
        button = f"Release the locks of {self.id_of(self.a)}"
        self.page.evaluate(code=f"document.querySelector('#clients button[aria-label=\"{button}\"]').focus()")
        for i in range(3):  # more locks: it moves to another row
            self.assert_granted(self.b, self.lock_of(self.b, fh=os.urandom(8), svid=i + 1))
        self.page.wait(selector="#clients tr:first-child td", text=self.id_of(self.b))
        self.assertIn(button, self.page.focused())
        self.page.fill(selector="#clients-filter", text=self.a.name)
        self.page.evaluate(code=f"document.querySelector('#clients button[aria-label=\"{button}\"]').focus()")
        self.page.evaluate(code="tables.clients.filterBy('no client has this name')")
        self.assertIn("data-key", self.page.focused(), "its row is gone: the list's head has it")

    def test_contrast(self):
        for dark in (False, True):
            self.open_page(dark=dark)
            found = self.page.evaluate(code=CONTRAST)
            self.assertGreater(found["n"], 40)
            self.assertEqual(found["bad"], [], "dark" if dark else "light")
            self.open_dialog()
            self.assertEqual(self.page.evaluate(code=CONTRAST)["bad"], [], "the dialog")

    def test_on_a_phone(self):
        for width in (390, 320):
            self.open_page(width=width, height=844)
            self.assertLessEqual(self.page.evaluate(code="document.documentElement.scrollWidth"), width, "no sideways scrolling")
            small = "[...document.querySelectorAll('button, input')].filter(n => n.getClientRects().length)" \
                    ".filter(n => n.getBoundingClientRect().height < 24).map(n => n.outerHTML)"  # fmt: skip
            self.assertEqual(self.page.evaluate(code=small), [], "a finger hits it")


if __name__ == "__main__":
    chromium.main()
