#!/usr/bin/env python3
"""metrics.per_client: which client uses which export, how much; over REST, in the metrics and by the command line.

    test_usage.py PATH/holdfastd [unittest's own arguments]
"""

import json
import os
import signal
import socket
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from commandline import NOT_FOUND, USAGE, CliPlay
from exported import Exported, nfs
from play import main
from rpc import call_message, auth_sys
from terminal import Terminal
from until import PATIENCE
from xdr import Out

COUNTERS = ("reads", "writes", "metadata", "locks", "bytes_read", "bytes_written", "errors")
KINDS = COUNTERS[:4]
MAX_PAIRS = 4096


class Used(Exported, CliPlay):
    settings = ("api.listen=127.0.0.1:0",)
    folders = ("data", "other")
    exports = ("{{path: {base}/data, name: /data, squash: none, clients: [any]}}",
               "{{path: {base}/other, name: /other, squash: none, clients: [any]}}")  # fmt: skip
    per_client = True

    @classmethod
    def write_config(cls, exports):
        super().write_config(exports)
        with open(cls.config, "a", encoding="ascii") as out:
            out.write(f"metrics:\n  per_client: {str(cls.per_client).lower()}\n")

    def setUp(self):
        super().setUp()
        self.began = {(row["address"], row["share"]): row for row in self.rows()} if self.is_on() else {}

    def is_on(self):
        return self.rest.get("/api/v1/status").json["per_client"]

    def page(self, query=""):
        return self.rest.get(f"/api/v1/usage{query}").json

    def rows(self, query="?limit=1000"):
        return self.page(query)["usage"]

    def row(self, address, share):
        return next(r for r in self.rows() if (r["address"], r["share"]) == (address, share))

    def grown(self, address, share):
        """What was counted since the test began."""
        before = self.began.get((address, share), {})
        row = next((r for r in self.rows() if (r["address"], r["share"]) == (address, share)), dict.fromkeys(("calls", *COUNTERS), 0))
        return {key: row[key] - before.get(key, 0) for key in ("calls", *COUNTERS) if row[key] != before.get(key, 0)}

    def client(self, host, **how):
        with host.namespace:
            client = nfs.Client(2049, remote=host.server, local=host.address, **how)
        self.addCleanup(client.close)
        return client

    def reload(self, **changes):
        for key, value in changes.items():
            setattr(type(self), key, value)
        self.write_config(self.exports)
        before = (self.rest.get("/api/v1/status").json["reload"] or {}).get("at")
        self.daemon.process.send_signal(signal.SIGHUP)
        return self.until(lambda: self.rest.get("/api/v1/status").json["reload"], "the configuration is loaded",
                          passes=lambda r: r and r["at"] != before)  # fmt: skip


