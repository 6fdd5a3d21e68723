"""A scripted NFS client: its own addresses, its own portmap on 111, lockd and statd.

It asks the server as the test says, and its lockd answers GRANTED by script. What its services hear is recorded;
tests wait for records, not for time.
"""

import contextlib
import threading
import time

import nlm
from rpc import (
    GARBAGE_ARGS, PATIENCE, PROC_UNAVAIL, PROG_MISMATCH, PROG_UNAVAIL,
    Service, TcpCaller, UdpCaller, auth_sys, call_message, exchange, result_of,
)  # fmt: skip
from xdr import In, Out

PORTMAP, NSM = 100000, 100024
TCP, UDP = 6, 17


class Record:
    """Everything of one kind that a host heard, in order."""

    def __init__(self):
        self.items = []
        self.changed = threading.Condition()

    def add(self, item):
        with self.changed:
            self.items.append(item)
            self.changed.notify_all()

    def matching(self, test=lambda item: True):
        with self.changed:
            return [item for item in self.items if test(item)]

    def wait(self, count=1, test=lambda item: True, timeout=PATIENCE):
        """The first @count items that pass @test, as soon as they are there."""
        end = time.monotonic() + timeout
        with self.changed:
            while True:
                found = [item for item in self.items if test(item)]
                if len(found) >= count:
                    return found[:count]
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"heard {len(found)} of {count} in {timeout} s; all: {self.items}")
                self.changed.wait(left)


class Heard:
    """A GRANTED that arrived: the call, its arguments, and whether it is the _MSG kind."""

    def __init__(self, call):
        self.call = call
        self.grant = nlm.grant_of(call.args, call.version)
        self.is_msg = call.procedure == nlm.GRANTED_MSG

    def __repr__(self):
        return f"<{'GRANTED_MSG' if self.is_msg else 'GRANTED'} {self.grant} from {self.call.peer}>"


