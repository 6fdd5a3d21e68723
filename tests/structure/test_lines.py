#!/usr/bin/env python3
"""The maps of the folders, kept true. The main header of each folder has a line for every .c of the folder, and for no other (proc_*.c stands
for several): a new file needs a line there. Where a header says that a file calls only files below it in its list, no file uses a function, or a
table, of a file above it. The files of a folder that call each other in a circle are those that docs/architecture.md has in its table of circles.
A comment names no function that does not exist, and no line of it was broken by the formatter.

    test_lines.py SRC
"""
import fnmatch
import pathlib
import re
import sys

RULE = "A file calls only files below it in this list."
ENTRY = re.compile(r"^ \*\t(\w+\.c)\b", re.M)
NAMED = re.compile(r"(?<![\w/*])[\w*]+\.c\b")
DEFINED = re.compile(r"^(?!static\b)[a-z][\w \*\n]*?\b(hf_\w+)\([^;{]*\)\n\{|^const struct \w+ (hf_\w+) =", re.M)
CIRCLE = re.compile(r"^\| `([\w/]+)` \|[^|]*\| ((?:`\w+\.c` ?)+)\|$", re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)

# A folder's map is in the header of its own name, but for these. In base each file has a header of its own.
MAPS = {"rpc": ["server_internal.h", "client_internal.h"], "vfs": ["file.h"], "store/lmdb": ["internal.h"], "store/postgres": ["internal.h"]}
WITHOUT = {"base"}


def missing(folder, src):
    headers = [folder / name for name in MAPS.get(folder.relative_to(src).as_posix(), [folder.name + ".h"])]
    heads = [header.read_text().split("#pragma once")[0] for header in headers]
    named = {name for head in heads for line in head.splitlines() if line.startswith(" *\t") for name in NAMED.findall(line)}
    files = {path.name for path in folder.glob("*.c")}
    for name in sorted(files):
        if not any(fnmatch.fnmatch(name, pattern) for pattern in named):
            yield f"{headers[0]}: {name} is not in the list"
    for pattern in sorted(named):
        if not fnmatch.filter(files, pattern):
            yield f"{headers[0]}: {pattern} is in the list, and not there"


def calls(folder):
    """The text of each file, and the file of each function and table."""
    texts = {path.name: path.read_text() for path in folder.glob("*.c")}
    return texts, {a or b: name for name, text in texts.items() for a, b in DEFINED.findall(text)}


def upward(header):
    order = ENTRY.findall(header.read_text().split(RULE)[0])
    texts, owner = calls(header.parent)
    for name in sorted(set(texts) - set(order)):
        yield f"{header}: {name} has no line of its own in the list"
    for name in sorted(set(texts) & set(order)):
        for used in sorted(set(re.findall(r"\bhf_\w+", texts[name]))):
            target = owner.get(used, name)
            if target in order and order.index(target) < order.index(name):
                yield f"{header.parent / name}: calls {used}() of {target}, which is above it"


def reached(uses, name):
    found, left = set(), [name]
    while left:
        new = uses[left.pop()] - found
        found |= new
        left += new
    return found


def circles_of(folder):
    texts, owner = calls(folder)
    uses = {name: {owner.get(used, name) for used in re.findall(r"\bhf_\w+", COMMENT.sub("", text))} - {name} for name, text in texts.items()}
    reach = {name: reached(uses, name) for name in uses}
    return {frozenset(other for other in reach[name] if name in reach[other]) for name in uses if name in reach[name]}


def circles(folders, src):
    document = src.parent / "docs" / "architecture.md"
    told = {(folder, frozenset(re.findall(r"\w+\.c", files))) for folder, files in CIRCLE.findall(document.read_text())}
    true = {(folder.relative_to(src).as_posix(), circle) for folder in folders for circle in circles_of(folder)}
    for folder, circle in sorted(true - told, key=str):
        yield f"{document}: the circle of {folder} is not there: {' '.join(sorted(circle))}"
    for folder, circle in sorted(told - true, key=str):
        yield f"{document}: {folder} has no such circle: {' '.join(sorted(circle))}"


def unknown(src):
    texts = {path: path.read_text() for path in sorted(src.rglob("*.[ch]"))}
    known = {name for text in texts.values() for name in re.findall(r"\bhf_\w+", COMMENT.sub("", text))}
    for path, text in texts.items():
        for name in sorted({name for comment in COMMENT.findall(text) for name in re.findall(r"\b(hf_\w+)\(\)", comment)} - known):
            yield f"{path}: a comment names {name}(), which does not exist"


def broken(src):
    folders = [src.parent / name for name in ("src", "sim", "tests", "bench", "fuzz", "standin")]
    for path in sorted(path for folder in folders for path in folder.rglob("*.[ch]") if "node_modules" not in path.parts):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.match(r" \*[A-Za-z]", line):
                yield f"{path}:{number}: a line of a comment begins without a space; it was too long for the formatter"


def main():
    src = pathlib.Path(sys.argv[1])
    folders = [folder for folder in sorted({path.parent for path in src.rglob("*.c")}) if folder.relative_to(src).as_posix() not in WITHOUT]
    headers = [path for path in sorted(src.rglob("*.h")) if RULE in path.read_text()]
    found = [fault for folder in folders for fault in missing(folder, src)]
    found += [fault for header in headers for fault in upward(header)]
    found += circles(sorted({path.parent for path in src.rglob("*.c")}), src)
    found += unknown(src)
    found += broken(src)
    print("\n".join(found) or f"{len(folders)} maps are true, {len(headers)} of them with an order")
    return 1 if found or not headers else 0


sys.exit(main())
