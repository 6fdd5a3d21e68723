#!/usr/bin/env python3
"""NFSv3 beside nfs-ganesha on the same directory in the same run, and beside what the kernel can do as the limit.

    files.py BUILD_DIR [--beside OTHER/holdfastd] [--alone] [--seconds S] [--rounds N] [--dir DIR] [--image FS]
             [--connections N] [--depth N] [--only WORKLOAD]...

BUILD_DIR has holdfastd, bench_files and the others that begin so (-Dbench=true). The column "ours" is holdfastd with one
export and every default. With --beside, another build is measured in the same rounds. Runs in namespaces of its own; needs
root, and nfs-ganesha with nfs-ganesha-vfs for the comparison; --alone leaves ganesha out. Prints a table to stderr and JSON
to stdout.

The limit of READ and WRITE is a plain file and a socket. That of CREATE and REMOVE is plain system calls without a socket,
by one thread or by as many as there are connections, whichever is better, and with the same durability: holdfastd answers
when names are on stable storage. Ganesha does not: it syncs nothing. create-remove-async is an export of holdfastd with
`sync: false`, which promises as little; another build is not asked for it, since older ones do not know it. What the kernel
takes for either hangs on the file system and its disk, so all are measured in turn, each round in a directory of its own
(ext4 without a journal passes over all inodes that were freed within a minute, one by one). With --image FS (ext4, xfs,
btrfs) all happens on a new file system in a file of DIR, so that no neighbour's data goes with every sync.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

NAMES, NAMES_ASYNC = "create-remove", "create-remove-async"
WORKLOADS = ("getattr", "lookup", NAMES, NAMES_ASYNC, "readdirplus", "read-64k", "read-1m", "write-64k", "write-1m")
WIDTH = 1 + max(map(len, WORKLOADS))
COLUMNS = ("ours", "other", "ganesha", "plain")
PATIENCE = 60
IMAGE_SIZE = 2 << 30

GANESHA = """
NFS_CORE_PARAM {{ NFS_Port = 12049; MNT_Port = 12050; NLM_Port = 12051; Rquota_Port = 12052; Protocols = 3;
  Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = false; }}
NFS_KRB5 {{ Active_krb5 = false; }}
LOG {{ Default_Log_Level = EVENT; }}
EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /bench; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3;
  SecType = sys; FSAL {{ Name = VFS; }} }}
