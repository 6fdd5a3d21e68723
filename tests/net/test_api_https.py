#!/usr/bin/env python3
"""The API over HTTPS: what it offers, a reload, callers in the clear, and the command line's view of it."""

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import rpc
from certs import Authority, together
from commandline import UNREACHABLE, USAGE, CliPlay
from https import HttpsPlay, HttpsRest
from play import main
from rest import Events
from until import PATIENCE


class Offer(HttpsPlay):
    n_hosts = 1

    def test_calls_are_served(self):
        for path in ("/", "/healthz", "/metrics", "/api/v1/status", "/api/v1/openapi.json", "/api/v1/locks"):
            self.assertEqual(self.rest.get(path).status, 200, path)
        self.assertEqual(self.rest.call("POST", "/api/v1/notify").status, 401)
        self.assertEqual(self.rest.call("POST", "/api/v1/notify", token=True).status, 202)

    def test_many_calls_on_one_connection(self):
        connection = self.rest.connection()
        with self.daemon.namespace:
            connection.connect()
        sock = connection.sock
        for _ in range(50):
            connection.request("GET", "/api/v1/openapi.json")
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()[:1]), (200, b"{"))
            self.assertIs(connection.sock, sock)
        connection.close()

    def test_events(self):
        events = Events(self.rest)
        self.addCleanup(events.close)
        lock = self.lock_of(self.a)
        self.assert_granted(self.a, lock)
        events.wait("lock", lambda data: data["client"] == self.id_of(self.a))

    def test_tls_1_3_and_1_2_and_nothing_older(self):
        with self.rest.shake_hands() as sock:
            self.assertEqual((sock.version(), sock.selected_alpn_protocol()), ("TLSv1.3", "http/1.1"))
        older = self.rest.context()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.rest.shake_hands(older) as sock:
            self.assertEqual(sock.version(), "TLSv1.2")
        for cipher in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA"):
            older.set_ciphers(cipher)
            with self.assertRaises((ssl.SSLError, ConnectionError), msg=cipher):
                self.rest.shake_hands(older)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            older.set_ciphers("ALL:@SECLEVEL=0")
            older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.rest.shake_hands(older)

    def test_another_protocol_is_refused(self):
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.rest.shake_hands(self.rest.context(alpn=("sunrpc",)))
        with self.rest.shake_hands(self.rest.context(alpn=("h2", "http/1.1"))) as sock:
            self.assertEqual(sock.selected_alpn_protocol(), "http/1.1")

    def test_http_in_the_clear_is_told_so(self):
        for request in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /api/v1/notify HTTP/1.1\r\n" + b"X: y\r\n" * 2000, b"\r\n"):
            with self.rest.raw() as sock:
                sock.sendall(request)
                answer = b""
                while data := sock.recv(65536):
                    answer += data
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
            self.assertIn(b"This port speaks HTTPS", answer)

    def test_broken_handshakes_end_and_hurt_no_other(self):
        for garbage in (b"\x16" * 500, b"\x16\x03\x01\xff\xff" + bytes(70000), b"\x16\x03\x01\x00\x05hello"):
            with self.rest.raw() as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(garbage)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(65536):
                        pass
            self.assertEqual(self.rest.get("/healthz").status, 200)

    def test_many_open_handshakes_do_not_lock_an_operator_out(self):
        silent = [self.rest.raw() for _ in range(250)]
        try:
            self.assertEqual(self.rest.get("/healthz").status, 200)
        finally:
            for sock in silent:
                sock.close()

    def test_only_its_own_page_may_call(self):
        host = f"127.0.0.1:{self.rest.port}"
        for origin, status in ((f"https://{host}", 200), (f"http://{host}", 403), ("https://evil.example", 403)):
            self.assertEqual(self.rest.get("/api/v1/status", headers={"Origin": origin}).status, status, origin)

    def test_days_left_are_counted(self):
        left = self.rest.metrics()["holdfast_api_certificate_expires_seconds"]
        self.assertTrue(29 * 86400 < left <= 30 * 86400, left)
        self.assertRegex(self.daemon.log, "TLS is offered key=api.certificate expires_in_days=(29|30)")


