#!/usr/bin/env python3
"""Runs a program on a host without IPv6, as far as it can tell: noipv6.py PROGRAM ARGUMENT...

A kernel booted with ipv6.disable=1 refuses such sockets with EAFNOSUPPORT; here a filter of system calls does.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
SOCKET_CALL = {"x86_64": 41, "aarch64": 198}
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
AT_CALL, AT_FIRST_ARGUMENT = 0, 16  # of struct seccomp_data


class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def forbid():
    steps = [
        (LOAD, 0, 0, AT_CALL),
        (EQUAL, 0, 3, SOCKET_CALL[platform.machine()]),
        (LOAD, 0, 0, AT_FIRST_ARGUMENT),
        (EQUAL, 0, 1, socket.AF_INET6),
        (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)
    ):
        sys.exit(f"noipv6: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    forbid()
    os.execv(sys.argv[1], sys.argv[1:])