class Usage(Used):
    def test_two_clients_and_two_exports(self):
        one, two = self.client(self.a), self.client(self.b)
        data, other = one.root("/data"), two.root("/other")
        made = one.create(data, b"one")
        self.assertEqual(one.write(made.fh, b"x" * 1000).stat, nfs.OK)
        self.assertEqual(one.read(made.fh, count=400).stat, nfs.OK)
        self.assertEqual(one.read(made.fh, count=4000).stat, nfs.OK)
        self.assertEqual(one.commit(made.fh).stat, nfs.OK)
        self.assertEqual(one.lookup(data, b"no such name").stat, nfs.NOENT)
        seen = two.create(other, b"two")
        self.assertEqual(two.write(seen.fh, b"y" * 5).stat, nfs.OK)
        self.assert_granted(self.a, self.lock_of(self.a, fh=made.fh))
        self.assert_denied(self.b, self.lock_of(self.b, fh=made.fh))
        self.assertEqual(self.a.unlock(self.lock_of(self.a, fh=made.fh)), nlm.S_GRANTED)
        self.assertEqual(self.grown(self.a.address, "/data"),
                         {"calls": 8, "reads": 2, "writes": 2, "metadata": 2, "locks": 2, "bytes_read": 1400,
                          "bytes_written": 1000, "errors": 1})  # fmt: skip
        self.assertEqual(self.grown(self.b.address, "/data"), {"calls": 1, "locks": 1}, "a conflict is no error")
        self.assertEqual(self.grown(self.b.address, "/other"), {"calls": 2, "writes": 1, "metadata": 1, "bytes_written": 5})
        self.assertEqual(self.grown(self.a.address, "/other"), {})
        self.assertRegex(self.row(self.a.address, "/data")["last_used"], r"^20\d\d-.*Z$")

        metrics = self.rest.metrics()
        for row in self.rows():
            where = f'client="{row["address"]}",share="{row["share"]}"'
            for kind in KINDS:
                self.assertEqual(metrics[f'holdfast_client_calls_total{{{where},kind="{kind}"}}'], row[kind])
            self.assertEqual(metrics[f'holdfast_client_bytes_total{{{where},direction="read"}}'], row["bytes_read"])
            self.assertEqual(metrics[f'holdfast_client_bytes_total{{{where},direction="written"}}'], row["bytes_written"])
            self.assertEqual(metrics[f"holdfast_client_errors_total{{{where}}}"], row["errors"])

    def test_sums_are_those_of_all_calls(self):
        """Also of calls with a handle of no export, and of one whose file is gone."""
        client = self.client(self.a)
        root = client.root("/data")
        made = client.create(root, b"gone")
        self.assertEqual(client.remove(root, b"gone").stat, nfs.OK)
        os.sync()
        before = self.page()["other"]
        self.assertEqual(client.getattr(b"z" * 28).stat, nfs.BADHANDLE)
        self.assertEqual(self.a.lock(self.lock_of(self.a, fh=b"z" * 28)), nlm.S_STALE_FH)
        after = self.page()["other"]
        self.assertEqual({key: after[key] - before[key] for key in ("calls", *COUNTERS) if after[key] != before[key]},
                         {"calls": 2, "metadata": 1, "locks": 1, "errors": 2})  # fmt: skip
        errors = self.row(self.a.address, "/data")["errors"]
        for _ in range(3):  # the server may have the file open for a moment
            client.getattr(made.fh)
        self.until(lambda: client.getattr(made.fh).stat, "it is stale", passes=lambda stat: stat == nfs.STALE)
        self.assertGreater(self.row(self.a.address, "/data")["errors"], errors)

        page, metrics = self.page("?limit=1000"), self.rest.metrics()
        for key, name, but in (("reads", "nfs", ()), ("locks", "nlm", ("FREE_ALL",))):
            everything = sum(value for key_, value in metrics.items() if key_.startswith(f"{name}_requests_total{{")
                             and (name == "nlm" or 'procedure="READ"' in key_) and not any(b in key_ for b in but))  # fmt: skip
            self.assertEqual(sum(row[key] for row in [*page["usage"], page["other"]]), everything, key)
        self.assertEqual(sum(row["bytes_read"] for row in page["usage"]), metrics['nfs_bytes_total{direction="read"}'])
        self.assertEqual(sum(row["bytes_written"] for row in page["usage"]), metrics['nfs_bytes_total{direction="written"}'])

    def test_order_filters_and_pages(self):
        for host, n in ((self.a, 3), (self.b, 6), (self.c, 9)):
            client = self.client(host)
            root = client.root("/other")
            for _ in range(n):
                self.assertEqual(client.getattr(root).stat, nfs.OK)
        calls = [row["calls"] for row in self.rows()]
        self.assertEqual(calls, sorted(calls, reverse=True))
        for key in ("bytes", "address", *COUNTERS, "last_used"):
            self.assertEqual(len(self.rows(f"?sort={key}")), len(calls))
        written = [row["bytes_written"] for row in self.rows("?sort=bytes_written")]
        self.assertEqual(written, sorted(written, reverse=True))
        ordered = [(row["address"], row["share"]) for row in self.rows("?sort=address")]
        addresses = [socket.inet_aton(address) for address, _ in ordered]
        self.assertEqual(addresses, sorted(addresses))
        seen, cursor = [], ""
        for _ in range(len(ordered)):
            page = self.page(f"?sort=address&limit=2{f'&cursor={urllib.parse.quote(cursor)}' if cursor else ''}")
            self.assertLessEqual(len(page["usage"]), 2)
            seen += [(row["address"], row["share"]) for row in page["usage"]]
            cursor = page["next"]
            if not cursor:
                break
        self.assertEqual(seen, ordered)
        self.assertEqual({row["address"] for row in self.rows(f"?address={self.b.address}")}, {self.b.address})
        self.assertEqual({row["share"] for row in self.rows("?share=/other")}, {"/other"})
        self.assertEqual(self.rows("?share=/none"), [])
        self.assertEqual(self.rest.get("/api/v1/usage?sort=colour").status, 400)

    def test_the_command_line(self):
        client = self.client(self.a)
        root = client.root("/data")
        fh = client.create(root, b"many").fh
        self.assertEqual(client.write(fh, bytes(1 << 20)).stat, nfs.OK)
        lines = self.run_cli("usage").stdout.splitlines()
        self.assertEqual(lines[0].split()[:7], ["CLIENT", "SHARE", "CALLS", "READS", "WRITES", "METADATA", "LOCKS"])
        row = self.row(self.a.address, "/data")
        shown = next(line.split() for line in lines if line.startswith(f"{self.a.address} ") and " /data " in line)
        self.assertEqual(shown[2:10], [*(str(row[key]) for key in ("calls", *KINDS)), f"{row['bytes_read'] / 2**20:.1f}",
                                       f"{row['bytes_written'] / 2**20:.1f}", str(row["errors"])])  # fmt: skip
        listed = {(r["address"], r["share"]): r for r in json.loads(self.run_cli("--json", "usage").stdout)}
        # The server converts the time for each answer anew, so its last digit may differ.
        self.assertEqual({**listed[self.a.address, "/data"], "last_used": None}, {**row, "last_used": None})
        self.assertEqual(listed["other", None]["calls"], self.page()["other"]["calls"])

    def test_top_shows_rates(self):
        client = self.client(self.a)
        fh = client.create(client.root("/data"), b"busy").fh
        self.assertEqual(client.write(fh, bytes(4096)).stat, nfs.OK)
        end = threading.Event()

        def read():
            while not end.is_set():
                assert client.read(fh, count=4096).stat == nfs.OK

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(end.set)
        rates = json.loads(self.run_cli("--json", "top", "clients").stdout)
        first = rates[0]
        self.assertEqual((first["address"], first["share"]), (self.a.address, "/data"))
        self.assertGreater(first["calls_per_second"], 1)
        self.assertAlmostEqual(first["bytes_read_per_second"], 4096 * first["reads_per_second"], delta=1)
        self.assertEqual(first["locks_per_second"], 0)
        table = self.run_cli("top", "clients", "--once").stdout
        self.assertRegex(table, rf"\nCLIENT +SHARE +CALLS/S .*\n{self.a.address} +/data +[1-9]")
        self.assertIn("WAITING", self.run_cli("top", "--once").stdout)
        self.run_cli("top", "clients", code=USAGE)
        self.run_cli("top", "exports", code=USAGE)
        terminal = Terminal(self.words("top"), self.daemon.namespace, 20, 100)
        terminal.wait("LAST SEEN")
        terminal.write("c")
        terminal.wait(self.a.address)
        terminal.wait("CALLS/S")
        terminal.write("q")
        self.assertEqual(terminal.end(), 0)

    def test_an_export_that_is_gone(self):
        client = self.client(self.b)
        self.assertEqual(client.getattr(client.root("/other")).stat, nfs.OK)
        before, other = self.row(self.b.address, "/other"), self.page()["other"]["calls"]
        self.addCleanup(self.reload, exports=self.exports)
        self.reload(exports=self.exports[:1])
        self.assertNotIn("/other", [row["share"] for row in self.rows()])
        self.assertGreaterEqual(self.page()["other"]["calls"], other + before["calls"])
        self.assertFalse([key for key in self.rest.metrics() if key.startswith("holdfast_client") and "/other" in key])


