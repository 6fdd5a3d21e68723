"""What is done to the server in a round of the torture; each returns when service has gone on."""

import ctypes
import os
import resource
import signal
import subprocess

import nlm
from player import Violation
from rpc import NoReply, Refused
from until import lapse

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
HOG_LOCKS = 400  # with owner handles of this many bytes
HOG_OH = 1000


class Fault:
    """The daemon is killed with SIGKILL; every other one is made of this."""

    settings = ()
    needs_database = False
    is_wire_bad = False

    def __init__(self, torture):
        self.torture = torture
        self.random = torture.random

    @staticmethod
    def why_not(program):
        """None, or why it cannot be done here."""
        return None

    def prepare(self):
        """Before the daemon is started for the first time."""

    def strike(self):
        self.torture.kill_and_reclaim()

    def close(self):
        pass

    # For those that leave the daemon alive

    @property
    def pid(self):
        return self.torture.daemon.process.pid

    def short_while(self):
        lapse(self.random.uniform(0.005, 0.08))  # an outage of any length

    def go_on(self, killed=0.3):
        """It lives, and serves as before; and sometimes it is killed then, to see what is stored."""
        torture = self.torture
        if torture.daemon.process.poll() is not None:
            raise Violation(f"it has ended: {torture.daemon.process.returncode}")
        before = torture.n_locked()
        torture.wait(lambda: torture.n_locked() > before + 10, "service goes on")
        if self.random.random() < killed:
            torture.kill_and_reclaim(may_be_twice=False)


class Database(Fault):
    """PostgreSQL is killed, all its processes at once, and started again."""

    needs_database = True

    def strike(self):
        self.torture.cluster.kill()
        self.short_while()
        self.torture.cluster.start()
        before = self.torture.n_locked()
        self.torture.wait(lambda: self.torture.n_locked() > before + 10, "service goes on")


class Hang(Fault):
    """PostgreSQL stands still for a while."""

    needs_database = True

    def strike(self):
        self.torture.cluster.signal(signal.SIGSTOP)
        self.short_while()
        self.torture.cluster.signal(signal.SIGCONT)
        self.go_on()


class Wire(Fault):
    """Packets are lost, late, doubled and out of order, and the daemon is killed."""

    settings = ("recovery.notify_timeout_ms=5000",)
    is_wire_bad = True

    @staticmethod
    def why_not(program):
        return None if os.path.exists("/dev/net/tun") else "no /dev/net/tun here"

    def strike(self):
        self.torture.wire.set_quality(loss=0.02, delay=(0, 0.003), doubled=0.02)
        self.short_while()
        try:
            self.torture.kill_and_reclaim(may_be_twice=False)
        finally:
            self.torture.wire.set_quality()


class Disk(Fault):
    """The disk of the state directory is full for a while."""

    @staticmethod
    def why_not(program):
        # In a mount namespace of this process's own, so that the disk goes with the process, whatever happens.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) < 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) < 0:
            return "no mount namespaces here"
        return None

    def prepare(self):
        self.state = os.path.join(self.torture.daemon.state_dir, "state")
        os.mkdir(self.state)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", self.state], check=True)

    def strike(self):
        filler = os.path.join(self.state, "filler")
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        hog(self.torture.stranger)
        self.short_while()
        os.unlink(filler)
        self.torture.free_stranger()
        self.go_on(killed=0.6)  # a store that fails often is tried less and less often; a new daemon's is not

    def close(self):
        subprocess.run(["umount", "-l", self.state], check=False)


class Limit(Fault):
    """A limit of the daemon's is set to what it uses now."""

    resource = None

    def now(self):
        raise NotImplementedError

    def pressure(self):
        raise NotImplementedError

    def relief(self):
        """When there is enough again."""

    def strike(self):
        before = resource.prlimit(self.pid, self.resource)
        resource.prlimit(self.pid, self.resource, (self.now(), before[1]))
        try:
            self.pressure()
            self.short_while()
        finally:
            if self.torture.daemon.process.poll() is None:
                resource.prlimit(self.pid, self.resource, before)
        self.relief()
        self.go_on()


class Descriptors(Limit):
    """No file descriptor is left, and every client connects anew."""

    resource = resource.RLIMIT_NOFILE

    def now(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def pressure(self):
        for player in self.torture.players:
            player.wants_new_connection = True
        self.torture.stranger.drop_callers()


class Memory(Limit):
    """No memory is left, and a stranger takes many locks with long owner handles."""

    resource = resource.RLIMIT_AS
    ROOM = 256 << 10

    @staticmethod
    def why_not(program):
        with open(program, "rb") as file:
            return "a sanitizer needs all the addresses there are" if b"__asan_init" in file.read() else None

    def now(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE") + self.ROOM

    def pressure(self):
        hog(self.torture.stranger)

    def relief(self):
        # Not before: the server answers FREE_ALL when it is stored, for which there may be no memory either.
        self.torture.free_stranger()


def hog(stranger):
    """The stranger takes locks until one is refused."""
    try:
        for i in range(HOG_LOCKS):
            lock = stranger.lock_of(b"hog", i, 1, svid=i, oh=i.to_bytes(4, "big") + bytes(HOG_OH - 4))
            if stranger.lock(lock) != nlm.S_GRANTED:
                break
    except (OSError, EOFError, NoReply, Refused):
        stranger.drop_callers()


FAULTS = {
    "daemon": Fault,
    "database": Database,
    "hang": Hang,
    "wire": Wire,
    "disk": Disk,
    "descriptors": Descriptors,
    "memory": Memory,
}
