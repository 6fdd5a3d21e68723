#!/usr/bin/env python3
"""The maps of the folders, kept true. The main header of each folder has a line for every .c of the folder, and for no other (proc_*.c stands
for several): a new file needs a line there. Where a header says that a file calls only files below it in its list, no file uses a function, or a
table, of a file above it. The files of a folder that call each other in a circle are those that docs/architecture.md has in its table of circles.
A comment names no function that does not exist, and no line of it was broken by the formatter.

A file calls another one of its folder if it names a function or a table of it: it calls the function, takes its address, or reads the table, through
which the functions in it are called. What an inline function or a macro of a header names, the file names that uses it. The tag of a struct, union or
enum, the name of a member, a comment and a text are no calls, whatever they are spelled like.

    test_lines.py SRC
"""
import fnmatch
import pathlib
import re
import sys
import tempfile

RULE = "A file calls only files below it in this list."
ENTRY = re.compile(r"^ \*\t(\w+\.c)\b", re.M)
NAMED = re.compile(r"(?<![\w/*])[\w*]+\.c\b")
DEFINED = re.compile(r"^(?!static\b|typedef\b)[A-Za-z_][\w \*\n]*?\b(\w+)\([^;{]*\)\n\{|^(?!static\b|extern\b)[A-Za-z_][\w \*]*?\b(\w+)(?:\[\w*\])* =", re.M)
INLINE = re.compile(r"^static inline [\w \*\n]*?\b(\w+)\([^;{]*\)\n\{(.*?)^\}", re.M | re.S)
MACRO = re.compile(r"^#define (\w+)((?:[^\n]*\\\n)*[^\n]*)", re.M)
CLEANUP = re.compile(r"^HF_DEFINE_CLEANUP\([\w \*]+, (\w+)\)", re.M)
TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'""", re.S)
NO_CALL = re.compile(r"\b(?:struct|union|enum)\s+\w+|(?:\.(?<!\.\.)|->)\s*\w+")
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


def bare(path):
    return TEXT.sub(lambda found: " " if found[0][0] == "/" else '""', path.read_text())


def words(text):
    return set(re.findall(r"\b[A-Za-z_]\w*\b", NO_CALL.sub("", text)))


def inlined(headers):
    """What the inline functions and macros of the headers name, directly or by others of them."""
    direct = {}
    for text in map(bare, headers):
        for name, body in INLINE.findall(text) + MACRO.findall(text) + [(name + "p", name) for name in CLEANUP.findall(text)]:
            direct.setdefault(name, set()).update(words(body) - {name})
    steps = {name: named & direct.keys() for name, named in direct.items()}
    return {name: direct[name].union(*(direct[other] for other in reached(steps, name))) for name in direct}


def reached(uses, name):
    found, left = set(), [name]
    while left:
        new = uses[left.pop()] - found
        found |= new
        left += new
    return found


def calls(folder, headers):
    """For each file of the folder: the functions and tables that it names of each other file."""
    texts = {path.name: bare(path) for path in folder.glob("*.c")}
    owner = {a or b: name for name, text in texts.items() for a, b in DEFINED.findall(text)}
    found = {name: {} for name in texts}
    for name, text in texts.items():
        direct = words(text)
        for used in direct.union(*(headers[word] for word in direct & headers.keys())):
            if owner.get(used, name) != name:
                found[name].setdefault(owner[used], set()).add(used)
    return found


def upward(header, headers):
    order = ENTRY.findall(header.read_text().split(RULE)[0])
    found = calls(header.parent, headers)
    for name in sorted(set(found) - set(order)):
        yield f"{header}: {name} has no line of its own in the list"
    for name in sorted(set(found) & set(order)):
        for target in sorted(found[name].keys() & set(order)):
            if order.index(target) < order.index(name):
                yield f"{header.parent / name}: calls {', '.join(sorted(found[name][target]))} of {target}, which is above it"


