#!/usr/bin/env python3
"""A client's death over several exports, once for each store; and who may register where exports say who is a client.

/three takes its locks in the kernel, too, so that they travel another way.
"""

import os
import signal
import sys
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from nsm import FAIL, SUCC, Host
from play import main
from recovering import OverPostgres
from rest import Rest

SHARES = {"/one": "one", "/two": "two", "/three": "three"}
ALLOWED = "10.98.0.10"  # the first host


class Shares(Exported):
    backend = ()
    folders = tuple(SHARES.values())
    exports = (
        "{{path: {base}/one, name: /one, squash: none, local_locks: off}}",
        "{{path: {base}/two, name: /two, squash: none, local_locks: off}}",
        "{{path: {base}/three, name: /three, squash: none, local_locks: on}}",
    )
    host_class = Host
    n_hosts = 3
    boot = 3

    @classmethod
    def setUpClass(cls):
        cls.settings = (*cls.backend, "recovery.grace=auto", "recovery.window_seconds=3600", "api.listen=127.0.0.1:0")
        super().setUpClass()
        cls.rest = Rest(cls.daemon)

    def setUp(self):
        super().setUp()
        type(self).boot += 4  # the state number of a: what it says is new to every test

    def handle_of(self, path, share=None, folder=None):
        name = os.path.relpath(path, self.base).split("/", maxsplit=1)[0]
        return super().handle_of(path, share or f"/{name}", folder or name)

    def file_in(self, share):
        return self.handle_of(self.make_file(SHARES[share]))

    def locks_by_share(self):
        shares = self.rest.get("/api/v1/shares").json["shares"]
        return {share["name"]: (share["locks"], share["waiters"]) for share in shares}

    def act(self):
        """a holds in /one and /two and waits in /three for c; b waits behind a everywhere."""
        files = {share: self.file_in(share) for share in SHARES}
        of_c = self.lock_of(self.c, fh=files["/three"])
        self.assert_granted(self.c, of_c)
        waiters = []
        for share in ("/one", "/two"):
            self.assert_granted(self.a, self.lock_of(self.a, fh=files[share], state=self.boot))
            waiters.append(self.lock_of(self.b, fh=files[share]))
            self.assert_blocked(self.b, waiters[-1])
        self.assert_blocked(self.a, self.lock_of(self.a, fh=files["/three"], state=self.boot))
        waiters.append(self.lock_of(self.b, fh=files["/three"]))
        self.assert_blocked(self.b, waiters[-1])
        self.assertEqual(self.locks_by_share(), {"/one": (1, 1), "/two": (1, 1), "/three": (1, 2)})
        return waiters, of_c

    def assert_all_served(self, waiters, of_c):
        for waiter in waiters[:2]:
            self.b.grants.wait(1, lambda heard, fh=waiter.fh: heard.grant.fh == fh)
        self.assertEqual(self.locks_by_share(), {"/one": (1, 0), "/two": (1, 0), "/three": (1, 1)})
        self.assertEqual(self.c.unlock(of_c), nlm.S_GRANTED)  # a does not wait any more: b is next
        self.b.grants.wait(1, lambda heard: heard.grant.fh == waiters[2].fh)
        self.assertEqual(list(self.a.grants.items), [], "the dead are granted nothing")
        self.assertEqual(self.locks_by_share(), {share: (1, 0) for share in SHARES})

    def test_notice_frees_all_shares(self):
        waiters, of_c = self.act()
        self.a.notify(self.boot + 2)
        self.assert_all_served(waiters, of_c)

    def test_operator_frees_all_shares(self):
        waiters, of_c = self.act()
        path = f"/api/v1/clients/{quote(f'nlm:{self.a.address}:{self.a.name}')}"
        self.assertEqual(self.rest.call("DELETE", path, token=True).json, {"locks_released": 2})
        self.assert_all_served(waiters, of_c)

    def test_free_all_frees_all_shares(self):
        waiters, of_c = self.act()
        self.a.free_all()
        self.assert_all_served(waiters, of_c)

    def test_newer_state_frees_all_shares(self):
        waiters, of_c = self.act()
        new = self.lock_of(self.a, fh=self.file_in("/one"), state=self.boot + 2)
        self.assert_granted(self.a, new)
        for waiter in waiters[:2]:
            self.b.grants.wait(1, lambda heard, fh=waiter.fh: heard.grant.fh == fh)
        self.assertEqual(self.c.unlock(of_c), nlm.S_GRANTED)
        self.b.grants.wait(1, lambda heard: heard.grant.fh == waiters[2].fh)
        self.assert_held(new)


class Kept(Shares):
    """What a store that remembers brings back is freed just as well."""

    def test_notice_frees_all_shares_after_our_crash(self):
        locks = [self.lock_of(self.a, fh=self.file_in(share), state=self.boot) for share in SHARES]
        for lock in locks:
            self.assert_granted(self.a, lock)
        self.restart()
        self.assertEqual(self.locks_by_share(), {share: (1, 0) for share in SHARES})
        self.a.notify(self.boot + 2)
        for lock in locks:
            self.await_granted(self.b, lock.but(name=self.b.name, oh=b"b"))
        self.assertEqual(self.locks_by_share(), {share: (1, 0) for share in SHARES})


class Memory(Shares):
    backend = ("store.backend=memory",)


class Lmdb(Kept):
    backend = ("store.backend=lmdb",)


class Postgres(OverPostgres, Kept):
    pass


class AllowMon(Exported):
    """nsm.allow_mon: exports. A host that may use an export may register; any other host may not; loopback always may."""

    folders = ("one", "two")
    exports = (
        "{{path: {base}/one, name: /one, clients: [127.0.0.1]}}",
        f"{{{{path: {{base}}/two, name: /two, clients: [{ALLOWED}, '127.0.0.1']}}}}",
    )
    settings = ("nsm.allow_mon=exports", "store.backend=lmdb", "log.level=info")
    host_class = Host
    n_hosts = 3

    def setUp(self):  # no file of its own
        super(Exported, self).setUp()

    def test_clients_of_exports_alone(self):
        self.assertEqual(self.a.address, ALLOWED)
        for transport in ("udp", "tcp"):
            with self.subTest(transport=transport):
                self.assertEqual(self.a.mon("server", transport=transport)[0], SUCC)
                self.assertEqual(self.b.mon("server", transport=transport)[0], FAIL)
        said = [line for line in self.daemon.log.splitlines() if "nsm.allow_mon does not allow it" in line]
        self.assertEqual(len([line for line in said if f"peer={self.b.address}:" in line]), 1, "once a source")
        self.restart()
        self.a.statuses.wait()
        self.assertEqual(self.b.statuses.items, [])

    def test_a_reload_changes_who_may(self):
        self.write_config(("{{path: {base}/two, name: /two, clients: [any]}}",))
        try:
            self.daemon.process.send_signal(signal.SIGHUP)
            self.until_mon(self.c, SUCC)
        finally:
            self.write_config(self.exports)
            self.daemon.process.send_signal(signal.SIGHUP)
            self.until_mon(self.c, FAIL)

    def until_mon(self, host, answer):
        self.until(lambda: host.mon("server")[0] == answer, "the reload is done")


del Shares, Kept  # they are played by their children only

if __name__ == "__main__":
    main()
