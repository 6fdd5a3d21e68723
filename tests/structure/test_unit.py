#!/usr/bin/env python3
"""The systemd unit: valid, its exposure, as systemd-analyze judges it, under a limit, and nothing refused that the server
itself allows.

    test_unit.py FOLDER/holdfastd.service FOLDER/sandbox.c
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77  # meson's word for it
LIMIT = 2.7


def judge(*words):
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


@functools.lru_cache(None)
def calls_in(group):
    """The names in one of systemd's groups, and in those that it consists of."""
    names = set()
    for line in judge("syscall-filter", "--no-pager", group).stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            names |= calls_in(word)
        elif word and not word.startswith("#"):
            names.add(word)
    assert names, group
    return names


def calls_of_unit(text):
    """Those that its filter lets through: each line adds to what the lines before it allow, or takes from it."""
    allowed = calls_in("@default")
    for is_not, words in re.findall(r"^SystemCallFilter=(~?)(.*)$", text, flags=re.M):
        for word in words.split():
            names = calls_in(word) if word.startswith("@") else {word}
            allowed = allowed - names if is_not else allowed | names
    return allowed


def calls_of_server(text):
    """Those in its list, whatever else it asks of their arguments."""
    text = re.sub(r"#ifdef HF_SANITIZED.*?#endif", "", text, flags=re.S)
    return set(re.findall(r"\bSYS_(\w+)", text))


# The server does without: CAP_SYS_ADMIN is not there for the first, and libc takes prlimit64 for the last.
NOT_IN_UNIT = {"open_tree", "io_uring_setup", "setrlimit"}


def main():
    if not shutil.which("systemd-analyze"):
        print("skipped: no systemd-analyze")
        sys.exit(SKIPPED)
    unit, sandbox = sys.argv[1:]
    with open(unit, encoding="utf-8") as ours, open(sandbox, encoding="utf-8") as source:
        missing = calls_of_server(source.read()) - calls_of_unit(ours.read()) - NOT_IN_UNIT
    assert not missing, f"the server needs system calls that its unit refuses: {sorted(missing)}"
    with tempfile.TemporaryDirectory() as folder, open(unit, encoding="utf-8") as file:
        # As it will be once the programs and manuals are installed, which they are not here.
        text = re.sub(r"^Documentation=.*\n", "", file.read(), flags=re.M)
        text = re.sub(r"/\S+/holdfastd\b", "/bin/true", text)
        installed = os.path.join(folder, os.path.basename(unit))
        with open(installed, "w", encoding="utf-8") as out:
            out.write(text)
        verdict = judge("verify", installed)
    about = [line for line in verdict.stderr.splitlines() if os.path.basename(unit) in line]
    assert not about, "\n".join(about)  # mistakes in other units of this host do not count
    verdict = judge("security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", verdict.stdout)
    assert found, verdict.stdout + verdict.stderr
    assert float(found[1]) < LIMIT, f"{found[0]}, not under {LIMIT}\n" + "\n".join(
        line for line in verdict.stdout.splitlines() if "✗" in line)  # fmt: skip
    print(found[0])


if __name__ == "__main__":
    main()