"""


def in_namespace():
    if os.environ.get("HF_BENCH_INSIDE"):
        return
    os.environ["HF_BENCH_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "-n", "-m", "--", sys.executable, *sys.argv])


def mount_image(base, kind):
    """A file system of its own, seen in this mount namespace only."""
    image, where = os.path.join(base, "disk.img"), os.path.join(base, "disk")
    with open(image, "wb") as out:
        out.truncate(IMAGE_SIZE)
    os.mkdir(where)
    subprocess.run(["mkfs." + kind, "-q", image], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    return where


def prepare(base):
    data = os.path.join(base, "export")
    os.makedirs(os.path.join(data, "small"))
    os.makedirs(os.path.join(data, "listed"))
    for i in range(1000):
        with open(os.path.join(data, "small", f"f{i}"), "wb") as out:
            out.write(b"x" * 100)
    for i in range(10000):
        os.close(os.open(os.path.join(data, "listed", f"name-{i}"), os.O_CREAT | os.O_WRONLY))
    with open(os.path.join(data, "data"), "wb") as out:
        for _ in range(256):
            out.write(os.urandom(1 << 20))
    os.sync()
    return data


class Ours:
    """The daemon with its defaults, but for @settings (KEY=VALUE). With is_async, a second export of the same directory has
    sync: false."""

    def __init__(self, program, base, data, is_async=False, settings=()):
        state = tempfile.mkdtemp(prefix="state-", dir=base)
        exports = [{"path": data, "name": "/bench", "squash": "none"}]
        if is_async:
            exports.append({"path": data, "name": "/async", "squash": "none", "sync": False})
        config = os.path.join(state, "holdfast.yaml")
        with open(config, "w", encoding="ascii") as out:
            json.dump({"server": {"port": 0, "portmap": "off", "state_dir": state}, "api": {"listen": ""}, "exports": exports}, out)
        words = [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen([program, "--config", config, *words], stderr=subprocess.DEVNULL)
        port = str(self.await_port(os.path.join(state, "ports.json")))
        self.where = ["127.0.0.1", port, port, "/bench"]

    def await_port(self, path):
        end = time.monotonic() + PATIENCE
        while not os.path.exists(path):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.process.args[0]} does not serve")
            time.sleep(0.05)
        with open(path, encoding="ascii") as ports:
            return json.load(ports)["rpc"]

    def where_of(self, workload):
        return [*self.where[:-1], "/async"] if workload == NAMES_ASYNC else self.where

    def close(self):
        self.process.terminate()
        self.process.wait()


class Ganesha:
    def __init__(self, base, data):
        config = os.path.join(base, "ganesha.conf")
        with open(config, "w", encoding="ascii") as out:
            out.write(GANESHA.format(path=data))
        os.makedirs("/var/run/ganesha", exist_ok=True)
        self.rpcbind = subprocess.Popen(["rpcbind", "-f", "-w"], stderr=subprocess.DEVNULL)
        self.log = os.path.join(base, "ganesha.log")
        self.process = subprocess.Popen(
            ["ganesha.nfsd", "-F", "-f", config, "-L", self.log, "-p", os.path.join(base, "ganesha.pid")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        self.where = ["127.0.0.1", "12049", "12050", data]

    def where_of(self, _):
        return self.where

    def close(self):
        for process in (self.process, self.rpcbind):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Plain:
    def __init__(self, args, data):
        self.process = subprocess.Popen(
            [os.path.join(args.build, "bench/bench_files_plain"), os.path.join(data, "data")], stdout=subprocess.PIPE)
        self.where = ["127.0.0.1", *[str(int(self.process.stdout.readline()))] * 2, "-"]

    def where_of(self, _):
        return self.where

    def close(self):
        self.process.terminate()
        self.process.wait()


class Names:
    """A new directory of the export for each that is measured."""

    def __init__(self, data):
        self.data = data
        self.n_made = 0

    def next(self):
        self.n_made += 1
        name = f"names-{self.n_made}"
        os.mkdir(os.path.join(self.data, name))
        return name


def run_json(words, seconds):
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE + seconds, check=False)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr.decode()}")
    return json.loads(done.stdout)


def measure(args, where, workload, seconds, directory="small"):
    words = [os.path.join(args.build, "bench/bench_files"), *where, workload, str(args.connections), str(args.depth)]
    return run_json([*words, str(seconds), directory], seconds)


def measure_names(args, names, n_threads, how):
    program = os.path.join(args.build, "bench/bench_files_names")
    where = os.path.join(names.data, names.next())
    return run_json([program, where, str(n_threads), str(args.depth), str(args.seconds), how], args.seconds)


def wait_for(args, where):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return measure(args, where, "getattr", 0.1)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def rate_of(result):
    if result["workload"] == "readdirplus":
        return result["entries_per_second"]
    return result["mib_per_second"] or result["calls_per_second"]


def cpu_of(process):
    """Seconds that the server has computed so far, in and out of the kernel."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_once(args, names, held, workload):
    """With the processor time of a unit (an operation, an entry, a MiB), which hangs less on what else the machine does."""
    directory = names.next() if workload in (NAMES, NAMES_ASYNC) else "small"
    before = cpu_of(held.process)
    load = NAMES if workload == NAMES_ASYNC else workload
    result = measure(args, held.where_of(workload), load, args.seconds, directory)
    if result["errors"]:
        raise RuntimeError(f"errors: {result}")
    n_units = rate_of(result) * result["seconds"]
    return rate_of(result), round((cpu_of(held.process) - before) * 1e6 / max(1, n_units), 2)


