#!/usr/bin/env python3
"""openapi.json against the real routes and answers."""

import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from play import Play, main
from routes import routes

TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list,
         "null": type(None)}  # fmt: skip


class Described(Play):
    settings = ("api.listen=127.0.0.1:0", "metrics.per_client=true")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
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

    def test_every_route_and_no_other_is_described(self):
        known = {(method.lower(), pattern): (params, changes) for method, pattern, params, changes, _ in routes()}
        self.assertGreater(len(known), 14)
        described = {
            (method, path): ({p["name"] for p in op.get("parameters", ()) if p["in"] == "query"}, op["security"] == [{"token": []}])
            for path, ops in self.doc["paths"].items() for method, op in ops.items()
        }  # fmt: skip
        self.assertEqual(described, known)

    def test_answers_are_as_described(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assert_blocked(self.b, self.lock_of(self.b))
        client = urllib.parse.quote(f"nlm:{self.a.address}:{self.a.name}", safe="")
        for path, ops in self.doc["paths"].items():
            content = ops.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
            if "application/json" not in content:
                continue
            answer = self.rest.get(path.replace("{id}", client))
            if path == "/api/v1/cluster":  # this server is no node of one
                self.assertEqual(answer.status, 404)
                continue
            self.assertEqual(answer.status, 200, path)
            self.check(content["application/json"]["schema"], answer.json, path)
        self.check({"$ref": "#/components/schemas/Error"}, self.rest.get("/nowhere").json, "error")


if __name__ == "__main__":
    main()
