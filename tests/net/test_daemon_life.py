#!/usr/bin/env python3
"""The daemon's life on unlike hosts: without IPv6, with many addresses, as a user without rights;
what it tells the service manager, and reloads.

    HOLDFASTD=PATH test_daemon_life.py [unittest's own arguments]
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "files"))

import netns  # noqa: E402
import nfs  # noqa: E402
import rpc  # noqa: E402
from daemon import Daemon  # noqa: E402
from until import PATIENCE, until  # noqa: E402

SKIPPED = 77
PORTMAP, NLM = 100000, 100021
N_THREADS = 32  # more than the server has for files


class Life(unittest.TestCase):
    def setUp(self):
        self.base = tempfile.mkdtemp(prefix="hf-net-life-")
        self.addCleanup(shutil.rmtree, self.base, True)
        os.chmod(self.base, 0o755)
        self.data = os.path.join(self.base, "data")
        os.mkdir(self.data)
        self.host = netns.Namespace("host")
        self.addCleanup(self.host.close)

    def daemon(self, *settings, flags=None):
        flags = ["--export", f"{self.data}:/data"] if flags is None else flags
        daemon = Daemon(os.environ["HOLDFASTD"], self.host, ["api.listen=", *settings], flags)
        self.addCleanup(daemon.close)
        os.chmod(daemon.state_dir, 0o755)  # a user without rights has to get to what is in it
        return daemon


class Addresses(Life):
    def netids(self):
        """Where the server's port mapper says that NLM 4 and itself are."""
        found = set()
        with self.host, nfs.Client(111) as client:
            answer = client.call(PORTMAP, 4, 4)
        while answer.bool():
            program, version, netid = answer.u32(), answer.u32(), answer.string()
            answer.string(), answer.string()  # address, owner
            if (program, version) in ((NLM, 4), (PORTMAP, 4)):
                found.add((program, netid))
        return found

    def test_host_without_ipv6(self):
        daemon = self.daemon()
        daemon.launcher = [sys.executable, os.path.join(HERE, "lib", "noipv6.py")]
        daemon.start()
        self.assertEqual(
            self.netids(), {(program, netid) for program in (NLM, PORTMAP) for netid in ("tcp", "udp")}
        )
        with self.host, nfs.Client(2049) as client:
            client.root("/data")
        daemon.stop()

    def test_many_addresses(self):
        addresses = [f"127.0.0.{i}" for i in range(1, 101)]
        daemon = self.daemon("server.listen=" + ",".join(addresses)).start()
        self.assertIn((NLM, "tcp"), self.netids())
        daemon.stop()


class User(Life):
    """server.user: nobody"""

    def setUp(self):
        super().setUp()
        os.chmod(self.data, 0o777)
        with open(os.path.join(self.data, "file"), "wb") as out:
            out.write(b"text")
        self.who = pwd.getpwnam("nobody")

    def owners(self, daemon):
        state = os.path.dirname(daemon.ports_file)
        return {os.stat(os.path.join(state, name)).st_uid for name in [".", *os.listdir(state)]}

    def lookup(self):
        with self.host, nfs.Client(2049, uid=1000) as client:
            return client.lookup(client.root("/data"), b"file").fh

    def test_handles_outlast_a_restart(self):
        daemon = self.daemon("server.user=nobody").start()
        fh = self.lookup()
        daemon.crash()
        daemon.start()  # with no file open
        with self.host, nfs.Client(2049, uid=1000) as client:
            self.assertEqual(client.getattr(fh).stat, 0)
            self.assertEqual(client.read(fh).data, b"text")
            made = client.create(client.root("/data"), b"new", mode=0o600)
        self.assertEqual((made.stat, made.attr.uid), (0, self.who.pw_uid))
        daemon.stop()

    def test_owns_all_that_it_keeps(self):
        daemon = self.daemon("api.listen=127.0.0.1:0").start()
        daemon.stop()
        self.assertEqual(self.owners(daemon), {0})
        daemon.start("server.user=nobody")  # what was root's is handed over
        self.assertEqual(self.owners(daemon), {self.who.pw_uid})
        self.lookup()
        daemon.stop()

    def test_takes_no_file_that_has_another_name(self):
        daemon = self.daemon().start()
        daemon.stop()
        other = os.path.join(self.base, "other")
        with open(other, "wb"):
            os.link(other, os.path.join(os.path.dirname(daemon.ports_file), "other"))
        os.symlink(other, os.path.join(os.path.dirname(daemon.ports_file), "link"))
        daemon.start("server.user=nobody")
        self.assertEqual(os.stat(other).st_uid, 0)
        daemon.stop()

    def test_has_no_right_but_to_low_ports(self):
        daemon = self.daemon("server.user=nobody").start()
        for task in os.listdir(f"/proc/{daemon.process.pid}/task"):
            with open(f"/proc/{daemon.process.pid}/task/{task}/status", encoding="ascii") as status:
                said = dict(line.rstrip("\n").split(":\t", 1) for line in status)
            self.assertEqual(set(said["Uid"].split()), {str(self.who.pw_uid)})
            self.assertEqual(set(said["Gid"].split()), {str(self.who.pw_gid)})
            self.assertEqual({int(said[name], 16) for name in ("CapEff", "CapPrm")}, {1 << 10})
        daemon.stop()


