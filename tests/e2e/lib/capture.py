"""What travels on the wire of a play."""

import os
import re
import shutil
import subprocess

from daemon import Failed
from guest import PATIENCE, die_with_parent
from until import until

BUFFER = 64 * 1024  # KiB: tcpdump may not run for a while on a busy machine


class Capture:
    """Everything on the wire, into a file; @size: so much of each packet, 0 for all."""

    def __init__(self, namespace, path, size=0):
        self.path = path
        self.said = path + ".said"
        with namespace, open(self.said, "wb") as said:
            self.tcpdump = subprocess.Popen(
                ["tcpdump", "-i", "wire", "-s", str(size), "-B", str(BUFFER), "-U", "--immediate-mode", "-w", path],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=die_with_parent,
            )  # fmt: skip
        until(self._has_begun, "tcpdump has started", PATIENCE)

    def _has_begun(self):
        if self.tcpdump.poll() is not None:
            raise Failed("tcpdump does not start")
        return os.path.exists(self.path) and os.path.getsize(self.path) > 0

    def stop(self):
        if self.tcpdump.poll() is None:
            self.tcpdump.terminate()
        self.tcpdump.wait()

    def find(self, what):
        """The messages on the wire until now for which tshark's filter @what holds, a line each."""
        self.stop()
        self._has_all()
        found = subprocess.run(["tshark", "-r", self.path, "-Y", what, "-t", "r"], capture_output=True, check=False, text=True)
        if found.returncode:  # or a filter that tshark does not know would find nothing in the clear
            raise Failed(f"tshark failed with {found.returncode} at {what!r}: {found.stderr.strip()}")
        return found.stdout.splitlines()

    def _has_all(self):
        """What was lost could be what a play looks for, or what it says was never sent."""
        with open(self.said, encoding="utf-8", errors="replace") as said:
            lost = re.search(r"(\d+) packets? dropped by kernel", said.read())
        if not lost or int(lost[1]):
            raise Failed(f"tcpdump lost {lost[1] if lost else 'an unknown number of'} packets of the wire, see {self.said}")

    def decode(self):
        """The list of RPC messages, beside it."""
        if not shutil.which("tshark"):
            return
        with open(self.path + ".txt", "wb") as text:
            subprocess.run(["tshark", "-r", self.path, "-Y", "rpc", "-t", "r"], stdout=text,
                           stderr=subprocess.DEVNULL, check=False)  # fmt: skip
