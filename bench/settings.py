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
import sys
import tempfile

from files import NAMES, Names, Ours, begin, end, measure_once, mount_image, prepare, wait_for

WORKLOADS = ("getattr", "lookup", NAMES, "read-64k", "write-64k")
WIDTH = 22


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
    args = begin(parser, seconds=1, rounds=9)
    base = tempfile.mkdtemp(prefix="hf-bench-settings-", dir=args.dir)
    settings = args.settings or ["metrics.per_client=true", "log.slow_ms=1000", f"log.audit={base}/audit.log"]
    servers, rows = {}, {}
    try:
        data = prepare(mount_image(base, args.image) if args.image else base)
        names, program = Names(data), os.path.join(args.build, "holdfastd")
        for name in ("without", "again"):
            servers[name] = Ours(program, base, data)
        for setting in settings:
            servers[setting.split("=")[0]] = Ours(program, base, data, settings=(setting,))
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