class Handshakes(HttpsPlay):
    def counts(self):
        found = {key: value for key, value in self.rest.metrics().items() if key.startswith("holdfast_api_handshakes_total{")}
        return {re.search('result="(.*)"', key).group(1): value for key, value in found.items()}

    @contextlib.contextmanager
    def assert_counted(self, **more):
        """Beside those of the questions, which succeed."""
        before = self.counts()
        expected = {result: n + more.get(result, 0) for result, n in before.items() if result != "ok"}
        yield
        now = self.until(self.counts, f"handshakes are counted as {more}", passes=lambda now: dict(now, ok=0) == dict(expected, ok=0))
        self.assertGreaterEqual(now["ok"] - before["ok"], 1 + more.get("ok", 0))

    def test_by_result(self):
        self.assertEqual(set(self.counts()), {"ok", "failed", "closed", "timeout", "too_many"})

    def test_done_without_a_call(self):
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            context = self.rest.context()
            context.minimum_version = context.maximum_version = version
            with self.assert_counted(ok=1), self.rest.shake_hands(context):
                pass

    def test_done_is_counted_while_the_connection_is_open(self):
        with self.assert_counted(ok=20), contextlib.ExitStack() as open_:
            before = self.counts()["ok"]
            for _ in range(20):
                open_.enter_context(self.rest.shake_hands())
            self.until(lambda: self.counts()["ok"] > before + 20, "they are counted")

    def test_failed(self):
        stranger = ssl.create_default_context(cafile=Authority(os.path.join(self.folder, "stranger")).certificate)
        for context in (stranger, self.rest.context(alpn=("sunrpc",))):
            with self.assert_counted(failed=1), self.assertRaises((ssl.SSLError, ConnectionError)):
                self.rest.shake_hands(context)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70000)):
            with self.assert_counted(failed=1), self.rest.raw() as sock:
                with contextlib.suppress(ConnectionError):
                    sock.sendall(garbage)
                    while sock.recv(65536):
                        pass

    def test_a_damaged_last_message_has_failed(self):
        mine, wire, context = ssl.MemoryBIO(), ssl.MemoryBIO(), self.rest.context()
        client = context.wrap_bio(mine, wire, server_hostname=self.rest.host)
        with self.assert_counted(failed=1), self.rest.raw() as sock:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            sock.sendall(wire.read())
            while wire.pending == 0:
                mine.write(sock.recv(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
            last = bytearray(wire.read())
            last[-1] ^= 1
            sock.sendall(last)
            with contextlib.suppress(ConnectionError):
                while sock.recv(65536):
                    pass

    def test_closed(self):
        for begin in (b"", b"\x16\x03\x01\x02\x00\x01"):
            with self.assert_counted(closed=1), self.rest.raw() as sock:
                sock.sendall(begin)

    def test_timeout_and_too_many(self):
        with self.assert_counted(timeout=1), self.rest.raw() as sock:
            self.assertEqual(sock.recv(1), b"")
        silent = [self.rest.raw() for _ in range(250)]
        try:
            self.until(lambda: self.counts()["too_many"] > 0, "some made room")
        finally:
            for sock in silent:
                sock.close()


class Reload(HttpsPlay):
    def tearDown(self):
        self.use(*self.ca.issue("first", self.names))
        self.write_config()
        self.reload()
        super().tearDown()

    def test_new_connections_get_the_new_certificate_and_old_ones_go_on(self):
        connection = self.rest.connection()
        with self.daemon.namespace:
            connection.connect()
        sock = connection.sock
        self.use(*self.ca.issue("second", self.names))
        self.assertEqual(self.rest.shown(), "first")
        self.reload()
        self.assertEqual(self.rest.shown(), "second")
        connection.request("GET", "/healthz")
        self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
        self.assertIs(connection.sock, sock)
        connection.close()
        self.run_cli("status")

    def test_a_wrong_file_leaves_everything_as_it_was(self):
        good = self.ca.issue("other", self.names)
        encrypted = os.path.join(self.folder, "encrypted.key")
        os.system(f"openssl pkey -in {good[1]} -aes128 -passout pass:x -out {encrypted} 2>/dev/null")
        empty = os.path.join(self.folder, "empty")
        with open(empty, "w", encoding="ascii"):
            pass
        cases = (
            (empty, good[1], "api.certificate", "has no usable certificate"),
            (good[1], good[1], "api.certificate", "has no usable certificate"),
            (good[0], empty, "api.key", "has no key that can be read without a passphrase"),
            (good[0], encrypted, "api.key", "has no key that can be read without a passphrase"),
            (good[0], self.ca.issue("stranger")[1], "api.key", "is not the key of api.certificate"),
        )
        for certificate, key, name, reason in cases:
            with self.subTest(reason=reason, name=name):
                self.use(certificate, key)
                log = self.reload("configuration not loaded, the old one stays")
                path = {"api.certificate": self.certificate, "api.key": self.key}[name]
                self.assertIn(f"{name} '{path}' {reason}", log)
                self.assertEqual(self.rest.shown(), "first")
        os.remove(self.key)
        self.assertIn("cannot be read (No such file or directory)", self.reload("configuration not loaded, the old one stays"))
        self.assertEqual(self.rest.shown(), "first")
        self.run_cli("status")

    def test_a_file_elsewhere(self):
        certificate, key = self.ca.issue("elsewhere", self.names)
        with open(self.config, "w", encoding="ascii") as out:
            out.write(f"api:\n  certificate: {certificate}\n  key: {key}\n")
        self.reload()
        self.assertEqual(self.rest.shown(), "elsewhere")

    def test_https_ends_only_with_the_next_start(self):
        with open(self.config, "w", encoding="ascii") as out:
            out.write("{}\n")
        self.assertIn("changes between HTTP and HTTPS only at the next start", self.reload())
        self.assertEqual(self.rest.shown(), "first")
        self.assertIn("api.certificate", self.rest.get("/api/v1/status").json["reload"]["at_next_start"])

    def test_a_key_that_others_can_read_is_told(self):
        said = "other users can read or write a private key"
        for mode, warns in ((0o666, True), (0o604, True), (0o660, True), (0o640, False), (0o600, False)):
            with self.subTest(mode=oct(mode)):
                os.chmod(self.key, mode)
                log = self.reload()
                self.assertEqual(said in log, warns)
                self.assertEqual(f"key=api.key file={self.key}" in log, warns)
        os.chmod(self.key, 0o666)
        self.daemon.stop()
        before = len(self.daemon.log)
        self.daemon.start()
        self.assertIn(said, self.daemon.log[before:])

    def test_an_end_that_is_near_is_told(self):
        self.use(*self.ca.issue("past", self.names, ends="20200101000000Z"))
        self.assertIn("the TLS certificate has expired: clients refuse it. Renew it, and reload key=api.certificate", self.reload())
        rest = HttpsRest(self.daemon, None)
        self.assertLess(rest.metrics()["holdfast_api_certificate_expires_seconds"], 0)
        self.run_cli("status")  # the state directory names this very certificate


class Plain(CliPlay):
    n_hosts = 0

    def test_there_is_no_certificate_to_count(self):
        self.assertFalse([key for key in self.rest.metrics() if key.startswith(("holdfast_api_certificate", "holdfast_api_handshakes"))])

    def test_the_command_line_says_that_there_is_no_https(self):
        said = self.run_cli("--server", f"https://127.0.0.1:{self.rest.port}", "status", code=UNREACHABLE).stderr
        self.assertIn("does not speak TLS", said)

    def test_keys_that_do_not_fit_together_are_refused(self):
        for settings, said in (
            (("api.key=/x",), "api.key is set, but api.certificate is empty"),
            (("api.certificate=/x",), "api.certificate is set, but api.key is empty"),
            (("api.certificate=/x", "api.key=/y", "api.listen=unix:/tmp/x"), "api.listen is no TCP port"),
            (("api.certificate=/nowhere", "api.key=/y", "api.listen=127.0.0.1:0"), "api.certificate '/nowhere' cannot be read"),
            (("api.token_file=/x", "api.view_token_file=/x"), "are the same file"),
        ):
            words = [word for setting in settings for word in ("--set", setting)]
            self.assertIn(said, self.check(words))

    def check(self, words):
        done = subprocess.run([self.program, "--check", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr


class Elsewhere(CliPlay):
    n_hosts = 0
    settings = ("api.listen=0.0.0.0:0",)

    def test_a_warning_where_the_network_can_read_tokens(self):
        self.assertIn("the API is reachable from other hosts without TLS", self.daemon.log)


class Start(HttpsPlay):
    def test_a_reload_before_it_serves(self):
        """A silent rpcbind holds up the start. Its end must not take the new certificate out of api.address: the API may show it already."""
        path = os.path.join(self.daemon.state_dir, "state", "api.address")
        second = self.ca.issue("second", self.names)
        self.daemon.stop()
        with contextlib.ExitStack() as silent:
            rpcbind = silent.enter_context(rpc.make_socket(socket.SOCK_STREAM, ("127.0.0.1", 111), self.daemon.namespace))
            rpcbind.settimeout(PATIENCE)
            rpcbind.listen()
            starter = threading.Thread(target=self.daemon.start, args=("server.portmap=system",))
            starter.start()
            self.addCleanup(starter.join)
            silent.enter_context(rpcbind.accept()[0])  # so the loop runs
            self.run_cli("status")
            self.use(*second)
            self.reload()
            with open(path, encoding="ascii") as file:
                announced = file.read()
            self.assertEqual(len(announced.split()), 3, "the address and both certificates")
            self.run_cli("status")
        starter.join()
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), announced, "only reloads write it after the start")
        self.run_cli("status")


class CommandLine(HttpsPlay):
    """127.0.0.1 is in the certificate, and localhost is not."""

    def at(self, *words, host="127.0.0.1", **how):
        return self.run_cli("--server", f"https://{host}:{self.rest.port}", *words, **how)

    def test_on_the_server_it_needs_nothing(self):
        with open(os.path.join(self.daemon.state_dir, "state", "api.address"), encoding="ascii") as file:
            self.assertRegex(file.read(), r"\Ahttps://127\.0\.0\.1:\d+\n[0-9a-f]{64}\n\Z")
        self.run_cli("status")
        self.run_cli("notify")
        self.assertRegex(self.run_cli("dashboard").stdout, r"\Ahttps://127\.0\.0\.1:\d+/#token=")

    def test_on_the_server_another_certificate_is_refused(self):
        path = os.path.join(self.daemon.state_dir, "state", "api.address")
        shutil.copy(path, path + ".true")
        self.addCleanup(os.rename, path + ".true", path)
        with open(path, encoding="ascii") as file:
            address = file.readline()
        with open(path, "w", encoding="ascii") as file:
            file.write(address + "0" * 64 + "\n")
        said = self.run_cli("status", code=UNREACHABLE).stderr
        self.assertIn("it shows another certificate than the server of the state directory", said)

    def test_elsewhere_ca_and_name_count(self):
        ca = self.ca.certificate
        self.assertIn("its certificate is refused: ", self.at("status", code=UNREACHABLE).stderr)
        self.at("--ca", ca, "status")
        self.at("status", env={"HOLDFAST_CA": ca})
        self.at("--ca", ca, "status", env={"HOLDFAST_CA": "/nowhere"})
        self.assertIn("hostname mismatch", self.at("--ca", ca, "status", host="localhost", code=UNREACHABLE).stderr)
        stranger = Authority(os.path.join(self.folder, "stranger"), "Stranger").certificate
        self.assertIn("its certificate is refused: ", self.at("--ca", stranger, "status", code=UNREACHABLE).stderr)
        self.assertIn("no CA can be read from /nowhere (No such file or directory)", self.at("--ca", "/nowhere", "status", code=UNREACHABLE).stderr)
        self.assertIn("is refused", self.at("events", code=UNREACHABLE).stderr)
        both = together(os.path.join(self.folder, "both.pem"), stranger, ca)
        self.at("--ca", both, "status")

    def test_insecure_is_said_aloud(self):
        done = self.at("--insecure", "status", host="localhost")
        self.assertIn("the server's certificate is not checked", done.stderr)

    def test_clear_text_to_the_port(self):
        said = self.run_cli("--server", f"127.0.0.1:{self.rest.port}", "status", code=1).stderr
        self.assertIn("This port speaks HTTPS: use https:// in the address.", said)

    def test_no_token_leaves_before_the_certificate_is_checked(self):
        """A false server gets no byte of HTTP."""
        false = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        false.load_cert_chain(*self.ca.self_signed("false"))
        with self.daemon.namespace, socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.settimeout(PATIENCE)
            asked = subprocess.Popen(self.words("--server", f"https://127.0.0.1:{listener.getsockname()[1]}", "--ca",
                                                self.ca.certificate, "status"), stderr=subprocess.PIPE, text=True)  # fmt: skip
            sock = listener.accept()[0]
            with sock, self.assertRaises((ssl.SSLError, ConnectionError)):
                with false.wrap_socket(sock, server_side=True) as secured:
                    self.assertEqual(secured.recv(65536), b"")
            self.assertEqual(asked.wait(PATIENCE), UNREACHABLE)
            asked.stderr.close()

    def test_usage(self):
        self.run_cli("--server", "https://", "status", code=USAGE)


if __name__ == "__main__":
    main()
