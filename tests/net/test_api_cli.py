#!/usr/bin/env python3
"""holdfast, the command line: as a script runs it, in a pipe, and as a person does, on a terminal."""

import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "files"))

# pylint: disable=wrong-import-position
import nfs
from commandline import DENIED, FAILED, NOT_FOUND, OK, UNREACHABLE, USAGE, CliPlay
from play import main
from rpc import PATIENCE
from terminal import Terminal


class Cli(CliPlay):
    def start_again(self):
        self.daemon.start()
        for host in self.hosts:
            host.drop_callers()

    def test_tables_and_json(self):
        self.assert_granted(self.a, self.lock_of(self.a, 3, 4))
        self.assert_blocked(self.b, self.lock_of(self.b))
        for command in ("status", "clients", "locks", "waiters", "reservations", "shares", "grace"):
            text = self.run_cli(command).stdout
            self.assertNotIn("\033", text, "no colours in a pipe")
            self.assertTrue(text)
            json.loads(self.run_cli("--json", command).stdout)
        locks = self.run_cli("locks", "--client", self.id_of(self.a)).stdout.splitlines()
        self.assertTrue(locks[0].startswith("SHARE"))
        self.assertTrue(any("3+4" in line and self.id_of(self.a) in line for line in locks[1:]))
        line = next(l for l in self.run_cli("waiters").stdout.splitlines() if self.id_of(self.b) in l)
        self.assertTrue(line.rstrip().endswith(self.id_of(self.a)), "blocked by the right one")
        fh = self.fh[:-1] + b"!"
        for host in (self.a, self.b):
            for svid in (5, 6):
                self.assert_granted(host, self.lock_of(host, exclusive=False, svid=svid, fh=fh))
        self.assert_blocked(self.c, self.lock_of(self.c, fh=fh))
        line = next(l for l in self.run_cli("waiters").stdout.splitlines() if self.id_of(self.c) in l)
        self.assertTrue(line.rstrip().endswith(f"{self.id_of(self.a)}, {self.id_of(self.b)}"), line)
        one = json.loads(self.run_cli("--json", "clients", self.id_of(self.a)).stdout)
        self.assertEqual(one["id"], self.id_of(self.a))
        self.assertIn("handle:", self.run_cli("clients", self.id_of(self.a)).stdout)

    def test_finds_the_server(self):
        """By its state directory alone, wherever it listens."""
        state = f"{self.daemon.state_dir}/state"
        for listen, at in (
            (f"unix:{state}/a socket", f"unix:{state}/a socket"),
            ("[::1]:0", r"\[::1\]:\d+"),
            ("[::]:0", r"\[::1\]:\d+"),
            ("0.0.0.0:0", r"127\.0\.0\.1:\d+"),
            ("10.98.0.1:0", r"10\.98\.0\.1:\d+"),
        ):
            self.daemon.stop()
            self.daemon.start(f"api.listen={listen}")
            self.assertRegex(self.run_cli("status").stdout, f"at {at}\n")
        self.daemon.stop()
        self.assertNotIn("api.address", os.listdir(state))
        self.start_again()

    def test_names_of_servers(self):
        """As people write them; the port may be left out, also of an address that is full of colons."""
        self.daemon.stop()
        try:
            for listen, names in (
                ("127.0.0.1:8049", ("127.0.0.1", "localhost", "http://127.0.0.1:8049/", "127.0.0.1:8049/")),
                ("[::1]:8049", ("::1", "[::1]", "[::1]:8049", "http://[::1]:8049")),
            ):
                self.daemon.start(f"api.listen={listen}")
                for name in names:
                    with self.subTest(name):
                        self.assertRegex(self.run_cli("status", "--server", name).stdout, r"at \S+:8049\n")
                        self.run_cli("status", env={"HOLDFAST_SERVER": name})
                self.daemon.stop()
        finally:
            self.start_again()
        for name in ("ftp://127.0.0.1", "http://", "https://", "/", "x" * 300, "unix:/" + "x" * 300):
            with self.subTest(name[:20]):
                self.assertIn("is not the address of a server", self.run_cli("status", "--server", name, code=USAGE).stderr)

    def test_does_not_wait_for_the_dead(self):
        """No program answers at that address, and the kernel does not refuse the connection either."""
        with self.daemon.namespace, socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
            address = silent.getsockname()
            crowd = [socket.socket() for _ in range(2)]
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(address)
            said = self.run_cli("status", "--server", f"127.0.0.1:{address[1]}", code=UNREACHABLE).stderr
            for one in crowd:
                one.close()
        self.assertIn("timed out", said)

    def test_exit_codes(self):
        self.run_cli(code=USAGE)
        self.run_cli("nonsense", code=USAGE)
        self.run_cli("--nonsense", code=USAGE)
        self.run_cli("locks", "too", code=USAGE)
        self.run_cli("release", code=USAGE)
        self.run_cli("grace", "begin", code=USAGE)
        self.run_cli("top", code=USAGE)
        self.run_cli("clients", "nlm:1.2.3.4:unknown", code=NOT_FOUND)
        self.run_cli("grace", "end", code=FAILED)
        self.run_cli("status", "--server", "127.0.0.1:1", code=UNREACHABLE)
        said = self.run_cli("notify", "--token-file", "/dev/null", code=DENIED).stderr
        self.assertIn("No token was found in /dev/null;", said)
        self.run_cli("notify", code=DENIED, env={"HOLDFAST_TOKEN": "wrong"})
        self.assertIn("usage", self.run_cli("--help").stdout)
        self.assertIn("holdfast ", self.run_cli("--version").stdout)

    def test_filters_that_a_command_does_not_look_at(self):
        """Without the filter the command would do more than was asked for. It would, for instance, tell every client."""
        self.assert_granted(self.c, self.lock_of(self.c))
        for command, *words in (
            ("notify", "--client", self.id_of(self.c)),
            ("clients", "--client", self.id_of(self.c)),
            ("clients", "--share", "/data"),
            ("shares", "--share", "/data"),
            ("locks", "--status", "active"),
            ("waiters", "--protocol", "nlm"),
            ("release", "--yes", self.id_of(self.c), "--share", "/data"),
        ):
            said = self.run_cli(command, *words, code=USAGE).stderr
            self.assertIn(command, said)
            self.assertIn("does not use --", said)
        self.assert_held(self.lock_of(self.c))
        self.run_cli("waiters", "--client", self.id_of(self.c), "--share", "/data")
        self.run_cli("clients", "--status", "active", "--protocol", "nlm")

    def test_output_that_cannot_be_written(self):
        for words in (("status",), ("--json", "shares"), ("--help",), ("--version",)):
            with self.daemon.namespace, open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run(self.words(*words), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, FAILED, words)
            self.assertEqual(done.stderr, f"holdfast: cannot write: {os.strerror(errno.ENOSPC)}\n")

    def test_who_reads_no_further_hears_nothing(self):
        with self.daemon.namespace:
            process = subprocess.Popen(self.words("--help"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            process.stderr.close()
            process.wait()

    def test_no_colour_where_it_is_not_wanted(self):
        for value, has_colour in (("1", False), ("", True)):
            terminal = Terminal(self.words("status"), self.daemon.namespace, env={**os.environ, "NO_COLOR": value})
            terminal.wait("waiters ")
            self.assertEqual("\033[" in terminal.text, has_colour, f"NO_COLOR={value}")
            self.assertEqual(terminal.end(), OK)

    def test_orders(self):
        self.assert_granted(self.c, self.lock_of(self.c))
        self.run_cli("notify", self.id_of(self.c))
        self.c.notices.wait()
        self.run_cli("release", self.id_of(self.c), code=USAGE)  # without a terminal it cannot ask
        self.assertIn("locks released", self.run_cli("release", "--yes", self.id_of(self.c)).stdout)
        self.assertEqual(json.loads(self.run_cli("--json", "locks", "--client", self.id_of(self.c)).stdout), [])

    def test_release_asks(self):
        self.assert_granted(self.c, self.lock_of(self.c))
        terminal = Terminal(self.words("release", self.id_of(self.c)), self.daemon.namespace)
        terminal.wait("Continue?")
        terminal.write("no\n")
        terminal.wait("Nothing was changed.")
        self.assertEqual(terminal.end(), FAILED)
        self.assert_held(self.lock_of(self.c))
        terminal = Terminal(self.words("release", self.id_of(self.c)), self.daemon.namespace)
        terminal.wait("Continue?")
        terminal.write("yes\n")
        terminal.wait("locks released")
        self.assertEqual(terminal.end(), OK)
        self.assert_free(self.lock_of(self.c))

    def test_events(self):
        with self.daemon.namespace:
            process = subprocess.Popen(self.words("--json", "events"), stdout=subprocess.PIPE)
        try:
            end, lock, text = time.monotonic() + PATIENCE, self.lock_of(self.a), b""
            while self.fh.hex().encode() not in text[: text.rfind(b"\n") + 1]:
                self.assertLess(time.monotonic(), end, text)
                self.assert_granted(self.a, lock)  # again and again, until it listens
                self.a.unlock(lock)
                if select.select([process.stdout], [], [], 0.05)[0]:
                    text += os.read(process.stdout.fileno(), 65536)
            told = [json.loads(line) for line in text[: text.rfind(b"\n")].split(b"\n")]
            ours = {event["event"] for event in told if event.get("handle") == self.fh.hex()}
            self.assertTrue(ours and ours <= {"lock", "unlock"}, told)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            process.stdout.close()

    def test_dashboard(self):
        with open(f"{self.daemon.state_dir}/state/api.token", encoding="utf-8") as token:
            self.assertTrue(self.run_cli("dashboard").stdout.endswith(f"/#token={token.read().strip()}\n"))

    def test_top_follows_its_window(self):
        self.assert_granted(self.a, self.lock_of(self.a))
        terminal = Terminal(self.words("top"), self.daemon.namespace, 20, 100)
        terminal.wait(self.id_of(self.a))
        terminal.wait("\033[20;1H")
        terminal.resize(12, 60)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.wait("\033[12;1H")
        shown = terminal.text[: terminal.text.rindex("\033[12;1H")]  # and perhaps a part of the next one
        screen = shown[shown.rindex("\033[H\033[J") :]
        plain = screen.replace("\033[1m", "").replace("\033[0m", "").replace("\033[H\033[J", "")
        self.assertLessEqual(max(len(line.rstrip("\r")) for line in plain.split("\n")[:-1]), 60)
        terminal.write("q")
        self.assertEqual(terminal.end(), OK)

    def test_top_says_why_it_ends(self):
        """On the screen that stays, and not on the one that goes."""
        other_screen, back = "\033[?1049h", "\033[?1049l"
        terminal = Terminal(self.words("top"), self.daemon.namespace)
        terminal.wait("ends")
        self.daemon.stop()
        try:
            terminal.wait("Is holdfastd running?")
        finally:
            self.start_again()
        self.assertEqual(terminal.end(), UNREACHABLE)
        self.assertIn("no server answers", terminal.text[terminal.text.index(back) :])
        self.assertNotIn("no server answers", terminal.text[terminal.text.index(other_screen) : terminal.text.index(back)])

    def test_more_clients_than_a_page_has(self):
        for i in range(1100):
            self.assert_granted(self.a, self.lock_of(self.a, name=f"node-{i:04d}", svid=i + 1, exclusive=False))
        busiest = f"nlm:{self.a.address}:node-1099"
        for i in range(5):
            self.assert_granted(self.a, self.lock_of(self.a, fh=os.urandom(8), name="node-1099", svid=i + 1))
        rows = self.run_cli("clients").stdout.splitlines()
        self.assertGreater(len(rows), 1100)
        self.assertEqual(len(set(rows)), len(rows))
        terminal = Terminal(self.words("top"), self.daemon.namespace, 10, 100)
        terminal.wait("q\033[0m ends")
        self.assertRegex(terminal.text, rf"CLIENT .*\r?\n(\033\[0m)?{busiest} ")
        terminal.write("q")
        self.assertEqual(terminal.end(), OK)
        for i in range(1100):
            self.a.free_all(name=f"node-{i:04d}")

    def test_more_locks_than_one_answer_has(self):
        for i in range(1001):
            self.assert_granted(self.a, self.lock_of(self.a, 2 * i, 1, name="hoarder"))
        hoarder = f"nlm:{self.a.address}:hoarder"
        shown = self.run_cli("clients", hoarder).stdout.splitlines()
        self.assertEqual(shown[2:5], ["transport  clear", "TLS now    none", "locks      1001"])
        self.assertEqual(shown[-1], f"These are the first 1000; `holdfast locks --client {hoarder}` shows all.")
        self.assertEqual(len(self.run_cli("locks", "--client", hoarder).stdout.splitlines()), 1 + 1001)
        self.a.unlock(self.lock_of(self.a, 0, 1, name="hoarder"))
        self.assertNotIn("first", self.run_cli("clients", hoarder).stdout.splitlines()[-1])
        self.a.free_all(name="hoarder")

    def test_in_tmux(self):
        """A real terminal: full screen, another size, and what was there before comes back."""
        if not shutil.which("tmux"):
            self.skipTest("no tmux")
        server = f"hf-{os.getpid()}"
        self.assert_granted(self.a, self.lock_of(self.a))
        self.assert_blocked(self.b, self.lock_of(self.b))

        def tmux(*words):
            with self.daemon.namespace:
                return subprocess.run(["tmux", "-L", server, "-f", "/dev/null", *words], text=True, check=True,
                                      capture_output=True).stdout  # fmt: skip

        def shows(what, test):
            screen = lambda: tmux("capture-pane", "-p", "-t", "top").rstrip("\n").split("\n")
            self.until(screen, f"the screen shows {what}", passes=test)

        tmux("new-session", "-d", "-s", "top", "-x", "120", "-y", "30", "env PS1='before$ ' sh")
        self.addCleanup(tmux, "kill-server")
        tmux("set-option", "-t", "top", "status", "off")
        shows("a prompt", lambda screen: screen[0].startswith("before$"))
        tmux("send-keys", "-t", "top", " ".join(self.words("top")), "Enter")
        shows("all of it, with a client",
              lambda screen: any(self.id_of(self.a) in line for line in screen) and screen[-1] == "q ends" and len(screen) == 30)
        for columns, rows in ((60, 12), (40, 9), (200, 50)):
            tmux("resize-window", "-t", "top", "-x", str(columns), "-y", str(rows))
            shows(f"{rows} lines",
                  lambda screen, rows=rows: len(screen) == rows and screen[-1] == "q ends" and screen[0].startswith("server"))
        tmux("send-keys", "-t", "top", "q")
        shows("what was there before",
              lambda screen: screen[0].startswith("before$") and not any("q ends" in line for line in screen))


class Names(CliPlay):
    """Of files, which clients choose, and which go to an operator's terminal."""

    n_hosts = 1

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hf-names-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.chmod(cls.folder, 0o777)
        cls.flags = ("--export", f"{cls.folder}:/data")
        super().setUpClass()

    def test_names_that_are_not_what_they_look_like(self):
        with open(self.daemon.ports_file, encoding="utf-8") as ports, self.daemon.namespace:
            client = nfs.Client(json.load(ports)["rpc"])
        self.addCleanup(client.close)
        # Turned around, recoloured, on a line of their own, or not to be seen.
        for sign in "\u202e\u202d\u2066\u2067\u2069\u2028\ufeff\x1b\x9b\n\x7f":
            name = f"salary{sign}txt.{ord(sign)}"
            made = client.create(client.root("/data"), name.encode(), mode=0o666)
            self.assert_granted(self.a, self.lock_of(self.a, fh=made.fh))
        shown = self.run_cli("locks").stdout
        self.assertEqual(shown.count("/salary?txt."), 11, shown)


if __name__ == "__main__":
    main()
