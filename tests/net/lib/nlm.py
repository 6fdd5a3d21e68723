"""NLM (program 100021) versions 1, 3 and 4 as a client speaks it: messages, not behaviour."""

from dataclasses import dataclass, replace

from xdr import In, Out

PROGRAM = 100021
VERSIONS = (1, 3, 4)

(
    NULL, TEST, LOCK, CANCEL, UNLOCK, GRANTED,
    TEST_MSG, LOCK_MSG, CANCEL_MSG, UNLOCK_MSG, GRANTED_MSG,
    TEST_RES, LOCK_RES, CANCEL_RES, UNLOCK_RES, GRANTED_RES,
    SM_NOTIFY,
) = range(17)  # fmt: skip
SHARE, UNSHARE, NM_LOCK, FREE_ALL = range(20, 24)

(
    S_GRANTED, S_DENIED, S_NOLOCKS, S_BLOCKED, S_GRACE,
    S_DEADLCK, S_ROFS, S_STALE_FH, S_FBIG, S_FAILED,
) = range(10)  # fmt: skip

MAX64 = 2**64 - 1
EOF = 2**63 - 1  # the last byte of the largest file


@dataclass(frozen=True)
class Lock:
    """One lock as its owner writes it; every request about it is made from this."""

    fh: bytes = b"file"
    offset: int = 0
    length: int = 0
    svid: int = 1
    exclusive: bool = True
    name: str = "host"
    oh: bytes = None
    block: bool = False
    reclaim: bool = False
    state: int = 0
    cookie: bytes = b"\0\0\x12\x35"
    deny: int = 0  # SHARE
    access: int = 0

    def but(self, **changes):
        return replace(self, **changes)

    @property
    def owner(self):
        return f"{self.svid}@{self.name}".encode() if self.oh is None else self.oh

    def _range(self, out, version):
        if version == 4:
            return out.u64(self.offset).u64(self.length)
        return out.u32(self.offset).u32(self.length)

    def _alock(self, out, version):
        out.string(self.name).opaque(self.fh).opaque(self.owner).i32(self.svid)
        return self._range(out, version)

    def args(self, procedure, version=4):
        """The arguments of @procedure (its synchronous number or _MSG's)."""
        out = Out()
        if procedure == FREE_ALL:
            return out.string(self.name).i32(self.state).bytes()
        if procedure == SM_NOTIFY:
            return out.string(self.name).i32(self.state).fixed(bytes(16)).bytes()
        out.opaque(self.cookie)
        if procedure in (SHARE, UNSHARE):
            out.string(self.name).opaque(self.fh).opaque(self.owner).u32(self.deny).u32(self.access)
            return out.bool(self.reclaim).bytes()
        if procedure in (LOCK, LOCK_MSG, NM_LOCK, CANCEL, CANCEL_MSG):
            out.bool(self.block)
        if procedure not in (UNLOCK, UNLOCK_MSG):
            out.bool(self.exclusive)
        self._alock(out, version)
        if procedure in (LOCK, LOCK_MSG, NM_LOCK):
            out.bool(self.reclaim).i32(self.state)
        return out.bytes()


@dataclass(frozen=True)
class Holder:
    exclusive: bool
    svid: int
    oh: bytes
    offset: int
    length: int


@dataclass(frozen=True)
class Res:
    """What came back: for TEST denied also who holds it, for SHARE the sequence."""

    cookie: bytes
    stat: int
    holder: Holder = None
    sequence: int = None


def _get_range(message, version):
    return (message.u64(), message.u64()) if version == 4 else (message.u32(), message.u32())


def res_of(procedure, data, version=4):
    """The result of @procedure (synchronous, _MSG or _RES number), to its last byte."""
    message = In(data)
    cookie, stat, holder, sequence = message.opaque(), message.u32(), None, None
    if procedure in (TEST, TEST_MSG, TEST_RES) and stat == S_DENIED:
        exclusive, svid, oh = message.bool(), message.i32(), message.opaque()
        holder = Holder(exclusive, svid, oh, *_get_range(message, version))
    if procedure in (SHARE, UNSHARE):
        sequence = message.i32()
    message.end()
    return Res(cookie, stat, holder, sequence)


def put_res(cookie, stat):
    return Out().opaque(cookie).u32(stat).bytes()


@dataclass(frozen=True)
class Grant:
    """The arguments of GRANTED and GRANTED_MSG as a client finds them."""

    cookie: bytes
    exclusive: bool
    name: str
    fh: bytes
    oh: bytes
    svid: int
    offset: int
    length: int


def grant_of(data, version=4):
    message = In(data)
    cookie, exclusive, name = message.opaque(), message.bool(), message.string()
    fh, oh, svid = message.opaque(), message.opaque(), message.i32()
    grant = Grant(cookie, exclusive, name, fh, oh, svid, *_get_range(message, version))
    message.end()
    return grant
