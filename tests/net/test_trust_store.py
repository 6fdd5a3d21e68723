#!/usr/bin/env python3
"""What is loaded is what was stored: a store that was used, damaged or exchanged meanwhile is refused in clear words, and
nothing that a client was promised goes to another one silently.

    test_m5_*       the key of the file handles, and handles in the store
    test_m7_*       a database that another holdfastd has used since
    test_segment_*  files of the journal
    test_healthz_*  what the probes say while nothing can be promised
"""

import ctypes
import os
import resource
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from daemon import Daemon, Failed
from exported import Exported
from play import SETTINGS, main
from recovering import OverPostgres, Recovering
from rest import Rest
from rpc import call_message
from until import PATIENCE

USED = "another holdfastd with the same server.name has used the store"


class Database:
    """Beside an OverPostgres: SQL to its database."""

    def sql(self, text):
        """The first line of what it answers."""
        words = [os.path.join(self.cluster.bin, "psql"), "-X", "-q", "-A", "-t", "-d", self.cluster.connection, "-c", text]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        return (done.stdout.splitlines() or [""])[0]

    def cut(self, pid=None):
        """Ends the sessions of all holdfastds, or of the one with this process id on the database's side."""
        which = f"pid = {pid}" if pid else "application_name = 'holdfastd'"
        self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which}")


