#!/usr/bin/env python3
"""A node of a cluster under the programs that manage it: systemd, Pacemaker with the sample agent, keepalived with the sample
scripts. The agent and the scripts act on real nodes. A systemctl of the test's own starts and stops them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from nodes import SERVICE
from play import main
from takeover import Takeover
from until import PATIENCE

CONTRIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib")
HOLDFAST = os.path.join(os.path.dirname(os.path.abspath(os.environ.get("HOLDFASTD", ""))), "holdfast")


class Systemd(Takeover):
    """What systemd hears of each node (sd_notify(3))."""

    n_hosts = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.heard = {}
        for node in cls.nodes:
            path = os.path.join(cls.base, f"{node.name}.notify")
            heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            cls.addClassCleanup(heard.close)
            heard.bind(path)
            cls.heard[node.name] = heard
            node.launcher = ["env", f"NOTIFY_SOCKET={path}"]

    def hears(self, node):
        """The first line of each message that came since."""
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.append(self.heard[node.name].recv(4096).decode().splitlines()[0])
        return lines

    def test_node_that_hands_over_does_not_stop(self):
        """systemd kills a service that says STOPPING=1 and still runs after TimeoutStopSec."""
        old, new = self.active, self.standby
        self.assertIn("READY=1", self.hears(old))
        self.assertEqual(old.order("move").status, 202)
        self.until_serving(new)
        lines = []

        def is_ready():
            lines.extend(self.hears(old))
            return "READY=1" in lines

        self.until(is_ready, f"{old.name} is ready again, as a standby")
        self.assertNotIn("STOPPING=1", lines)
        new.stop()
        self.assertIn("STOPPING=1", self.hears(new))


class Managed(Takeover):
    """A node serves only when it is told."""

    n_hosts = 3
    more = ("cluster.automatic=false",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.systemctl = {node.name: Systemctl(node, os.path.join(cls.base, node.name)) for node in cls.nodes}
        for systemctl in cls.systemctl.values():
            cls.addClassCleanup(systemctl.close)

    def settle(self):
        for node in self.nodes:
            if not node.runs:
                node.start()
        self.until(self.is_told, "a node has the service, or is told to take it")
        return self.until_one_serves()

    def is_told(self):
        return self.with_role("active") or self.nodes[0].order("take").status == 202

    def begin(self, node, *words, **more):
        """A program of contrib/ on @node."""
        env = {**os.environ, **more, "PATH": f"{self.systemctl[node.name].folder}:{os.environ['PATH']}",
               "HOLDFAST_STATE_DIR": f"{node.state_dir}/state"}  # fmt: skip
        with node.namespace:
            return subprocess.Popen(["sh", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True, env=env)  # fmt: skip

    def end(self, process, code):
        said, _ = process.communicate(timeout=2 * PATIENCE)
        self.assertEqual(process.returncode, code, said)


class Systemctl:
    """The systemctl that the programs of contrib/ find: it does to a node what systemd would."""

    PROGRAM = """#!/usr/bin/env python3
