"""Holds one thread of a process, while the others run on."""

import ctypes
import os

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # __WALL: threads, too

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request, thread):
    if _libc.ptrace(request, thread, None, None) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace: {os.strerror(ctypes.get_errno())}")


class Held:
    """Between, do not poll the Popen of this process: that would take the news which the tracer waits for."""

    def __init__(self, thread):
        self.thread = thread

    def __enter__(self):
        _ptrace(PTRACE_SEIZE, self.thread)
        _ptrace(PTRACE_INTERRUPT, self.thread)
        os.waitpid(self.thread, WALL)
        return self

    def __exit__(self, *_):
        _ptrace(PTRACE_DETACH, self.thread)