class UsedByAnother(Database, OverPostgres, Recovering):
    """Two holdfastds with one server.name; the network between the first and the database goes, and comes back."""

    n_hosts = 2

    def setUp(self):
        super().setUp()
        self.second = Daemon(self.program, self.network.server, [
            *SETTINGS, *self.settings, "server.port=0", "server.portmap=off"])  # fmt: skip
        self.addCleanup(self.second.close)

    def tearDown(self):
        self.second.close()
        self.go_on()
        if self.daemon.process.poll() is not None:
            self.daemon.start()
        super().tearDown()

    def rows(self):
        return (self.sql("SELECT string_agg(format('%s %s', epoch, sm_state), ',') FROM holdfast_server_state"),
                self.sql("SELECT string_agg(format('%s %s', client_id, range_start), ',' ORDER BY 1) FROM holdfast_locks"))  # fmt: skip

    def lose_it(self):
        """The first loses its session and does not notice until go_on(), as a guest that is moved to another machine."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.cut()
        self.second.start()

    def go_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def assert_ended(self):
        self.until(lambda: self.daemon.process.poll() is not None, "the first one ends")
        self.assertNotEqual(self.daemon.process.returncode, 0)
        self.assertIn(USED, self.log)
        self.assertIn("closed the connection to the database", self.log)
        for host in self.hosts:
            host.drop_callers()

    def test_m7_the_other_one_serves(self):
        self.held(self.a, 0, 5)
        self.lose_it()
        wanted = self.rows()
        self.assertTrue(wanted[0].startswith(str(Rest(self.second).get("/api/v1/status").json["epoch"]) + " "))
        self.go_on()
        self.assert_ended()
        self.assertEqual(self.rows(), wanted)
        self.assertEqual(Rest(self.second).get("/readyz").status, 200)
        self.second.stop()

    def test_m7_the_other_one_has_ended(self):
        """Its session is over, so the session lock alone would let the first one put its old facts back."""
        lock = self.held(self.a, 0, 5)
        self.lose_it()
        # What the second one had, and its clients believe: the first one's lock went, another came.
        self.sql("UPDATE holdfast_locks SET range_start = 7, range_end = 8")
        self.second.crash()
        wanted = self.rows()
        self.go_on()
        self.assert_ended()
        self.assertEqual(self.rows(), wanted)
        self.daemon.start()
        self.assertEqual(self.a.lock(lock.but(offset=7, length=2, reclaim=True)), nlm.S_GRANTED)

    def test_m7_nothing_is_promised_on_the_way_out(self):
        """A LOCK that arrives while the first one does not know yet is not granted by it."""
        self.held(self.a, 0, 5)
        self.b.caller().sock.settimeout(PATIENCE)
        self.lose_it()
        wanted, answer = self.rows(), None
        try:
            self.go_on()
            answer = self.b.lock(self.lock_of(self.b, 20, 5))
        except (OSError, EOFError):
            pass
        self.assertIn(answer, (None, nlm.S_NOLOCKS))
        self.b.drop_callers()
        self.assert_ended()
        self.assertEqual(self.rows(), wanted)

    def test_m7_own_reconnect_is_no_other(self):
        """Hole in the proof: the session lock is taken again, so that a second one is still kept out."""
        lock = self.held(self.a, 0, 5)
        self.cut()
        self.until(lambda: "the store can write again" in self.log, "it comes back by itself")
        with self.assertRaises(Failed):
            self.second.start()
        self.assertIn("another holdfastd with the same server.name uses it", self.second.log)
        self.assert_held(lock, by=lock.svid)
        self.held(self.b, 20, 5)


class Tables(Database, OverPostgres, Recovering):
    """Locks go through a journal; the tables that users read have them a moment later, and at once after a start or a stop."""

    def tearDown(self):
        if self.daemon.process.poll() is not None:
            self.daemon.start()
        super().tearDown()

    def starts(self):
        return self.sql("SELECT string_agg(range_start::text, ',' ORDER BY range_start) FROM holdfast_locks")

    def n_journal(self):
        return int(self.sql("SELECT count(*) FROM holdfast_journal"))

    def test_lock_and_unlock_reach_the_table(self):
        lock = self.held(self.a, 30, 5)
        self.until(lambda: self.starts() == "30", "the lock is in its table")
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.until(lambda: self.starts() == "", "and is gone from it")
        self.assertNotIn("could not be folded", self.log)

    def test_stop_leaves_nothing_in_the_journal(self):
        self.held(self.a, 30, 5)
        self.daemon.stop()
        self.assertEqual((self.n_journal(), self.starts()), (0, "30"))

    def test_start_after_a_kill_finds_what_the_journal_has(self):
        """A lock that is in the journal alone, and one that is in its table and is released in the journal alone."""
        kept, gone = self.held(self.a, 30, 5), self.held(self.b, 0, 5)
        self.restart()
        self.assertEqual(self.starts(), "0,30")
        self.assertEqual(self.a.lock(kept.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.b.lock(gone.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.b.unlock(gone), nlm.S_GRANTED)
        self.restart()
        self.assertEqual(self.starts(), "30")
        self.assertEqual(self.b.lock(self.lock_of(self.b, 0, 5)), nlm.S_GRACE)
        self.assertEqual(self.a.lock(kept.but(reclaim=True)), nlm.S_GRANTED)

    def test_row_of_the_service_changed_by_hand(self):
        """Whatever changes it: no lock is stored, and none is granted."""
        self.held(self.a, 30, 5)
        self.sql("UPDATE holdfast_services SET epoch = epoch + 1, owner = 'another'")
        try:
            self.assertNotEqual(self.b.lock(self.lock_of(self.b, 0, 5)), nlm.S_GRANTED)
        except (OSError, EOFError):
            pass
        self.b.drop_callers()
        self.until(lambda: self.daemon.process.poll() is not None, "it ends")
        self.assertIn(USED, self.log)
        self.daemon.start()
        self.assertEqual(self.starts(), "30")


class Probes(OverPostgres, Recovering):
    def test_healthz_is_not_ok_while_nothing_can_be_promised(self):
        lock = self.held(self.a, 0, 5)
        for path in ("/healthz", "/readyz"):
            answer = self.rest.get(path)
            self.assertEqual((answer.status, answer.json), (200, {"status": "ok"}))
        self.cluster.kill()
        self.addCleanup(lambda: self.cluster.server.poll() is None or self.cluster.start())
        self.until(lambda: self.rest.get("/readyz").status == 503, "it notices")
        for path in ("/healthz", "/readyz"):
            answer = self.rest.get(path)
            self.assertEqual((answer.status, answer.code), (503, "store_failed"))
        self.assertEqual(self.b.lock(self.lock_of(self.b, 20, 5)), nlm.S_NOLOCKS, "nothing is promised")
        self.assertIsNone(self.daemon.process.poll(), "it lives, and what was promised is kept")
        self.assert_held(lock, by=lock.svid)
        self.cluster.start()
        self.until(lambda: self.rest.get("/healthz").status == 200, "it is well again")
        self.assertEqual(self.rest.get("/readyz").json, {"status": "ok"})
        self.held(self.b, 20, 5)


class Refusing(Recovering):
    """A start that is refused: exit status 1, and in the log what is wrong and what to do."""

    def assert_refused(self, *words, flags=()):
        before = len(self.daemon.log)
        for host in self.hosts:
            host.drop_callers()
        with self.assertRaises(Failed):
            self.daemon.start(flags=flags)
        self.assertEqual(self.daemon.process.returncode, 1)
        said = self.daemon.log[before:]
        for word in (*words, "--clear-store", "could not start"):
            self.assertIn(word, said)
        return said

    def in_state_dir(self, name):
        return os.path.join(self.daemon.state_dir, "state", name)


class Key(Refusing, Exported):
    """A lock is a handle and a range; the handle is worth what its seal is."""

    backend = ("store.backend=lmdb",)
    n_hosts = 3

    def setUp(self):
        super().setUp()
        with open(self.in_state_dir("handle.key"), "rb") as file:
            self.key = file.read()

    def tearDown(self):
        if self.daemon.process.poll() is not None:
            self.daemon.start(flags=["--clear-store"])
        super().tearDown()

    def put_key(self, key):
        with open(self.in_state_dir("handle.key"), "wb") as file:
            file.write(key)

    def damage(self):
        self.put_key(bytes([self.key[0] ^ 1]) + self.key[1:])

    def assert_still_held(self, lock):
        """As ever: its owner reclaims it, and no other client gets it."""
        self.daemon.start()
        self.assertEqual(self.b.lock(lock.but(name=self.b.name, reclaim=True)), nlm.S_GRACE)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.until(lambda: self.b.lock(lock.but(name=self.b.name)) == nlm.S_DENIED, "grace is over, and it is still A's")

    def change_handle(self):
        """The lock's handle, by one bit, in the frame of the journal that has it, with its checksums made right."""
        xxh = ctypes.CDLL("libxxhash.so.0").XXH64
        xxh.restype, xxh.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
        wrong = bytes([*self.fh[:-1], self.fh[-1] ^ 1])
        with open(self.in_state_dir("journal.0"), "r+b") as file:
            data = bytearray(file.read())
            instance, at, n = struct.unpack_from("<Q", data, 24)[0], 64, 0
            while at + 32 <= len(data):
                magic, length, sequence = struct.unpack_from("<IIQ", data, at)
                records = bytes(data[at + 32 : at + 32 + length])
                n += self.fh in records
                records = records.replace(self.fh, wrong)
                head = struct.pack("<IIQQ", magic, length, sequence, xxh(records, length, 0))
                data[at : at + 32 + length] = head + struct.pack("<Q", xxh(head, 24, instance)) + records
                at += 32 + length
            file.seek(0)
            file.write(data)
        self.assertGreater(n, 0)

    def lose_the_store(self):
        """For a moment, after which everything is written again."""
        pid = self.daemon.process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        self.assertEqual(self.c.mon("server", transport="tcp")[0], 1, "it cannot be stored")
        self.assertEqual(self.rest.get("/readyz").status, 503)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.until(lambda: "the store can write again" in self.log, "it is back")

    def test_killed_while_new_clients_take_their_first_locks(self):
        """Their locks are in the journal, their registrations not yet."""
        for turn in range(5):
            locks = [
                nlm.Lock(name=f"new{turn}-{i}", fh=self.fh, svid=i, offset=turn * 1000 + i, length=1) for i in range(200)
            ]
            caller = self.a.caller()
            caller.send_together([call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK)) for lock in locks])
            caller.receive(10)
            self.daemon.crash()
            for host in self.hosts:
                host.drop_callers()
            self.daemon.start("recovery.grace=never")

    def test_m5_key_replaced(self):
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        self.put_key(os.urandom(16))
        for _ in range(2):
            self.assert_refused("handle.key", "restore it")
        self.put_key(self.key)
        self.assert_still_held(lock)

    def test_m5_key_damaged(self):
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        self.damage()
        self.assert_refused("handle.key", "restore it")
        self.put_key(self.key[:7])
        self.assert_refused("the key of the file handles is damaged")
        self.put_key(self.key)
        self.assert_still_held(lock)

    def test_m5_key_gone(self):
        """A new one is made, which nothing fits."""
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        os.unlink(self.in_state_dir("handle.key"))
        self.assert_refused("handle.key", "restore it")
        self.put_key(self.key)
        self.assert_still_held(lock)

    def test_m5_key_replaced_under_a_reservation(self):
        share = self.lock_of(self.a, access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.daemon.crash()
        self.damage()
        self.assert_refused("handle.key")
        self.put_key(self.key)
        self.daemon.start()
        self.assertRegex(self.daemon.log, "stored clients and locks loaded .* locks=0 reservations=1 ")
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)

    def test_m5_starting_over(self):
        """As the message says."""
        self.held(self.a, 0, 5)
        self.daemon.crash()
        self.damage()
        self.assert_refused("handle.key")
        self.daemon.start(flags=["--clear-store"])
        self.assertIn("the store was cleared: registrations and locks are gone", self.log)
        self.fh = self.handle_of(self.path)
        self.held(self.b, 0, 5)
        self.restart()
        self.assertIn("stored clients and locks loaded", self.daemon.log[self.log_restarted :])

    def test_m5_another_key_without_locks(self):
        """Nothing is lost but the mounts: a warning, no refusal."""
        self.restart("--clear-store")
        self.daemon.crash()
        self.damage()
        self.daemon.start()
        self.assertIn("clients must mount again", self.log)
        self.daemon.crash()
        self.daemon.start()

    def test_m5_handle_changed(self):
        self.held(self.a, 0, 5)
        self.daemon.crash()
        self.change_handle()
        self.assert_refused("n=1 of=1", "first=lock id=")

    def test_m5_share_that_is_not_exported_now(self):
        """Its locks stay stored, also through an outage of the store, and are no reason to refuse a start."""
        lock = self.held(self.a, 0, 5)
        self.write_config(["{{path: {base}/data, name: /other, squash: none}}"])
        self.addCleanup(self.write_config, self.exports)
        share = lock.but(access=2, deny=1)
        self.assertEqual(self.a.share(share), nlm.S_GRANTED)
        self.restart()
        self.assertIn("not_exported=2", self.daemon.log[self.log_restarted :])
        self.lose_the_store()
        self.write_config(self.exports)
        self.restart()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.a.share(share.but(reclaim=True)), nlm.S_GRANTED)