def circles_of(folder, headers):
    uses = {name: set(found) for name, found in calls(folder, headers).items()}
    reach = {name: reached(uses, name) for name in uses}
    return {frozenset(other for other in reach[name] if name in reach[other]) for name in uses if name in reach[name]}


PLANTED = {
    "x.h": """enum hf_kind { HF_A };
#define HF_ASK(a) hf_twice(a)
HF_DEFINE_CLEANUP(struct hf_g *, hf_g_free)
static inline int hf_twice(int a)
{
	return 2 * hf_once(a);
}
""",
    "call.c": "int hf_call(void)\n{\n\treturn hf_called(1);\n}\n",
    "called.c": "int hf_called(int n)\n{\n\treturn n ? n : hf_call();\n}\n",
    "give.c": "void hf_give(void)\n{\n\ton(hf_taken);\n}\n",
    "take.c": "SSL *hf_taken(void)\n{\n\thf_give();\n}\n",
    "ask.c": "int hf_ask(void)\n{\n\treturn HF_ASK(1);\n}\n",
    "once.c": "int hf_once(int a)\n{\n\treturn a ? a : hf_ask();\n}\n",
    "table.c": "const struct hf_op hf_ops[] = {\n\t{ .run = hf_run },\n};\n",
    "run.c": "int hf_run(void)\n{\n\treturn hf_ops[0].run();\n}\n",
    "g.c": "struct hf_g *hf_g_free(struct hf_g *g)\n{\n\treturn hf_h(g);\n}\n",
    "h.c": "struct hf_g *hf_h(struct hf_g *g)\n{\n\thf_cleanup(hf_g_freep) struct hf_g *old = g;\n\n\treturn NULL;\n}\n",
    # These two use only the type, member and enum of each other's name, and speak of the functions.
    "kind.c": "enum hf_kind hf_kind(const struct hf_size *s)\n{\n\treturn (enum hf_kind)s->hf_size; /* hf_size() */\n}\n",
    "size.c": "struct hf_size {\n\tenum hf_kind kind;\n};\n\nint hf_size(void)\n{\n\treturn say(\"hf_kind()\", '\"', (struct s){ .hf_kind = 1 });\n}\n",
    "first.c": "int hf_first(void)\n{\n\treturn hf_second();\n}\n",
    "second.c": "int hf_second(void)\n{\n\treturn 0;\n}\n",
}
IN_CIRCLES = ["ask.c once.c", "call.c called.c", "g.c h.c", "give.c take.c", "run.c table.c"]


def blind():
    """What this test does not see, or sees where it is not, in a folder with known circles."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, text in PLANTED.items():
            (folder / file).write_text(text)
        seen = sorted(" ".join(sorted(circle)) for circle in circles_of(folder, inlined([folder / "x.h"])))
        if seen != IN_CIRCLES:
            yield f"{__file__}: the planted circles are {IN_CIRCLES}, and it sees {seen}"


def circles(folders, src, headers):
    document = src.parent / "docs" / "architecture.md"
    told = {(folder, frozenset(re.findall(r"\w+\.c", files))) for folder, files in CIRCLE.findall(document.read_text())}
    names = {folder: folder.relative_to(src if src in folder.parents else src.parent).as_posix() for folder in folders}
    true = {(names[folder], circle) for folder in folders for circle in circles_of(folder, headers)}
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
    cli = src.parent / "cli"
    headers = [path for path in sorted(src.rglob("*.h")) if RULE in path.read_text()]
    inlines = inlined(sorted([*src.rglob("*.h"), *cli.rglob("*.h")]))
    found = [fault for folder in folders for fault in missing(folder, src)]
    found += [fault for header in headers for fault in upward(header, inlines)]
    found += circles(sorted({path.parent for path in [*src.rglob("*.c"), *cli.rglob("*.c")]}), src, inlines)
    found += blind()
    found += unknown(src)
    found += broken(src)
    print("\n".join(found) or f"{len(folders)} maps are true, {len(headers)} of them with an order")
    return 1 if found or not headers else 0


sys.exit(main())
