"""A configuration that takes long to read."""

import contextlib
import os


class SlowConfig:
    """A pipe stands where the file was. The next reload reads it until go_on(); a later one finds the file again."""

    def __init__(self, config):
        self.config = config
        self.writer = None
        pipe = config + ".pipe"
        os.mkfifo(pipe)
        os.rename(config, config + ".file")
        os.rename(pipe, config)

    def is_read(self):
        """The server reads it."""
        with contextlib.suppress(OSError):  # there is no reader yet
            self.writer = os.open(self.config, os.O_WRONLY | os.O_NONBLOCK)
        return self.writer is not None

    def restore(self):
        """The file is there again; the reload that has begun still reads the pipe."""
        os.rename(self.config + ".file", self.config)

    def finish(self, text):
        os.write(self.writer, text.encode("ascii"))
        os.close(self.writer)

    def go_on(self, text):
        self.restore()
        self.finish(text)
