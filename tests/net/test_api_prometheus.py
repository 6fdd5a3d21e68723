#!/usr/bin/env python3
"""contrib/ and a real Prometheus: it scrapes the server, takes the rules, and answers what the Grafana board asks."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from certs import Authority
from exported import OneExport
from https import HttpsRest
from play import Play, main
from rest import Rest

CONTRIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib")
RULES = os.path.join(CONTRIB, "prometheus", "holdfast.rules.yml")
BOARD = os.path.join(CONTRIB, "grafana", "holdfast.json")
TABLE = os.path.join(CONTRIB, "..", "src", "base", "metric.c")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def questions():
    """[(panel, PromQL)] of the board, with its variables filled in."""
    found, panels = [], list(json.loads(read(BOARD))["panels"])
    while panels:
        panel = panels.pop(0)
        panels += panel.get("panels", [])
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "10s")
            found.append((panel["title"], query))
    return found


class Prometheus:
    """In @daemon's namespace, where port 9090 is free. It believes the certificate of the API by @ca."""

    def __init__(self, daemon, port, ca):
        self.rest = Rest(daemon)
        self.rest.__class__ = type("Prometheus", (Rest,), {"port": 9090})
        self.folder = tempfile.mkdtemp(prefix="hf-prom-")
        scrape = {"job_name": "holdfast", "scheme": "https", "tls_config": {"ca_file": ca},
                  "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}  # fmt: skip
        with open(f"{self.folder}/p.yml", "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                       "rule_files": [os.path.abspath(RULES)], "scrape_configs": [scrape]}, file)  # fmt: skip
        with daemon.namespace:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.folder}/p.yml", f"--storage.tsdb.path={self.folder}/data",
                 "--web.listen-address=127.0.0.1:9090"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

    def ask(self, target):
        try:
            return self.rest.get(target).json["data"]
        except (OSError, ValueError, KeyError):
            return {}

    def values(self, query):
        found = self.ask("/api/v1/query?query=" + urllib.parse.quote(query)).get("result", [])
        return [float(item["value"][1]) for item in found]

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Contrib(OneExport, Play):
    """With TLS for clients and for the API, so that there is every metric of it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="hf-certs-")
        cls.addClassCleanup(shutil.rmtree, folder)
        ca = Authority(os.path.join(folder, "ca"))
        keys = zip(("tls.certificate", "tls.key", "api.certificate", "api.key"),
                   (*ca.issue("server", "DNS:server"), *ca.issue("api", "IP:127.0.0.1")))  # fmt: skip
        cls.settings = ("api.listen=127.0.0.1:0", "store.backend=lmdb", "metrics.per_client=true", *map("=".join, keys))
        super().setUpClass()
        cls.rest = HttpsRest(cls.daemon, ca.certificate)

    def test_only_real_metrics_are_named(self):
        names = set(re.findall(r"^# TYPE (\S+) ", self.rest.get("/metrics").body.decode(), re.M))
        names |= set(re.findall(r'"(holdfast_cluster_\w+)"', read(TABLE)))  # it is no node of a cluster
        for path in (RULES, BOARD):
            used = set(re.findall(r"\b((?:nsm|nlm|nfs|mount|holdfast)_[a-z_]+[a-z])\{?", read(path)))
            used = {re.sub("_bucket$", "", name) for name in used}
            self.assertTrue(used)
            self.assertLessEqual(used, names, path)

    def test_promtool_takes_the_rules(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool")
        for words in (["check", "rules", "holdfast.rules.yml"], ["test", "rules", "holdfast.rules.test.yml"]):
            done = subprocess.run(["promtool", *words], cwd=os.path.dirname(RULES), capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_is_seen_firing_and_silent(self):
        tests = read(RULES.replace(".yml", ".test.yml"))
        for alert in re.findall(r"- alert: (\w+)", read(RULES)):
            self.assertRegex(tests, rf"(?m)^ *alertname: {alert}\n *exp_alerts:", f"{alert} never fires")
            self.assertRegex(tests, rf"\{{eval_time: \w+, alertname: {alert}\}}", f"{alert} is never silent")

    def work(self, root):
        """Something of everything that the board shows."""
        self.fh = self.nfs.create(root, b"file", mode=0o666).fh
        self.nfs.write(self.fh, b"x" * 1000)
        self.nfs.read(self.fh, 0, 400)
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.a.unlock(lock)
        self.b.wait_granted(lock)
        self.b.unlock(self.lock_of(self.b))
        self.b.grants.items.clear()

    def test_a_real_prometheus_answers_the_board(self):
        if not shutil.which("prometheus"):
            self.skipTest("no prometheus")
        prometheus = Prometheus(self.daemon, self.rest.port, self.rest.ca)
        self.addCleanup(prometheus.close)
        root, open_ = self.nfs.root("/data"), dict((query, panel) for panel, query in questions() if "holdfast_cluster" not in query)
        self.assertGreater(len(open_), 15)

        def without_answer():
            self.work(root)
            for query in list(open_):
                if any(value == value for value in prometheus.values(query)):  # a number, not only the absence of one
                    del open_[query]
            return open_

        self.until(without_answer, "every panel has an answer", 60, passes=lambda left: not left, pause=0.2)
        self.assertEqual(prometheus.values('up{job="holdfast"}'), [1])
        self.assertGreaterEqual(sum(prometheus.values('nlm_requests_total{procedure="LOCK"}')), 1)
        rules = [rule for group in prometheus.ask("/api/v1/rules")["groups"] for rule in group["rules"]]
        self.assertEqual({rule["name"] for rule in rules if rule["health"] == "ok"},
                         set(re.findall(r"- alert: (\w+)", read(RULES))))  # fmt: skip
        self.assertEqual([rule["name"] for rule in rules if rule["state"] == "firing"], [], "all is well")


if __name__ == "__main__":
    main()
