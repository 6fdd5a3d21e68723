#!/usr/bin/env python3
"""The limits of a server with exports: the list of mounts, clients, TLS.

    test_limits_files.py PATH/holdfastd [unittest's own arguments]
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import tls
from exported import Exported, nfs
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
        self.await_limit("contacts", lambda l: l["used"] and (l["max"], l["refused"], l["is_cache"]) == (65536, 0, False))


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
