#!/usr/bin/env python3
"""The dashboard in real Chromium: share reservations, and a single lock that is released.

    test_dashboard_operator.py PATH/holdfastd
"""

import chromium
import nlm
from chromium import PagePlay


class Reservations(PagePlay):
    def test_reservations_come_and_go_on_the_page(self):
        page, share = self.page, self.lock_of(self.a, access=3, deny=2)
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        hidden = "document.getElementById('reserved').hidden"
        self.assertTrue(page.evaluate(code=hidden), "without reservations there is no such list")
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        page.wait(selector="#reservations td", text=self.id_of(self.a))
        cells = page.evaluate(code="[...document.querySelectorAll('#reservations tbody td')].map(n => n.textContent)")
        self.assertEqual(cells[2:6], ["read and write", "write", "1", "0"])
        self.assertFalse(page.evaluate(code=hidden))
        page.fill(selector="#reservations-filter", text="no client has this name")
        page.gone(selector="#reservations td", text=self.id_of(self.a))
        page.fill(selector="#reservations-filter", text="")
        self.assertEqual(self.a.unshare(share), nlm.S_GRANTED)
        page.gone(selector="#reservations td", text=self.id_of(self.a))
        self.assertTrue(page.evaluate(code=hidden))
        self.assertEqual(page.faults(), [])


class Limits(PagePlay):
    def test_limits_in_use_are_on_the_page(self):
        page = self.page
        for offset in range(3):
            self.assert_granted(self.a, self.lock_of(self.a, 2 * offset, 1))
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        page.wait(selector="#limits td", text="Locks and waiters of one client")
        rows = page.evaluate(code="[...document.querySelectorAll('#limits tbody tr')].map(r => [...r.cells].map(c => c.textContent))")
        row = next(r for r in rows if r[0] == "Locks and waiters of one client")
        self.assertEqual(row[1:], ["0 %", "3", "262,144", "0", self.id_of(self.a)])
        self.assertEqual(page.faults(), [])


class Usage(PagePlay):
    settings = (*PagePlay.settings, "metrics.per_client=true")

    def cells(self):
        code = "[...document.querySelectorAll('#usage tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        return {(row[0], row[1]): row[2:] for row in self.page.evaluate(code=code)}

    def test_who_uses_what(self):
        page = self.page
        for offset in range(3):
            self.assert_granted(self.a, self.lock_of(self.a, 2 * offset, 1))
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        page.wait(selector="#usage td", text=self.a.address)
        self.assertFalse(page.evaluate(code="document.getElementById('used').hidden"))
        self.assertEqual(self.cells()[self.a.address, ""][1:6], ["3", "0 B", "0 B", "3", "0"])
        self.assertEqual(self.cells()["other", ""][1], "0")
        self.assert_granted(self.b, self.lock_of(self.b, 100, 1))
        page.wait(selector="#usage td", text=self.b.address)
        page.fill(selector="#usage-filter", text=self.b.address)
        page.gone(selector="#usage td", text=self.a.address)
        self.assertEqual(page.faults(), [])


class NoUsage(PagePlay):
    def test_there_is_no_list_of_what_is_not_counted(self):
        page = self.page
        self.assert_granted(self.a, self.lock_of(self.a))
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        page.wait(selector="#limits td", text="Locks and waiters")  # it is loaded last
        self.assertTrue(page.evaluate(code="document.getElementById('used').hidden"))
        self.assertEqual(page.faults(), [])


class Release(PagePlay):
    def button_of(self, host, text):
        return f'#locks button[aria-label="Release the lock of {self.id_of(host)} on handle {self.fh.hex()[:16]}…, {text}"]'

    def test_one_lock_is_released_from_the_page(self):
        page = self.page
        for offset in (0, 100, 200):
            self.assert_granted(self.a, self.lock_of(self.a, offset, 10))
        self.assert_granted(self.a, self.lock_of(self.a, fh=bytes(8)))
        self.assert_blocked(self.b, self.lock_of(self.b, 100, 10))
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        page.wait(selector="#waiters td", text=self.id_of(self.b))
        page.wait(selector="#locks td", text="100 + 10")

        # The warning says what it risks; the safe answer is the first
        page.click(selector=self.button_of(self.a, "100 + 10"))
        page.wait(selector="#ask[open] p", text="goes on writing in the belief that it holds the lock")
        page.wait(selector="#ask[open] p", text=f"lock of {self.id_of(self.a)} on handle")
        self.assertIn("ask-no", page.focused())
        page.press(key="Escape")
        page.gone(selector="#ask[open]", text="")
        self.assert_held(self.lock_of(self.a, 100, 10), by=1)

        page.click(selector=self.button_of(self.a, "100 + 10"))
        page.click(selector="#ask-yes")
        self.b.wait_granted(self.lock_of(self.b, 100, 10))
        page.wait(selector="#events li", text=f"{self.id_of(self.a)} unlock (an operator released it)")
        page.gone(selector=self.button_of(self.a, "100 + 10"), text="")
        page.wait(selector="#locks td", text=self.id_of(self.b))
        self.assert_held(self.lock_of(self.a, 0, 10), by=1)

        # All of the client in this file, and nothing else
        page.click(selector=self.button_of(self.a, "200 + 10"))
        page.wait(selector="#ask-more", text="Release all 2 in this file")
        page.click(selector="#ask-more")
        for text in ("0 + 10", "200 + 10"):
            page.gone(selector=self.button_of(self.a, text), text="")
        self.assert_free(self.lock_of(self.a, 0, 10))
        self.assert_held(self.lock_of(self.a, fh=bytes(8)))
        self.assert_held(self.lock_of(self.b, 100, 10))
        self.assertEqual(page.faults(), [])

    def test_a_lock_beyond_what_a_double_can_say(self):
        page, ranges = self.page, ((2**53 + 1, 1), (2**63 - 3, 1), (2**62 + 1, 2**53 + 1))
        for offset, length in ranges:
            self.assert_granted(self.a, self.lock_of(self.a, offset, length))
        page.open(url=self.url())
        page.wait(selector="#live", text="live")
        for offset, length in ranges:
            page.wait(selector="#locks td", text=f"{offset} + {length}")
            page.click(selector=self.button_of(self.a, f"{offset} + {length}"))
            page.click(selector="#ask-yes")
            page.gone(selector=self.button_of(self.a, f"{offset} + {length}"), text="")
            self.assert_free(self.lock_of(self.a, offset, length))
        self.assertEqual(page.faults(), [])

    def test_a_lock_that_is_gone_already(self):
        page, lock = self.page, self.lock_of(self.a, 5, 5)
        self.assert_granted(self.a, lock)
        page.open(url=self.url())
        page.wait(selector="#locks td", text="5 + 5")
        page.click(selector=self.button_of(self.a, "5 + 5"))
        self.a.unlock(lock)
        self.assertTrue(page.evaluate(code="document.getElementById('ask-more').hidden"), "there is one lock only")
        page.click(selector="#ask-yes")
        page.wait(selector="#banner", text="Nothing was released: The client has no such lock.")
        page.faults()  # the 404


if __name__ == "__main__":
    chromium.main()
