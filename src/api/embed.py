#!/usr/bin/env python3
"""Makes a C file of files that are part of the program.

    embed.py OUT.c NAME=FILE…

The page's styles and scripts, which are files beside it, become part of it: it is one file and loads no other. Its
content security policy allows only these, by their hash.
"""
import base64
import hashlib
import pathlib
import re
import sys

TYPES = {".html": "text/html; charset=utf-8", ".json": "application/json"}


def inline(path, text):
    """The page with its styles and scripts in it."""
    beside = lambda name: (path.parent / name).read_text()
    text = re.sub(r'<link rel="stylesheet" href="([^":]+)">', lambda m: f"<style>\n{beside(m[1])}</style>", text)
    return re.sub(r'<script src="([^":]+)"></script>', lambda m: f"<script>\n{beside(m[1])}</script>", text)


def hashes(text, tag):
    for body in re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", text, re.S):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        yield f"'sha256-{digest}'"


def policy(path, text):
    if path.suffix != ".html":
        return "default-src 'none'; frame-ancestors 'none'"
    scripts, styles = (" ".join(hashes(text, tag)) for tag in ("script", "style"))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def main():
    parts = ['#include "api/assets.h"\n']
    for name, file in (word.split("=", 1) for word in sys.argv[2:]):
        path = pathlib.Path(file)
        text = path.read_text()
        data = (inline(path, text) if path.suffix == ".html" else text).encode()
        rows = [", ".join(map(str, data[i : i + 24])) for i in range(0, len(data), 24)]
        parts.append(f"static const unsigned char {name}_bytes[] = {{\n\t" + ",\n\t".join(rows) + "\n};\n")
        parts.append(
            f"const struct hf_api_asset {name} = {{\n\t(const char *){name}_bytes, sizeof({name}_bytes),\n"
            f'\t"{TYPES[path.suffix]}",\n\t"{policy(path, data.decode())}"\n}};\n'
        )
    pathlib.Path(sys.argv[1]).write_text("\n".join(parts))


main()
