#!/usr/bin/env python3
"""What a setting of holdfastd costs: servers with and without it, on the same directory in the same run.

    settings.py BUILD_DIR [KEY=VALUE]... [--seconds S] [--rounds N] [--dir DIR] [--image FS] [--only WORKLOAD]...

BUILD_DIR has holdfastd and bench_files (-Dbench=true). Needs root. Without KEY=VALUE: metrics.per_client, log.slow_ms and
log.audit, each alone.

Each round measures all servers in turn. A second server without the settings ("again") is measured in each round, too: its
ratio is the noise of the machine. Rates are medians. The processor time of a call is the least of all rounds: it hangs less
on what else the machine does. With a DIR in memory (/dev/shm), changes of names do not wait for a disk. Prints a table to
stderr and JSON to stdout.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from files import NAMES, PATIENCE, Names, end, in_namespace, measure_once, mount_image, prepare, wait_for

WORKLOADS = ("getattr", "lookup", NAMES, "read-64k", "write-64k")
WIDTH = 22


class Server:
    def __init__(self, args, base, data, name, settings):
        state = os.path.join(base, f"state-{name}")
        words = [os.path.join(args.build, "holdfastd"), "--config", os.path.join(base, "holdfast.yaml")]
        for setting in (f"server.state_dir={state}", "server.port=0", "server.portmap=off", "store.backend=memory",
                        "api.listen=127.0.0.1:0", "log.level=error", *settings):  # fmt: skip
            words += ["--set", setting]
        with open(os.path.join(base, "holdfast.yaml"), "w", encoding="utf-8") as out:
            out.write(f"exports:\n  - {{path: {data}, name: /bench, squash: none, clients: [any]}}\n")
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        ports, until = os.path.join(state, "ports.json"), time.monotonic() + PATIENCE
        while not os.path.exists(ports):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"it does not start: {words}")
            time.sleep(0.05)
        with open(ports, encoding="utf-8") as file:
            self.where = ["127.0.0.1", *[str(json.load(file)["rpc"])] * 2, "/bench"]

    def where_of(self, _):
        return self.where

    def close(self):
        self.process.terminate()
        self.process.wait()


def compare(args, servers, names, workload):
    """{server: [median rate, least processor time of a call]}"""
    found = {name: [] for name in servers}
    for i in range(args.rounds):
        order = list(found)
        for name in order[i % len(order) :] + order[: i % len(order)]:  # each is first at times
            found[name].append(measure_once(args, names, servers[name], workload))
    return {name: [statistics.median(rate for rate, _ in measured), min(cpu for _, cpu in measured)]
            for name, measured in found.items()}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--image", choices=("ext4", "xfs", "btrfs"))
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    in_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    base = tempfile.mkdtemp(prefix="hf-bench-settings-", dir=args.dir)
    settings = args.settings or ["metrics.per_client=true", "log.slow_ms=1000", f"log.audit={base}/audit.log"]
    servers, rows = {}, {}
    try:
        data = prepare(mount_image(base, args.image) if args.image else base)
        names = Names(data)
        for name in ("without", "again"):
            servers[name] = Server(args, base, data, name, ())
        for setting in settings:
            servers[setting.split("=")[0]] = Server(args, base, data, setting.split("=")[0], (setting,))
        for server in servers.values():
            wait_for(args, server.where)
        print(f"{'':{WIDTH}}{'rate':>12}{'ratio':>8}{'cpu us':>9}{'ratio':>8}", file=sys.stderr)
        for workload in args.only or WORKLOADS:
            rows[workload] = compare(args, servers, names, workload)
            print(workload, file=sys.stderr)
            base_rate, base_cpu = rows[workload]["without"]
            for name, (rate, cpu) in rows[workload].items():
                print(f"  {name:{WIDTH - 2}}{rate:12.0f}{rate / base_rate:8.3f}{cpu:9.2f}{cpu / (base_cpu or 1):8.3f}",
                      file=sys.stderr, flush=True)  # fmt: skip
        print(json.dumps({"settings": rows, "image": args.image}))
    finally:
        end(args, base, servers)


if __name__ == "__main__":
    main()
