#!/usr/bin/env python3
"""RPC-with-TLS: what the server offers, what an export demands, which certificates it takes, and a reload."""

import json
import os
import shutil
import ssl
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import play
import tls
from certs import Authority, together
from rpc import AUTH_NONE, Refused, UdpCaller, auth_sys, call_message, exchange
from secured import PORT, Secured, nfs
from xdr import In, Out

MIB = 1 << 20


class Offer(Secured):
    def test_the_question_is_answered_starttls_and_calls_follow(self):
        caller = self.secured()
        self.assertEqual(caller.sock.version(), "TLSv1.3")
        self.assertEqual(caller.sock.selected_alpn_protocol(), "sunrpc")
        self.assertEqual(exchange(caller, tls.null_call()), b"")
        # Connections of other tests may be ending.
        self.until(lambda: self.metric('holdfast_connections{transport="tls"}') == 1, "it alone is counted")
        self.assertGreaterEqual(self.handshakes("ok"), 1)
        caller.sock.close()
        self.until(lambda: self.metric('holdfast_connections{transport="tls"}') == 0, "it is counted no more")

    def test_no_protocol_need_be_named_but_another_is_refused(self):
        self.assertIsNone(self.secured(alpn=()).sock.selected_alpn_protocol())
        self.assertEqual(self.secured(alpn=("h2", "sunrpc")).sock.selected_alpn_protocol(), "sunrpc")
        with self.assertRaises(ssl.SSLError):
            self.secured(alpn=("h2", "http/1.1"))

    def test_only_tls_1_3(self):
        old = tls.context(self.ca.certificate)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.caller().start_tls(old)

    def test_no_tickets_are_given(self):
        caller = self.secured()
        exchange(caller, tls.null_call())
        self.assertFalse(caller.sock.session.has_ticket)

    def test_any_program_may_be_asked(self):
        for program, version in ((100003, 3), (100005, 3), (100021, 4), (100024, 1)):
            caller = self.caller()
            self.assertEqual(tls.verifier_of(caller.ask(program=program, version=version)), (AUTH_NONE, b"STARTTLS"))
            caller.shake_hands(tls.context(self.ca.certificate))
            self.assertEqual(exchange(caller, call_message(program, version, 0)), b"")

    def test_wrong_questions_are_refused_and_start_nothing(self):
        caller = self.caller()
        self.assertEqual(tls.auth_error_of(caller.ask(procedure=1)), tls.AUTH_BADCRED)
        self.assertEqual(tls.auth_error_of(caller.ask(body=b"1234")), tls.AUTH_BADCRED)
        for how in ({"program": 99}, {"version": 9}, {"args": b"more"}):
            with self.assertRaises(Refused):
                exchange(caller, tls.question(**how))
        self.assertEqual(exchange(caller, tls.null_call()), b"", "the connection goes on in the clear")
        datagrams = UdpCaller((self.a.server, PORT), (self.a.address, 0), self.a.namespace)
        self.addCleanup(datagrams.close)
        datagrams.send(tls.question())
        self.assertEqual(tls.auth_error_of(datagrams.receive()), tls.AUTH_REJECTEDCRED)

    def test_clear_text_is_served_as_before(self):
        self.assertEqual(self.getattr(self.caller(), "/data"), nfs.OK)

    def test_much_data_both_ways(self):
        """Replies of a MiB and calls of a MiB, many in flight: records of TLS end anywhere in those of RPC."""
        caller = self.secured()
        path = self.make_file("tls")
        root = self.root("/tls")
        found = In(self.ask(caller, nfs.LOOKUP, Out().opaque(root).string(os.path.basename(path)).bytes())[24:])
        self.assertEqual(found.u32(), nfs.OK)
        fh = found.opaque()
        data = [os.urandom(MIB - 17 * i) for i in range(8)]
        calls = [call_message(nfs.NFS, 3, nfs.WRITE, Out().opaque(fh).u64(i * MIB).u32(len(one)).u32(nfs.UNSTABLE).opaque(one).bytes(),
                              xid=i, cred=auth_sys("host")) for i, one in enumerate(data)]  # fmt: skip
        caller.send_together(calls)
        replies = [caller.receive() for _ in calls]
        self.assertEqual({In(reply[24:]).u32() for reply in replies}, {nfs.OK})
        with open(path, "rb") as written:
            for i, one in enumerate(data):
                written.seek(i * MIB)
                self.assertEqual(written.read(len(one)), one)
        caller.send_together([call_message(nfs.NFS, 3, nfs.READ, Out().opaque(fh).u64(i * MIB).u32(len(one)).bytes(),
                                           xid=i, cred=auth_sys("host")) for i, one in enumerate(data)])  # fmt: skip
        read = {reply[:4]: reply for reply in (caller.receive() for _ in data)}
        for i, one in enumerate(data):
            self.assertIn(one, read[i.to_bytes(4, "big")])

    def test_many_short_calls_at_once(self):
        """More calls than a connection's budget, in few records: what OpenSSL has read is served, too."""
        caller = self.secured()
        caller.send_together([tls.null_call(i) for i in range(5000)])
        self.assertEqual([int.from_bytes(caller.receive()[:4], "big") for _ in range(5000)], list(range(5000)))

    def test_a_connection_moves_to_the_home_loop(self):
        """An NLM call over TLS, on each loop."""
        for _ in range(4):
            caller = self.secured()
            for program, version in ((nfs.NFS, 3), (100021, 4), (nfs.NFS, 3)):
                self.assertEqual(exchange(caller, call_message(program, version, 0)), b"")