class FakeHost:
    # Scripts: what lockd does with a GRANTED. A number is the status that it answers.
    SILENT = "silent"
    DEFER = "defer"  # the test answers by itself: host.answer(heard, stat)
    WRONG_COOKIE = "wrong cookie"
    UNKNOWN = "unknown"  # there is no such procedure

    def __init__(self, stage, namespace, number, server, name=None, lockd=("tcp", "udp"), portmap=True):
        self.stage = stage
        self.namespace = namespace
        self.number = number
        self.server = server
        self.name = name or f"client{number}"
        self.address = f"10.98.0.{10 + number}"
        self.other_address = f"10.98.1.{10 + number}"
        self.address6 = f"fd98::{10 + number:x}"
        self.script = nlm.S_GRANTED
        self.grants = Record()
        self.lookups = Record()
        self.refused_lookups = Record()  # the version of rpcbind that was asked for in vain
        self.answers = Record()  # _RES calls: (procedure, Res, call)
        self.notices = Record()  # SM_NOTIFY: (name, state)
        self._callers = {}
        self.lockd = self.statd = self.portmap = None
        self.start_lockd(lockd)
        self.statd = Service(stage, self._on_statd, ["::"], 0, namespace)
        self.has_silent_portmap = False
        self.portmap_delay = 0  # seconds before it answers
        self.portmap_versions = (2, 3, 4)
        if portmap:
            self.start_portmap()

    # Its services

    def start_lockd(self, transports=("tcp", "udp"), port=0):
        """Also again, after which it is at another port, unless @port is given."""
        if self.lockd:
            self.lockd.close()
        self.lockd = Service(
            self.stage, self._on_lockd, ["::"], port, self.namespace, tcp="tcp" in transports, udp="udp" in transports
        )

    def move_statd(self):
        """As if it alone had been started again: it is at another port."""
        self.statd.close()
        self.statd = Service(self.stage, self._on_statd, ["::"], 0, self.namespace)

    def start_portmap(self):
        self.portmap = Service(self.stage, self._on_portmap, ["::"], 111, self.namespace)

    def stop_portmap(self):
        self.portmap.close()

    def port_of(self, program, protocol):
        service = {nlm.PROGRAM: self.lockd, NSM: self.statd}.get(program)
        if not service:
            return 0
        return service.tcp_port if protocol == TCP else service.udp_port

    def _on_portmap(self, call):
        args = In(call.args)
        if call.program != PORTMAP:
            return call.answer(stat=PROG_UNAVAIL)
        if call.version not in self.portmap_versions:
            self.refused_lookups.add(call.version)
            return call.answer(stat=PROG_MISMATCH)
        if call.procedure == 0:
            return call.answer()
        if call.procedure != 3:
            return call.answer(stat=PROC_UNAVAIL)
        if call.version == 2:
            program, version, protocol = args.u32(), args.u32(), args.u32()
            self.lookups.add((2, program, version, protocol, call))
            self._answer_lookup(call, Out().u32(self.port_of(program, protocol)).bytes())
            return None
        program, version, netid = args.u32(), args.u32(), args.string()
        protocol = TCP if netid.startswith("tcp") else UDP
        self.lookups.add((call.version, program, version, protocol, call))
        port = self.port_of(program, protocol)
        host = self.address6 if netid.endswith("6") else self.address
        self._answer_lookup(call, Out().string(f"{host}.{port >> 8}.{port & 255}" if port else "").bytes())
        return None

    def _answer_lookup(self, call, results):
        if self.has_silent_portmap:
            return
        if self.portmap_delay:
            timer = threading.Timer(self.portmap_delay, self._answer_late, (call, results))
            timer.daemon = True
            timer.start()
        else:
            call.answer(results)

    @staticmethod
    def _answer_late(call, results):
        with contextlib.suppress(OSError):  # the caller may be gone
            call.answer(results)

    def _on_lockd(self, call):
        if call.program != nlm.PROGRAM or call.version not in nlm.VERSIONS:
            return call.answer(stat=PROG_UNAVAIL)
        if call.procedure == nlm.NULL:
            return call.answer()
        if call.procedure in (nlm.GRANTED, nlm.GRANTED_MSG):
            return self._on_granted(call)
        if nlm.TEST_RES <= call.procedure <= nlm.GRANTED_RES:
            self.answers.add((call.procedure, nlm.res_of(call.procedure, call.args, call.version), call))
            return call.answer()
        return call.answer(stat=PROC_UNAVAIL)

    def _on_granted(self, call):
        try:
            heard = Heard(call)
        except Exception:
            call.answer(stat=GARBAGE_ARGS)
            raise
        script = self.script(heard) if callable(self.script) else self.script
        self.grants.add(heard)
        if script == self.WRONG_COOKIE:
            self.answer(heard, nlm.S_GRANTED, bytes(len(heard.grant.cookie)))
        elif script == self.UNKNOWN:
            call.answer(stat=PROC_UNAVAIL)
        elif isinstance(script, int):
            self.answer(heard, script)

    @property
    def granted_calls(self):
        """What came as GRANTED, each call once: over UDP it is sent again after 300 ms, which a busy machine takes to answer."""
        calls = {}
        for heard in self.grants.matching():
            calls.setdefault((heard.call.peer, heard.call.xid), heard)
        return list(calls.values())

    def answer(self, heard, stat, cookie=None):
        """Inline for GRANTED; for GRANTED_MSG an empty reply, and then GRANTED_RES to the server's lock manager."""
        results = nlm.put_res(heard.grant.cookie if cookie is None else cookie, stat)
        if not heard.is_msg:
            heard.call.answer(results)
            return
        heard.call.answer()
        self.send_granted_res(results, heard.call.version)

    def send_granted_res(self, results, version=4, server=None):
        """One-way, from a socket of its own, as Linux does."""
        caller = UdpCaller((server or self.server, 2049), (self.address, 0), self.namespace)
        caller.send(call_message(nlm.PROGRAM, version, nlm.GRANTED_RES, results))
        caller.close()

    def _on_statd(self, call):
        if call.program != NSM:
            return call.answer(stat=PROG_UNAVAIL)
        if call.procedure == 6:
            args = In(call.args)
            self.notices.add((args.string(), args.i32()))
        return call.answer()

    # Its requests

    def caller(self, transport="tcp", server=None, local=None, port=2049, reserved=False):
        """A connection or socket to the server, kept for the next time."""
        server = server or self.server
        if local is None:
            local = self.address6 if ":" in server else self.address
        key = (transport, server, local, port, reserved)
        if key not in self._callers:
            kind = TcpCaller if transport == "tcp" else UdpCaller
            self._callers[key] = kind((server, port), (local, 0), self.namespace, reserved)
        return self._callers[key]

    def drop_callers(self):
        for caller in self._callers.values():
            caller.close()
        self._callers.clear()

    def call(self, procedure, args, version=4, transport="tcp", program=nlm.PROGRAM, timeout=PATIENCE, **where):
        """The raw results of a synchronous call."""
        message = call_message(program, version, procedure, args, cred=auth_sys(self.name))
        return exchange(self.caller(transport, **where), message, timeout)

    def lock_of(self, fh, offset=0, length=0, svid=1, **more):
        """A lock of this host's."""
        return nlm.Lock(**{"fh": fh, "offset": offset, "length": length, "svid": svid, "name": self.name, **more})

    def ask(self, procedure, lock, version=4, transport="tcp", **where):
        results = self.call(procedure, lock.args(procedure, version), version, transport, **where)
        return nlm.res_of(procedure, results, version)

    def ask_together(self, calls, transport="tcp"):
        """Several at once, (procedure, lock) each, without waiting for replies: their statuses, in order of the calls;
        None for those without results."""
        caller = self.caller(transport)
        cred = auth_sys(self.name)
        messages = [call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure), cred=cred) for procedure, lock in calls]
        caller.send_together(messages)
        replies = {reply[:4]: result_of(reply) for reply in (caller.receive() for _ in messages)}
        results = [(procedure, replies[message[:4]]) for (procedure, _), message in zip(calls, messages)]
        return [nlm.res_of(procedure, result).stat if result else None for procedure, result in results]

    def lock(self, lock, **how):
        return self.ask(nlm.LOCK, lock, **how).stat

    def unlock(self, lock, **how):
        return self.ask(nlm.UNLOCK, lock, **how).stat

    def cancel(self, lock, **how):
        return self.ask(nlm.CANCEL, lock, **how).stat

    def test(self, lock, **how):
        return self.ask(nlm.TEST, lock, **how)

    def share(self, lock, **how):
        return self.ask(nlm.SHARE, lock, **how).stat

    def unshare(self, lock, **how):
        return self.ask(nlm.UNSHARE, lock, **how).stat

    def free_all(self, name=None, state=0, **how):
        lock = nlm.Lock(name=self.name if name is None else name, state=state)
        return self.call(nlm.FREE_ALL, lock.args(nlm.FREE_ALL), **how)

    def wait_granted(self, lock, count=1, timeout=PATIENCE):
        """Waits until the server has told this host that it has @lock; gives the (first @count) calls."""
        wanted = lambda heard: (heard.grant.fh, heard.grant.svid) == (lock.fh, lock.svid)
        return self.grants.wait(count, wanted, timeout)[-1]

    def close(self):
        self.drop_callers()
        for service in (self.lockd, self.statd, self.portmap):
            if service:
                service.close()
