#!/usr/bin/env python3
"""The dashboard in real Chromium: share reservations.

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


if __name__ == "__main__":
    chromium.main()