class Demands(Secured):
    def test_an_export_without_demands_takes_every_transport(self):
        self.assertEqual(self.getattr(self.caller(), "/data"), nfs.OK)
        self.assertEqual(self.getattr(self.secured(), "/data"), nfs.OK)

    def test_tls_refuses_clear_text(self):
        self.assertEqual(self.getattr(self.caller(), "/tls"), "too weak")
        self.assertIn("client refused: the export requires TLS", self.daemon.log)
        self.assertEqual(self.getattr(self.secured(), "/tls"), nfs.OK)

    def test_every_procedure_is_refused_in_the_clear(self):
        root = self.root("/tls")
        name = Out().opaque(root).string("x")
        args = {
            nfs.GETATTR: Out().opaque(root), nfs.SETATTR: Out().opaque(root).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0),
            nfs.LOOKUP: name, nfs.ACCESS: Out().opaque(root).u32(1), nfs.READLINK: Out().opaque(root),
            nfs.READ: Out().opaque(root).u64(0).u32(1), nfs.WRITE: Out().opaque(root).u64(0).u32(1).u32(0).opaque(b"x"),
            nfs.REMOVE: name, nfs.RMDIR: name, nfs.FSSTAT: Out().opaque(root), nfs.FSINFO: Out().opaque(root),
            nfs.PATHCONF: Out().opaque(root), nfs.COMMIT: Out().opaque(root).u64(0).u32(0),
            nfs.READDIR: Out().opaque(root).u64(0).fixed(bytes(8)).u32(512),
            nfs.READDIRPLUS: Out().opaque(root).u64(0).fixed(bytes(8)).u32(512).u32(512),
            nfs.RENAME: Out().opaque(root).string("x").opaque(root).string("y"), nfs.LINK: Out().opaque(root).opaque(root).string("y"),
            nfs.CREATE: Out().opaque(root).string("x").u32(0).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0),
            nfs.MKDIR: Out().opaque(root).string("x").u32(0).u32(0).u32(0).u32(0).u32(0).u32(0),
            nfs.SYMLINK: Out().opaque(root).string("x").u32(0).u32(0).u32(0).u32(0).u32(0).u32(0).string("y"),
            nfs.MKNOD: Out().opaque(root).string("x").u32(nfs.FIFO).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0),
        }  # fmt: skip
        self.assertEqual(set(args), set(range(nfs.GETATTR, nfs.COMMIT + 1)), "each procedure but NULL")
        for procedure, out in args.items():
            with self.subTest(procedure=procedure):
                reply = self.ask(self.caller(), procedure, out.bytes())
                self.assertEqual(tls.auth_error_of(reply), tls.AUTH_TOOWEAK)
        self.assertEqual(os.listdir(os.path.join(self.base, "tls")), [])

    def test_mtls_asks_for_a_certificate(self):
        alpha = self.ca.issue("a-common-name", "DNS:alpha.example")
        self.assertEqual(self.getattr(self.caller(), "/mtls"), "too weak")
        self.assertEqual(self.getattr(self.secured(), "/mtls"), "too weak")
        caller = self.secured(alpha)
        self.assertEqual(self.getattr(caller, "/mtls"), nfs.OK)
        self.assertEqual(self.metric('holdfast_connections{transport="mtls"}'), 1)

    def test_identities(self):
        for name, alternatives, stat in (
            ("x1", "DNS:alpha.example", nfs.OK),
            ("x2", "DNS:else.example,DNS:ALPHA.example", nfs.OK),
            ("x3", "DNS:else.example", nfs.ACCES),
            ("beta", "", nfs.OK),
            ("gamma", "", nfs.ACCES),
            ("alpha.example", "DNS:else.example", nfs.ACCES),  # there are alternatives: the common name does not count
            ("Beta", "IP:192.0.2.1", nfs.OK),  # and here none of the kind DNS
            ("x4", "DNS:*.example", nfs.ACCES),  # a pattern is no name
        ):
            with self.subTest(name=name, alternatives=alternatives):
                self.assertEqual(self.getattr(self.secured(self.ca.issue(name, alternatives)), "/named"), stat)
        self.assertIn("no name of its certificate is among the export's identities", self.daemon.log)

    def mkdir(self, caller, name, xid):
        """The status, or "too weak"; @xid is the same in the copies of one call."""
        self.addCleanup(lambda: shutil.rmtree(os.path.join(self.base, "tls", name), ignore_errors=True))
        args = Out().opaque(self.root("/tls")).string(name).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0).bytes()
        caller.send(call_message(nfs.NFS, 3, nfs.MKDIR, args, xid=xid, cred=auth_sys("host")))
        reply = caller.receive()
        return "too weak" if tls.auth_error_of(reply) == tls.AUTH_TOOWEAK else In(reply[24:]).u32()

    def test_a_refusal_in_the_clear_is_no_answer_inside_tls(self):
        """An attacker repeats a call of the client before the client sends it."""
        self.assertEqual(self.mkdir(self.caller(), "early", 77), "too weak")
        self.assertEqual(self.mkdir(self.secured(), "early", 77), nfs.OK)

    def test_the_answer_inside_tls_is_none_in_the_clear(self):
        self.assertEqual(self.mkdir(self.secured(), "late", 78), nfs.OK)
        self.assertEqual(self.mkdir(self.caller(), "late", 78), "too weak")
        self.assertEqual(self.mkdir(self.secured(), "late", 78), nfs.OK, "the same client repeats it on a new connection")

    def test_the_answer_to_one_client_is_none_to_another(self):
        """With other names in its certificate, and the same address and bytes."""
        one, other = (self.ca.issue(name) for name in ("replay-one", "replay-other"))
        self.assertEqual(self.mkdir(self.secured(one), "one", 79), nfs.OK)
        self.assertEqual(self.mkdir(self.secured(other), "one", 79), nfs.EXIST)
        self.assertEqual(self.mkdir(self.secured(one), "one", 79), nfs.OK)

    def test_a_session_that_ends_takes_its_rights_with_it(self):
        alpha = self.ca.issue("x5", "DNS:alpha.example")
        self.assertEqual(self.getattr(self.secured(alpha), "/mtls"), nfs.OK)
        self.assertEqual(self.getattr(self.caller(), "/mtls"), "too weak")


