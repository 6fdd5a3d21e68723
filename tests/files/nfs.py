"""NFSv3 and MOUNT as a client speaks them (RFC 1813), for tests. Every decoder reads to the very end of a reply, so a
field too many or too few fails the test that asked.
"""

import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net", "lib"))

from rpc import AUTH_NONE, TcpCaller, UdpCaller, auth_sys, call_message, exchange  # noqa: E402
from until import comes  # noqa: E402
from xdr import In, Out  # noqa: E402

NFS, MOUNT = 100003, 100005

(
    NULL, GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME,
    LINK, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF, COMMIT,
) = range(22)  # fmt: skip

OK, PERM, NOENT, IO, NXIO, ACCES, EXIST, XDEV, NODEV, NOTDIR, ISDIR, INVAL, FBIG, NOSPC, ROFS, MLINK = (
    0, 1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31)  # fmt: skip
NAMETOOLONG, NOTEMPTY, DQUOT, STALE, REMOTE = 63, 66, 69, 70, 71
BADHANDLE, NOT_SYNC, BAD_COOKIE, NOTSUPP, TOOSMALL, SERVERFAULT, BADTYPE, JUKEBOX = range(10001, 10009)

REG, DIR, BLK, CHR, LNK, SOCK, FIFO = range(1, 8)
UNCHECKED, GUARDED, EXCLUSIVE = range(3)
UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
NOW = "now"  # a time: the server's


def sattr(mode=None, uid=None, gid=None, size=None, atime=None, mtime=None):
    out = Out()
    for value in (mode, uid, gid):
        out.bool(value is not None)
        if value is not None:
            out.u32(value)
    out.bool(size is not None)
    if size is not None:
        out.u64(size)
    for time in (atime, mtime):
        out.u32(0 if time is None else 1 if time == NOW else 2)
        if time is not None and time != NOW:
            out.u32(time[0]).u32(time[1])
    return out.bytes()


def _time(data):
    return data.u32(), data.u32()


def _fattr(data):
    attr = types.SimpleNamespace()
    attr.type, attr.mode, attr.nlink, attr.uid, attr.gid = (data.u32() for _ in range(5))
    attr.size, attr.used = data.u64(), data.u64()
    attr.rdev = data.u32(), data.u32()
    attr.fsid, attr.fileid = data.u64(), data.u64()
    attr.atime, attr.mtime, attr.ctime = _time(data), _time(data), _time(data)
    return attr


def _post_op(data):
    return _fattr(data) if data.bool() else None


def _wcc(data):
    before = (data.u64(), _time(data), _time(data)) if data.bool() else None
    return types.SimpleNamespace(before=before, after=_post_op(data))


def _post_op_fh(data):
    return data.opaque() if data.bool() else None


