#!/usr/bin/env python3
"""openapi.json against the real routes and answers; contrib/ against the real metrics; a scrape by a real Prometheus."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from play import Play, main
from rest import Rest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list,
         "null": type(None)}  # fmt: skip


class Described(Play):
    settings = ("api.listen=127.0.0.1:0",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rest = Rest(cls.daemon)
        cls.doc = cls.rest.get("/api/v1/openapi.json").json

    def check(self, schema, value, where):
        if "$ref" in schema:
            schema = self.doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        self.assertTrue(any(isinstance(value, TYPES[kind]) for kind in kinds), f"{where}: {value!r} is no {kinds}")
        self.assertIn(value, schema.get("enum", [value]), where)
        if isinstance(value, dict) and "properties" in schema:
            self.assertLessEqual(set(schema.get("required", ())), set(value), where)
            self.assertLessEqual(set(value), set(schema["properties"]), f"{where}: not described")
            for key, item in value.items():
                self.check(schema["properties"][key], item, f"{where}.{key}")
        for i, item in enumerate(value if isinstance(value, list) else ()):
            self.check(schema["items"], item, f"{where}[{i}]")

    def routes(self):
        """As the program has them."""
        with open(os.path.join(ROOT, "src/api/routes.c"), encoding="utf-8") as source:
            text = source.read()
        for row in text[text.index("hf_api_routes[]") :].split("{ .method")[1:]:
            row = ".method" + row
            params = re.search(r"\.params = \{(.*?)\}", row, re.S)
            yield (re.search(r'\.method = "(\w+)"', row)[1].lower(), re.search(r'\.pattern = "([^"]+)"', row)[1],
                   set(re.findall(r'"(\w+)"', params[1])) if params else set(), ".changes = true" in row)  # fmt: skip

    def test_every_route_and_no_other_is_described(self):
        routes = {(method, pattern): (params, changes) for method, pattern, params, changes in self.routes()}
        self.assertGreater(len(routes), 14)
        described = {
            (method, path): ({p["name"] for p in op.get("parameters", ()) if p["in"] == "query"}, op["security"] == [{"token": []}])
            for path, ops in self.doc["paths"].items() for method, op in ops.items()
        }  # fmt: skip
        self.assertEqual(described, routes)

    def test_answers_are_as_described(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assert_blocked(self.b, self.lock_of(self.b))
        client = urllib.parse.quote(f"nlm:{self.a.address}:{self.a.name}", safe="")
        for path, ops in self.doc["paths"].items():
            content = ops.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
            if "application/json" not in content:
                continue
            answer = self.rest.get(path.replace("{id}", client))
            self.assertEqual(answer.status, 200, path)
            self.check(content["application/json"]["schema"], answer.json, path)
        self.check({"$ref": "#/components/schemas/Error"}, self.rest.get("/nowhere").json, "error")

    def test_contrib_knows_only_real_metrics(self):
        names = set(re.findall(r"^# TYPE (\S+) ", self.rest.get("/metrics").body.decode(), re.M))
        for path in ("contrib/prometheus/holdfast.rules.yml", "contrib/grafana/holdfast.json"):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                used = set(re.findall(r"\b((?:nsm|nlm|nfs|mount|holdfast)_[a-z_]+[a-z])\{?", file.read()))
            used = {re.sub("_bucket$", "", name) for name in used}
            self.assertTrue(used)
            self.assertLessEqual(used, names, path)

    def test_promtool_takes_the_rules(self):
        promtool = shutil.which("promtool")
        if not promtool:
            self.skipTest("no promtool")
        folder = os.path.join(ROOT, "contrib/prometheus")
        for words in (["check", "rules", "holdfast.rules.yml"], ["test", "rules", "holdfast.rules.test.yml"]):
            done = subprocess.run([promtool, *words], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_real_prometheus_scrapes_it(self):
        prometheus = shutil.which("prometheus")
        if not prometheus:
            self.skipTest("no prometheus")
        self.assert_granted(self.a, self.lock_of(self.a))
        with tempfile.TemporaryDirectory(prefix="hf-prom-") as folder:
            with open(f"{folder}/p.yml", "w", encoding="utf-8") as file:
                json.dump({"scrape_configs": [{"job_name": "holdfast", "scrape_interval": "1s", "scrape_timeout": "1s",
                           "static_configs": [{"targets": [f"127.0.0.1:{self.rest.port}"]}]}]}, file)  # fmt: skip
            with self.daemon.namespace:
                process = subprocess.Popen(
                    [prometheus, f"--config.file={folder}/p.yml", f"--storage.tsdb.path={folder}/data",
                     "--web.listen-address=127.0.0.1:9090"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            try:
                self.assertGreaterEqual(self.ask_prometheus('sum(nlm_requests_total{procedure="LOCK"})'), 1)
                self.assertEqual(self.ask_prometheus('up{job="holdfast"}'), 1)
            finally:
                process.terminate()
                process.wait()

    def ask_prometheus(self, query):
        prometheus = Rest(self.daemon)
        prometheus.__class__ = type("Prometheus", (Rest,), {"port": 9090})
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                found = prometheus.get("/api/v1/query?query=" + urllib.parse.quote(query)).json["data"]["result"]
                if found:
                    return float(found[0]["value"][1])
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.2)
        self.fail(f"Prometheus knows nothing of {query}")


if __name__ == "__main__":
    main()