import socket, sys
ask = socket.socket(socket.AF_UNIX)
ask.connect({path!r})
ask.sendall("\\n".join(sys.argv[1:]).encode())
ask.shutdown(socket.SHUT_WR)
status, _, said = ask.makefile().read().partition(" ")
print(said)
sys.exit(int(status))
"""

    def __init__(self, node, folder):
        self.node = node
        self.folder = folder
        os.mkdir(folder)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{folder}/asked")
        self.listener.listen()
        with open(f"{folder}/systemctl", "w", encoding="utf-8") as file:
            file.write(self.PROGRAM.format(path=f"{folder}/asked"))
        os.chmod(f"{folder}/systemctl", 0o700)
        os.symlink(HOLDFAST, f"{folder}/holdfast")
        self.thread = threading.Thread(target=self._obey, daemon=True)
        self.thread.start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)

    def _obey(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    words = connection.makefile().read().split("\n")
                    order = next(word for word in words if not word.startswith("-"))
                    said = getattr(self, f"do_{order.replace('-', '_')}")()
                    connection.sendall(f"{0 if said != 'inactive' else 3} {said}".encode())

    def do_is_active(self):
        return "active" if self.node.runs else "inactive"

    def do_start(self):
        if not self.node.runs:
            self.node.start()
        return ""

    def do_restart(self):
        self.node.stop()
        self.node.start()
        return ""

    def do_kill(self):
        """Of the main process, which systemd starts again."""
        self.node.kill_process()
        self.node.start()
        return ""


class Agent(Managed):
    OK, GENERIC, NOT_RUNNING = 0, 1, 7

    def begin_to(self, action, node):
        return self.begin(node, f"{CONTRIB}/pacemaker/holdfast", action, OCF_RESKEY_holdfast=HOLDFAST,
                          OCF_RESKEY_state_dir=f"{node.state_dir}/state")  # fmt: skip

    def act(self, action, node, code):
        self.end(self.begin_to(action, node), code)

    def test_service_moves(self):
        old, new = self.active, self.standby
        state = self.state_of(old)
        self.hold()
        self.act("monitor", old, self.OK)
        self.act("monitor", new, self.NOT_RUNNING)
        self.act("stop", new, self.OK)
        self.act("stop", old, self.OK)
        self.act("stop", old, self.OK)
        self.act("monitor", old, self.NOT_RUNNING)
        self.act("start", new, self.OK)
        self.act("start", new, self.OK)
        self.act("monitor", new, self.OK)
        self.until_serving(new)
        self.assert_continued(new, state)
        self.assert_denied(self.b)

    def test_start_waits_until_the_node_has_seen_the_database(self):
        """Pacemaker would not start it on this node again after a failure."""
        node = self.active
        for each in self.nodes:
            each.stop()
        self.act("monitor", node, self.NOT_RUNNING)
        self.pg.signal(signal.SIGSTOP)
        try:
            starting = self.begin_to("start", node)
            self.until(lambda: "This node has not seen the database yet" in starting.stdout.readline(), "it is refused")
        finally:
            self.pg.signal(signal.SIGCONT)
        self.end(starting, self.OK)
        self.act("monitor", node, self.OK)

    def test_process_that_hangs(self):
        old, new = self.active, self.standby
        self.hold()
        old.pause()
        self.act("monitor", old, self.GENERIC)
        self.act("stop", old, self.OK)
        self.act("monitor", old, self.NOT_RUNNING)
        self.act("start", new, self.OK)
        self.until_serving(new)
        self.assert_denied(self.b)

    def test_process_that_was_killed(self):
        """With its witness: systemd has started it again, and it goes on before Pacemaker looks."""
        old = self.active
        self.hold()
        old.crash()
        self.act("monitor", old, self.NOT_RUNNING)
        old.start()
        self.until_serving(old)
        self.act("monitor", old, self.OK)
        self.assert_denied(self.b)


class Keepalived(Managed):
    def check(self, node, code):
        self.end(self.begin(node, f"{CONTRIB}/keepalived/holdfast-check", SERVICE), code)

    def test_address_comes(self):
        self.hold()
        new = self.standby
        self.end(self.begin(new, f"{CONTRIB}/keepalived/holdfast-master"), 0)
        self.until_serving(new)
        self.assert_denied(self.b)
        self.end(self.begin(new, f"{CONTRIB}/keepalived/holdfast-master"), 0)

    def test_check(self):
        for node in (self.active, self.standby):
            self.check(node, 0)
        self.check(self.standby, 0)
        self.assertEqual(self.standby.role, "standby", "the address is not there")
        self.standby.stop()
        self.check(self.standby, 1)

    def test_process_that_was_killed_serves_again(self):
        """Its witness handed over to no node, and keepalived does not say again that the address is here."""
        node = self.active
        self.hold()
        node.kill_process()
        self.until(lambda: not node.has_witness(), "the witness has handed over")
        node.namespace.run("addr", "add", f"{SERVICE}/16", "dev", "eth0")
        node.start()
        node.until_role("standby")

        def is_active():
            """The check fails for a moment: the API ends and starts again with the role."""
            self.begin(node, f"{CONTRIB}/keepalived/holdfast-check", SERVICE).communicate(timeout=PATIENCE)
            return node.role == "active"

        self.until(is_active, "it is told to serve, because the address is here")
        self.until_serving(node)
        self.assert_denied(self.b)


if __name__ == "__main__":
    main()
