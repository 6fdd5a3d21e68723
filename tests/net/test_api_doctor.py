#!/usr/bin/env python3
"""holdfast doctor: each finding, made to happen; and that all is well where it is."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from doctor import BROKEN, FINE, HOLDFAST, DoctorPlay
from fakehost import FakeHost
from netns import Namespace
from play import Play, main
from rpc import Service


class Here(DoctorPlay):
    n_hosts = 1

    def test_all_is_well(self):
        os.chmod(self.state_dir, 0o700)
        findings = self.examine()
        for words in (["server answers", "healthy"], ["port 111 belongs to holdfastd"], ["port 111 sends clients of", "to holdfastd"],
                      ["no rpc.statd, lockd or nfsd"], ["state directory", "is private to the server"], ["may open"]):  # fmt: skip
            self.assert_found(findings, "ok", *words)
        self.assert_found(findings, "note", "a firewall must let in TCP and UDP 2049 and 111")
        self.assertTrue(any("the clock is" in f["what"] for f in findings))

    def test_a_server_that_is_not_at_127_0_0_1(self):
        os.chmod(self.state_dir, 0o700)
        for listen in ("10.98.0.1", "::", "::1", "::1,10.98.0.1"):
            with self.subTest(listen):
                self.daemon.stop()
                self.daemon.start(f"server.listen={listen}")
                self.assert_found(self.examine(), "ok", "port 111 sends clients of", "to holdfastd")
        self.daemon.stop()
        self.daemon.start()
        self.hosts[0].drop_callers()

    def test_as_text(self):
        with self.daemon.namespace:
            text = subprocess.run([HOLDFAST, "--state-dir", "/nowhere", "--server", "127.0.0.1:1", "doctor"], text=True,
                                  capture_output=True, check=False).stdout  # fmt: skip
        self.assertRegex(text, r"(?m)^BAD   no server answers at 127.0.0.1:1: .*\n      breaks: .*\n      fix:    .*$")

    def test_no_server(self):
        self.assert_found(self.examine(state_dir="/nowhere", code=BROKEN), "note", "state directory", "cannot be seen")
        findings = self.examine(state_dir=tempfile.gettempdir(), code=BROKEN)
        self.assert_found(findings, "bad", "no server answers")

    def test_no_program_at_port_111(self):
        empty = Namespace("empty")
        self.addCleanup(empty.close)
        findings = self.examine(namespace=empty, code=BROKEN)
        self.assert_found(findings, "bad", "no program listens on port 111")
        for service in ("lock manager", "status monitor"):
            for transport in ("UDP", "TCP"):
                self.assert_found(findings, "bad", f"clients do not find the {service} over {transport}")

    def test_rivals(self):
        for name in ("rpc.statd", "lockd", "nfsd"):
            self.assert_found(self.with_rival(name, self.daemon.namespace), "bad", f"{name} runs here (pid ")
        elsewhere = self.with_rival("rpc.statd", self.a.namespace)
        self.assert_found(elsewhere, "ok", "no rpc.statd, lockd or nfsd")

    def with_rival(self, name, namespace):
        with tempfile.TemporaryDirectory(prefix="hf-rival-") as folder:
            shutil.copy(shutil.which("sleep"), f"{folder}/{name}")
            with namespace:
                rival = subprocess.Popen([f"{folder}/{name}", "60"])
            try:
                with open(f"/proc/{rival.pid}/comm", encoding="utf-8") as comm:
                    self.until(lambda: comm.seek(0) or comm.read().strip(), "the rival runs", passes=lambda seen: seen == name)
                return self.examine()
            finally:
                rival.kill()
                rival.wait()

    def test_names(self):
        # The server answers: its own name counts, which is `server` here. Else the host's.
        self.assert_found(self.examine(code=BROKEN), "bad", "the server's name server cannot be resolved")
        hosts = "mount --make-rprivate /; f=$(mktemp); printf '%s\\n' > $f '{}'; mount --bind $f /etc/hosts; rm $f"
        self.assert_found(self.examine(before=hosts.format("10.98.0.1 server")), "ok", "the server's name server resolves to 10.98.0.1")
        self.assert_found(self.examine(before=hosts.format("127.0.1.1 server")), "note", "the server's name server resolves to 127.0.1.1")
        findings = self.examine(before="hostname unknown.invalid", state_dir="/nowhere", code=BROKEN)
        self.assert_found(findings, "bad", "the server's name unknown.invalid cannot be resolved")

    def test_state_directory(self):
        os.chmod(self.state_dir, 0o755)
        self.assert_found(self.examine(code=BROKEN), "bad", "other users can read")
        os.chmod(self.state_dir, 0o700)
        with tempfile.TemporaryDirectory(prefix="hf-small-") as folder:
            small = f"mount --make-rprivate /; mount -t tmpfs -o size=1m,mode=700 none {folder}"
            self.assert_found(self.examine(before=small, state_dir=folder, code=BROKEN), "bad", "less than 64 MB")

    def test_a_clock_that_went_back(self):
        path = f"{self.state_dir}/from-the-future"
        with open(path, "w", encoding="utf-8"):
            os.utime(path, (time.time() + 3600,) * 2)
        self.addCleanup(os.unlink, path)
        self.assert_found(self.examine(), "note", "the clock went back")


class FewFiles(DoctorPlay):
    n_hosts = 0

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="hf-few-")
        cls.addClassCleanup(shutil.rmtree, folder)
        with open(f"{folder}/holdfastd", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nulimit -n 1024\nexec "{Play.program}" "$@"\n')
        os.chmod(f"{folder}/holdfastd", 0o755)
        cls.program = f"{folder}/holdfastd"
        super().setUpClass()

    def test_few_files(self):
        self.assert_found(self.examine(code=BROKEN), "bad", "the server may open 1024 files")


class Usurped(DoctorPlay):
    """Another lock manager and another status monitor have the server's place at the port mapper."""

    settings = ("api.listen=127.0.0.1:0", "server.portmap=off")
    n_hosts = 0

    def test_registrations_of_others(self):
        other = FakeHost(self.stage, self.daemon.namespace, 99, self.network.SERVER[0])
        self.addCleanup(other.close)
        findings = self.examine(code=BROKEN)
        self.assert_found(findings, "ok", "port 111 belongs to python3")
        for transport in ("UDP", "TCP"):
            for service, port in (("lock manager", other.lockd), ("status monitor", other.statd)):
                port = port.udp_port if transport == "UDP" else port.tcp_port
                self.assert_found(findings, "bad", f"clients of the {service} over {transport} to port {port}, not to the server's, 2049")


