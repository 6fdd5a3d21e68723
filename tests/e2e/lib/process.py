"""A process on a client machine that has one file of the mount open (guest/locker.c), and what it can do."""

import signal
import time

from guest import PATIENCE


class Process:
    def __init__(self, guest, path, note):
        self.name = guest.name
        self.note = note
        self.command = guest.start(f"exec locker {path}")
        said = self.command.line()
        assert said == "open", f"{guest.name} cannot open {path}: {said}"

    def _tell(self, order):
        self.note(f"{self.name}/{self.command.number}: {order}")
        self.command.type(order + "\n")

    def _answer(self, timeout=PATIENCE):
        answer = self.command.line(timeout)
        self.note(f"{self.name}/{self.command.number}: -> {answer}")
        return answer

    def asks(self, order, timeout=PATIENCE):
        self._tell(order)
        return self._answer(timeout)

    def _expect(self, wanted, order, timeout=PATIENCE):
        answer = self.asks(order, timeout)
        assert answer == wanted, f"{self.name}: {order}: {answer} instead of {wanted}"

    # ---- fcntl: length 0 is to the end, mode r or w

    def locks(self, start=0, length=0, mode="w", timeout=PATIENCE):
        self._expect("granted", f"set {mode} {start} {length}", timeout)

    def is_denied(self, start=0, length=0, mode="w", timeout=PATIENCE):
        self._expect("denied", f"set {mode} {start} {length}", timeout)

    def unlocks(self, start=0, length=0):
        self._expect("unlocked", f"unset {start} {length}")

    def sees(self, what, start=0, length=0, mode="w"):
        """@what: free, or held MODE START LENGTH."""
        self._expect(what, f"test {mode} {start} {length}")

    def begins(self, order):
        """Asks, and does not wait for the answer, which is had by gets."""
        self._tell(order)

    def waits(self, start=0, length=0, mode="w"):
        """Begins to wait; its end is had by gets, or interrupts."""
        self._tell(f"wait {mode} {start} {length}")

    def gets(self, what="granted", timeout=PATIENCE):
        answer = self._answer(timeout)
        assert answer == what, f"{self.name}: the wait ended with {answer} instead of {what}"

    def gets_any(self):
        return self._answer()

    def ends_wait(self):
        """Interrupts a wait unless it is over by now: granted, or interrupted. Again if need be: a signal that comes before
        the wait has begun is none."""
        end = time.monotonic() + PATIENCE
        while not self.command.has_line() and time.monotonic() < end:
            self.command.signal(signal.SIGUSR1)
            self.command.wait_line(1)
        return self._answer(1)

    def still_waits(self):
        assert not self.command.has_line(), f"{self.name}: the wait is over: {self.command.output!r}"

    def interrupts(self):
        self.note(f"{self.name}/{self.command.number}: a signal")
        self.command.signal(signal.SIGUSR1)
        self.gets("interrupted")

    # ---- flock: mode s or x

    def flocks(self, mode="x"):
        self._expect("granted", f"flock {mode}")

    def is_denied_flock(self, mode="x"):
        self._expect("denied", f"flock {mode}")

    def waits_flock(self, mode="x"):
        self._tell(f"flock {mode} wait")

    def unflocks(self):
        self._expect("unlocked", "flock u")

    # ---- the file

    def writes(self, text):
        self._expect("done", f"write {text}")

    def reads(self, text):
        self._expect(f"text {text}", "read")

    def closes(self):
        self._expect("closed", "close")
        self.command.end()

    def is_killed(self):
        self.note(f"{self.name}/{self.command.number}: SIGKILL")
        self.command.signal(signal.SIGKILL)
        self.command.end()