def limit_of_names(args, names, how):
    """All that plain system calls can do."""
    results = [measure_names(args, names, n_threads, how) for n_threads in sorted({1, args.connections})]
    return max((result["calls_per_second"], result["cpu_us"]) for result in results)


def measure_round(args, servers, names, workload, is_reversed):
    found = {}
    for name, held in reversed(servers.items()) if is_reversed else servers.items():
        if name == "other" and workload == NAMES_ASYNC:
            continue
        if name != "plain":
            found[name] = measure_once(args, names, held, workload)
        elif workload.startswith(("read-", "write-")):
            found[name] = measure_once(args, names, held, "plain-" + workload)
        elif workload in (NAMES, NAMES_ASYNC):
            found[name] = limit_of_names(args, names, "sync" if workload == NAMES else "async")
    return found


def compare(args, servers, names, workload):
    """The best of some rounds, so that a hiccup of the machine does not count; all in turn, so that it hits all. Two builds
    may differ by less than the rounds do: their ratio is the median of those within a round."""
    best, ratios, row = {}, [], {}
    for i in range(args.rounds):
        found = measure_round(args, servers, names, workload, i % 2 == 1)
        for name, measured in found.items():
            best[name] = max(best.get(name, measured), measured)
        if "other" in found:
            ratios.append(found["ours"][0] / found["other"][0])
    if ratios:
        row["by_other"] = round(statistics.median(ratios), 3)
    for name in COLUMNS:
        if name in best:
            row[name], row[name + "_cpu_us"] = best[name]
    return row


def line_of(workload, row):
    cells = [f"{workload:{WIDTH}}"]
    for name in COLUMNS:
        cells.append(f"{row[name]:10.0f}{row[name + '_cpu_us']:8.1f}" if name in row else " " * 18)
    cells.append(f"{row['by_other']:10.2f}" if "by_other" in row else " " * 10)
    cells.append(f"{row['ours'] / row['ganesha']:10.2f}" if row.get("ganesha") else " " * 10)
    cells.append(f"{100 * row['ours'] / row['plain']:8.0f} %" if row.get("plain") else "")
    return "".join(cells)


def end(args, base, servers):
    for held in servers.values():
        held.close()
    if args.image:
        subprocess.run(["umount", os.path.join(base, "disk")], check=False)
    shutil.rmtree(base, ignore_errors=True)


def begin(parser, seconds, rounds):
    """The arguments, with the options that every comparison takes; from here on in namespaces of its own."""
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--image", choices=("ext4", "xfs", "btrfs"))
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--only", action="append")
    args = parser.parse_intermixed_args()
    args.build = os.path.abspath(args.build)
    in_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return args


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--beside")
    parser.add_argument("--alone", action="store_true")
    args = begin(parser, seconds=3, rounds=2)
    base = tempfile.mkdtemp(prefix="hf-bench-files-", dir=args.dir)
    servers, rows = {}, {}
    try:
        where = mount_image(base, args.image) if args.image else base
        data = prepare(where)
        names = Names(data)
        servers["ours"] = Ours(os.path.join(args.build, "holdfastd"), base, data, is_async=True)
        if args.beside:
            servers["other"] = Ours(os.path.abspath(args.beside), base, data)
        if shutil.which("ganesha.nfsd") and not args.alone:
            servers["ganesha"] = Ganesha(base, data)
        servers["plain"] = Plain(args, data)
        for name in ("ours", "other", "ganesha"):
            if name in servers:
                wait_for(args, servers[name].where)
        heads = [f"{name:>10}{'cpu us':>8}" for name in ("ours", "other", "ganesha", "limit")]
        print(f"{'':{WIDTH}}{''.join(heads)}{'x other':>10}{'x ganesha':>10}{'of limit':>10}", file=sys.stderr)
        for workload in args.only or WORKLOADS:
            rows[workload] = compare(args, servers, names, workload)
            print(line_of(workload, rows[workload]), file=sys.stderr, flush=True)
        print(json.dumps({"files": rows, "image": args.image}))
    finally:
        end(args, base, servers)


if __name__ == "__main__":
    main()