class Capable(Life):
    """Started as a user with capabilities, as the unit has it: clients act as themselves, and not with the capabilities."""

    def start(self, *settings, flags=None):
        daemon = self.daemon(*settings, flags=flags)
        caps = "chown,dac_override,dac_read_search,fowner,fsetid,setgid,setuid,net_bind_service"
        up = ",".join(f"+{cap}" for cap in caps.split(","))
        daemon.launcher = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                           f"--inh-caps={up}", f"--ambient-caps={up}", "--"]  # fmt: skip
        os.chown(daemon.state_dir, pwd.getpwnam("nobody").pw_uid, -1)
        return daemon.start()

    def test_clients_have_their_own_rights(self):
        os.chmod(self.data, 0o777)
        for name, uid in ((b"ada", 1000), (b"bob", 1001)):
            path = os.path.join(self.data, name.decode())
            with open(path, "wb") as out:
                out.write(name)
            os.chown(path, uid, uid)
            os.chmod(path, 0o600)
        daemon = self.start("api.listen=127.0.0.1:0")
        with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
            said = dict(line.rstrip("\n").split(":\t", 1) for line in status)
        nobody = pwd.getpwnam("nobody").pw_uid
        self.assertEqual(said["Uid"].split()[:3], 3 * [str(nobody)])  # the fourth is for files alone
        for name in ("api.token", "handle.key", "ports.json"):
            self.assertEqual(os.stat(f"{daemon.state_dir}/state/{name}").st_uid, nobody, name)
        with self.host, nfs.Client(2049, uid=1000, gid=1000) as client:
            root = client.root("/data")
            ada, bob = client.lookup(root, b"ada").fh, client.lookup(root, b"bob").fh
            self.assertEqual(client.read(ada).data, b"ada")
            self.assertEqual(client.read(bob).stat, 13)  # NFS3ERR_ACCES
            made = client.create(root, b"new", mode=0o600)
            self.assertEqual((made.stat, made.attr.uid), (0, 1000))
        daemon.crash()
        daemon.start()
        with self.host, nfs.Client(2049, uid=1000, gid=1000) as client:
            self.assertEqual(client.read(ada).data, b"ada")  # by its handle, with no file open
            self.assertEqual(client.read(bob).stat, 13)
        daemon.stop()

    def test_audit_log_of_a_reload_is_the_servers(self):
        """The thread that opens it has acted for a client, with that client's rights to files."""
        config, audit = (os.path.join(self.base, name) for name in ("holdfast.yaml", "audit.log"))
        for folder in (self.base, self.data):
            os.chmod(folder, 0o777)

        def write(*more):
            with open(config, "w", encoding="ascii") as out:
                out.writelines(f"{line}\n" for line in (f"exports: [{{path: {self.data}, name: /data}}]", *more))

        write()
        daemon = self.start(flags=["--config", config])
        with self.host, nfs.Client(2049, uid=1000, gid=1000) as client:
            root = client.root("/data")
            for i in range(N_THREADS):
                self.assertEqual(client.create(root, b"%d" % i).stat, 0)
        write(f"log: {{audit: {audit}}}")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: os.path.exists(audit), "it is there", more=lambda: daemon.log)
        owner = pwd.getpwnam("nobody").pw_uid
        until(lambda: os.stat(audit).st_uid, "the server's user has it", passes=lambda uid: uid == owner)
        daemon.stop()

    def test_server_user_gives_the_capabilities_up(self):
        daemon = self.start("server.user=nobody")
        with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
            said = dict(line.rstrip("\n").split(":\t", 1) for line in status)
        self.assertEqual({int(said[name], 16) for name in ("CapEff", "CapPrm")}, {1 << 10})
        daemon.stop()


