#!/usr/bin/env python3
"""What users of the server's own host, and strangers at the operator's door, cannot do to the server.

    test_trust_operators.py PATH/holdfastd [unittest's own arguments]
"""

import contextlib
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from exported import OneExport
from play import Play, main
from rest import Events
from rpc import TcpCaller, call_message, exchange
from until import PATIENCE
from xdr import In, Out

LOOPBACK = "127.0.0.1"
PORTMAP, NLM = 100000, 100021
SET, UNSET, GETPORT = 1, 2, 3
TCP = 6


class Portmapper(Play):
    """A local user and the embedded port mapper; the source port tells users from root, as with rpcbind."""

    n_hosts = 0
    settings = ("server.portmap_port=0", "server.port=0")
    N_PROGRAMS = 1200  # more than there are places

    def setUp(self):
        super().setUp()
        with open(self.daemon.ports_file, encoding="utf-8") as ports:
            self.port = json.load(ports)["portmap"]
        self.user, self.root = self.caller(), self.caller(reserved=True)

    def caller(self, **how):
        caller = TcpCaller((LOOPBACK, self.port), (LOOPBACK, 0), self.daemon.namespace, **how)
        self.addCleanup(caller.close)
        return caller

    def ask(self, caller, procedure, program, port=0, version=1):
        args = Out().u32(program).u32(version).u32(TCP).u32(port).data
        return In(exchange(caller, call_message(PORTMAP, 2, procedure, args))).u32()

    def test_low_portmap_reserved_ports_are_roots(self):
        for port in (1, 700, 1023, 2049):
            self.assertEqual(self.ask(self.user, SET, 700001, port), 0, port)
        self.assertEqual(self.ask(self.user, GETPORT, 700001), 0)
        self.assertEqual(self.ask(self.root, SET, 700001, 700), 1)
        self.assertEqual(self.ask(self.user, GETPORT, 700001), 700)
        self.assertEqual(self.daemon.log.count("only a caller on a reserved port may register a reserved port"), 1)
        self.assertEqual(self.ask(self.root, UNSET, 700001), 1)

    def test_low_portmap_what_root_set_stays(self):
        self.assertEqual(self.ask(self.root, SET, 700002, 702), 1)
        self.assertEqual(self.ask(self.user, SET, 700002, 7002), 0)
        self.assertEqual(self.ask(self.user, UNSET, 700002), 0)
        self.assertEqual(self.ask(self.user, GETPORT, 700002), 702)
        self.assertEqual(self.ask(self.user, UNSET, NLM, version=4), 0)
        self.assertEqual(self.ask(self.root, UNSET, NLM, version=4), 0)
        self.assertNotEqual(self.ask(self.user, GETPORT, NLM, version=4), 0)

    def test_low_portmap_root_takes_a_squatted_place(self):
        self.assertEqual(self.ask(self.user, SET, 700003, 7003), 1)
        self.assertEqual(self.ask(self.root, SET, 700003, 703), 1)
        self.assertEqual(self.ask(self.user, GETPORT, 700003), 703)

    def test_low_portmap_a_full_table_has_room_for_root(self):
        granted = [p for p in range(800000, 800000 + self.N_PROGRAMS) if self.ask(self.user, SET, p, 7000)]
        self.assertLessEqual(len(granted), 256)
        self.assertEqual(self.ask(self.root, SET, 700004, 704), 1)
        self.assertEqual(self.ask(self.user, GETPORT, 700004), 704)
        for program in granted:
            self.assertEqual(self.ask(self.user, UNSET, program), 1)
        self.assertEqual(self.ask(self.user, SET, 700005, 7005), 1)


# <linux/capability.h>
CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, NET_BIND_SERVICE = 0, 1, 2, 3, 4, 6, 7, 10
SYS_ADMIN, MKNOD = 21, 27
FILE_SERVER = {CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, NET_BIND_SERVICE, MKNOD}


class GivenUp(OneExport, Play):
    """What the running daemon has given up, every thread of it: /proc has the kernel's own word."""

    n_hosts = 0
    settings = ("api.listen=127.0.0.1:0",)

    def threads(self, daemon=None):
        """The status of each: {field: text}"""
        folder = f"/proc/{(daemon or self.daemon).process.pid}/task"
        statuses = []
        for thread in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"{folder}/{thread}/status", encoding="ascii") as status:
                    statuses.append(dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line))
        self.assertGreater(len(statuses), 1)
        return statuses

    @staticmethod
    def caps(status, which):
        value = int(status[which], 16)
        return {bit for bit in range(64) if value >> bit & 1}

    def test_low_calls_are_filtered_and_no_exec_gives_privilege(self):
        self.nfs.root("/data")  # has been at a worker
        for status in self.threads():
            self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"), status["Name"])

    def test_low_capabilities_are_those_of_a_file_server(self):
        self.nfs.root("/data")
        for status in self.threads():
            self.assertLessEqual(self.caps(status, "CapEff"), FILE_SERVER)
            self.assertLessEqual(self.caps(status, "CapPrm"), FILE_SERVER | {SYS_ADMIN})
            self.assertLessEqual(self.caps(status, "CapBnd"), FILE_SERVER | {SYS_ADMIN})
            self.assertEqual(self.caps(status, "CapInh") | self.caps(status, "CapAmb"), set())

    def test_low_another_user_keeps_ports_only(self):
        daemon = self.make_daemon(["server.user=nobody", "server.port=0", "server.portmap=off", "api.listen=",
                                   "store.backend=memory"])  # fmt: skip
        self.addCleanup(daemon.close)
        os.chmod(daemon.state_dir, 0o755)
        daemon.start()
        for status in self.threads(daemon):
            self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"), status["Name"])
            self.assertLessEqual(self.caps(status, "CapPrm"), {NET_BIND_SERVICE})
        daemon.stop()


