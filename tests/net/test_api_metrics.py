#!/usr/bin/env python3
"""Metrics: every one of the contract moves when it should, and only then."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from exported import OneExport
from fakehost import FakeHost
from play import Play, main
from rpc import PATIENCE, TcpCaller, call_message
from xdr import Out

CONTRACT = set(
    """nsm_requests_total nsm_request_duration_seconds nsm_clients_registered nsm_notifications_total
    nsm_notification_duration_seconds nsm_crashes_detected_total nsm_crash_cleanups_total
    nsm_locks_cleaned_on_crash_total nlm_requests_total nlm_request_duration_seconds nlm_locks_held nlm_waiters
    nlm_grants_total nfs_requests_total nfs_request_duration_seconds nfs_bytes_total holdfast_grace_active
    holdfast_store_commit_seconds holdfast_connections holdfast_reservations
    holdfast_oldest_lock_of_silent_client_seconds""".split()
)
MOVED = set()  # names that a test here has seen moving

# What may move by itself, with the store's own work, or because the test looks.
RESTLESS = ("_bucket{", "_seconds_sum", "holdfast_lock_table_bytes", "holdfast_store_commit_seconds",
            "holdfast_oldest_lock_of_silent_client_seconds", "holdfast_silent_client_in_the_way_seconds", "holdfast_limit_used")  # fmt: skip


def tearDownModule():
    if len(sys.argv) == 1:  # all of them were played
        assert CONTRACT <= MOVED, f"no test moves {CONTRACT - MOVED}"


class MetricsPlay(Play):
    settings = ("api.listen=127.0.0.1:0",)
    host_class = nsm.Host

    def change(self, act):
        """{series: difference} of all that moves with @act, but for what is restless."""
        before = self.rest.metrics()
        act()
        after = self.rest.metrics()
        change = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
        for key in change:
            name = key.split("{")[0]
            MOVED.update({name, name.removesuffix("_count")})
        return {key: value for key, value in change.items() if not any(word in key for word in RESTLESS)}

    def wait(self, key, value):
        self.until(lambda: self.rest.metrics().get(key), f"{key} is {value}", passes=lambda seen: seen == value)


class Locks(MetricsPlay):
    def test_a_lock_moves_what_it_should(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(8)))  # known and registered
        self.assertEqual(
            self.change(lambda: self.assert_granted(self.a, lock)),
            {'nlm_requests_total{procedure="LOCK",result="GRANTED"}': 1,
             'nlm_request_duration_seconds_count{procedure="LOCK"}': 1,
             'nlm_locks_held{share="0"}': 1},
        )  # fmt: skip
        self.assertEqual(
            self.change(lambda: self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)),
            {'nlm_requests_total{procedure="UNLOCK",result="GRANTED"}': 1,
             'nlm_request_duration_seconds_count{procedure="UNLOCK"}': 1,
             'nlm_locks_held{share="0"}': -1},
        )  # fmt: skip

    def test_a_denial_and_a_waiter(self):
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_denied(self.b, self.lock_of(self.b, fh=self.fh))  # known from here on
        self.assertEqual(
            self.change(lambda: self.assert_denied(self.b, self.lock_of(self.b))),
            {'nlm_requests_total{procedure="LOCK",result="DENIED"}': 1,
             'nlm_request_duration_seconds_count{procedure="LOCK"}': 1},
        )  # fmt: skip
        registered = self.rest.metrics()["nsm_clients_registered"]
        change = self.change(lambda: self.assert_blocked(self.b, self.lock_of(self.b)))
        self.assertEqual(change.pop("nsm_clients_registered", 1), 1)
        self.assertEqual(
            change,
            {'nlm_requests_total{procedure="LOCK",result="BLOCKED"}': 1,
             'nlm_request_duration_seconds_count{procedure="LOCK"}': 1,
             "nlm_waiters": 1},
        )  # fmt: skip
        self.assertIn(self.rest.metrics()["nsm_clients_registered"] - registered, (0, 1))
        told = self.rest.metrics()['nlm_grants_total{result="told"}']

        def hand_over():
            self.a.unlock(lock)
            self.b.wait_granted(lock)
            self.wait('nlm_grants_total{result="told"}', told + 1)

        self.assertEqual(
            self.change(hand_over),
            {'nlm_requests_total{procedure="UNLOCK",result="GRANTED"}': 1,
             'nlm_request_duration_seconds_count{procedure="UNLOCK"}': 1,
             'nlm_grants_total{result="told"}': 1, "nlm_waiters": -1},
        )  # fmt: skip

    def test_a_reservation_moves_what_it_should(self):
        share = self.lock_of(self.a, access=3, deny=2)
        self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(8)))  # known and registered
        for act, name, by in ((self.a.share, "SHARE", 1), (self.a.unshare, "UNSHARE", -1)):
            self.assertEqual(
                self.change(lambda act=act: self.assertEqual(act(share), nlm.S_GRANTED)),
                {f'nlm_requests_total{{procedure="{name}",result="GRANTED"}}': 1,
                 f'nlm_request_duration_seconds_count{{procedure="{name}"}}': 1,
                 "holdfast_reservations": by},
            )  # fmt: skip

    def hand_over_to(self, script):
        """The change that a grant makes which is answered as @script says; until @result has moved."""
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.b.script = script
        return lambda: self.a.unlock(lock)

    def test_a_grant_that_is_refused(self):
        key = 'nlm_grants_total{result="refused"}'
        unlock, before = self.hand_over_to(nlm.S_DENIED), self.rest.metrics()[key]
        change = self.change(lambda: (unlock(), self.wait(key, before + 1)))
        self.assertEqual((change[key], change["nlm_waiters"], change['nlm_locks_held{share="0"}']), (1, -1, -1))
        self.assertNotIn('nlm_grants_total{result="told"}', change)

    def test_a_grant_that_is_tried_again(self):
        key = 'nlm_grants_total{result="retried"}'
        unlock, before = self.hand_over_to(FakeHost.SILENT), self.rest.metrics()[key]

        def tried_again():
            unlock()
            self.until(lambda: self.rest.metrics()[key] > before, "it is tried again", 3 * PATIENCE, pause=0.05)

        change = self.change(tried_again)
        self.assertGreaterEqual(change[key], 1)
        self.assertNotIn('nlm_grants_total{result="told"}', change)

    def test_a_grant_that_is_told_again_after_a_message(self):
        """GRANTED_MSG has arrived, and no GRANTED_RES of it: the second call, GRANTED, is one beyond the first."""
        lock, waiting = self.lock_of(self.a), self.lock_of(self.b).but(block=True)
        told, retried = 'nlm_grants_total{result="told"}', 'nlm_grants_total{result="retried"}'
        self.assert_granted(self.a, lock)
        self.b.caller("udp").send(call_message(nlm.PROGRAM, 4, nlm.LOCK_MSG, waiting.args(nlm.LOCK_MSG)))
        self.b.answers.wait(1, lambda answer: answer[0] == nlm.LOCK_RES and answer[1].stat == nlm.S_BLOCKED)
        self.b.script = FakeHost.WRONG_COOKIE  # in GRANTED_RES; the answer to GRANTED needs no cookie
        before = self.rest.metrics()[told]

        def told_again():
            self.a.unlock(lock)
            self.until(lambda: self.rest.metrics()[told] > before, "it is told again", 3 * PATIENCE, pause=0.05)

        change = self.change(told_again)
        self.assertEqual((change[told], change.get(retried)), (1, 1))

    def test_repeated_calls_are_counted_once(self):
        lock, caller = self.lock_of(self.a), self.a.caller("udp")
        self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(8)))
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK))

        def ask_twice():
            for _ in range(2):
                caller.send(message)
                caller.receive()

        change = self.change(ask_twice)
        self.assertEqual(change["holdfast_calls_replayed_total"], 1)
        self.assertEqual(change['nlm_requests_total{procedure="LOCK",result="GRANTED"}'], 1)


class Monitor(MetricsPlay):
    settings = ("api.listen=127.0.0.1:0", "nsm.allow_mon=any")

    def test_calls_of_the_status_monitor(self):
        stat = Out().string("any-host").bytes()
        self.a.nsm(nsm.STAT, stat)
        self.assertEqual(
            self.change(lambda: self.a.nsm(nsm.STAT, stat)),
            {'nsm_requests_total{procedure="STAT",result="OK"}': 1,
             'nsm_request_duration_seconds_count{procedure="STAT"}': 1},
        )  # fmt: skip

    def test_registrations_come_and_go(self):
        who = Out().string("some.peer").string(self.b.name).u32(self.b.PROGRAM).u32(1).u32(7).bytes()
        change = self.change(lambda: self.assertEqual(self.b.mon("some.peer", transport="tcp")[0], nsm.SUCC))
        self.assertEqual((change["nsm_clients_registered"], change['nsm_requests_total{procedure="MON",result="OK"}']), (1, 1))
        change = self.change(lambda: self.b.mon("some.peer", transport="tcp"))
        self.assertNotIn("nsm_clients_registered", change, "the same one again")
        change = self.change(lambda: self.b.nsm(nsm.UNMON, who, transport="tcp"))
        self.assertEqual(change["nsm_clients_registered"], -1)

    def notify(self, host, result):
        client, key = self.id_of(host), f'nsm_notifications_total{{result="{result}"}}'
        before = self.rest.metrics()[key]
        self.rest.call("POST", f"/api/v1/notify?client={client}", token=True)
        self.wait(key, before + 1)

    def test_notices_that_arrive_and_that_do_not(self):
        for host in (self.a, self.b):
            self.assert_granted(host, self.lock_of(host, fh=os.urandom(8)))
        self.assertEqual(
            self.change(lambda: self.notify(self.a, "success")),
            {'nsm_notifications_total{result="started"}': 1, 'nsm_notifications_total{result="success"}': 1,
             "nsm_notification_duration_seconds_count": 1},
        )  # fmt: skip
        self.b.stop_portmap()
        self.b.deaf = True  # the server may know the port of its statd from before
        change = self.change(lambda: self.notify(self.b, "failed"))
        self.assertEqual(change['nsm_notifications_total{result="failed"}'], 1)
        self.assertNotIn('nsm_notifications_total{result="success"}', change)
        self.b.start_portmap()

    def test_a_crash(self):
        for i in range(3):
            self.assert_granted(self.c, self.lock_of(self.c, fh=os.urandom(8), svid=i + 1))
        locks = self.rest.get(f"/api/v1/clients/{self.id_of(self.c)}").json["lock_count"]
        change = self.change(lambda: self.c.notify(77))
        self.assertEqual(change["nsm_crashes_detected_total"], 1)
        self.assertEqual(change["nsm_crash_cleanups_total"], 1)
        self.assertEqual(change["nsm_locks_cleaned_on_crash_total"], locks)
        self.assertEqual(change['nlm_locks_held{share="0"}'], -locks)
        change = self.change(lambda: self.c.notify(77))
        self.assertFalse([key for key in change if "crash" in key], "the same reboot, told again")


class Refused(MetricsPlay):
    """What changes nothing is not counted as what does."""

    settings = ("api.listen=127.0.0.1:0", "nsm.allow_mon=local")
    n_hosts = 1

    def test_a_notice_that_is_ignored(self):
        change = self.change(lambda: self.a.notify(5, name="stranger"))
        self.assertEqual(change['nsm_requests_total{procedure="NOTIFY",result="IGNORED"}'], 1)
        self.assertNotIn('nsm_requests_total{procedure="NOTIFY",result="OK"}', change)

    def test_calls_that_are_refused(self):
        my_id = Out().string(self.a.name).u32(self.a.PROGRAM).u32(1).u32(7).bytes()
        for name, procedure, args in (
            ("UNMON", nsm.UNMON, Out().string("some.peer").bytes() + my_id),
            ("UNMON_ALL", nsm.UNMON_ALL, my_id),
            ("SIMU_CRASH", nsm.SIMU_CRASH, b""),
        ):
            change = self.change(lambda p=procedure, a=args: self.a.nsm(p, a, transport="tcp"))
            self.assertEqual(change[f'nsm_requests_total{{procedure="{name}",result="REFUSED"}}'], 1)
            self.assertNotIn(f'nsm_requests_total{{procedure="{name}",result="OK"}}', change)
        change = self.change(lambda: self.a.mon("some.peer", transport="tcp"))
        self.assertEqual(change['nsm_requests_total{procedure="MON",result="FAIL"}'], 1)


class Server(MetricsPlay):
    settings = ("api.listen=127.0.0.1:0", "store.backend=lmdb", "recovery.grace=always", "recovery.early_end=false")
    n_hosts = 1

    def test_a_grace_that_is_ended(self):
        """First of all: the others end it, too."""
        self.assertEqual(self.rest.metrics()["holdfast_grace_active"], 1)
        change = self.change(lambda: self.rest.call("POST", "/api/v1/grace/end", token=True))
        self.assertEqual(change["holdfast_grace_active"], -1)
        self.assertEqual(self.rest.metrics()["holdfast_grace_active"], 0)

    def test_commits(self):
        if self.rest.metrics()["holdfast_grace_active"]:
            self.rest.call("POST", "/api/v1/grace/end", token=True)
        count = "holdfast_store_commit_seconds_count"
        before = self.rest.metrics()[count]
        self.change(lambda: self.assert_granted(self.a, self.lock_of(self.a)))
        after = self.rest.metrics()[count]
        self.assertGreater(after, before)
        self.assertEqual(self.rest.metrics()[count], after, "nothing was written since")

    def test_connections(self):
        key = 'holdfast_connections{transport="%s"}'
        tcp, http = (self.rest.metrics()[key % kind] for kind in ("tcp", "http"))
        self.assertEqual(self.rest.metrics()[key % "udp"], 0)
        callers, opened = [], []

        def connect():
            callers.append(TcpCaller((self.network.SERVER[0], 2049), (self.a.address, 0), self.a.namespace))
            self.wait(key % "tcp", tcp + 1)

        self.assertEqual(self.change(connect)[key % "tcp"], 1)
        callers.pop().close()
        self.wait(key % "tcp", tcp)
        opened.append(self.rest.raw())
        self.wait(key % "http", http + 1)
        opened.pop().close()
        self.wait(key % "http", http)


class Files(OneExport, MetricsPlay):
    n_hosts = 1

    def test_reads_and_writes(self):
        made = self.nfs.create(self.nfs.root("/data"), b"file", mode=0o666)
        self.assertEqual(
            self.change(lambda: self.nfs.write(made.fh, b"x" * 1000)),
            {'nfs_requests_total{procedure="WRITE",result="OK"}': 1,
             'nfs_request_duration_seconds_count{procedure="WRITE"}': 1, 'nfs_bytes_total{direction="written"}': 1000},
        )  # fmt: skip
        self.assertEqual(
            self.change(lambda: self.nfs.read(made.fh, 0, 400)),
            {'nfs_requests_total{procedure="READ",result="OK"}': 1,
             'nfs_request_duration_seconds_count{procedure="READ"}': 1, 'nfs_bytes_total{direction="read"}': 400},
        )  # fmt: skip


class Text(MetricsPlay):
    n_hosts = 1

    def test_every_metric_of_the_contract_is_there(self):
        text = self.rest.get("/metrics").body.decode()
        for name in CONTRACT:
            self.assertIn(f"# TYPE {name} ", text)
            self.assertIn(f"# HELP {name} ", text)

    def test_promtool_takes_it(self):
        promtool = shutil.which("promtool")
        if not promtool:
            self.skipTest("no promtool (Debian package prometheus)")
        self.assert_granted(self.a, self.lock_of(self.a))
        text = self.rest.get("/metrics").body
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout)


class Uncounted(MetricsPlay):
    settings = ("api.listen=127.0.0.1:0", "metrics.enabled=false")
    n_hosts = 1

    def test_nothing_is_counted(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        answer = self.rest.get("/metrics")
        self.assertEqual((answer.status, answer.code), (404, "not_found"))


if __name__ == "__main__":
    main()
