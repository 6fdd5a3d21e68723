"""The server's side of a play: holdfastd with one export, what its API says, and its machine."""

import os
import shutil
import signal
import subprocess
import time
import unittest
import uuid

from daemon import Daemon
from guest import PATIENCE
from rest import Rest
from until import until

SETTINGS = (
    "server.portmap=embedded",  # not the rpcbind of this host: its socket is a file, and knows no namespaces
    "server.name=server",
    "api.listen=127.0.0.1:0",
    "log.level=debug",
)
# No holdfastd outlives its play.
LEASH = ["setpriv", "--pdeathsig", "KILL"]
# Another boot of the machine is another boot id that the kernel shows.
OTHER_BOOT = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
              'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"']  # fmt: skip


def make_export(directory):
    export = os.path.join(directory, "export")
    os.mkdir(export)
    os.chmod(export, 0o1777)
    return export


class Server:
    """@export: a directory that other servers have, too."""

    name = "server"
    source = "server:/data"  # what clients mount

    def __init__(self, program, namespace, settings, note, export=None):
        self.note = note
        self.namespace = namespace
        self.daemon = Daemon(program, namespace, [*SETTINGS, *settings])
        self.daemon.launcher = LEASH
        self.rest = Rest(self.daemon)
        self.export = export or make_export(self.daemon.state_dir)
        os.chmod(self.daemon.state_dir, 0o755)
        self.killed_at = None

    def is_well(self):
        return self.daemon.process.poll() is None

    def copy_logs(self, directory):
        shutil.copy(self.daemon.log_path, os.path.join(directory, "holdfastd.log"))

    def starts(self, *settings):
        self.note(f"{self.name}: starts")
        self.daemon.start(*settings, flags=("--export", f"{self.export}:/data"))

    def is_killed(self):
        self.note(f"{self.name}: SIGKILL")
        self.daemon.crash()
        self.killed_at = time.monotonic()

    def is_killed_and_starts(self, *settings):
        self.is_killed()
        self.starts(*settings)

    def stops(self):
        """In good order."""
        self.note(f"{self.name}: stops")
        self.daemon.stop()

    def pauses(self):
        self.daemon.process.send_signal(signal.SIGSTOP)

    def goes_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def close(self):
        self.daemon.close()

    # ---- its machine

    @property
    def store(self):
        return os.path.join(self.daemon.state_dir, "state")

    def syncs(self):
        """What is in the store now is on the disk; what comes later is not, unless holdfastd sees to it."""
        shutil.rmtree(self.store + ".disk", ignore_errors=True)
        shutil.copytree(self.store, self.store + ".disk")
        self.note(f"{self.name}: its machine has written everything back")

    def loses_power(self):
        """The last state that was synced is all that the next boot finds."""
        self.is_killed()
        self.note(f"{self.name}: its machine boots")
        if os.path.exists(self.store + ".disk"):
            shutil.rmtree(self.store)
            os.rename(self.store + ".disk", self.store)
        path = os.path.join(self.daemon.state_dir, "boot_id")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{uuid.uuid4()}\n")
        self.daemon.launcher = [*LEASH, *OTHER_BOOT, path]

    def breaks_connections_of(self, client):
        """As a reset would, or a router that has lost them."""
        before = self.rest.metrics()['holdfast_connections{transport="tcp"}']
        self._reset(client)
        self.wait(f"the connections of {client.name} are broken",
                  lambda _: self.rest.metrics()['holdfast_connections{transport="tcp"}'] < before)  # fmt: skip

    def _reset(self, client):
        with self.namespace:
            subprocess.run(["ss", "-tK", "dst", client.address], check=True, stdout=subprocess.DEVNULL)

    def is_not_heard_by(self, client):
        """It hears the client, and all that it answers is lost; until it was killed and is_heard_again."""
        self.note(f"{self.name}: is not heard by {client.name}")
        self._nft(f"add table ip mute; add chain ip mute out {{ type filter hook output priority 0; }}; "
                  f"add rule ip mute out ip daddr {client.address} drop")  # fmt: skip

    def is_heard_again(self, client):
        self._reset(client)  # else its kernel would repeat the last words of the dead
        self.note(f"{self.name}: is heard again")
        self._nft("delete table ip mute")

    def calls_only(self, client, tcp, udp):
        """As with a firewall of the client: of what the server sends to it, besides replies, only these ports are let in."""
        def ports(numbers):
            return f"{{ {', '.join(map(str, numbers))} }}"

        self.note(f"{self.name}: can call {client.name} at ports {tcp} (TCP) and {udp} (UDP) only")
        begin = f"add rule ip wall out ip daddr {client.address}"
        self._nft(f"add table ip wall; add chain ip wall out {{ type filter hook output priority 0; }}; "
                  f"{begin} tcp sport != {{ 111, 2049 }} tcp dport != {ports(tcp)} drop; "
                  f"{begin} udp sport != {{ 111, 2049 }} udp dport != {ports(udp)} drop")  # fmt: skip

    def calls_any(self):
        self._nft("delete table ip wall")

    def _nft(self, rules):
        with self.namespace:
            done = subprocess.run(["nft", rules], capture_output=True, check=False, text=True)
        if done.returncode != 0:
            raise unittest.SkipTest(f"no packet filter here: {done.stderr.splitlines()[0]}")

    # ---- what the API says

    def get(self, what):
        answer = self.rest.get(f"/api/v1/{what}")
        assert answer.status == 200, f"GET {what}: {answer.status} {answer.body!r}"
        return answer.json

    @property
    def status(self):
        return self.get("status")

    @property
    def locks(self):
        return self.get("locks?limit=1000")["locks"]

    def ranges(self):
        """What is held: (offset, length) of each lock."""
        return [(lock["offset"], lock["length"]) for lock in self.locks if lock["state"] == "held"]

    @property
    def clients(self):
        return self.get("clients?limit=1000")["clients"]

    def client(self, address):
        """The one there, as a client of the lock manager."""
        (found,) = [one for one in self.clients if one["id"].startswith(f"nlm:{address}:")]
        return found

    def answers(self, result, program="nlm", procedure="LOCK"):
        """How many such answers there have been since it started."""
        name = f'{program}_requests_total{{procedure="{procedure}",result="{result}"}}'
        return self.rest.metrics().get(name, 0)

    def wait(self, what, test, timeout=PATIENCE):
        """Waits until test(self) holds."""
        until(lambda: test(self), what, timeout,
              more=lambda: f"status {self.status}, waiters {self.get('waiters')['waiters']}")  # fmt: skip
        self.note(f"{self.name}: {what}")

    def has(self, locks=None, waiters=None, timeout=PATIENCE):
        """Waits until so many are there."""
        def is_so(_):
            status = self.status
            return locks in (None, status["locks"]) and waiters in (None, status["waiters"])

        self.wait(f"locks={locks} waiters={waiters}", is_so, timeout)

    def refuses_for_grace(self):
        """Waits until a client was refused for grace."""
        self.wait("a client is refused in grace", lambda _: self.answers("DENIED_GRACE_PERIOD") > 0)
        assert self.status["grace"]["active"], "grace is over already"

    def ends_grace(self, timeout=PATIENCE):
        self.wait("grace is over", lambda _: not self.status["grace"]["active"], timeout)

    def is_told_to_end_grace(self):
        """By an operator: so a play need not wait for the end, nor hurry before it."""
        assert self.status["grace"]["active"], "grace is over already"
        answer = self.rest.call("POST", "/api/v1/grace/end", token=True)
        assert answer.status == 200, f"{answer.status} {answer.body!r}"
        self.note(f"{self.name}: is told to end grace")

    def declares_dead(self, guest):
        """As an operator does, by the API; gives the number of locks that it released."""
        client = self.client(guest.address)
        answer = self.rest.call("DELETE", f"/api/v1/clients/{client['id']}", token=True)
        assert answer.status == 200, f"{answer.status} {answer.body!r}"
        self.note(f"{self.name}: DELETE {client['id']}: {answer.json}")
        return answer.json["locks_released"]