class Manager(Life):
    """What systemd hears (sd_notify(3))."""

    def setUp(self):
        super().setUp()
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.heard.close)
        self.heard.settimeout(PATIENCE)
        self.heard.bind(os.path.join(self.base, "notify"))
        self.addCleanup(os.environ.pop, "NOTIFY_SOCKET")
        os.environ["NOTIFY_SOCKET"] = os.path.join(self.base, "notify")

    def message(self):
        """The next one, as {key: value}."""
        return dict(line.split("=", maxsplit=1) for line in self.heard.recv(4096).decode().splitlines())

    def hears(self):
        """The first word of the next message: READY=1, say."""
        return "=".join(next(iter(self.message().items())))

    def test_life(self):
        daemon = self.daemon().start()
        self.assertEqual(self.hears(), "READY=1")
        daemon.process.send_signal(signal.SIGHUP)
        self.assertEqual([self.hears(), self.hears()], ["RELOADING=1", "READY=1"])
        daemon.stop()
        self.assertEqual(self.hears(), "STOPPING=1")

    def test_status_says_what_is_served(self):
        daemon = self.daemon("server.port=0", "server.portmap=off").start()
        self.assertRegex(self.message()["STATUS"], r"^serving 1 export; port \d+, 0 clients, 0 locks$")
        for line in ("exporting a directory", "granting new locks at once",
                     "portmap is off: clients must be told the server's port, and kernel clients cannot lock"):  # fmt: skip
            self.assertIn(line, daemon.log)
        daemon.stop()

    def test_status_says_that_a_reload_was_refused(self):
        config = os.path.join(self.base, "holdfast.yaml")

        def reload(nonsense):
            with open(config, "w", encoding="ascii") as out:
                out.write(f"exports: [{{path: {self.data}}}]\n{nonsense}")
            daemon.process.send_signal(signal.SIGHUP)
            self.assertEqual(self.hears(), "RELOADING=1")
            return self.message()["STATUS"]

        with open(config, "w", encoding="ascii") as out:
            out.write("{}\n")
        daemon = self.daemon("server.port=0", "server.portmap=off", flags=["--config", config]).start()
        self.assertEqual(self.hears(), "READY=1")
        self.assertRegex(reload("nonsense: 1\n"), "; the last reload was refused: see the log$")
        self.assertNotIn("refused", reload(""))
        daemon.stop()

    def test_without_exports_it_says_so(self):
        """To the manager, in the log, and in `holdfast status`, with what to do."""
        daemon = self.daemon("server.portmap=off", "api.listen=127.0.0.1:0", flags=[]).start()
        self.assertRegex(self.message()["STATUS"], "^no export is configured: clients can mount nothing; ")
        self.assertRegex(daemon.log, 'warn: no export is configured: .* add it to \\\\?"exports')
        self.assertIn("created a token for the API", daemon.log)
        words = [os.path.join(os.path.dirname(os.environ["HOLDFASTD"]), "holdfast"), "--state-dir", f"{daemon.state_dir}/state"]
        with self.host:
            said = subprocess.run([*words, "status"], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
        self.assertRegex(said, r"(?m)^exports +none: clients can mount nothing; add one to the configuration")
        daemon.stop()

    def test_signs_of_life(self):
        """Twice in the time after which the manager would kill it."""
        self.addCleanup(os.environ.pop, "WATCHDOG_USEC")
        os.environ["WATCHDOG_USEC"] = "1000000"
        daemon = self.daemon("server.port=0", "server.portmap=off").start()
        self.assertEqual([self.hears() for _ in range(4)], ["READY=1"] + 3 * ["WATCHDOG=1"])
        daemon.stop()

    def test_reload_before_it_serves(self):
        """A silent rpcbind holds up the start."""
        rpcbind = rpc.make_socket(socket.SOCK_STREAM, ("127.0.0.1", 111), self.host)
        self.addCleanup(rpcbind.close)
        rpcbind.settimeout(PATIENCE)
        rpcbind.listen()
        daemon = self.daemon("server.portmap=system")
        starter = threading.Thread(target=daemon.start)
        starter.start()
        connection, _ = rpcbind.accept()  # so the loop runs
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration loaded again" in daemon.log, "it has reloaded", more=lambda: daemon.log)
        self.heard.setblocking(False)
        self.assertRaises(BlockingIOError, self.hears)
        self.heard.settimeout(PATIENCE)
        starter.join()
        connection.close()
        self.assertEqual(self.hears(), "READY=1")
        daemon.stop()


class Idle(Life):
    def test_sleeps(self):
        """No client is there: the daemon wakes a few times a second, and not more often."""
        daemon = self.daemon("api.listen=127.0.0.1:0").start()

        def wakes():
            with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("voluntary"))

        before, began = wakes(), time.monotonic()
        until(lambda: time.monotonic() > began + 2, "the time is over")
        self.assertLess((wakes() - before) / (time.monotonic() - began), 20)
        daemon.stop()


