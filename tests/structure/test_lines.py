#!/usr/bin/env python3
"""The map of a folder, kept true. Where a header says that a file calls only files below it in its list, the list has every .c of the folder,
and no file uses a function, or a table, of a file above it.

    test_lines.py SRC
"""
import pathlib
import re
import sys

RULE = "A file calls only files below it in this list."
ENTRY = re.compile(r"^ \*\t(\w+\.c)\b", re.M)
DEFINED = re.compile(r"^(?!static\b)[a-z][\w \*\n]*?\b(hf_\w+)\([^;{]*\)\n\{|^const struct \w+ (hf_\w+) =", re.M)


def faults(header):
    order = ENTRY.findall(header.read_text().split(RULE)[0])
    texts = {path.name: path.read_text() for path in header.parent.glob("*.c")}
    for name in sorted(set(texts) ^ set(order)):
        yield f"{header}: {name} is {'not in the list' if name in texts else 'in the list, and not there'}"
    owner = {a or b: name for name, text in texts.items() for a, b in DEFINED.findall(text)}
    for name in sorted(set(texts) & set(order)):
        for used in sorted(set(re.findall(r"\bhf_\w+", texts[name]))):
            target = owner.get(used, name)
            if target in order and order.index(target) < order.index(name):
                yield f"{header.parent / name}: calls {used}() of {target}, which is above it"


def main():
    headers = [path for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.h")) if RULE in path.read_text()]
    found = [fault for header in headers for fault in faults(header)]
    print("\n".join(found) or f"{len(headers)} maps are true")
    return 1 if found or not headers else 0


sys.exit(main())