class KeyOverPostgres(Database, OverPostgres, Key):
    def lose_the_store(self):
        self.cut()
        self.until(lambda: "the store can write again" in self.log, "it is back")

    def change_handle(self):
        self.sql("UPDATE holdfast_locks SET handle = set_byte(handle, 30, get_byte(handle, 30) # 1)")

    def test_m5_handle_changed(self):
        lock = self.held(self.a, 0, 5)
        self.held(self.a, 20, 5)
        self.until(lambda: self.sql("SELECT count(*) FROM holdfast_journal") == "0", "the locks are in their table")
        self.daemon.crash()
        number = self.sql("SELECT min(lock_id) FROM holdfast_locks")
        self.change_handle()
        self.assert_refused("n=2 of=2", f"first=lock id={number}")
        self.change_handle()
        self.sql(f"UPDATE holdfast_locks SET handle = handle || 'x' WHERE lock_id = {number}")
        self.assert_refused("n=1 of=2", f"first=lock id={number}")
        self.sql(f"UPDATE holdfast_locks SET handle = substring(handle FOR length(handle) - 1) WHERE lock_id = {number}")
        self.daemon.start()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)
        self.assertEqual(self.b.lock(self.lock_of(self.b, 20, 5)), nlm.S_GRACE)

    def test_m5_store_of_an_older_release(self):
        """It does not name its key: one that all handles fit is taken for it, another is refused."""
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        self.sql("UPDATE holdfast_services SET handle_key = 0")
        self.damage()
        self.assert_refused("handle.key", "n=1 of=1")
        self.assertEqual(self.sql("SELECT handle_key FROM holdfast_services"), "0")
        self.put_key(self.key)
        self.assert_still_held(lock)
        self.assertNotEqual(self.sql("SELECT handle_key FROM holdfast_services"), "0")