class Workers(Life):
    def test_as_many_as_configured(self):
        """And some for the store, so that files on a dead disk do not keep it from writing."""
        daemon = self.daemon("server.threads=24").start()
        with self.host, nfs.Client(2049) as client:
            client.create(client.root("/data"), b"new")
        self.assertGreater(len(os.listdir(f"/proc/{daemon.process.pid}/task")), 24 + 4)
        daemon.stop()


class Streams(Life):
    def test_started_without(self):
        """Started without standard streams, the daemon must not write its log into the next file that it opens."""
        daemon = self.daemon()
        daemon.launcher = ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"]
        daemon.start()
        for fd in range(3):
            self.assertEqual(os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}"), "/dev/null")
        daemon.stop()

    def test_output_that_cannot_be_written(self):
        for flag in ("--print-config", "--help", "--version"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([os.environ["HOLDFASTD"], flag], stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"No space left", done.stderr)


class NoStart(Life):
    """What keeps it from starting is said in words that lead to the mistake; exit code 1, as for all but a wrong
    configuration."""

    def refused(self, *settings, code=1):
        words = [os.environ["HOLDFASTD"], "--export", self.data, "--set", f"server.state_dir={self.base}/state"]
        for setting in settings:
            words += ["--set", setting]
        with self.host:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("serving", done.stderr)
        return done.stderr

    def test_a_second_one_in_the_same_place(self):
        daemon = self.daemon("api.listen=127.0.0.1:8049").start()
        state = f"server.state_dir={daemon.state_dir}/state"
        self.assertIn(f"is in use by another holdfastd (pid {daemon.process.pid})", self.refused(state))
        self.assertTrue(os.path.exists(daemon.ports_file), "it took away what is not its own")
        said = self.refused()
        self.assertRegex(said, "another server has the port; stop it, or choose another server.port .*address=0.0.0.0 port=2049")
        said = self.refused("server.port=0")
        self.assertRegex(said, "another program has the port; stop it, or choose another api.listen address=127.0.0.1:8049 ")
        daemon.stop()

    def check_ports(self, *settings):
        words = [os.environ["HOLDFASTD"], "--check-ports", *(f"--set={setting}" for setting in settings)]
        with self.host:
            return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def test_another_server_has_the_port(self):
        """Asked before a start that should step aside for it."""
        for kind, words in ((socket.SOCK_STREAM, ()), (socket.SOCK_DGRAM, ()), (socket.SOCK_STREAM, ("server.listen=0.0.0.0",))):
            with self.subTest(kind=kind, words=words):
                self.assertEqual(self.check_ports(*words).returncode, 0)
                other = rpc.make_socket(kind, ("0.0.0.0", 2049), self.host)
                if kind == socket.SOCK_STREAM:
                    other.listen()
                done = self.check_ports(*words)
                other.close()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, "^holdfastd: another server has port 2049, .* systemctl disable --now nfs-server, .*\n$")
        other = rpc.make_socket(socket.SOCK_STREAM, ("0.0.0.0", 111), self.host)
        self.addCleanup(other.close)
        other.listen()
        self.assertEqual(self.check_ports().returncode, 0, "it would register there")
        self.assertEqual(self.check_ports("server.portmap=embedded").returncode, 1)
        self.assertEqual(self.check_ports("server.port=x").returncode, 2)

    def test_places_that_are_not_there(self):
        for setting, words in (
            ("server.state_dir=/proc/nowhere", "cannot open the state directory /proc/nowhere: "),
            ("server.listen=192.0.2.77", "choose other addresses in server.listen transport=tcp address=192.0.2.77 "),
            ("api.listen=192.0.2.77:80", "choose another api.listen address=192.0.2.77:80 "),
            (f"api.listen=unix:{self.base}/no/socket", "choose another api.listen path="),
            (f"api.token_file={self.base}/no/token", "cannot write the token of the API file="),
        ):
            with self.subTest(setting):
                self.assertIn(words, self.refused(setting))

    def test_a_working_directory_that_was_removed(self):
        """The operator made no mistake in the configuration, and memory is not the reason."""
        gone = ["sh", "-c", 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"', f"{self.base}/gone"]
        words = [os.environ["HOLDFASTD"], "--check", "--export", "data"]
        done = subprocess.run(gone + words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr, "holdfastd: the configuration could not be read: No such file or directory\n")

    def test_tokens_that_are_none(self):
        token = os.path.join(self.base, "token")
        for text in ("", "short\n", "x" * 15, "x" * 513, "x" * 5000):
            with self.subTest(len(text)):
                with open(token, "w", encoding="ascii") as out:
                    out.write(text)
                self.assert_wrong_token(f"'{token}' has fewer than 16 or more than 512 characters; ", token)
        self.assert_wrong_token("cannot be read (Is a directory); ", self.base)
        self.assert_wrong_token("cannot be read (Not a directory); ", f"{token}/below")
        self.assertFalse(os.path.exists(f"{self.base}/state"), "a wrong configuration touches nothing")

    def assert_wrong_token(self, words, path):
        """With file and line, whether it is only checked or started."""
        config = os.path.join(self.base, "token.yaml")
        for key in ("token_file", "view_token_file"):
            with open(config, "w", encoding="ascii") as out:
                out.write(f"api:\n  listen: 127.0.0.1:0\n  {key}: {path}\n")
            for flags in (("--check",), ()):
                words_of_it = [os.environ["HOLDFASTD"], "--config", config, "--set", f"server.state_dir={self.base}/state", *flags]
                done = subprocess.run(words_of_it, capture_output=True, text=True, timeout=PATIENCE, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, f"^holdfastd: {config}:3: api.{key} .*{re.escape(words)}.*\n$")

    def test_tokens_that_are_no_matter(self):
        """The API is off, or the next start makes the file, or it can be read only once."""
        for settings in (("api.listen=", f"api.token_file={self.base}"), (f"api.token_file={self.base}/no/token",), ("api.token_file=/dev/null",)):
            words = [word for setting in settings for word in ("--set", setting)]
            done = subprocess.run([os.environ["HOLDFASTD"], "--check", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), settings)

    def test_the_same_token_in_both_files(self):
        files = [os.path.join(self.base, name) for name in ("one", "two")]
        for path in files:
            with open(path, "w", encoding="ascii") as out:
                out.write("x" * 64 + "\n")
        said = self.refused(f"api.token_file={files[0]}", f"api.view_token_file={files[1]}", code=2)
        self.assertIn("contain the same token", said)

    def test_the_view_token_in_the_default_file(self):
        """Before that file is there, and after: removing it would not help."""
        state = os.path.join(self.base, "state")
        words = [os.environ["HOLDFASTD"], "--check", "--set", f"server.state_dir={state}"]
        for path in (f"{state}/api.token", f"{state}//api.token"):
            said = self.refused(f"api.view_token_file={path}", code=2)
            self.assertIn(f"api.view_token_file is the file of api.token_file, {state}/api.token by default: a token", said)
            done = subprocess.run([*words, "--set", f"api.view_token_file={path}"], capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)  # fmt: skip
            self.assertEqual((done.returncode, done.stderr), (2, said))
            self.assertFalse(os.path.exists(state))
        os.mkdir(state)
        view = os.path.join(self.base, "view")
        for path in (f"{state}/api.token", view):
            with open(path, "w", encoding="ascii") as out:
                out.write("x" * 64 + "\n")
        self.assertIn("by default: a token", self.refused(f"api.view_token_file={state}/api.token", code=2))
        self.assertIn("contain the same token", self.refused(f"api.view_token_file={view}", code=2))

    def test_a_wrong_configuration_touches_nothing(self):
        for setting in ("server.port=x", "server.listen=0.0.0.0,127.0.0.1", "api.listen=127.0.0.1:2049"):
            said = self.refused(setting, code=2)
            self.assertTrue(said.startswith(f"holdfastd: --set {setting}: ") and said.count("\n") == 1, said)
        self.assertFalse(os.path.exists(f"{self.base}/state"))


class OwnFiles(Life):
    def test_an_export_that_holds_them(self):
        daemon = self.daemon("server.portmap=off", flags=[])
        around = daemon.state_dir
        os.mkdir(f"{around}/state", 0o700)
        os.mkdir(f"{around}/sta")
        os.symlink(around, f"{self.base}/link")
        for path, warns in (
            (around, True),
            (f"{around}/state", True),
            ("/", True),
            (f"{self.base}/link", True),
            (f"{around}/sta", False),
            (self.data, False),
        ):
            with self.subTest(path):
                open(daemon.log_path, "wb").close()
                daemon.start(flags=["--export", f"{path}:/x"])
                daemon.stop()
                self.assertEqual("warn: an export contains the server's state directory" in daemon.log, warns, daemon.log)


class Reload(Life):
    def test_no_exports_at_the_start(self):
        """Then the handles are another server's, and no lock asks what they mean."""
        config = os.path.join(self.base, "holdfast.yaml")
        with open(config, "w", encoding="ascii") as out:
            out.write("exports: []\n")
        daemon = self.daemon(flags=["--config", config]).start()
        with open(config, "w", encoding="ascii") as out:
            out.write(f"exports: [{{path: {self.data}, name: /data}}]\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration loaded again" in daemon.log, "it has reloaded", more=lambda: daemon.log)
        self.assertRegex(daemon.log, "warn: .*started without exports.* exports=1")
        with self.host, nfs.Client(2049) as client:
            self.assertEqual(client.exports(), {})
        daemon.crash()
        daemon.start()
        with self.host, nfs.Client(2049) as client:
            client.root("/data")
        daemon.stop()


if __name__ == "__main__":
    reason = netns.is_possible()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