class Recorded(Secured):
    """Calls without the transport that the export demands are refusals for the audit log and the usage, too."""

    @classmethod
    def write_config(cls, exports):
        super().write_config(exports)
        cls.audit = os.path.join(cls.base, "audit")
        with open(cls.config, "a", encoding="ascii") as out:
            out.write(f"log:\n  audit: {cls.audit}\nmetrics:\n  per_client: true\n")

    def refusals(self):
        with open(self.audit, encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be under way
        return [(line["op"], line["export"], line.get("name"), line["result"]) for line in found if line["result"] != "OK"]

    def errors(self, share):
        found = [row for row in self.rest.get("/api/v1/usage?limit=1000").json["usage"] if row["share"] == share]
        return found[0]["errors"] if found else 0

    def test_refused_for_its_transport(self):
        self.assertEqual(self.errors("/tls"), 0)
        caller, root = self.caller(), self.root("/tls")
        for procedure, args in ((nfs.REMOVE, Out().opaque(root).string("x")), (nfs.GETATTR, Out().opaque(root))):
            self.assertEqual(tls.auth_error_of(self.ask(caller, procedure, args.bytes())), tls.AUTH_TOOWEAK)
        self.assertEqual(self.getattr(self.secured(), "/mtls"), "too weak", "it has no certificate")
        self.assertEqual(self.getattr(self.secured(), "/tls"), nfs.OK)
        expected = [("remove", "/tls", "x", "TLS_REQUIRED"), ("getattr", "/tls", None, "TLS_REQUIRED"),
                    ("getattr", "/mtls", None, "TLS_REQUIRED")]  # fmt: skip
        self.until(self.refusals, "they are written", passes=lambda seen: len(seen) >= len(expected))
        self.assertEqual(self.refusals(), expected)
        self.assertEqual((self.errors("/tls"), self.errors("/mtls")), (2, 1))


class Certificates(Secured):
    def assert_refused(self, certificate, why):
        before, n = len(self.daemon.log), self.handshakes("bad_certificate")
        with self.assertRaises((ssl.SSLError, ConnectionError, EOFError)):
            caller = self.secured(certificate)
            exchange(caller, tls.null_call())  # in TLS 1.3 the client is done before the server has looked
        self.until(lambda: self.handshakes("bad_certificate") == n + 1, "it is counted")
        self.assertIn(f"result=bad_certificate reason={why}", self.daemon.log[before:])

    def test_an_expired_one_is_refused(self):
        self.assert_refused(self.ca.issue("expired", ends="20200101000000Z"), "certificate-has-expired")

    def test_a_self_signed_one_is_refused(self):
        self.assert_refused(self.ca.self_signed("lonely"), "self-signed-certificate")

    def test_one_of_another_ca_is_refused(self):
        self.assert_refused(self.other_ca.issue("stranger"), "unable-to-get-local-issuer-certificate")

    def test_one_for_another_purpose_is_refused(self):
        made = self.ca.issue("web", extension="extendedKeyUsage = serverAuth\n")
        self.assert_refused(made, "unsuitable-certificate-purpose")

    def trust(self, client_ca):
        """Loads this file as tls.client_ca, for this test."""
        self.addCleanup(self.reload)
        self.addCleanup(self.write_config, self.exports)
        self.addCleanup(setattr, type(self), "client_ca", self.client_ca)
        type(self).client_ca = client_ca
        self.write_config(self.exports)
        self.reload()

    def test_one_of_a_revoked_ca_is_refused(self):
        """The list of the root says so; that of the CA between has nothing."""
        between = Authority(os.path.join(self.base, "between"), "Between", issuer=self.ca)
        certificate, key = between.issue("of-between")
        chain = together(os.path.join(self.base, "chain.pem"), certificate, between.certificate), key
        self.trust(self.ca.with_revocations(between))
        self.assertEqual(self.getattr(self.secured(chain), "/mtls"), nfs.OK)
        self.ca.revoke(between.certificate)
        self.trust(self.ca.with_revocations(between))
        self.assert_refused(chain, "certificate-revoked")

    def test_a_revoked_one_is_refused_after_a_reload(self):
        good, bad = self.ca.issue("good"), self.ca.issue("stolen")
        self.assertEqual(self.getattr(self.secured(bad), "/mtls"), nfs.OK)
        self.ca.revoke(bad[0])
        self.trust(self.ca.with_revocations())
        self.assert_refused(bad, "certificate-revoked")
        self.assertEqual(self.getattr(self.secured(good), "/mtls"), nfs.OK)


class Reload(Secured):
    def serial(self, caller):
        return caller.sock.getpeercert()["serialNumber"]

    def setUp(self):
        super().setUp()
        self.addCleanup(self.reload)
        self.addCleanup(self.write_config, self.exports)
        self.addCleanup(setattr, type(self), "server", self.server)

    def test_a_new_certificate_is_used_and_connections_go_on(self):
        caller = self.secured()
        type(self).server = self.ca.issue("server2", "DNS:server")
        self.write_config(self.exports)
        self.reload()
        self.assertEqual(exchange(caller, tls.null_call()), b"")
        self.assertNotEqual(self.serial(self.secured()), self.serial(caller))

    def test_a_client_that_is_taken_out_is_refused_over_its_open_connection(self):
        caller = self.secured(self.ca.issue("alpha", "DNS:alpha.example"))
        args = Out().opaque(self.root("/named")).bytes()
        status = lambda: In(self.ask(caller, nfs.GETATTR, args)[24:]).u32()
        self.assertEqual(status(), nfs.OK)
        for before, after in (("Alpha.example, ", ""), ("squash", "clients: [127.0.0.1], squash")):
            self.write_config((*self.exports[:3], self.exports[3].replace(before, after)))
            self.reload()
            self.assertEqual(status(), nfs.ACCES)
            self.write_config(self.exports)
            self.reload()
            self.assertEqual(status(), nfs.OK, "the connection goes on")

    def test_a_bad_one_leaves_the_old(self):
        before = self.serial(self.secured())
        certificate, key = self.server
        for bad, text in (
            ((certificate, self.ca.issue("else")[1]), "is not the key of tls.certificate"),
            ((key, key), "has no usable certificate"),
            (("/nowhere.pem", key), "cannot be read (No such file or directory)"),
            ((certificate, "/dev/null"), "is not a file"),
        ):
            with self.subTest(text=text):
                type(self).server = bad
                self.write_config(self.exports)
                log = self.reload("configuration not loaded, the old one stays")
                self.assertIn(text, log)
                self.assertIn("holdfast.yaml:", log)
                self.assertEqual(self.serial(self.secured()), before)

    def test_a_key_that_others_can_read_is_told(self):
        said = "other users can read or write a private key"
        for mode, warns in ((0o604, True), (0o640, False)):
            os.chmod(self.server[1], mode)
            log = self.reload()
            self.assertEqual(said in log, warns)
            self.assertEqual(f"key=tls.key file={self.server[1]}" in log, warns)

    def test_tls_is_turned_off_and_on(self):
        caller = self.secured()
        with open(self.config, "w", encoding="ascii") as out:
            out.write(f"exports: [{{path: {self.base}/data, name: /data, squash: none}}]\n")
        self.assertIn("TLS is not offered any more; connections that use it go on", self.reload())
        self.assertEqual(exchange(caller, tls.null_call()), b"", "the session goes on")
        self.assertEqual(tls.auth_error_of(self.caller().ask()), tls.AUTH_REJECTEDCRED)
        self.assertIsNone(self.metric("holdfast_tls_certificate_expires_seconds"))
        self.write_config(self.exports)
        self.reload()
        self.secured()

    def test_the_end_of_the_certificate_is_shown(self):
        left = self.metric("holdfast_tls_certificate_expires_seconds")
        self.assertGreater(left, 29 * 86400)
        self.assertLess(left, 30.1 * 86400)
        type(self).server = self.ca.issue("old", "DNS:server", ends="20200101000000Z")
        self.write_config(self.exports)
        self.assertIn("the TLS certificate has expired", self.reload())
        self.assertLess(self.metric("holdfast_tls_certificate_expires_seconds"), 0)


class Nested(Secured):
    """Exports inside others: what is demanded inside can be had through the outer one."""

    folders = ("data", "data/inner", "data/inner/named", "mtls", "mtls/inner")
    exports = (
        "{{path: {base}/data, name: /data, squash: none}}",
        "{{path: {base}/data/inner, name: /inner, transport: mtls}}",
        "{{path: {base}/data/inner/named, name: /named, transport: mtls, identities: [a]}}",
        "{{path: {base}/mtls, name: /mtls, transport: mtls}}",
        "{{path: {base}/mtls/inner, name: /safe, transport: tls}}",
    )

    def test_a_weaker_way_is_told_at_the_start(self):
        lines = [line for line in self.daemon.log.splitlines() if "demands less" in line]
        base = self.base
        for inner, outer in (("data/inner", "data"), ("data/inner/named", "data"), ("data/inner/named", "data/inner")):
            self.assertTrue(any(line.endswith(f"path={base}/{inner} inside={base}/{outer}") for line in lines), (inner, lines))
        self.assertEqual(len(lines), 3, lines)


class Mistakes(Secured):
    """Each is one line with the file and the line in it, and exit status 2."""

    def check(self, text):
        path = os.path.join(self.base, "mistake.yaml")
        with open(path, "w", encoding="ascii") as out:
            out.write(text)
        done = subprocess.run([self.daemon.program, "--config", path, "--check"], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.replace(path, "FILE")

    def test_mistakes(self):
        certificate, key = self.server
        export = f"exports:\n  - path: {self.base}/data\n"
        files = f"tls:\n  certificate: {certificate}\n  key: {key}\n"
        for text, where, words in (
            (f"tls:\n  certificate: {certificate}\n", "FILE:2:", "tls.key is empty"),
            (f"tls:\n  key: {key}\n", "FILE:2:", "tls.certificate is empty"),
            (f"tls:\n  client_ca: {certificate}\n", "FILE:2:", "tls.certificate is empty"),
            ("tls:\n  certificate: here.pem\n", "FILE:2:", "tls.certificate"),
            ("tls:\n  grace_seconds: -1\n", "FILE:2:", "a whole number from 0 to 86400"),
            ("tls:\n  cipher: x\n", "FILE:2:", "cipher"),
            (f"tls:\n  certificate: {certificate}\n  key: {self.ca.certificate}\n", "FILE:3:", "no key"),
            (files + "  client_ca: /nowhere\n", "FILE:4:", "cannot be read"),
            (files + f"  client_ca: {key}\n", "FILE:4:", "no usable certificate"),
            (export + "    transport: tls\n", "FILE:3:", "tls.certificate is empty"),
            (export + "    transport: TLS\n", "FILE:3:", "give any, tls or mtls"),
            (files + export + "    transport: mtls\n", "FILE:6:", "tls.client_ca is empty"),
            (files + export + "    transport: tls\n    identities: [a]\n", "FILE:7:", "transport is not mtls"),
            (files + export + "    transport: mtls\n    identities: [a, A]\n", "FILE:7:", "twice"),
            (files + export + "    transport: mtls\n    identities: ['a b']\n", "FILE:7:", "no name of a certificate"),
        ):
            with self.subTest(text=text):
                code, said = self.check(text)
                self.assertEqual(code, 2, said)
                self.assertEqual(said.count("\n"), 1, said)
                self.assertIn(where, said)
                self.assertIn(words, said)

    def test_a_key_with_a_passphrase_is_refused_without_a_question(self):
        locked = os.path.join(self.base, "locked.key")
        subprocess.run(["openssl", "pkey", "-in", self.server[1], "-aes256", "-passout", "pass:x", "-out", locked], check=True)
        code, said = self.check(f"tls:\n  certificate: {self.server[0]}\n  key: {locked}\n")
        self.assertEqual(code, 2)
        self.assertIn("without a passphrase", said)

    def test_a_key_that_the_servers_user_cannot_read(self):
        """root, which starts the server, can: it shows only later."""
        words = [self.daemon.program, "--config", self.config]
        for setting in (f"server.state_dir={self.base}/state", "server.user=nobody", "server.port=0", "server.portmap=off", "api.listen="):
            words += ["--set", setting]
        done = subprocess.run(words, capture_output=True, text=True, timeout=play.PATIENCE, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("tls.key cannot be read (Permission denied)", done.stderr)

    def test_print_config_loads_again(self):
        done = subprocess.run([self.daemon.program, "--config", self.config, "--print-config"], capture_output=True, text=True, check=True)
        self.assertIn('identities: ["Alpha.example", "beta"]', done.stdout)
        self.assertIn("transport: mtls", done.stdout)
        self.assertIn("grace_seconds: 60", done.stdout)
        self.assertEqual(self.check(done.stdout), (0, ""))


if __name__ == "__main__":
    play.main()
