#!/usr/bin/env python3
"""Exports as the operator writes them, across a wire: rules for different clients.

    HOLDFASTD=PATH test_exports.py [unittest's own arguments]
"""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported, nfs
from play import main
from until import until

LOADED = "configuration loaded again"


class Exports(Exported):
    def client(self, host, **how):
        with host.namespace:
            client = nfs.Client(2049, remote=host.server, local=host.address, **how)
        self.addCleanup(client.close)
        return client

    def reload(self, exports):
        before = self.daemon.log.count(LOADED)
        self.write_config(exports)
        self.addCleanup(self.write_config, self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        until(lambda: self.daemon.log.count(LOADED) > before, "the exports were read again", more=lambda: self.daemon.log)


class Rules(Exports):
    """One export: the host a may do all as root, all others of its network may read; b is among them."""

    settings = ("api.listen=127.0.0.1:8049",)
    exports = (
        "{{path: {base}/data, name: /data, access: ro, rules: [{{clients: [10.98.0.10, '::1', 127.0.0.0/8], access: rw, "
        "squash: none}}, {{clients: [10.98.0.0/24], squash: all, anon_uid: 4321, anon_gid: 4322}}]}}",
    )

    def test_rights_of_files(self):
        a, b = self.client(self.a), self.client(self.b, uid=4321)
        os.chmod(self.path, 0o600)
        root = a.root("/data")
        self.assertEqual(b.root("/data"), root)
        self.assertEqual(a.write(self.fh, b"x").stat, nfs.OK)
        self.assertEqual(b.read(self.fh, 0, 1).stat, nfs.ACCES)
        os.chown(self.path, 4321, 4322)
        self.assertEqual(self.client(self.b, uid=1).read(self.fh, 0, 1).stat, nfs.OK)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.ROFS)

    def test_rights_of_locks(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        self.assertEqual(self.b.ask(nlm.LOCK, self.lock_of(self.b, 20, 10)).stat, nlm.S_ROFS)
        shared = self.lock_of(self.b, 20, 10, exclusive=False)
        self.assert_granted(self.b, shared)

    def test_a_reload_changes_the_rule_of_a_client(self):
        b = self.client(self.b)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.ROFS)
        self.reload(("{{path: {base}/data, name: /data, squash: none, rules: [{{clients: [10.98.0.11, 127.0.0.0/8]}}]}}",))
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.OK)
        self.assertEqual(self.client(self.a).write(self.fh, b"x").stat, nfs.ACCES)
        self.reload(self.exports)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.ROFS)

    def test_rules_are_shown(self):
        share = self.rest.get("/api/v1/shares").json["shares"][0]
        self.assertEqual(share["access"], "rw")
        self.assertEqual(share["allowed"], ["10.98.0.10", "::1", "127.0.0.0/8", "10.98.0.0/24"])
        self.assertEqual(share["rules"][1], {"clients": ["10.98.0.0/24"], "access": "ro", "squash": "all", "anon_uid": 4321,
                                             "anon_gid": 4322, "secure": False})  # fmt: skip


if __name__ == "__main__":
    main()
