#!/usr/bin/env python3
"""What is loaded is what was stored: a store that was used, damaged or exchanged meanwhile is refused in clear words, and
nothing that a client was promised goes to another one silently.

    test_m5_*       the key of the file handles, and handles in the store
    test_m7_*       a database that another holdfastd has used since
    test_segment_*  files of the journal
    test_healthz_*  what the probes say while nothing can be promised
"""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from daemon import Daemon, Failed
from play import SETTINGS, main
from recovering import OverPostgres, Recovering
from rest import Rest
from until import PATIENCE

USED = "another holdfastd of the same server.name has used the store since"


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
        self.until(lambda: "the store is back" in self.log, "it comes back by itself")
        with self.assertRaises(Failed):
            self.second.start()
        self.assertIn("another holdfastd of the same server.name uses it", self.second.log)
        self.assert_held(lock, by=lock.svid)
        self.held(self.b, 20, 5)


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


if __name__ == "__main__":
    main()