class HandlesOfAnother(Recovering):
    """A lock service beside another NFS server: handles are that server's, and the key seals nothing."""

    backend = ("store.backend=lmdb",)

    def test_m5_no_exports(self):
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        os.unlink(os.path.join(self.daemon.state_dir, "state", "handle.key"))
        self.restart()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)


class Segments(Refusing):
    backend = ("store.backend=lmdb",)

    def test_segment_missing(self):
        """The one with the last locks, or any other: none is made silently."""
        lock = self.held(self.a, 0, 5)
        self.daemon.crash()
        for name in ("journal.0", "journal.7"):
            os.rename(self.in_state_dir(name), self.in_state_dir("away"))
            self.assert_refused(f"{name} reason=it is missing")
            self.assertFalse(os.path.exists(self.in_state_dir(name)))
            os.rename(self.in_state_dir("away"), self.in_state_dir(name))
        self.daemon.start()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_segment_missing_and_given_up(self):
        """As the message says: the locks are forgotten, the state number is not."""
        self.held(self.a, 0, 5)
        epoch = self.rest.get("/api/v1/status").json["epoch"]
        self.daemon.crash()
        os.unlink(self.in_state_dir("journal.0"))
        self.assert_refused("it is missing")
        self.daemon.start(flags=["--clear-store"])
        status = self.rest.get("/api/v1/status").json
        self.assertEqual((status["locks"], status["epoch"]), (0, epoch + 1))
        self.held(self.b, 0, 5)

    def test_segment_missing_after_a_clean_stop(self):
        """Everything was folded into the store's file: nothing is lost."""
        lock = self.held(self.a, 0, 5)
        for host in self.hosts:
            host.drop_callers()
        self.daemon.stop()
        os.unlink(self.in_state_dir("journal.0"))
        self.daemon.start()
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)


if __name__ == "__main__":
    main()
