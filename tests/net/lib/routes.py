"""The calls of the API, as the program's own table has them: a new one cannot be forgotten."""

import os
import re

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def routes():
    """(method, pattern, names of parameters, whether it changes something, whether it is open to all) of each."""
    with open(os.path.join(ROOT, "src/api/routes.c"), encoding="utf-8") as source:
        text = source.read().split("routes[] = {")[1].split("\n};")[0]
    for row in text.split("{ .method")[1:]:
        row = ".method" + row
        params = re.search(r"\.params = \{(.*?)\}", row, re.S)
        yield (re.search(r'\.method = "(\w+)"', row)[1], re.search(r'\.pattern = "([^"]+)"', row)[1],
               set(re.findall(r'"(\w+)"', params[1])) if params else set(), ".changes = true" in row, ".is_open = true" in row)  # fmt: skip
