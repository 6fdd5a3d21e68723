#!/usr/bin/env python3
"""Renews the pictures of the dashboard: a real holdfastd with named files, ten minutes of a working day, real Chromium.

    pictures.py PATH/holdfastd [--minutes 10] [--out docs/images]

Needs root, for network namespaces, and Chromium as the tests beside it do. With less than ten minutes the plots are shorter.
The page is that of the source tree, so that a change of it is seen without a build.
"""

import argparse
import contextlib
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import chromium
from chromium import HERE, Page

sys.path.insert(0, os.path.join(HERE, "..", "files"))

# pylint: disable=wrong-import-position
import netns
import nfs
import nlm
from daemon import Daemon
from nsm import Host
from rest import Rest
from rpc import Stage
from test_dashboard_cluster import page_text
from until import lapse, until

FILES = {
    "mail": ("spool/anna", "spool/ben", "spool/list-announce", "archive/2026-11.mbox"),
    "db": ("ledger.db", "ledger.db-journal", "stock.db"),
    "build": ("cache/index", "cache/objects/7f.pack", "release/notes.txt"),
    "office": ("budget-2027.xls", "rota.xls"),
}
NAMES = ("mx1", "mx2", "lists", "imap", "app1", "app2", "report", "build1", "build2", "build3", "desk4", "desk7")
SETTINGS = ("server.portmap=embedded", "server.name=files.example.org", "store.backend=lmdb", "api.listen=127.0.0.1:8049",
            "recovery.grace=auto", "recovery.early_end=false", "recovery.window_seconds=90")  # fmt: skip
TICK = 0.1  # seconds between two looks at what is to be done
READ, WRITE = 1, 2  # of a share reservation


