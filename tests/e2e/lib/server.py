"""Our side of a play: holdfastd with one export, its API, and what travels on the wire."""

import os
import shutil
import signal
import subprocess
import time

from daemon import Daemon, Failed
from guest import PATIENCE, die_with_parent
from rest import Rest

SETTINGS = (
    "server.portmap=embedded",  # not the rpcbind of this host: its socket is a file, and knows no namespaces
    "server.name=server",
    "api.listen=127.0.0.1:0",
    "log.level=debug",
)


class Server:
    def __init__(self, program, namespace, settings, note):
        self.note = note
        self.daemon = Daemon(program, namespace, [*SETTINGS, *settings])
        self.rest = Rest(self.daemon)
        self.export = os.path.join(self.daemon.state_dir, "export")
        os.mkdir(self.export)
        os.chmod(self.export, 0o1777)
        os.chmod(self.daemon.state_dir, 0o755)
        self.killed_at = None

    def starts(self, *settings):
        self.note("server: starts")
        self.daemon.start(*settings, flags=("--export", f"{self.export}:/data"))

    def is_killed(self):
        self.note("server: SIGKILL")
        self.daemon.crash()
        self.killed_at = time.monotonic()

    def is_killed_and_starts(self, *settings):
        self.is_killed()
        self.starts(*settings)

    def stops(self):
        """In good order."""
        self.note("server: stops")
        self.daemon.stop()

    def pauses(self):
        self.daemon.process.send_signal(signal.SIGSTOP)

    def goes_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def close(self):
        self.daemon.close()

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
        return self.get("locks")["locks"]

    def wait(self, what, test, timeout=PATIENCE):
        """Waits until test(self) holds."""
        end = time.monotonic() + timeout
        while not test(self):
            assert time.monotonic() < end, f"not within {timeout} s: {what}; status {self.status}"
            time.sleep(0.01)
        self.note(f"server: {what}")

    def has(self, locks=None, waiters=None, timeout=PATIENCE):
        """Waits until so many are there."""
        def is_so(_):
            status = self.status
            return locks in (None, status["locks"]) and waiters in (None, status["waiters"])

        self.wait(f"locks={locks} waiters={waiters}", is_so, timeout)

    def ends_grace(self, timeout=PATIENCE):
        self.wait("grace is over", lambda _: not self.status["grace"]["active"], timeout)

    def declares_dead(self, guest):
        """As an operator does, by the API; gives the number of locks that it released."""
        (client,) = [one for one in self.get("clients")["clients"] if one["address"].startswith(guest.address)]
        answer = self.rest.call("DELETE", f"/api/v1/clients/{client['id']}", token=True)
        assert answer.status == 200, f"{answer.status} {answer.body!r}"
        self.note(f"server: DELETE {client['id']}: {answer.json}")
        return answer.json["locks_released"]


class Capture:
    """Everything on the wire, into a file."""

    def __init__(self, namespace, path):
        self.path = path
        with namespace, open(os.devnull, "wb") as nothing:
            self.tcpdump = subprocess.Popen(
                ["tcpdump", "-i", "wire", "-s", "0", "-U", "--immediate-mode", "-w", path],
                stdin=subprocess.DEVNULL, stdout=nothing, stderr=nothing, preexec_fn=die_with_parent,
            )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not os.path.exists(path) or os.path.getsize(path) == 0:
            if self.tcpdump.poll() is not None or time.monotonic() > end:
                raise Failed("tcpdump does not start")
            time.sleep(0.005)

    def stop(self):
        if self.tcpdump.poll() is None:
            self.tcpdump.terminate()
        self.tcpdump.wait()

    def decode(self):
        """The list of RPC messages, beside it."""
        if not shutil.which("tshark"):
            return
        with open(self.path + ".txt", "wb") as text:
            subprocess.run(["tshark", "-r", self.path, "-Y", "rpc", "-t", "r"], stdout=text,
                           stderr=subprocess.DEVNULL, check=False)  # fmt: skip
