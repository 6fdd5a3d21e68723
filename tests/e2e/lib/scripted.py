"""A scripted client of a storm: a host with Debian's rpcbind and rpc.statd, and a lock manager that this file plays.

It does as a kernel does: asks its own statd to watch the server before its first lock, hears of a restart from statd alone,
reclaims then, and repeats what got no answer.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import nlm
import nsm
from fakehost import FakeHost, NSM, Record
from guest import PATIENCE, die_with_parent
from ledger import FILES, SLOT, Actor
from rpcbind import Rpcbind
from rpc import NoReply, Refused, UdpCaller, call_message, exchange
from until import comes, insist, lapse, until
from xdr import In, Out

WITH_OWN_NAME = 'mount -t tmpfs tmpfs /run && hostname "$0" && exec "$@"'
STATD_PORT = 4045
TCP, UDP = 6, 17


class Lost(Exception):
    """No answer: it may have been done or not."""


class Host(FakeHost):
    def __init__(self, stage, namespace, number, server):
        self.restarts = Record()
        self.directory = tempfile.mkdtemp(prefix="hf-storm-")
        self.processes = []
        super().__init__(stage, namespace, number, server, name=f"scripted{number}", portmap=False)
        self.statd.close()
        self.statd = None
        for name in ("sm", "sm.bak"):
            os.mkdir(os.path.join(self.directory, name))
        with open(os.path.join(self.directory, "state"), "wb") as state:
            state.write((3).to_bytes(4, sys.byteorder))
        self.rpcbind = Rpcbind(namespace, lambda text: None)
        self.rpcbind.starts()
        self._register()
        self.watcher = None
        self.start_statd()

    def _spawn(self, program, *words):
        with open(os.path.join(self.directory, "log"), "ab") as log, self.namespace:
            process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "sh", "-c", WITH_OWN_NAME, self.name, program, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def _local(self, port, program, version, procedure, args=b"", timeout=PATIENCE):
        caller = UdpCaller(("127.0.0.1", port), ("127.0.0.1", 0), self.namespace, reserved=True)
        try:
            return exchange(caller, call_message(program, version, procedure, args), timeout)
        finally:
            caller.close()

    def _register(self):
        for version in (3, 4):
            for protocol, port in ((TCP, self.lockd.tcp_port), (UDP, self.lockd.udp_port)):
                args = Out().u32(nlm.PROGRAM).u32(version).u32(protocol).u32(port).bytes()
                assert In(self._local(111, 100000, 2, 1, args)).u32() == 1, "rpcbind does not register our lock manager"

    def start_statd(self):
        self.watcher = self._spawn("rpc.statd", "-F", "-d", "--no-notify", "-P", self.directory, "-p", str(STATD_PORT),
                                   "-n", self.name)  # fmt: skip
        until(self._is_watching, f"statd of {self.name} has started", PATIENCE, more=lambda: self.log[-500:])

    def _is_watching(self):
        try:
            self._local(STATD_PORT, NSM, 1, 0, timeout=0.1)
            return True
        except (NoReply, OSError):
            return False

    @property
    def state(self):
        with open(os.path.join(self.directory, "state"), "rb") as state:
            return int.from_bytes(state.read(4), sys.byteorder)

    def monitor(self):
        """SM_MON for the server, as a kernel has it before its first lock."""
        args = Out().string(self.server).string(self.name).u32(nlm.PROGRAM).u32(3).u32(nlm.SM_NOTIFY).fixed(bytes(16))
        results = In(self._local(STATD_PORT, NSM, 1, nsm.MON, args.bytes()))
        assert results.u32() == nsm.SUCC, f"{self.name}: statd does not watch the server"

    def reboots(self):
        """All but rpcbind starts anew, in the order of a boot: statd must not have the state of the boot before. The one
        that tells the server, for the caller to wait for."""
        self.watcher.kill()
        self.watcher.wait()
        return self._spawn("sm-notify", "-f", "-d", "-P", self.directory)

    @property
    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def _on_lockd(self, call):
        if call.program == nlm.PROGRAM and call.procedure == nlm.SM_NOTIFY:
            self.restarts.add(nsm.status_of(call).state)
            return call.answer()
        return super()._on_lockd(call)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.rpcbind.is_killed()
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Scripted(Actor):
    def __init__(self, host, handles, ledger, seed):
        super().__init__(host.name, ledger, seed)
        self.host = host
        self.handles = handles
        self.guard = threading.Lock()
        self.svid = 0  # a new one for each lock: a grant that comes late must not be taken for another
        self.svids = {}  # key -> svid
        self.waiting = None  # (key, exclusive, svid)
        self.seen_restarts = 0
        self.counts = {"locked": 0, "granted": 0, "refused": 0, "reclaimed": 0, "reboots": 0}
        host.script = self.on_granted
        self.state = host.state
        host.monitor()

    # ---- asking

    def lock_of(self, key, exclusive, svid, **more):
        more = {"exclusive": exclusive, "state": self.state, **more}
        return self.host.lock_of(self.handles[key[0]], key[1] * SLOT, SLOT, svid, **more)

    def ask(self, procedure, lock):
        try:
            return self.host.ask(procedure, lock).stat
        except (OSError, EOFError, NoReply):
            self.host.drop_callers()
            raise Lost from None
        except Refused as refusal:
            self.ledger.wrong(f"{self.name}: procedure {procedure}: {refusal!r}")
            raise Lost from None

    def insist(self, procedure, lock):
        answer = insist(lambda: self.ask(procedure, lock), Lost, lambda: self.is_over)
        if answer is None:
            raise Lost
        return answer

    # ---- acting

    def owner(self, svid):
        return f"{self.name}/{svid}"

    def act(self):
        dice = self.random.random()
        if dice < 0.45 and self.svids:
            self.give_back(self.random.choice(list(self.svids)))
        else:
            self.try_lock(block=self.random.random() < 0.5)
        lapse(self.random.uniform(0.01, 0.2))  # its pace

    def try_lock(self, block):
        key, exclusive = self.pick(), self.random.random() < 0.6
        if key in self.svids:
            return
        self.svid += 1
        svid = self.svid
        with self.guard:
            self.waiting = (key, exclusive, svid) if block else None
        try:
            stat = self.ask(nlm.LOCK, self.lock_of(key, exclusive, svid, block=block))
        except Lost:
            self.forget(key, svid)
            return
        if stat == nlm.S_GRANTED:
            self.has(key, exclusive, svid)
            self.counts["locked"] += 1
        elif stat == nlm.S_BLOCKED and block:
            self.wait(key, exclusive, svid)
        elif stat in (nlm.S_DENIED, nlm.S_GRACE, nlm.S_DEADLCK):
            self.counts["refused"] += 1
            with self.guard:
                self.waiting = None
        else:
            self.ledger.wrong(f"{self.name}: LOCK answers {stat}")

    def has(self, key, exclusive, svid):
        with self.guard:
            self.waiting = None
            if key not in self.svids:
                self.svids[key] = svid
                self.ledger.take(self.owner(svid), key, exclusive)

    def on_granted(self, heard):
        key = self.file_of(heard.grant.fh), heard.grant.offset // SLOT
        with self.guard:
            if not self.waiting or (self.waiting[0], self.waiting[2]) != (key, heard.grant.svid):
                return nlm.S_DENIED
            self.svids[key] = self.waiting[2]
            self.ledger.take(self.owner(self.waiting[2]), key, self.waiting[1])
            self.waiting = None
            self.counts["granted"] += 1
            return nlm.S_GRANTED

    def file_of(self, handle):
        return next(name for name in FILES if self.handles[name] == handle)

    def wait(self, key, exclusive, svid):
        """Asks again now and then, as a kernel does: the server may have been restarted and know of no waiter."""
        end = time.monotonic() + self.random.uniform(0.05, 3)
        is_over = lambda: not self.waiting or self.attend()
        while not comes(is_over, min(1, end - time.monotonic())) and time.monotonic() < end:
            try:
                if self.ask(nlm.LOCK, self.lock_of(key, exclusive, svid, block=True)) == nlm.S_GRANTED:
                    self.has(key, exclusive, svid)
            except Lost:
                pass
        with self.guard:
            has_given_up = self.waiting is not None
            self.waiting = None
        if has_given_up:
            self.insist(nlm.CANCEL, self.lock_of(key, exclusive, svid, block=True))
            self.forget(key, svid)

    def forget(self, key, svid):
        """Whether it is held, waited for or neither: afterwards it is neither."""
        with self.guard:
            self.waiting = None
            self.svids.pop(key, None)
            self.ledger.give(self.owner(svid), key)
        self.insist(nlm.UNLOCK, self.lock_of(key, True, svid))

    def give_back(self, key):
        self.forget(key, self.svids[key])

    # ---- what must be done

    def attend(self):
        if super().attend():
            return True
        n = len(self.host.restarts.items)
        if n == self.seen_restarts:
            return False
        self.reclaim(n)
        return True

    def reclaim(self, n):
        for key, svid in list(self.svids.items()):
            exclusive = self.ledger.of(self.owner(svid)).get(key)
            stat = self.insist(nlm.LOCK, self.lock_of(key, exclusive, svid, reclaim=True))
            if len(self.host.restarts.items) != n:
                return  # it was restarted again: from the start
            if stat != nlm.S_GRANTED:
                self.ledger.wrong(f"{self.name}: may not reclaim {key}: {stat}")
                self.ledger.give(self.owner(svid), key)
                self.svids.pop(key)
            self.counts["reclaimed"] += 1
        self.seen_restarts = n

    def go_down_and_up(self):
        with self.guard:
            self.waiting = None
            for key, svid in self.svids.items():
                self.ledger.give(self.owner(svid), key)
            self.svids.clear()
        self.host.drop_callers()
        seen = len(self.host.log)
        notify = self.host.reboots()
        until(lambda: notify.poll() is not None, "sm-notify has ended", PATIENCE, more=lambda: self.host.log[-500:])
        assert f"Host {self.host.server} notified successfully" in self.host.log[seen:], self.host.log[seen:]
        self.state = self.host.state
        self.host.start_statd()
        self.host.monitor()
        self.counts["reboots"] += 1
