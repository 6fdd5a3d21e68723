#!/usr/bin/env python3
"""What an operator sees and does about single locks and reservations, over REST and by the command line.

    test_operator.py PATH/holdfastd [unittest's own arguments]
"""

import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from commandline import CliPlay
from exported import Exported
from play import main

READ, WRITE, BOTH = 1, 2, 3


def quote(text):
    return urllib.parse.quote(text, safe="")


class Reservations(CliPlay):
    """Share reservations: the list, its pages and filters, the command line, the gauge."""

    FIELDS = {"share", "file", "handle", "client", "owner", "mode", "access", "count", "unreclaimed"}

    def reserve(self, host, access=READ, deny=0, **more):
        self.assertEqual(host.share(self.lock_of(host, access=access, deny=deny, **more)), nlm.S_GRANTED)

    def listed(self, query=""):
        return self.rest.get(f"/api/v1/reservations{query}").json["reservations"]

    def ours(self, query="?limit=1000"):
        return [r for r in self.listed(query) if r["handle"] == self.fh.hex()]

    def test_reservations_are_listed(self):
        self.assertEqual(self.rest.get("/api/v1/reservations").json, {"reservations": [], "next": None})
        self.reserve(self.a, BOTH, WRITE, oh=b"\xff\0 oh")
        self.reserve(self.a, BOTH, WRITE, oh=b"\xff\0 oh")
        self.reserve(self.b, READ, 0)
        shown = self.ours()
        self.assertEqual([set(r) for r in shown], [self.FIELDS] * 2)
        first = next(r for r in shown if r["client"] == self.id_of(self.a))
        self.assertEqual(
            {k: first[k] for k in ("owner", "mode", "access", "count", "unreclaimed", "file")},
            {"owner": f"nlm:{self.a.name}:ff00206f68", "mode": "deny_write", "access": "read_write", "count": 2,
             "unreclaimed": 0, "file": None},
        )  # fmt: skip
        second = next(r for r in shown if r["client"] == self.id_of(self.b))
        self.assertEqual((second["mode"], second["access"]), ("deny_none", "read"))
        self.assertEqual(self.rest.get("/api/v1/status").json["reservations"], 3)
        self.assertEqual(self.rest.metrics()["holdfast_reservations"], 3)
        self.assertEqual(self.ours(f"?client={quote(self.id_of(self.a))}"), [first])
        self.assertEqual(self.ours("?share=no-such-share"), [])
        self.assertEqual(self.ours(f"?share={quote(first['share'])}"), shown)
        self.assertEqual(self.ours("?client=nlm:192.0.2.1:gone"), [])
        self.assertEqual(self.rest.get("/api/v1/reservations?mode=x").status, 400)
        self.assertEqual(self.a.unshare(self.lock_of(self.a, access=BOTH, deny=WRITE, oh=b"\xff\0 oh")), nlm.S_GRANTED)
        self.assertEqual(next(r for r in self.ours() if r["client"] == self.id_of(self.a))["count"], 1)

    def test_reservations_have_pages_that_are_stable_under_change(self):
        for i in range(25):
            self.reserve(self.c, oh=bytes([i]))
        seen, cursor, n_pages = [], "", 0
        while cursor is not None:
            scope = f"/api/v1/reservations?client={quote(self.id_of(self.c))}&limit=4"
            page = self.rest.get(scope + (f"&cursor={quote(cursor)}" if cursor else "")).json
            self.assertLessEqual(len(page["reservations"]), 4)
            seen += [r["owner"] for r in page["reservations"]]
            cursor = page["next"]
            n_pages += 1
            if n_pages == 2:  # what was seen goes, and something new comes
                self.c.unshare(self.lock_of(self.c, access=READ, oh=bytes([7])))
                self.reserve(self.c, oh=b"new")
        self.assertEqual(seen, [f"nlm:{self.c.name}:{oh.hex()}" for oh in (*(bytes([i]) for i in range(25)), b"new")])

    def test_reservations_by_the_command_line(self):
        self.assertEqual(self.run_cli("reservations").stdout, "There are no reservations.\n")
        self.assertNotIn("reserved", self.run_cli("status").stdout)
        self.reserve(self.a, BOTH, WRITE)
        self.reserve(self.b, READ, 0)
        lines = self.run_cli("reservations").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["SHARE", "FILE", "ACCESS", "DENIES", "COUNT", "UNRECLAIMED", "CLIENT", "OWNER"])
        row = next(line for line in lines if self.id_of(self.a) in line).split()
        self.assertEqual(row[2:7], ["read+write", "write", "1", "0", self.id_of(self.a)])
        self.assertRegex(self.run_cli("status").stdout, r"\nreserved   2\n")
        one = json.loads(self.run_cli("--json", "reservations", "--client", self.id_of(self.b)).stdout)
        self.assertEqual([(r["client"], r["access"]) for r in one], [(self.id_of(self.b), "read")])


class RestoredReservations(Exported):
    """After a restart: those that are not reclaimed yet; and the paths of files."""

    n_hosts = 1
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.early_end=false", "recovery.window_seconds=300",
                "api.listen=127.0.0.1:0")  # fmt: skip

    def test_unreclaimed_reservations_are_shown_with_their_file(self):
        share = self.lock_of(self.a, access=READ, deny=WRITE)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        (shown,) = self.rest.get("/api/v1/reservations").json["reservations"]
        self.assertEqual((shown["count"], shown["unreclaimed"], shown["share"]), (1, 1, "/data"))
        self.assertEqual(shown["file"], self.path)
        self.assertEqual(self.rest.metrics()["holdfast_reservations"], 0)
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)
        (shown,) = self.rest.get("/api/v1/reservations").json["reservations"]
        self.assertEqual((shown["count"], shown["unreclaimed"]), (1, 0))


if __name__ == "__main__":
    main()
