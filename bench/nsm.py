#!/usr/bin/env python3
"""Durable registrations (SM_MON) a second beside rpc.statd in the same run, and notices (SM_NOTIFY) by hosts known.

    nsm.py BUILD_DIR [--known N] [--hosts N]... [--only registrations|notices] [--ours-only]

BUILD_DIR has holdfastd and bench/bench_nsm_load. Everything happens in a network namespace of its own, on the disk
that holds temporary files. rpc.statd syncs a file for each host and walks its whole list; it gets fewer calls, so that
the run ends. Notices come from the same ten hosts each time, which have held a lock. Prints JSON.
"""

import argparse
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "net", "lib"))

# pylint: disable=wrong-import-position
from daemon import Daemon
from netns import Namespace, is_possible
from rpc import UdpCaller, call_message, exchange

NSM, STATD_PORT, OUR_PORT = 100024, 4000, 2049
DEPTHS = (1, 64)  # calls under way


def address(i):
    return f"10.{77 + (i >> 16)}.{i >> 8 & 255}.{i & 255}"


class Bench:
    def __init__(self, build):
        self.program = os.path.join(build, "holdfastd")
        self.loader = os.path.join(build, "bench", "bench_nsm_load")
        self.namespace = Namespace("bench")
        for network in (77, 78, 79):
            self.namespace.run("route", "add", "local", f"10.{network}.0.0/16", "dev", "lo")

    def load(self, port, kind, first, count, hosts=None, depth=1):
        """Calls a second; none may be refused."""
        words = [self.loader, port, kind, first, count, hosts or count, depth]
        with self.namespace:
            out = subprocess.run([*map(str, words)], check=True, capture_output=True).stdout.split()
        if int(out[1]):
            raise RuntimeError(f"{kind}: {int(out[1])} of {count} were refused")
        return float(out[0])

    def holdfastd(self):
        settings = ["server.portmap=off", f"server.port={OUR_PORT}", "store.backend=lmdb", "api.listen=",
                    "recovery.max_clients=1000000", "nsm.allow_mon=local", "log.level=error"]  # fmt: skip
        return Daemon(self.program, self.namespace, settings)


class Statd:
    """rpc.statd with @known hosts in its list, and the rpcbind that it insists on."""

    def __init__(self, namespace, known):
        self.namespace = namespace
        self.directory = tempfile.mkdtemp(prefix="hf-statd-")
        user = next((u for u in map(user_of, ("statd", "nobody")) if u), None)
        for name in ("", "sm", "sm.bak"):
            path = os.path.join(self.directory, name)
            os.makedirs(path, exist_ok=True)
            os.chown(path, user.pw_uid, user.pw_gid)
        for i in range(known):
            path = os.path.join(self.directory, "sm", address(i))
            with open(path, "w", encoding="ascii") as out:
                out.write(f"0100007f 000186b5 00000003 00000010 {'07' * 16} {address(i)} localhost\n")
            os.chown(path, user.pw_uid, user.pw_gid)
        with open(os.path.join(self.directory, "state"), "wb") as state:
            state.write((3).to_bytes(4, sys.byteorder))
        os.chown(os.path.join(self.directory, "state"), user.pw_uid, user.pw_gid)
        # One mount namespace for both: rpcbind's socket is in /run.
        script = f'mount -t tmpfs tmpfs /run; rpcbind -f & echo $! >{self.directory}/rpcbind.pid; {WAIT}; exec "$@"'
        with namespace:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script, "sh", find("rpc.statd"), "-F", "-L", "-P", self.directory,
                 "-p", str(STATD_PORT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self.wait()

    def wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            caller = UdpCaller(("127.0.0.1", STATD_PORT), ("127.0.0.1", 0), self.namespace)
            try:
                exchange(caller, call_message(NSM, 1, 0), 0.2)
                return
            except Exception:  # pylint: disable=broad-except
                time.sleep(0.05)
            finally:
                caller.close()
        raise RuntimeError("rpc.statd does not answer")

    def close(self):
        self.process.kill()
        self.process.wait()
        with open(os.path.join(self.directory, "rpcbind.pid"), encoding="ascii") as pid:
            subprocess.run(["kill", pid.read().strip()], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


WAIT = "for i in 1 2 3 4 5 6 7 8 9; do [ -S /run/rpcbind.sock ] && break; sleep 0.1; done"


def find(program):
    return shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin")


def user_of(name):
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def registrations(bench, known, is_alone):
    """From empty, and with @known hosts in the list: {peer: {calls under way: calls a second}}"""
    result = {"known": known, "holdfastd": {}, "rpc.statd": {}}
    for n, count in ((0, 20000), (known, 20000)):
        daemon = bench.holdfastd()
        try:
            daemon.start()
            if n:
                bench.load(OUR_PORT, "mon", 0, n, depth=256)
            for depth in DEPTHS:
                some = count if depth > 1 else count // 20
                rate = bench.load(OUR_PORT, "mon", n + depth * 100000 % 70000, some, depth=depth)
                result["holdfastd"].setdefault(f"{n} known", {})[depth] = rate
        finally:
            daemon.close()
        if is_alone:
            continue
        statd = Statd(bench.namespace, n)
        try:
            for depth in DEPTHS:
                rate = bench.load(STATD_PORT, "mon", n + depth * 1000, 100 if n else 500, depth=depth)
                result["rpc.statd"].setdefault(f"{n} known", {})[depth] = rate
        finally:
            statd.close()
    for key, theirs in result["rpc.statd"].items():
        ours = result["holdfastd"][key]
        result[f"x at {key}"] = round(max(ours.values()) / max(theirs.values()), 1)
        result[f"x at {key}, one call at a time"] = round(ours[1] / theirs[1], 1)
    return result


def cpu_of(pid):
    """Seconds that it has used so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def notices(bench, hosts):
    """SM_NOTIFY a second, by how many hosts are known; and the server's CPU time for each, true on a busy machine."""
    rates, cpu = {}, {}
    for n in hosts:
        daemon = bench.holdfastd()
        try:
            daemon.start()
            bench.load(OUR_PORT, "lock", 0, n, depth=256)
            # The best of some rounds, since others use the disk, too; each has new state numbers.
            before = cpu_of(daemon.process.pid)
            rates[n] = max(bench.load(OUR_PORT, f"notify+{i}", 0, 4000, hosts=10, depth=8) for i in range(5))
            cpu[n] = round((cpu_of(daemon.process.pid) - before) / 20000 * 1e6, 1)
        finally:
            daemon.close()
    spread = round(max(rates.values()) / min(rates.values()), 2)
    return {"per_s": rates, "fastest_to_slowest": spread, "cpu_us_each": cpu}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--known", type=int, default=10000)
    parser.add_argument("--hosts", type=int, action="append")
    parser.add_argument("--only", choices=("registrations", "notices"))
    parser.add_argument("--ours-only", action="store_true")
    args = parser.parse_args()
    reason = is_possible()
    if reason:
        sys.exit(f"skipped: {reason}")
    bench = Bench(args.build)
    is_alone = args.ours_only or not find("rpc.statd") or not find("rpcbind")
    result = {"bench": "nsm"}
    if args.only != "notices":
        result["registrations_per_s"] = registrations(bench, args.known, is_alone)
    if args.only != "registrations":
        result["notices"] = notices(bench, args.hosts or [10, 1000, 100000])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
