#!/usr/bin/env python3
"""holdfast doctor about TLS: the certificates of the RPC port and of the API, their keys and CAs, and the wire."""

import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from certs import Authority, together
from doctor import DoctorPlay
from play import main

CONFIG = """
tls: {{certificate: {folder}/rpc.pem, key: {folder}/rpc.key, client_ca: {folder}/clients.pem}}
api: {{certificate: {folder}/api.pem, key: {folder}/api.key}}
"""


class Tls(DoctorPlay):
    n_hosts = 0

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hf-doctor-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.ca = Authority(os.path.join(cls.folder, "ca"))
        cls.good = {name: cls.ca.issue(name, "DNS:server,IP:127.0.0.1") for name in ("rpc", "api")}
        cls.config = os.path.join(cls.folder, "holdfast.yaml")
        cls.set_right()
        cls.flags = ("--config", cls.config)
        super().setUpClass()

    @classmethod
    def set_right(cls):
        for name, (certificate, key) in cls.good.items():
            cls.use(name, certificate, key)
        shutil.copy(cls.ca.certificate, os.path.join(cls.folder, "clients.pem"))
        cls.write_config()

    @classmethod
    def write_config(cls, more=""):
        with open(cls.config, "w", encoding="ascii") as out:
            out.write(CONFIG.format(folder=cls.folder) + more)

    @classmethod
    def use(cls, name, certificate, key):
        for source, end in ((certificate, "pem"), (key, "key")):
            shutil.copy(source, os.path.join(cls.folder, f"{name}.{end}"))
        os.chmod(os.path.join(cls.folder, f"{name}.key"), 0o600)

    def path(self, name):
        return os.path.join(self.folder, name)

    def setUp(self):
        super().setUp()
        os.chmod(self.state_dir, 0o700)

    def tearDown(self):
        self.set_right()
        self.reload()
        super().tearDown()

    def reload(self):
        before = len(self.daemon.log)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: "configuration loaded again" in self.daemon.log[before:], "it is loaded again")

    def test_days_left(self):
        for days, level in ((100, "ok"), (31, "ok"), (29, "note"), (0, "note")):
            with self.subTest(days):
                ends = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 86400 * days + 43200))
                for name in ("rpc", "api"):
                    self.use(name, *self.ca.issue(name, "DNS:server", ends=ends))
                self.reload()
                findings = self.examine()
                self.assert_found(findings, "ok", "the RPC port speaks TLSv1.3")
                self.assert_found(findings, "ok", "the API speaks TLSv1.3")
                for what in ("the RPC port", "the API"):
                    self.assert_found(findings, level, f"the certificate of {what}", f"is valid for {days} more days")
        self.assertTrue(any("what tls.client_ca contains is valid for" in f["what"] for f in findings))

    def test_expired(self):
        for name, what in (("rpc", "the RPC port"), ("api", "the API")):
            self.use(name, *self.ca.issue("past", "DNS:server", ends="20200101000000Z"))
            findings = self.examine()
            self.assert_found(findings, "bad", f"{name}.pem", "/CN=past has expired")
            self.assert_found(findings, "bad", f"{what} shows another certificate than")
            self.reload()
            findings = self.examine()
            self.assert_found(findings, "ok", f"{what} speaks TLSv1.3")
            self.set_right()
            self.reload()

    def test_the_wrong_key(self):
        self.use("api", self.good["api"][0], self.good["rpc"][1])
        self.assert_found(self.examine(), "bad", "the configuration is refused as it is now", "api.key", "is not the key of api.certificate")

    def test_exports_that_demand_tls_without_a_certificate(self):
        with open(self.config, "w", encoding="ascii") as out:
            out.write(f"api: {{certificate: {self.folder}/api.pem, key: {self.folder}/api.key}}\n"
                      f"exports: [{{path: {self.folder}, transport: tls}}]\n")  # fmt: skip
        self.assert_found(self.examine(), "bad", "the configuration is refused", "exports.transport is tls, but tls.certificate is empty")

    def test_keys_that_others_can_read(self):
        for name, what in (("rpc", "the RPC port"), ("api", "the API")):
            os.chmod(self.path(f"{name}.key"), 0o644)
            self.assert_found(self.examine(), "bad", "other users can read or write the key of", what)
            os.chmod(self.path(f"{name}.key"), 0o640)
            self.assertFalse([f for f in self.examine() if "other users can read or write the key" in f["what"]])

    def test_a_broken_chain(self):
        stranger = Authority(os.path.join(self.folder, "stranger"), "Stranger")
        together(self.path("rpc.pem"), self.good["rpc"][0], stranger.certificate)
        shutil.rmtree(stranger.folder)
        self.assert_found(self.examine(), "bad", "/CN=rpc is not signed by the one behind it, /CN=Stranger")
        together(self.path("rpc.pem"), self.good["rpc"][0], self.ca.certificate)
        self.assertFalse([f for f in self.examine() if "is not signed by" in f["what"]])

    def test_what_is_odd(self):
        self.use("rpc", *self.ca.self_signed("alone"))
        findings = self.examine()
        self.assert_found(findings, "note", "rpc.pem", "is signed by itself")
        self.assert_found(findings, "note", "rpc.pem", "has no subjectAltName")
        self.use("rpc", *self.ca.issue("client", "DNS:server", extension="extendedKeyUsage = clientAuth\n"))
        self.assert_found(self.examine(), "bad", "rpc.pem", "may not be a server's")

    def test_lists_of_revoked_certificates(self):
        other = Authority(os.path.join(self.folder, "other"), "Other CA")
        together(self.path("clients.pem"), self.ca.with_revocations(), other.certificate)
        shutil.rmtree(other.folder)
        self.assert_found(self.examine(), "bad", "clients.pem", "/CN=Other CA has no list of revoked certificates")
        shutil.copy(self.ca.with_revocations(), self.path("clients.pem"))
        self.assertFalse([f for f in self.examine() if f["level"] == "bad" and "clients.pem" in f["what"]])
        shutil.copy(self.good["rpc"][0], self.path("clients.pem"))
        self.assert_found(self.examine(), "bad", "clients.pem", "/CN=rpc is not a CA's")

    def test_a_config_file_by_a_relative_path(self):
        self.daemon.stop()
        self.daemon.flags = ("--config", os.path.relpath(self.config))
        try:
            self.daemon.start()
            self.assert_found(self.examine(), "ok", "the RPC port speaks TLSv1.3")
        finally:
            self.daemon.stop()
            self.daemon.flags = self.flags
            self.daemon.start()


class WithoutTls(DoctorPlay):
    n_hosts = 0
    settings = ("api.listen=0.0.0.0:0",)

    def test_an_api_that_the_network_can_read(self):
        findings = self.examine()
        self.assert_found(findings, "note", "the API is reachable from other hosts without TLS")
        self.assertFalse([f for f in findings if "certificate" in f["what"]])


if __name__ == "__main__":
    main()
