"""Debian's rpcbind on a host of the play."""

import os
import subprocess

from guest import PATIENCE, die_with_parent
from rpc import NoReply, UdpCaller, call_message, exchange
from until import until

# Its socket is a file, which other hosts of the play must not find.
WITH_OWN_RUN = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                'mount -t tmpfs tmpfs /run && mkdir /run/rpcbind && exec "$@"', "sh"]  # fmt: skip


class Rpcbind:
    def __init__(self, namespace, note):
        self.namespace = namespace
        self.note = note
        self.process = None

    def starts(self):
        self.note("rpcbind: starts")
        with self.namespace, open(os.devnull, "wb") as nothing:
            self.process = subprocess.Popen([*WITH_OWN_RUN, "rpcbind", "-f"], stdin=subprocess.DEVNULL, stdout=nothing,
                                            stderr=nothing, preexec_fn=die_with_parent)  # fmt: skip
        until(self._answers, "rpcbind has started", PATIENCE)

    def _answers(self):
        assert self.process.poll() is None, "rpcbind does not start"
        caller = UdpCaller(("127.0.0.1", 111), ("127.0.0.1", 0), self.namespace)
        try:
            exchange(caller, call_message(100000, 2, 0), 0.1)
            return True
        except (NoReply, OSError):
            return False
        finally:
            caller.close()

    def is_killed(self):
        if self.process and self.process.poll() is None:
            self.note("rpcbind: SIGKILL")
            self.process.kill()
            self.process.wait()

    def programs(self):
        """The numbers of those that are registered."""
        with self.namespace:
            said = subprocess.run(["rpcinfo", "-p", "127.0.0.1"], capture_output=True, check=False, text=True)
        return {int(line.split()[0]) for line in said.stdout.splitlines()[1:] if line.split()}
