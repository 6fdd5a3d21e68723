#!/usr/bin/env python3
"""What the compiler should know of a server's day: which ways are gone often.

    train.py HOLDFASTD LOADS

HOLDFASTD was built to count (b_pgo=generate); LOADS is the folder with bench_nlm and bench_files, built as usual. Locks of
one and of many clients, in exported files with and without the kernel's locks, and in opaque handles; then every kind of file
operation, each for a moment, all on loopback. What was counted is written when the server ends, beside its object files.
`./dev release` runs this.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

SECONDS = "0.5"
LOCK_SECONDS = "0.1"  # for each of five rounds with each of its servers
LOCKS = ((64, 64, 16), (1, 64, 16, "apart"), (8, 64, 1000), (1, 1, 16))  # connections, depth, files; how it unlocks
FILES = ("getattr", "lookup", "create-remove", "readdirplus", "read-64k", "read-1m", "write-64k", "write-1m")
PATIENCE = 300  # seconds; loads last for a few, and a busy machine takes its time


def prepare(base):
    """What bench_files expects of an export."""
    data = os.path.join(base, "export")
    for name, n_files in (("small", 1000), ("listed", 10000)):
        os.makedirs(os.path.join(data, name))
        os.chmod(os.path.join(data, name), 0o777)
        for i in range(n_files):
            path = os.path.join(data, name, f"f{i}" if name == "small" else f"name-{i}")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
    with open(os.path.join(data, "data"), "wb") as out:
        out.truncate(256 << 20)
    os.chmod(os.path.join(data, "data"), 0o666)
    return data


def wait_for_port(process, state):
    end = time.monotonic() + PATIENCE
    path = os.path.join(state, "ports.json")
    while not os.path.exists(path):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("holdfastd did not start")
        time.sleep(0.05)
    with open(path, encoding="ascii") as ports:
        return ports.read().split(":")[1].split(",")[0].strip(" }")


def train_files(program, loads, base):
    data, state = prepare(base), os.path.join(base, "state")
    os.mkdir(state, 0o700)
    settings = ["server.port=0", "server.portmap=off", "api.listen=127.0.0.1:0", f"server.state_dir={state}"]
    words = [word for setting in settings for word in ("--set", setting)]
    with subprocess.Popen([program, "--export", f"{data}:/train", *words], stderr=subprocess.DEVNULL) as process:
        try:
            port = wait_for_port(process, state)
            for workload in FILES:
                load = [os.path.join(loads, "bench_files"), "127.0.0.1", port, port, "/train", workload, "2", "16", SECONDS]
                subprocess.run(load, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        finally:
            process.terminate()


def train_locks(program, loads):
    for row in LOCKS:
        load = [os.path.join(loads, "bench_nlm"), program, "--alone", LOCK_SECONDS, *map(str, row)]
        subprocess.run(load, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: train.py HOLDFASTD LOADS")
    program, loads = map(os.path.abspath, sys.argv[1:])
    base = tempfile.mkdtemp(prefix="hf-train-")
    try:
        train_locks(program, loads)
        train_files(program, loads, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


main()