class There(DoctorPlay):
    n_hosts = 1

    def assert_host(self, findings, **levels):
        found = {f["what"].split()[0] + "_" + ("UDP" if "over UDP" in f["what"] else "TCP"): f["level"] for f in findings}
        everything = {f"{service}_{kind}": "ok" for service in ("rpcbind", "statd", "lockd") for kind in ("UDP", "TCP")}
        self.assertEqual(found, {**everything, **levels}, findings)

    def test_a_healthy_client(self):
        self.assert_host(self.examine(self.a.address, code=FINE))

    def test_one_transport_is_enough(self):
        for there, gone in (("tcp", "UDP"), ("udp", "TCP")):
            self.a.start_lockd((there,))
            self.assert_host(self.examine(self.a.address, code=FINE), **{f"lockd_{gone}": "note"})
            whole = self.a.statd
            self.a.statd = Service(self.stage, self.a._on_statd, ["::"], 0, self.a.namespace, tcp=there == "tcp", udp=there == "udp")
            findings = self.examine(self.a.address, code=FINE)
            self.assert_host(findings, **{f"lockd_{gone}": "note", f"statd_{gone}": "note"})
            self.a.statd.close()
            self.a.statd = whole
            self.a.start_lockd()

    def test_no_statd(self):
        whole, self.a.statd = self.a.statd, None
        findings = self.examine(self.a.address, code=BROKEN)
        self.a.statd = whole
        self.assert_host(findings, statd_UDP="bad", statd_TCP="bad")
        self.assertIn("does not learn of a restart", next(f["breaks"] for f in findings if f["level"] == "bad"))

    def test_no_lockd(self):
        whole, self.a.lockd = self.a.lockd, None
        findings = self.examine(self.a.address, code=BROKEN)
        self.a.lockd = whole
        self.assert_host(findings, lockd_UDP="bad", lockd_TCP="bad")

    def test_no_rpcbind(self):
        self.a.stop_portmap()
        findings = self.examine(self.a.address, code=BROKEN)
        self.a.start_portmap()
        self.assertEqual({f["level"] for f in findings}, {"bad"})
        self.assertEqual(len(findings), 6)

    def test_an_rpcbind_that_does_not_answer(self):
        self.a.has_silent_portmap = True
        findings = self.examine(self.a.address, code=BROKEN)
        self.a.has_silent_portmap = False
        self.assert_host(findings, statd_UDP="bad", statd_TCP="bad", lockd_UDP="bad", lockd_TCP="bad")

    def test_a_name_that_cannot_be_resolved(self):
        self.assert_found(self.examine("unknown.invalid", code=BROKEN), "bad", "unknown.invalid cannot be resolved")


if __name__ == "__main__":
    main()
