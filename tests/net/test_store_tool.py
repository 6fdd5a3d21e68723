#!/usr/bin/env python3
"""holdfast store: a store whose server is stopped is checked, written as JSON, and copied between LMDB and PostgreSQL.

    test_store_tool.py PATH/holdfastd [unittest's own arguments]
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import cluster
import nlm
import nsm
from commandline import FAILED, HOLDFAST, NOT_FOUND, OK, USAGE
from play import Play, main
from recovering import OverPostgres
from until import PATIENCE

READ, WRITE = 1, 2
NOBODY = 65534
OTHER, PRIV = "10.77.0.1", bytes(range(16))
N_LOCKS = 1200  # more than one commit of a copy has


class Tool(Play):
    n_hosts = 2

    @property
    def folder(self):
        return f"{self.daemon.state_dir}/state"

    def run_tool(self, *words, code=OK):
        done = subprocess.run([HOLDFAST, "--state-dir", self.folder, *words], capture_output=True, text=True, check=False,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def json_of(self, *words, code=OK):
        return json.loads(self.run_tool(*words, code=code).stdout)

    def start(self, *more):
        self.daemon.start(*more)
        for host in self.hosts:
            host.drop_callers()


class StoreTool(Tool):
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.after_crash=continue", "api.listen=127.0.0.1:0")

    def facts(self):
        """a has locks and a reservation, b waits."""
        for i in range(N_LOCKS):
            self.assert_granted(self.a, self.lock_of(self.a, 2 * i, 1, exclusive=bool(i % 2)))
        self.assert_granted(self.a, self.lock_of(self.a, 10**6, 0, svid=2))
        self.assertEqual(self.a.share(self.lock_of(self.a, access=READ, deny=WRITE)), nlm.S_GRANTED)
        self.assert_blocked(self.b, self.lock_of(self.b, 10**6, 10))

    def more_clients(self):
        """One that locks from a reserved port, through two addresses of the server; and one with a call-back."""
        self.network.server.batch([f"addr add {OTHER}/32 dev lo"])
        self.addCleanup(self.network.server.batch, [f"addr del {OTHER}/32 dev lo"])
        self.a.namespace.batch([f"route add {OTHER}/32 via {self.a.server}"])
        self.addCleanup(self.a.namespace.batch, [f"route del {OTHER}/32"])
        for offset, server in enumerate((OTHER, self.a.server)):
            lock = self.lock_of(self.a, offset, 1, fh=bytes(8), name="reserved")
            self.assertEqual(self.a.lock(lock, server=server, reserved=True), nlm.S_GRANTED)
        self.addCleanup(self.a.unlock, lock.but(offset=0, length=0), reserved=True)
        local = nsm.Local(self.network.server, transport="tcp")
        self.addCleanup(local.close)
        self.assertEqual(nsm.mon(local.ask, "127.0.0.1", "127.0.0.1", 100021, 16, PRIV)[0], 0)

    def shown(self):
        """What the server shows, without what the time changes."""
        locks, cursor = [], ""
        while cursor is not None:
            page = self.rest.get(f"/api/v1/locks?limit=1000&cursor={cursor}" if cursor else "/api/v1/locks?limit=1000").json
            locks += page["locks"]
            cursor = page["next"]
        waiters = [{k: w[k] for k in w if k != "waiting_seconds"} for w in self.rest.get("/api/v1/waiters").json["waiters"]]
        return {"locks": sorted(map(json.dumps, locks)), "waiters": waiters,
                "reservations": self.rest.get("/api/v1/reservations").json["reservations"]}  # fmt: skip

    @staticmethod
    def sorted_dump(dump):
        return {key: sorted(map(json.dumps, dump[key])) for key in ("clients", "locks", "reservations", "waiters")}

    def remove_store(self):
        for path in glob.glob(f"{self.folder}/store.*") + glob.glob(f"{self.folder}/journal.*"):
            os.unlink(path)

    def test_check_and_dump(self):
        self.facts()
        said = self.run_tool("store", "check", code=FAILED).stderr
        self.assertIn("in use by another holdfastd", said)
        self.assertIn("stop holdfastd first", said)
        self.daemon.crash()
        try:
            text = self.run_tool("store", "check").stdout
            self.assertIn("not stopped in order", text)
            self.assertIn(f"locks        {N_LOCKS + 1}\n", text)
            self.assertIn("faults       0\n", text)
            found = self.json_of("--json", "store", "check", self.folder)
            self.assertEqual([found[key] for key in ("locks", "reservations", "waiters", "faults")], [N_LOCKS + 1, 1, 1, 0])
            self.assertTrue(found["state"]["locks_trusted"])
            dump = self.json_of("store", "dump")
            self.assertEqual(dump["state"], found["state"])
            last = next(lock for lock in dump["locks"] if lock["svid"] == 2)
            self.assertEqual((last["handle"], last["client"], last["offset"], last["length"], last["mode"]),
                             (self.fh.hex(), self.id_of(self.a), 10**6, 0, "exclusive"))  # fmt: skip
            (reserved,) = dump["reservations"]
            self.assertEqual((reserved["access"], reserved["deny"], reserved["count"]), (READ, WRITE, 1))
            (waiter,) = dump["waiters"]
            self.assertEqual((waiter["client"], waiter["offset"], waiter["granted"]), (self.id_of(self.b), 10**6, False))
            self.assertLessEqual({self.id_of(self.a), self.id_of(self.b)}, {client["id"] for client in dump["clients"]})
            self.assertEqual(self.json_of("store", "dump"), dump, "a look changes nothing")
        finally:
            self.start()
        self.assertFalse(self.rest.get("/api/v1/status").json["grace"]["active"], "and the next run goes on")
        self.assert_held(self.lock_of(self.a, 10**6, 1), by=2)

    def test_from_lmdb_to_postgres_and_back(self):
        if not cluster.programs():
            self.skipTest("no PostgreSQL here")
        database = cluster.Cluster().start()
        self.addCleanup(database.close)
        backend = ("store.backend=postgres", f"store.postgres={database.connection}")
        self.facts()
        self.more_clients()
        before = self.shown()
        self.daemon.crash()
        dump = self.json_of("store", "dump")
        by_name = {client["id"].split(":")[-1]: client for client in dump["clients"]}
        keys = ("local", "other_locals", "privileged", "secured", "identity")
        self.assertEqual([by_name["reserved"][key] for key in keys], [self.a.server, OTHER, True, False, ""])
        self.assertEqual([by_name[self.a.name][key] for key in keys], [self.a.server, "", False, False, ""])
        self.assertIn(PRIV.hex(), [client["priv"] for client in dump["clients"]])
        self.run_tool("store", "copy", self.folder, database.connection, "--name", "server")
        copied = self.json_of("store", "dump", database.connection, "--name", "server")
        self.assertEqual(self.sorted_dump(copied), self.sorted_dump(dump))
        self.assertEqual({k: copied["state"][k] for k in ("epoch", "sm_state", "complete", "settled", "locks_trusted")},
                         {k: dump["state"][k] for k in ("epoch", "sm_state", "complete", "settled", "locks_trusted")})  # fmt: skip
        self.assertIn("copy to an empty store",
                      self.run_tool("store", "copy", self.folder, database.connection, "--name", "server", code=FAILED).stderr)

        self.start(*backend)
        self.assertFalse(self.rest.get("/api/v1/status").json["grace"]["active"])
        self.assertEqual(self.shown(), before)
        said = self.run_tool("store", "check", database.connection, "--name", "server", code=FAILED).stderr
        self.assertIn("another holdfastd with the same server.name uses it", said)
        self.a.unlock(self.lock_of(self.a, 10**6, 0, svid=2))
        self.b.wait_granted(self.lock_of(self.b, 10**6, 10))
        self.until(lambda: self.rest.metrics()['nlm_grants_total{result="told"}'], "b has answered", passes=bool)
        after = self.shown()
        self.daemon.stop()
        self.run_tool("store", "check", database.connection, code=NOT_FOUND)  # another name

        # And back, with what has changed
        self.remove_store()
        self.run_tool("store", "copy", database.connection, self.folder, "--name", "server")
        self.start()
        self.assertEqual(self.rest.get("/api/v1/status").json["store"]["backend"], "lmdb")
        self.assertEqual(self.shown(), after)
        self.assert_held(self.lock_of(self.b, 10**6, 1))
        self.assert_free(self.lock_of(self.a, 10**6 + 10, 0))

    def test_back_to_the_tables_of_an_older_version(self):
        if not cluster.programs():
            self.skipTest("no PostgreSQL here")
        database = cluster.Cluster().start()
        self.addCleanup(database.close)
        back = ("store", "downgrade", database.connection)
        self.daemon.stop()
        try:
            self.start("store.backend=postgres", f"store.postgres={database.connection}")
            newest = int(database.query("SELECT max(version) FROM holdfast_migrations"))
            self.assert_granted(self.a, self.lock_of(self.a))
            self.assertIn("stop all servers of this database", self.run_tool(*back, "1", code=FAILED).stderr)
            self.daemon.stop()
            self.assertIn(f"its tables are of migration {newest}", self.run_tool(*back, "99", code=FAILED).stderr)
            self.assertIn("database migrated back number=2", self.run_tool(*back, "1").stderr)
            self.assertEqual(database.query("SELECT max(version) FROM holdfast_migrations"), "1")
            self.assertEqual(database.query("SELECT count(*) FROM holdfast_locks"), "1")
            self.start("store.backend=postgres", f"store.postgres={database.connection}")
            self.assertEqual(int(database.query("SELECT max(version) FROM holdfast_migrations")), newest)
        finally:
            self.daemon.stop()
            self.start()
        for words in ((), ("0",), ("x",)):
            self.run_tool(*back, *words, code=USAGE)

    def test_back_to_the_format_of_an_older_version(self):
        back = ("store", "downgrade", self.folder)
        self.assertIn("stop holdfastd first", self.run_tool(*back, "1", code=FAILED).stderr)
        for words in ((), ("0",), ("x",), ("",)):
            self.run_tool(*back, *words, code=USAGE)
        self.run_tool("store", "downgrade", "/no/such/folder", "1", code=NOT_FOUND)
        self.facts()
        self.daemon.stop()
        try:
            before = self.run_tool("store", "dump").stdout
            self.assertIn("format=1 clients_changed=0", self.run_tool(*back, "1").stderr)
            self.assertEqual(self.run_tool("store", "dump").stdout, before)
        finally:
            self.start()

    def test_two_owners_of_the_same_bytes_are_a_fault(self):
        if not cluster.programs():
            self.skipTest("no PostgreSQL here")
        database = cluster.Cluster().start()
        self.addCleanup(database.close)
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        self.assert_granted(self.b, self.lock_of(self.b, 100, 10))
        self.daemon.stop()
        try:
            self.run_tool("store", "copy", self.folder, database.connection, "--name", "server")
        finally:
            self.start()
        ask = (database.connection, "--name", "server")
        self.assertEqual(self.json_of("--json", "store", "check", *ask)["faults"], 0)
        database.query("UPDATE holdfast_locks SET range_end = 1000 WHERE range_start = 0")
        found = self.json_of("--json", "store", "check", *ask, code=FAILED)
        self.assertEqual(found["faults"], 1)
        self.assertEqual(found["first_faults"][0]["fault"], "two owners hold the same bytes")
        self.assertIn("two owners hold the same bytes", self.run_tool("store", "check", *ask, code=FAILED).stdout)

    def test_the_copy_belongs_to_the_owner_of_its_folder(self):
        """A server with a user of its own must be able to use what root has copied."""
        self.assert_granted(self.a, self.lock_of(self.a))
        self.daemon.stop()
        try:
            with tempfile.TemporaryDirectory() as folder:
                os.chown(folder, NOBODY, NOBODY)
                self.run_tool("store", "copy", self.folder, folder)
                self.assertEqual({os.stat(os.path.join(folder, name)).st_uid for name in os.listdir(folder)}, {NOBODY})
                self.assertEqual(self.json_of("--json", "store", "check", folder)["locks"], 1)
        finally:
            self.start()

    def test_what_is_refused(self):
        for words in ((), ("check", "a", "b"), ("copy", "a"), ("nonsense",)):
            self.run_tool("store", *words, code=USAGE)
        self.assertIn("there is no store in", self.run_tool("store", "check", "/var/empty" if os.path.isdir("/var/empty") else "/tmp",
                                                            code=NOT_FOUND).stderr)  # fmt: skip
        self.run_tool("store", "check", "/no/such/folder", code=NOT_FOUND)
        self.daemon.stop()
        with open(f"{self.folder}/store.mdb", "r+b") as file:
            whole = file.read()
            file.seek(8192)  # behind the two first pages, which have a spare each
            file.write(bytes(255 - byte for byte in whole[8192:]))
        try:
            said = self.run_tool("store", "check", code=FAILED).stderr
            self.assertIn("the store's file is refused and left unchanged; move it away to start without it", said)
        finally:
            with open(f"{self.folder}/store.mdb", "wb") as file:
                file.write(whole)
            self.start()


class Reclaiming(Tool):
    """recovery.after_crash: reclaim. Only a run that goes on needs waiters."""

    backend = ("store.backend=lmdb",)
    store = ()

    @classmethod
    def setUpClass(cls):
        cls.settings = (*cls.backend, "recovery.grace=auto", "recovery.after_crash=reclaim", "api.listen=127.0.0.1:0")
        super().setUpClass()

    def hold_and_wait(self):
        """The lock of svid 2 is stored last, and all that comes before it."""
        held = [self.lock_of(self.a, 0, 10), self.lock_of(self.a, 100, 10, svid=2)]
        self.assert_granted(self.a, held[0])
        self.assert_blocked(self.b, self.lock_of(self.b, 0, 10))
        self.assert_granted(self.a, held[1])
        return held

    def test_no_waiter_is_stored(self):
        self.hold_and_wait()
        self.daemon.crash()
        try:
            dump = self.json_of("store", "dump", *self.store)
            self.assertEqual([len(dump["locks"]), dump["waiters"]], [2, []])
        finally:
            self.start()


class ReclaimingOverPostgres(OverPostgres, Reclaiming):
    @property
    def store(self):
        return (self.cluster.connection, "--name", "server")

    def written(self, table):
        """Rows that were ever written. A session counts its own at the latest when it ends."""
        count = "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relname"
        return int(self.cluster.query(f"{count} = '{table}'"))

    def test_a_single_server_writes_no_table_of_a_cluster(self):
        held = self.hold_and_wait()
        self.daemon.crash()
        self.start()
        for lock in held:
            self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: not self.rest.get("/api/v1/grace").json["active"], "grace ends")
        self.daemon.stop()
        try:
            self.until(lambda: self.written("holdfast_locks"), "the sessions have counted what they wrote", passes=bool)
            self.assertEqual([self.written(table) for table in ("holdfast_leases", "holdfast_nodes")], [0, 0])
        finally:
            self.start()


if __name__ == "__main__":
    main()
