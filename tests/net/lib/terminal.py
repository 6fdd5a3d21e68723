"""A program on a terminal of its own, as a person runs it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from rpc import PATIENCE


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words, namespace, rows=24, columns=80, env=None):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        with namespace:
            self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                            env=env)  # fmt: skip
        os.close(slave)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, text):
        os.write(self.master, text.encode())

    def wait(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.text:
            assert time.monotonic() < end, f"no {text!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    assert text in self.text, f"it ended: {self.text!r}"

    def end(self):
        try:
            return self.process.wait(PATIENCE)
        finally:
            os.close(self.master)
