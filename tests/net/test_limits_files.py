#!/usr/bin/env python3
"""The limits of a server with exports: look-ups of names and groups, the list of mounts, TLS.

    test_limits_files.py PATH/holdfastd [unittest's own arguments]
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import tls
from exported import Exported, nfs
from nameserver import NameServer
from play import main
from rpc import TcpCaller, auth_sys, call_message
from secured import Secured
from xdr import In, Out


class Limited:
    """Beside a Play."""

    def limit(self, name):
        return next(l for l in self.rest.get("/api/v1/limits").json["limits"] if l["name"] == name)

    def await_limit(self, name, passes):
        return self.until(lambda: self.limit(name), f"{name} is as expected", passes=passes)

    def assert_shown(self, name, used, top, refused):
        limit = self.limit(name)
        self.assertEqual((limit["used"], limit["max"], limit["refused"]), (used, top, refused), name)
        metrics = self.rest.metrics()
        for kind, value in (("used", used), ("max", top), ("refused_total", refused)):
            self.assertEqual(metrics[f'holdfast_limit_{kind}{{limit="{name}"}}'], value)
        return limit


class Files(Limited, Exported):
    settings = ("api.listen=127.0.0.1:0",)

    @classmethod
    def replace(cls, daemon, **files):
        """Files of /etc that the daemon shall see."""
        for name, text in files.items():
            path = f"/etc/{name.replace('_', '.')}"
            daemon.over[path] = os.path.join(cls.base, name)
            with open(daemon.over[path], "w", encoding="ascii") as out:
                out.write(text)
        return daemon

    def caller(self, host):
        made = TcpCaller((host.server, 2049), (host.address, 0), host.namespace)
        self.addCleanup(made.close)
        return made


class Mounts(Files):
    settings = (*Files.settings, "metrics.per_client=true", "recovery.release_silent_seconds=3600")

    def test_mounts_of_an_address(self):
        names = [f"/data/d{i}" for i in range(66)]
        for name in names:
            os.mkdir(os.path.join(self.base, name[1:]))
        caller = self.caller(self.a)
        caller.send_together([call_message(nfs.MOUNT, 3, 1, Out().string(name).bytes(), cred=auth_sys("a")) for name in names])
        self.assertEqual([In(caller.receive()[24:]).u32() for _ in names], [0] * 66)
        self.assertEqual(self.assert_shown("mounts_per_address", 64, 64, 2)["by"], self.a.address)
        self.assertGreaterEqual(self.limit("mounts")["used"], 64)
        self.assertEqual(self.limit("mounts")["max"], 10000)

    def test_clients_are_counted(self):
        with self.b.namespace, nfs.Client(2049, remote=self.b.server, local=self.b.address) as client:
            self.assertEqual(client.getattr(self.fh).stat, nfs.OK)
        self.await_limit("usage_pairs", lambda l: l["used"] and (l["max"], l["refused"], l["is_cache"]) == (4096, 0, True))
        self.await_limit("contacts", lambda l: l["used"] and (l["max"], l["refused"], l["is_cache"]) == (65536, 0, True))


class Names(Files):
    """More host names than may wait for the name server, which is silent."""

    N = 300
    folders = ("data", "more")
    exports = tuple(
        f"{{{{path: {{base}}/{name}, name: /{name}, squash: none, rules: [{{{{clients: [127.0.0.0/8]}}}}, {{{{clients: ["
        + ", ".join(f"{name}{i}.example.org" for i in range(200))
        + "]}}]}}"
        for name in folders
    )

    @classmethod
    def make_daemon(cls, settings):
        cls.names = NameServer(cls.network.server)
        cls.names.is_silent = True
        cls.addClassCleanup(cls.names.close)
        return cls.replace(super().make_daemon(settings), resolv_conf="nameserver 127.0.0.1\noptions timeout:30 attempts:1\n",
                           hosts="127.0.0.1 localhost\n", nsswitch_conf="hosts: files dns\n")  # fmt: skip

    def test_names(self):
        """A file's attributes are asked for: that waits for nothing."""
        more = self.handle_of(self.make_file("more"), "/more", "more")
        with self.a.namespace, nfs.Client(2049, remote=self.a.server, local=self.a.address) as client:
            for fh in (self.fh, more):
                self.assertEqual(client.getattr(fh).stat, nfs.JUKEBOX)
        limit = self.await_limit("name_lookups", lambda l: l["refused"])
        self.assertEqual(limit["max"], 256)
        self.assertGreaterEqual(limit["used"], 254)  # two threads ask
        self.assertGreaterEqual(limit["refused"], 400 - 258)
        self.assertGreaterEqual(self.limit("names_remembered")["used"], 256)
        self.assertEqual(self.limit("names_remembered")["max"], 65536)
        self.assertEqual(self.limit("addresses_remembered")["max"], 4096)


class Groups(Files):
    """The host's list of groups is long, and so each look-up takes a while. A LOCK waits for none."""

    settings = (*Files.settings, "server.manage_gids=true")
    N = 400

    @classmethod
    def make_daemon(cls, settings):
        users = "".join(f"u{i}:x:{5000 + i}:{5000 + i}::/:/bin/sh\n" for i in range(cls.N))
        groups = "".join(f"g{i}:x:{100000 + i}:\n" for i in range(100000))
        return cls.replace(super().make_daemon(settings), passwd="root:x:0:0::/:/bin/sh\n" + users, group=groups,
                           nsswitch_conf="hosts: files\npasswd: files\ngroup: files\n")  # fmt: skip

    def test_users(self):
        caller = self.caller(self.a)
        locks = [self.lock_of(self.a, 2 * i, 1, svid=i) for i in range(self.N)]
        caller.send_together([call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys("a", 5000 + i, 5000 + i))
                              for i, lock in enumerate(locks)])  # fmt: skip
        limit = self.await_limit("group_lookups", lambda l: l["refused"])
        self.assertEqual(limit["max"], 256)
        self.assertGreater(limit["used"], 0)
        self.assertGreaterEqual(self.limit("users_remembered")["used"], 256)
        self.assertEqual(self.limit("users_remembered")["max"], 4096)


class Tls(Limited, Secured):
    def test_handshakes(self):
        """Of one address, until a loop ends the oldest."""
        name, n_loops = "tls_handshakes_per_address", min(os.cpu_count(), 16)
        self.assertEqual(self.limit(name)["used"], 0)
        for number in range(64 * n_loops + 1):
            self.caller().send(tls.question())
            if number == 9:
                self.await_limit("tls_handshakes", lambda l: 10 / n_loops <= l["used"] <= 10)
        limit = self.await_limit(name, lambda l: l["refused"])
        self.assertEqual((limit["used"], limit["max"]), (64, 64))
        self.assert_shown("tls_handshakes", 64, 512, 0)

    def test_identities(self):
        self.secured().sock.close()
        self.await_limit("tls_identities", lambda l: l["used"] and (l["max"], l["refused"], l["is_cache"]) == (16384, 0, False))
        self.assert_shown("tls_notices", 0, 256, 0)
        self.assert_shown("tls_keys", 0, 16, 0)


if __name__ == "__main__":
    main()
