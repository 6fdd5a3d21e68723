#!/usr/bin/env python3
"""How long until a fleet of clients has been told of a restart, beside sm-notify with the same fleet in the same run.

    notify.py BUILD_DIR [--clients N] [--holes N] [--rounds N] [--patience S] [--limit S] [--ours-only]

BUILD_DIR has holdfastd and bench/bench_notify_fleet. holdfastd's time is the best of --rounds, since others use the
machine, too. sm-notify takes a quarter of an hour for 10,000 clients, and gives up after 15 minutes: it is waited for
until it ends, or for --limit seconds, with a word about its progress now and then. If a client was not told by then,
the report says by how much faster holdfastd is at least. Everything happens in a network namespace of its own. The
clients are registered by taking a lock each. One line of JSON on standard output.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "net", "lib"))

# pylint: disable=wrong-import-position
import nlm
from daemon import Daemon
from netns import Namespace, is_possible
from rpc import call_message, new_xid

AT_ONCE = 200  # locks asked for before their answers are read
LOOK_S, REPORT_S = 0.02, 15


def address(network, i):
    return f"10.{network}.{i // 250}.{i % 250 + 1}"


class Fleet:
    def __init__(self, program, namespace):
        with namespace:
            self.process = subprocess.Popen([program])
            self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.settimeout(5)

    def ask(self, word):
        for _ in range(50):
            try:
                self.sock.sendto(word.encode(), ("127.0.0.1", 4046))
                n, first, last = self.sock.recv(256).split()
                return int(n), float(first), float(last)
            except ConnectionError:
                time.sleep(0.02)
        raise RuntimeError("the fleet does not answer")

    def wait(self, count, is_over):
        """Until @count were told, or @is_over(seconds, seconds without a new one). How many, and when the last."""
        told, began = -1, time.monotonic()
        since = reported = began
        while True:
            n, _, last = self.ask("told")
            now = time.monotonic()
            if n != told:
                told, since = n, now
            if n >= count or is_over(now - began, now - since):
                return n, last
            if now > reported + REPORT_S:
                reported = now
                print(f"notify: {n} of {count} told after {now - began:.0f} s", file=sys.stderr, flush=True)
            time.sleep(LOOK_S)


def take_locks(namespace, addresses):
    """One lock for each address: so each is registered."""
    for start in range(0, len(addresses), AT_ONCE):
        waiting = {}
        for i, own in enumerate(addresses[start : start + AT_ONCE], start):
            with namespace:
                sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind((own, 0))
            sock.settimeout(2)
            lock = nlm.Lock(fh=i.to_bytes(8, "big"), name=f"client{i}", svid=i, state=3)
            waiting[sock] = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), new_xid())
            sock.sendto(waiting[sock], ("127.0.0.1", 2049))
        for sock, message in waiting.items():
            for _ in range(5):
                try:
                    stat = sock.recv(512)[-4:]
                    break
                except TimeoutError:
                    sock.sendto(message, ("127.0.0.1", 2049))
            if stat != bytes(4):
                raise RuntimeError(f"a lock was not granted: {stat}")
            sock.close()


def measure_ours(args, namespace, fleet):
    settings = ["server.portmap=off", "server.port=2049", "store.backend=lmdb", "recovery.max_clients=60000",
                "recovery.window_seconds=3600", "api.listen=", "log.level=info"]  # fmt: skip
    daemon = Daemon(args.program, namespace, settings)
    try:
        daemon.start()
        addresses = [address(78, i) for i in range(args.holes)] + [address(77, i) for i in range(args.clients)]
        began = time.monotonic()
        take_locks(namespace, addresses)
        registering = time.monotonic() - began
        daemon.crash()
        fleet.ask("reset")
        began = time.monotonic()
        daemon.start()
        serving = time.monotonic() - began
        told, last = fleet.wait(args.clients, lambda _, quiet: quiet > args.patience)
        return {"told": told, "seconds": round(last - began, 3), "serving_after": round(serving, 3),
                "registering_seconds": round(registering, 2)}  # fmt: skip
    finally:
        daemon.close()


def measure_theirs(args, namespace, fleet):
    """sm-notify with the same hosts in its list."""
    program = shutil.which("sm-notify", path="/usr/sbin:/sbin:/usr/bin")
    if not program:
        return None
    directory = tempfile.mkdtemp(prefix="hf-smnotify-")
    try:
        for name in ("sm", "sm.bak"):
            os.mkdir(os.path.join(directory, name))
        hosts = [address(78, i) for i in range(args.holes)] + [address(77, i) for i in range(args.clients)]
        for host in hosts:
            with open(os.path.join(directory, "sm", host), "w", encoding="ascii") as out:
                out.write(f"0100007f 000186b5 00000003 00000010 {'00' * 16} {host} server\n")
        fleet.ask("reset")
        began = time.monotonic()
        script = 'mount -t tmpfs tmpfs /run && exec "$@"'
        with namespace:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script, "sh", program, "-d", "-f", "-P", directory],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        told, last = fleet.wait(args.clients, lambda seconds, _: seconds > args.limit or process.poll() is not None)
        process.kill()
        process.wait()
        seconds = last - began if told >= args.clients else time.monotonic() - began
        return {"told": told, "seconds": round(seconds, 3)}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--holes", type=int, default=0)
    parser.add_argument("--patience", type=float, default=8)
    parser.add_argument("--limit", type=float, default=1200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours-only", action="store_true")
    args = parser.parse_args()
    args.program = os.path.join(args.build, "holdfastd")
    args.fleet = os.path.join(args.build, "bench", "bench_notify_fleet")
    reason = is_possible()
    if reason:
        sys.exit(f"skipped: {reason}")
    namespace = Namespace("fleet")
    namespace.run("route", "add", "local", "10.77.0.0/16", "dev", "lo")
    namespace.run("route", "add", "local", "10.78.0.0/16", "dev", "lo")
    fleet = Fleet(args.fleet, namespace)
    try:
        rounds = [measure_ours(args, namespace, fleet) for _ in range(args.rounds)]
        ours = min(rounds, key=lambda ours: (-ours["told"], ours["seconds"]))
        theirs = None if args.ours_only else measure_theirs(args, namespace, fleet)
    finally:
        fleet.process.kill()
        fleet.process.wait()
    result = {"bench": "notify", "clients": args.clients, "holes": args.holes, "holdfastd": ours, "sm-notify": theirs}
    if theirs and ours["seconds"]:
        is_all = theirs["told"] >= args.clients
        result["times_faster" if is_all else "times_faster_at_least"] = round(theirs["seconds"] / ours["seconds"], 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