class Scene:
    """A server, its hosts by name, and the handles of its files by name."""

    def __init__(self, program, stack):
        self.random = random.Random(7)  # the same day each time
        self.base = tempfile.mkdtemp(prefix="hf-pictures-")
        stack.callback(shutil.rmtree, self.base, True)
        os.chmod(self.base, 0o755)
        self.network = netns.Network()
        stack.callback(self.network.close)
        self.stage = Stage()
        stack.callback(self.stage.close)
        self.daemon = Daemon(program, self.network.server, SETTINGS, ("--config", self.make_exports()))
        stack.callback(self.daemon.close)
        self.daemon.over["/srv"] = os.path.join(self.base, "srv")  # the page shows paths of the server
        self.rest = Rest(self.daemon)
        self.hosts = {name: stack.enter_context(contextlib.closing(self.make_host(name))) for name in NAMES}
        self.daemon.start()
        self.clients = {name: stack.enter_context(self.client_of(host)) for name, host in self.hosts.items()}
        self.handles = {f"{share}/{name}": self.find(share, name) for share, names in FILES.items() for name in names}
        self.page = Page(self.network.server)
        stack.callback(self.page.close)

    def make_exports(self):
        config = os.path.join(self.base, "holdfast.yaml")
        with open(config, "w", encoding="ascii") as out:
            out.write("exports:\n")
            for share, names in FILES.items():
                out.write(f"  - {{path: /srv/{share}, name: /srv/{share}, squash: none}}\n")
                for name in names:
                    path = os.path.join(self.base, "srv", share, name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(bytes(65536))
        return config

    def make_host(self, name):
        namespace, number = self.network.add_client()
        host = Host(self.stage, namespace, number, self.network.SERVER[0], name=f"{name}.example.org")
        host.state = 2 * number + 5
        return host

    def client_of(self, host):
        with host.namespace:
            return nfs.Client(2049, remote=host.server, local=host.address)

    def find(self, share, name):
        client = self.clients["mx1"]
        fh = client.root(f"/srv/{share}")
        for part in name.split("/"):
            fh = client.lookup(fh, part.encode()).fh
        return fh

    def lock_of(self, name, file, offset=0, length=0, **more):
        host = self.hosts[name]
        svid = more.pop("svid", 1200 + 37 * host.number)
        return host.lock_of(self.handles[file], offset, length, svid=svid, state=host.state, **more)

    def url(self):
        return f"http://127.0.0.1:{self.rest.port}/#token={self.rest.token}"

    def id_of(self, name):
        return f"nlm:{self.hosts[name].address}:{self.hosts[name].name}"

    # What a host does

    def hold(self, name, file, *span, **more):
        stat = self.hosts[name].lock(self.lock_of(name, file, *span, **more))
        assert stat == nlm.S_GRANTED, f"{name} {file}: {stat}"

    def wait(self, name, file, *span, **more):
        stat = self.hosts[name].lock(self.lock_of(name, file, *span, block=True, **more))
        assert stat == nlm.S_BLOCKED, f"{name} {file}: {stat}"

    def reserve(self, name, file, access, deny):
        stat = self.hosts[name].share(self.lock_of(name, file, access=access, deny=deny))
        assert stat == nlm.S_GRANTED, f"{name} {file}: {stat}"

    def crash(self, name, heir, *what):
        """Its host is started again and tells so; @heir gets the lock that it waits for."""
        host = self.hosts[name]
        host.state += 2
        host.notify(host.state, reserved=True)
        self.hosts[heir].wait_granted(self.lock_of(heir, *what))
        self.page.wait(selector="#events li", text=f"{self.id_of(name)} cleaned up")

    def work(self, share_of_day):
        """One tick of calls: more or less of them as the day goes, and a build in its middle."""
        busy = 60 + 25 * math.sin(14 * share_of_day) + self.random.uniform(-12, 12)
        if 0.40 < share_of_day < 0.58:
            busy *= 2.2
        for _ in range(round(busy * TICK)):
            client, fh = self.random.choice([*self.clients.values()]), self.random.choice([*self.handles.values()])
            what, offset = self.random.random(), 4096 * self.random.randrange(12)
            if what < 0.5:
                client.getattr(fh)
            elif what < 0.85:
                client.read(fh, offset, 4096)
            else:
                client.write(fh, bytes(4096), offset)
        if self.random.random() < 0.3:  # a mail is delivered
            lock = self.lock_of("lists", "mail/archive/2026-11.mbox")
            self.hosts["lists"].lock(lock)
            self.hosts["lists"].unlock(lock)

    @contextlib.contextmanager
    def load(self, seconds):
        """Calls all the time, by hosts on a thread of its own; the day has @seconds, and may last longer."""
        over, failures, began = threading.Event(), [], time.monotonic()

        def go_on():
            try:
                while not over.wait(TICK):
                    self.work((time.monotonic() - began) / seconds)
            except Exception as error:  # pylint: disable=broad-exception-caught
                failures.append(error)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]

    def day(self):
        """[(when, as a share of the day, act, its arguments)]"""
        return [
            (0.02, self.hold, "mx1", "mail/spool/anna"),
            (0.03, self.hold, "mx2", "mail/spool/list-announce"),
            (0.06, self.hold, "app1", "db/ledger.db", 0, 4096),
            (0.07, self.hold, "app1", "db/stock.db", 1073741824, 512),
            (0.09, self.hold, "app2", "db/ledger.db-journal"),
            (0.12, self.reserve, "desk4", "office/budget-2027.xls", READ | WRITE, WRITE),
            (0.14, self.reserve, "desk7", "office/budget-2027.xls", READ, 0),
            (0.20, self.reserve, "desk7", "office/rota.xls", READ | WRITE, READ | WRITE),
            (0.30, self.hold, "build1", "build/cache/index"),
            (0.31, self.hold, "build1", "build/cache/objects/7f.pack", 0, 8192),
            (0.38, self.hold, "build3", "build/release/notes.txt"),
            (0.44, self.wait, "build2", "build/cache/index"),
            (0.55, self.wait, "app2", "db/ledger.db", 0, 512),
            (0.62, self.crash, "build1", "build2", "build/cache/index"),
            (0.70, self.wait, "report", "db/ledger.db-journal"),
            (0.78, self.wait, "build1", "build/cache/index"),
            (0.84, self.wait, "build3", "build/cache/index"),
            (0.93, self.wait, "imap", "mail/spool/anna"),
        ]  # fmt: skip

    def play(self, seconds):
        began = time.monotonic()
        for when, act, *words in [*self.day(), (1, lambda: None)]:
            lapse(max(0, began + when * seconds - time.monotonic()))
            act(*words)

    def restart(self):
        """kill -9 and a start; some of the clients have reclaimed their locks."""
        self.daemon.crash()
        self.daemon.start()
        for host in self.hosts.values():
            host.drop_callers()
        self.page.wait(selector="#state", text="grace")
        self.hold("app1", "db/ledger.db", 0, 4096, reclaim=True)
        self.hold("app1", "db/stock.db", 1073741824, 512, reclaim=True)
        self.hold("mx1", "mail/spool/anna", reclaim=True)
        self.page.wait(selector="#events li", text="grace has begun")
        self.page.wait(selector="#locks td", text="unreclaimed")
        for name in ("app1", "mx1"):
            until(lambda name=name: self.is_whole(name), f"the page shows what {name} has reclaimed")

    def is_whole(self, name):
        rows = self.page.evaluate(code="[...document.querySelectorAll('#locks tbody tr')].map(r => r.textContent)")
        mine = [row for row in rows if self.id_of(name) in row]
        return mine and not any("unreclaimed" in row for row in mine)

    def shoot(self, folder, name, selector=None, **how):
        self.page.dress(**how)
        self.page.evaluate(code="new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        path = os.path.join(folder, f"dashboard-{name}.png")
        self.page.shot(path=path, selector=selector)
        subprocess.run(["node", os.path.join(HERE, "palette.js"), path], check=True)


def main():
    chromium.check()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("holdfastd")
    parser.add_argument("--minutes", type=float, default=10, help="that the page has been open for")
    parser.add_argument("--out", default=os.path.join(HERE, "..", "..", "docs", "images"))
    options = parser.parse_args()
    reason = netns.is_possible()
    if reason:
        sys.exit(reason)
    with contextlib.ExitStack() as stack:
        scene = Scene(os.path.abspath(options.holdfastd), stack)
        scene.page.open(url=scene.url(), body=page_text())
        scene.page.wait(selector="#live", text="live")
        with scene.load(60 * options.minutes):
            scene.play(60 * options.minutes)
            scene.page.wait(selector="#waiters td", text=scene.id_of("imap"))
            scene.shoot(options.out, "light")
            scene.shoot(options.out, "dark", dark=True)
            scene.shoot(options.out, "phone", width=390, height=844)
            scene.shoot(options.out, "waiters", selector="section[aria-labelledby=h-waiters]")
        scene.page.dress()
        faults = scene.page.faults()
        assert not faults, faults
        scene.restart()
        scene.shoot(options.out, "grace")


if __name__ == "__main__":
    main()
