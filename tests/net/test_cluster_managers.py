#!/usr/bin/env python3
"""A node of a cluster under the programs that manage it: systemd."""

import contextlib
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from play import main
from takeover import Takeover


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


if __name__ == "__main__":
    main()