class Secrets(OneExport, Play):
    n_hosts = 0
    settings = ("api.listen=127.0.0.1:0",)
    LINES = ("other users can read the key of the file handles", "other users can read the token of the API")

    def test_low_secrets_that_others_can_read_are_told(self):
        files = [f"{self.daemon.state_dir}/state/{name}" for name in ("handle.key", "api.token")]
        for path in files:
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            os.chmod(path, 0o644)
        for line in self.LINES:
            self.assertNotIn(line, self.daemon.log)
        self.daemon.stop()
        self.daemon.start()
        for line in self.LINES:
            self.assertIn(line, self.daemon.log)


class OperatorsDoor(Play):
    """Strangers at the API, and operators with orders."""

    n_hosts = 1
    settings = ("api.listen=127.0.0.1:0",)
    N_STRANGERS = 300
    N_WRONG = 1000
    N_ROWS = 1000
    N_READERS = 70

    def ask_for_status(self):
        """By the command line; the seconds that it took."""
        words = [os.environ["HOLDFAST"], "--state-dir", f"{self.daemon.state_dir}/state", "status"]
        start = time.monotonic()
        with self.daemon.namespace:
            status = subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE, text=True)
        self.assertIn("server", status.stdout)
        return time.monotonic() - start

    def setUp(self):
        super().setUp()
        self.usual = self.ask_for_status()  # of this machine, now

    def assert_operator_is_served(self):
        self.assertLess(self.ask_for_status(), 1 + 3 * self.usual)

    def strangers(self, text=b""):
        strangers = [self.rest.raw() for _ in range(self.N_STRANGERS)]
        for stranger in strangers:
            self.addCleanup(stranger.close)
            with contextlib.suppress(OSError):
                stranger.sendall(text)
        return strangers

    def test_low_silent_connections_do_not_keep_the_operator_out(self):
        self.strangers()
        self.assert_operator_is_served()

    def test_low_half_a_request_does_not_keep_the_operator_out(self):
        self.strangers(b"GET /healthz HTTP/1.1\r\nX: ")
        self.assert_operator_is_served()

    def test_low_unread_answers_do_not_keep_the_operator_out(self):
        """Answers that fill the way to a peer that does not read: the page is long enough, asked for again and again."""
        self.strangers(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        self.assert_operator_is_served()

    def n_doors(self):
        return next(l["used"] for l in self.rest.get("/api/v1/limits").json["limits"] if l["name"] == "api_connections")

    def test_long_answers_that_are_not_read_are_cut_off(self):
        """A page of locks with long owners has megabytes. The server keeps 64 MiB of answers, and not one for each door."""
        for i in range(self.N_ROWS):
            self.assert_granted(self.a, self.lock_of(self.a, i, 1, svid=i, name="n" * 900, oh=b"o" * 1024))
        path = f"/api/v1/locks?limit={self.N_ROWS}"
        readers = [self.rest.raw(room=4096) for _ in range(self.N_READERS)]
        for reader in readers:
            self.addCleanup(reader.close)
            reader.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        page = self.rest.get(path)  # from the same address, and last
        self.assertGreater(len(page.body), 1 << 20)
        fit = (64 << 20) // len(page.body)
        self.assertLess(2 * fit, self.N_READERS)
        self.until(lambda: self.n_doors() <= fit + 2, "the others are cut off")
        limit = next(l for l in self.rest.get("/api/v1/limits").json["limits"] if l["name"] == "api_answer_bytes")
        self.assertEqual(limit["max"], 64 << 20)
        self.assertGreater(limit["refused"], 0)
        self.assertLessEqual(limit["used"], limit["max"])

    def test_low_streams_do_not_keep_the_operator_out(self):
        self.strangers(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assert_operator_is_served()

    def test_an_operator_who_is_reading_stays(self):
        """New connections push out idle ones, not one that receives events."""
        events = Events(self.rest)
        self.addCleanup(events.close)
        self.strangers()
        self.assert_operator_is_served()
        self.assert_granted(self.a, self.lock_of(self.a))
        events.wait("lock", lambda lock: lock["handle"] == self.fh.hex())

    def test_low_wrong_tokens_do_not_fill_the_log(self):
        line = "refused an API call that changes something"
        before = self.daemon.log.count(line)
        wrong = {"Authorization": "Bearer " + "0" * 64, "Host": "localhost"}
        with self.daemon.namespace:
            connection = self.rest.connection()
            connection.connect()
        self.addCleanup(connection.close)
        for _ in range(self.N_WRONG):
            connection.request("POST", "/api/v1/notify", headers=wrong)
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, 401)
        self.assertEqual(self.rest.call("POST", "/api/v1/notify", token=True).status, 202)
        n = self.daemon.log.count(line) - before
        self.assertTrue(1 <= n <= 20, n)  # ten a minute, and a minute may end meanwhile


if __name__ == "__main__":
    main()