class Bound(Used):
    """More pairs than there is room for."""

    n_hosts = 1

    def test_the_rest_is_in_another_row(self):
        with self.network.server, nfs.Client(2049) as client:
            root = client.root("/data")
        call = call_message(nfs.NFS, 3, nfs.GETATTR, Out().opaque(root).bytes(), cred=auth_sys())
        addresses = [f"127.1.{n >> 8}.{n & 255}" for n in range(MAX_PAIRS + 200)]
        before = self.page()
        for address in addresses:
            with self.network.server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.bind((address, 0))
                s.settimeout(PATIENCE)
                s.sendto(call, ("127.0.0.1", 2049))
                s.recv(1000)
        rows, cursor = [], None
        for _ in range(10):
            page = self.page(f"?limit=1000&sort=address{f'&cursor={urllib.parse.quote(cursor)}' if cursor else ''}")
            rows += page["usage"]
            cursor = page["next"]
            if not cursor:
                break
        self.assertLessEqual(len(rows), MAX_PAIRS)
        self.assertGreater(len(rows), MAX_PAIRS // 2)
        calls = lambda p, r: sum(row["metadata"] for row in r) + p["other"]["metadata"]
        self.assertEqual(calls(page, rows) - calls(before, before["usage"]), len(addresses))
        self.assertGreaterEqual(page["other"]["calls"], 200)
        there = {row["address"] for row in rows}
        self.assertLessEqual(set(addresses[-1000:]), there, "the latest stay")
        self.assertFalse(set(addresses[:200]) & there, "the first made room")
        n_series = sum(key.startswith("holdfast_client_errors_total") for key in self.rest.metrics())
        self.assertEqual(n_series, len(rows) + 1)


class Reload(Used):
    """Off, as in the beginning of most servers."""

    per_client = False

    def test_a_reload_turns_it_on_and_off(self):
        client = self.client(self.a)
        root = client.root("/data")
        self.assertFalse(self.is_on())
        answer = self.rest.get("/api/v1/usage")
        self.assertEqual((answer.status, answer.code), (404, "off"))
        self.assertIn("metrics.per_client", self.run_cli("usage", code=NOT_FOUND).stderr)
        self.run_cli("top", "clients", "--once", code=NOT_FOUND)
        self.assertFalse([key for key in self.rest.metrics() if key.startswith("holdfast_client_")])
        client.getattr(root)
        self.assertEqual(self.reload(per_client=True)["at_next_start"], [])
        self.assertEqual(self.rows(), [], "what came before was not counted")
        for _ in range(3):
            client.getattr(root)
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assertEqual([(row["calls"], row["locks"]) for row in self.rows()], [(4, 1)])
        self.reload(per_client=False)
        client.getattr(root)
        self.assert_granted(self.a, self.lock_of(self.a, 5, 1))
        self.assertEqual(self.rest.get("/api/v1/usage").status, 404)
        self.reload(per_client=True)
        self.assertEqual([row["calls"] for row in self.rows()], [4], "it goes on from there")
        client.getattr(root)
        self.assertEqual([row["calls"] for row in self.rows()], [5])


class NoExports(CliPlay):
    """The lock service of another server."""

    n_hosts = 1
    settings = ("api.listen=127.0.0.1:0", "metrics.per_client=true")

    def test_locks_have_no_export(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        rows = self.rest.get("/api/v1/usage").json["usage"]
        self.assertEqual([(r["address"], r["share"], r["calls"], r["locks"]) for r in rows], [(self.a.address, "", 1, 1)])


if __name__ == "__main__":
    main()