class Client:
    """One caller: a connection (or a datagram socket) and an identity."""

    def __init__(self, port, uid=0, gid=0, gids=(), udp=False, cred=None, reserved=False, remote="127.0.0.1",
                 local="127.0.0.1"):  # fmt: skip
        self.port = port
        where = {"remote": (remote, port), "local": (local, 0), "reserved": reserved}
        self.caller = UdpCaller(**where) if udp else TcpCaller(**where)
        self.cred = cred or auth_sys("client", uid, gid, gids)

    def close(self):
        self.caller.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, program, version, procedure, args=b"", xid=None):
        return In(exchange(self.caller, call_message(program, version, procedure, args, xid=xid, cred=self.cred)))

    # MOUNT

    def mnt(self, path, version=3):
        data = self.call(MOUNT, version, 1, Out().string(path).bytes())
        stat = data.u32()
        fh, flavours = None, []
        if stat == 0 and version == 3:
            fh = data.opaque()
            flavours = [data.u32() for _ in range(data.u32())]
        elif stat == 0:
            fh = data.fixed(32)
        data.end()
        return types.SimpleNamespace(stat=stat, fh=fh, flavours=flavours)

    def root(self, path):
        answer = self.mnt(path)
        assert answer.stat == 0, answer
        return answer.fh

    def umnt(self, path, version=3):
        self.call(MOUNT, version, 3, Out().string(path).bytes()).end()

    def umntall(self, version=3):
        self.call(MOUNT, version, 4).end()

    def dump(self, version=3):
        data, found = self.call(MOUNT, version, 2), []
        while data.bool():
            found.append((data.string(), data.string()))
        data.end()
        return found

    def exports(self, version=3, procedure=5):
        data, found = self.call(MOUNT, version, procedure), {}
        while data.bool():
            name, groups = data.string(), []
            while data.bool():
                groups.append(data.string())
            found[name] = groups
        data.end()
        return found

    # NFS

    def call_patiently(self, procedure, args, xid):
        """As clients do, again when told to try later: for HF_TEST_PATIENCE seconds, none if there is no such word."""
        answers = []

        def is_served():
            data = self.call(NFS, 3, procedure, args, xid)
            answers.append(data)
            return data.data[data.at : data.at + 4] != JUKEBOX.to_bytes(4, "big")

        comes(is_served, float(os.environ.get("HF_TEST_PATIENCE", "0")), pause=0.1)
        return answers[-1]

    def nfs(self, procedure, args, on_ok, on_error, xid=None):
        """The answer: its status, and what @on_ok or @on_error read of it."""
        data = self.call_patiently(procedure, args, xid)
        answer = types.SimpleNamespace(stat=data.u32())
        for name, read in on_ok if answer.stat == OK else on_error:
            setattr(answer, name, read(data))
        data.end()
        return answer

    def getattr(self, fh):
        return self.nfs(GETATTR, Out().opaque(fh).bytes(), [("attr", _fattr)], [])

    def setattr(self, fh, guard=None, xid=None, **attrs):
        args = Out().opaque(fh).bytes() + sattr(**attrs)
        args += Out().bool(guard is not None).bytes()
        if guard is not None:
            args += Out().u32(guard[0]).u32(guard[1]).bytes()
        return self.nfs(SETATTR, args, [("wcc", _wcc)], [("wcc", _wcc)], xid)

    def lookup(self, fh, name):
        return self.nfs(
            LOOKUP, Out().opaque(fh).opaque(name).bytes(),
            [("fh", In.opaque), ("attr", _post_op), ("dir", _post_op)], [("dir", _post_op)])  # fmt: skip

    def access(self, fh, bits=0x3F):
        return self.nfs(
            ACCESS, Out().opaque(fh).u32(bits).bytes(), [("attr", _post_op), ("bits", In.u32)], [("attr", _post_op)])

    def readlink(self, fh):
        return self.nfs(
            READLINK, Out().opaque(fh).bytes(), [("attr", _post_op), ("text", In.opaque)], [("attr", _post_op)])

    def read(self, fh, offset=0, count=65536):
        return self.nfs(
            READ, Out().opaque(fh).u64(offset).u32(count).bytes(),
            [("attr", _post_op), ("count", In.u32), ("eof", In.bool), ("data", In.opaque)],
            [("attr", _post_op)])  # fmt: skip

    def write(self, fh, data, offset=0, stable=FILE_SYNC, count=None):
        count = len(data) if count is None else count
        return self.nfs(
            WRITE, Out().opaque(fh).u64(offset).u32(count).u32(stable).opaque(data).bytes(),
            [("wcc", _wcc), ("count", In.u32), ("committed", In.u32), ("verifier", In.u64)],
            [("wcc", _wcc)])  # fmt: skip

    _MADE = [("fh", _post_op_fh), ("attr", _post_op), ("wcc", _wcc)]

    def create(self, fh, name, how=UNCHECKED, verifier=None, xid=None, **attrs):
        args = Out().opaque(fh).opaque(name).u32(how).bytes()
        args += verifier if how == EXCLUSIVE else sattr(**attrs)
        return self.nfs(CREATE, args, self._MADE, [("wcc", _wcc)], xid)

    def mkdir(self, fh, name, xid=None, **attrs):
        return self.nfs(
            MKDIR, Out().opaque(fh).opaque(name).bytes() + sattr(**attrs), self._MADE, [("wcc", _wcc)], xid)

    def symlink(self, fh, name, target, **attrs):
        args = Out().opaque(fh).opaque(name).bytes() + sattr(**attrs) + Out().opaque(target).bytes()
        return self.nfs(SYMLINK, args, self._MADE, [("wcc", _wcc)])

    def mknod(self, fh, name, kind, device=None, **attrs):
        args = Out().opaque(fh).opaque(name).u32(kind).bytes()
        if kind in (CHR, BLK, SOCK, FIFO):
            args += sattr(**attrs)
        if kind in (CHR, BLK):
            args += Out().u32(device[0]).u32(device[1]).bytes()
        return self.nfs(MKNOD, args, self._MADE, [("wcc", _wcc)])

    def remove(self, fh, name, xid=None):
        return self.nfs(REMOVE, Out().opaque(fh).opaque(name).bytes(), [("wcc", _wcc)], [("wcc", _wcc)], xid)

    def rmdir(self, fh, name):
        return self.nfs(RMDIR, Out().opaque(fh).opaque(name).bytes(), [("wcc", _wcc)], [("wcc", _wcc)])

    def rename(self, fh, name, to_fh, to_name):
        both = [("wcc", _wcc), ("to_wcc", _wcc)]
        args = Out().opaque(fh).opaque(name).opaque(to_fh).opaque(to_name).bytes()
        return self.nfs(RENAME, args, both, both)

    def link(self, fh, dir_fh, name):
        both = [("attr", _post_op), ("wcc", _wcc)]
        return self.nfs(LINK, Out().opaque(fh).opaque(dir_fh).opaque(name).bytes(), both, both)

    @staticmethod
    def _entries(plus):
        def read(data):
            found = []
            while data.bool():
                entry = types.SimpleNamespace(fileid=data.u64(), name=data.opaque(), cookie=data.u64())
                if plus:
                    entry.attr, entry.fh = _post_op(data), _post_op_fh(data)
                found.append(entry)
            return found

        return [("dir", _post_op), ("verifier", In.u64), ("entries", read), ("eof", In.bool)]

    def readdir(self, fh, cookie=0, verifier=0, count=4096):
        args = Out().opaque(fh).u64(cookie).u64(verifier).u32(count).bytes()
        return self.nfs(READDIR, args, self._entries(False), [("dir", _post_op)])

    def readdirplus(self, fh, cookie=0, verifier=0, dircount=4096, maxcount=32768):
        args = Out().opaque(fh).u64(cookie).u64(verifier).u32(dircount).u32(maxcount).bytes()
        return self.nfs(READDIRPLUS, args, self._entries(True), [("dir", _post_op)])

    def fsstat(self, fh):
        words = [(name, In.u64) for name in ("tbytes", "fbytes", "abytes", "tfiles", "ffiles", "afiles")]
        return self.nfs(
            FSSTAT, Out().opaque(fh).bytes(), [("attr", _post_op), *words, ("invarsec", In.u32)], [("attr", _post_op)])

    def fsinfo(self, fh):
        words = [(name, In.u32) for name in ("rtmax", "rtpref", "rtmult", "wtmax", "wtpref", "wtmult", "dtpref")]
        last = [("maxfilesize", In.u64), ("time_delta", _time), ("properties", In.u32)]
        return self.nfs(FSINFO, Out().opaque(fh).bytes(), [("attr", _post_op), *words, *last], [("attr", _post_op)])

    def pathconf(self, fh):
        words = [("linkmax", In.u32), ("name_max", In.u32)]
        flags = [(name, In.bool) for name in ("no_trunc", "chown_restricted", "case_insensitive", "case_preserving")]
        return self.nfs(PATHCONF, Out().opaque(fh).bytes(), [("attr", _post_op), *words, *flags], [("attr", _post_op)])

    def commit(self, fh, offset=0, count=0):
        args = Out().opaque(fh).u64(offset).u32(count).bytes()
        return self.nfs(COMMIT, args, [("wcc", _wcc), ("verifier", In.u64)], [("wcc", _wcc)])


ANONYMOUS = (AUTH_NONE, b"")
