"""A disk that can die: a file system of one file, served by a thread of this process (FUSE). While it is dead it does not
read requests. A process that sends one waits until the disk lives again or is closed, or until the process is killed.
(Once the disk had read the request, the process could not be killed.)

It is mounted in a mount namespace that this process makes for itself, so that it goes with the process, whatever happens.
"""

import ctypes
import errno
import os
import select
import stat
import struct
import threading

CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 0x40000, 2
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, OPENDIR, RELEASEDIR, ACCESS, BATCH_FORGET = 26, 27, 29, 34, 42
ROOT, FILE = 1, 2
TEXT = b"text"
_libc = ctypes.CDLL(None, use_errno=True)


def why_not():
    """None, or why there can be none here. The process is in another mount namespace after that."""
    if not os.path.exists("/dev/fuse"):
        return "no FUSE here"
    if _libc.unshare(CLONE_NEWNS) < 0 or _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) < 0:
        return "no mount namespaces here"
    return None


def _attr(node):
    is_dir = node == ROOT
    mode = stat.S_IFDIR | 0o777 if is_dir else stat.S_IFREG | 0o666
    return struct.pack("=6Q10I", node, 0 if is_dir else len(TEXT), 0, 0, 0, 0,
                       0, 0, 0, mode, 2 if is_dir else 1, 0, 0, 0, 4096, 0)  # fmt: skip


class FuseDisk:
    """At @path, a directory, with the file "f" in it. @keeps_root: the kernel does not ask for the attributes of @path again,
    so that a process may look at it while the disk is dead."""

    def __init__(self, path, keeps_root=False):
        self.path = path
        self.keeps_root = keeps_root
        self.is_dead = False
        self.was_asked = threading.Event()  # since it died
        self.wake = os.pipe()
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        if _libc.mount(b"hf-disk", os.fsencode(path), b"fuse", 0, options.encode()) < 0:
            os.close(self.fd)
            raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")
        self.server = threading.Thread(target=self._serve, daemon=True)
        self.server.start()
        os.stat(path)  # so the kernel has asked all that it asks by itself

    def die(self):
        self.was_asked.clear()
        self.is_dead = True

    def live(self):
        self.is_dead = False
        os.write(self.wake[1], b"!")

    def close(self):
        """Unmounts it; all processes that wait for it are told that it is no more."""
        if self.fd < 0:
            return
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            number = next(line.split()[2] for line in mounts if f" {self.path} " in line)
        self._abort(number.split(":")[1])
        _libc.umount2(os.fsencode(self.path), MNT_DETACH)
        self.server.join()
        for fd in (self.fd, *self.wake):
            os.close(fd)
        self.fd = -1

    @staticmethod
    def _abort(minor):
        """Ends the connection, though a process may still have a file open on it."""
        control = "/sys/fs/fuse/connections"
        if not os.path.exists(f"{control}/{minor}"):
            _libc.mount(b"none", control.encode(), b"fusectl", 0, None)
        with open(f"{control}/{minor}/abort", "wb", buffering=0) as abort:
            abort.write(b"1")

    def _await(self):
        """Something to serve; False: it is closed."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.register(self.wake[0], select.POLLIN)
        while True:
            events = dict(poll.poll())
            if events.get(self.fd, 0) & select.POLLERR:
                return False
            if self.wake[0] in events:
                os.read(self.wake[0], 1)
                poll.modify(self.fd, select.POLLIN)
            elif not self.is_dead:
                return True
            else:
                self.was_asked.set()
                poll.modify(self.fd, 0)  # until it lives, or its end

    def _serve(self):
        while self._await():
            try:
                request = os.read(self.fd, 1 << 18)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, opcode, unique, node = struct.unpack_from("=IIQQ", request)
            if opcode in (FORGET, BATCH_FORGET):
                continue
            error, body = self._answer(opcode, node, request[40:])
            os.write(self.fd, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)

    def _answer(self, opcode, node, body):
        if opcode == INIT:
            return 0, struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 16, 0, *[0] * 8)
        if opcode == GETATTR:
            return 0, struct.pack("=QII", 3600 if node == ROOT and self.keeps_root else 0, 0, 0) + _attr(node)
        if opcode == LOOKUP:
            child = {b".": node, b"..": ROOT, b"f": FILE}.get(body.rstrip(b"\0"))
            if not child:
                return errno.ENOENT, b""
            return 0, struct.pack("=4Q2I", child, 0, 0, 0, 0, 0) + _attr(child)
        if opcode in (OPEN, OPENDIR):
            return 0, struct.pack("=QII", 0, 0, 0)
        if opcode == READ:
            offset, size = struct.unpack_from("=QI", body, 8)
            return 0, TEXT[offset : offset + size]
        if opcode == STATFS:
            return 0, struct.pack("=5Q10I", 100, 100, 100, 100, 100, 4096, 255, 4096, 0, *[0] * 6)
        if opcode in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
            return 0, b""
        return errno.ENOSYS, b""
