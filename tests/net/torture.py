#!/usr/bin/env python3
"""Clients lock, reserve, wait, unlock, reclaim and are restarted; the server is killed, or worse, at random moments.

    torture.py PATH/holdfastd [--rounds N] [--store lmdb|postgres|memory] [--kill FAULT] [--continue] [--seed N] [--seconds S]
               [--jobs N]

FAULT is daemon (SIGKILL), database (PostgreSQL is killed), hang (it stands still), wire (packets are lost, late,
doubled), disk (full), descriptors or memory (none left). What is checked, from the outside only:
  I1  no client is told GRANTED for what another client believes to have
  I2  a client that was told GRANTED or BLOCKED hears of every restart
  I3  no client gets what another client believes to have, before, in or after grace
  I4  a client that reclaims a lock that it had is granted it again
  I5  a restarted client's locks are gone when its notice is answered
  I6  notices that are repeated, or sent by another host, take nothing
  I7  the state number is odd and grows
  I8  no waiter that has given up is told of a grant; a waiter that polls after a restart waits again or has its
      lock; at rest, waiters are served in order, and one that waited before a kill is granted its lock after it
  I10 at rest the server holds what its clients believe to have, and nothing else
Reservations are checked likewise: right after each kill and when grace is over, another host asks for what
conflicts with them, as new and as a reclaim, and is refused.
Grace must end early each time: its window is longer than a round may take.
With --continue (recovery.after_crash) a run that goes on tells no client, has no grace, and calls the waiters of the run before.
"""

import argparse
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import cluster
import netns
import nlm
from badwire import BadWire
from daemon import Daemon, Failed
from faults import FAULTS
from nsm import Host
from player import N_FILES, N_UNITS, UNIT, Player, Violation, World
from reserving import N_RESERVED
from rpc import NoReply, Refused, Stage
from until import lapse, until

N_PLAYERS = 4
PATIENCE = 60  # seconds for whatever must happen in a round
WINDOW = 120  # of grace
SHOWN = 4000  # of the log: how the last run began, and how it ended
SKIPPED = 77
SETTINGS = ("server.portmap=embedded", "server.name=server", "api.listen=", f"recovery.window_seconds={WINDOW}",
            "recovery.notify_timeout_ms=2000")  # fmt: skip


class Torture:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.network, self.stage, self.world = netns.Network(), Stage(), World()
        self.fault = FAULTS[args.kill](self)
        settings = [*SETTINGS, f"store.backend={args.store}", *self.fault.settings]
        if args.continues:
            settings += ["recovery.after_crash=continue", "log.level=info"]
        self.cluster = self.wire = None
        if args.store == "postgres":
            self.cluster = cluster.Cluster().start()
            settings.append(f"store.postgres={self.cluster.connection}")
        if self.fault.is_wire_bad:
            self.wire = BadWire(random.Random(args.seed + 1))
        self.daemon = Daemon(args.program, self.network.server, settings)
        self.files = [os.urandom(20) for _ in range(N_FILES)]
        self.players = [self.make_player(i) for i in range(N_PLAYERS)]
        self.stranger = self.make_host()
        if self.wire:
            self.wire.start()
        self.last_state = 0
        self.n_continued = 0
        self.n_probes = 0  # SHAREs of the stranger that had to be refused, and were
        self.fault.prepare()

    def make_host(self):
        namespace, number = self.network.add_client(self.wire)
        return Host(self.stage, namespace, number, self.network.SERVER[0])

    def make_player(self, i):
        return Player(self.world, self.make_host(), self.files, self.args.seed * 1000 + i, self.fault.is_wire_bad)

    def heard(self, ask, otherwise):
        """What the stranger is answered; @otherwise: no answer comes."""
        try:
            return ask()
        except (OSError, EOFError, NoReply, Refused):
            self.stranger.drop_callers()
            return otherwise

    def is_in_grace(self):
        probe = nlm.Lock(fh=os.urandom(8), name="stranger")
        return self.heard(lambda: self.stranger.test(probe).stat, nlm.S_GRACE) == nlm.S_GRACE

    def wait(self, test, what):
        def look():
            if self.world.violations:
                raise Violation(self.world.violations[0])
            return test()

        until(look, what, PATIENCE)

    def n_locked(self):
        return sum(player.n["locked"] for player in self.players)

    def free_stranger(self):
        def free():
            self.stranger.free_all(timeout=1)  # no answer while the store cannot write
            return True

        def is_free():
            return self.heard(free, False) or self.daemon.process.poll() is not None

        self.wait(is_free, "the stranger's locks are freed")

    # A round

    def kill_and_reclaim(self, may_be_twice=True):
        if self.args.store == "memory":
            self.kill_and_forget()
            return
        promised = [player for player in self.players if player.was_promised]
        n_told = self.n_told()
        self.daemon.crash()
        self.daemon.start()
        self.probe_reservations()
        if self.goes_on(n_told):
            return
        if may_be_twice and self.random.random() < 0.3:
            return  # and killed again at the next random moment, perhaps in grace
        self.await_service(promised)
        self.probe_reservations()

    def n_told(self):
        return [len(player.host.told.matching()) for player in self.players]

    def goes_on(self, n_told):
        """Whether the run goes on where the last one ended; then no client is told, and new locks are granted at once."""
        log = self.daemon.log
        if not self.args.continues or "going on where the last run ended" not in log[log.rindex(" clients and locks loaded") :]:
            return False
        self.n_continued += 1
        self.stranger.drop_callers()
        if self.is_in_grace():
            raise Violation("the server goes on, and is in grace")
        if self.n_told() != n_told:
            raise Violation("the server goes on, and a client is told of a restart")
        return True

    def await_service(self, promised):
        """All that was held is reclaimed, by hosts that were told, and grace is over."""
        for player in promised:
            self.wait(lambda p=player: p.told_state() > self.last_state, f"I2: {player.host.name} is told")
        states = [player.told_state() for player in promised]
        if any(state % 2 == 0 for state in states):
            raise Violation(f"I7: {states}")
        self.last_state = max([self.last_state, *states])
        self.wait(lambda: not any(p.is_told() for p in self.players), "all is reclaimed")
        self.wait(lambda: not self.is_in_grace(), "grace ends")

    def kill_and_forget(self):
        """A store that forgets sends no notices, so its clients must start anew, too, and at rest."""
        self.pause()
        self.daemon.crash()
        self.world.held.clear()
        self.world.reservations.clear()
        for player in self.players:
            player.has_to_restart = True
        self.daemon.start()
        self.go_on()

    def probe_reservations(self):
        """What is reserved before a call and after it was reserved when that was served: what conflicts is refused."""
        before = self.world.reservations.now()
        for file, player in self.random.sample(list(before), min(2, len(before))):
            kept = before[file, player]
            probe = self.stranger.lock_of(self.files[file], svid=98, access=kept.deny, deny=kept.access)
            try:
                stat = self.stranger.share(probe.but(reclaim=self.random.random() < 0.5))
            except (OSError, EOFError, NoReply, Refused):
                self.stranger.drop_callers()
                self.free_stranger()
                continue
            is_suspended = self.world.reservations.now().get((file, player)) is kept
            if stat == nlm.S_GRANTED and is_suspended:
                raise Violation(f"I3: the stranger got file {file}, which {player.host.name} has reserved: {kept}")
            if stat == nlm.S_GRANTED:
                self.free_stranger()
            self.n_probes += is_suspended

    def spoof(self):
        """A stranger sends notices in the name of all clients."""
        try:
            for player in self.players:
                self.stranger.notify(self.random.randrange(1, 999, 2), name=player.host.name, timeout=0.5)
        except (OSError, EOFError, NoReply, Refused):
            self.stranger.drop_callers()

    def pause(self):
        for player in self.players:
            player.paused.clear()
            player.pause.set()
        for player in self.players:
            self.wait(player.paused.is_set, f"{player.host.name} comes to rest")

    def go_on(self):
        for player in self.players:
            player.pause.clear()

    def rest(self):
        """All clients stop; then the server has the locks that they believe to have."""
        self.pause()
        self.wait(lambda: not self.is_in_grace(), "grace ends at rest")
        self.wait(self.is_as_believed, "I10: the server holds what its clients believe to have")
        self.stand_in_line()
        self.wait_through_a_kill()
        self.go_on()

    def is_as_believed(self):
        try:
            for file in range(N_FILES):
                for unit in range(N_UNITS):
                    lock = nlm.Lock(fh=self.files[file], offset=unit * UNIT, length=UNIT, name="stranger", svid=99)
                    is_held = self.stranger.test(lock).stat == nlm.S_DENIED
                    if is_held != bool(self.world.held.get((file, unit))):
                        return False
            return all(self.is_reserved_as_believed(file) for file in range(N_RESERVED))
        except (OSError, EOFError, NoReply, Refused):
            self.stranger.drop_callers()
            return False

    def is_reserved_as_believed(self, file):
        for access, deny in ((1, 0), (2, 0), (0, 1), (0, 2)):
            probe = self.stranger.lock_of(self.files[file], svid=99, access=access, deny=deny)
            stat = self.stranger.share(probe)
            if stat == nlm.S_GRANTED:
                self.stranger.unshare(probe)
            if (stat == nlm.S_DENIED) != self.world.reservations.refuses(file, access, deny):
                return False
        return True

    def stand_in_line(self):
        """Three owners want one range, one after the other."""
        host, fh = self.stranger, os.urandom(20)
        locks = [host.lock_of(fh, svid=svid, block=svid > 1) for svid in (1, 2, 3)]
        wanted = [nlm.S_GRANTED, nlm.S_BLOCKED, nlm.S_BLOCKED]
        answers = [host.lock(lock) for lock in locks]
        if answers != wanted:
            raise Violation(f"I8: {answers} instead of {wanted}")
        for lock, following in zip(locks, locks[1:]):
            host.unlock(lock)
            host.wait_granted(following)
            heard = [item.grant.svid for item in host.grants.matching(lambda item: item.grant.fh == fh)]
            if heard[-1] != following.svid:
                raise Violation(f"I8: out of order: {heard}")
        self.free_stranger()

    def wait_through_a_kill(self):
        """A wait is stored only where the next run may go on. Otherwise its owner asks again after the restart."""
        host, fh = self.stranger, os.urandom(20)
        holder, waiter = host.lock_of(fh, svid=1), host.lock_of(fh, svid=2, block=True)
        if self.args.store == "memory":
            return
        if (host.lock(holder), host.lock(waiter)) != (nlm.S_GRANTED, nlm.S_BLOCKED):
            raise Violation("I8: the first does not hold it, or the second does not wait")
        promised, n_told = [player for player in self.players if player.was_promised], len(host.told.matching())
        all_told = self.n_told()
        self.daemon.crash()
        self.daemon.start()
        host.drop_callers()
        if self.goes_on(all_told):
            host.unlock(holder)
            host.wait_granted(waiter)
            self.free_stranger()
            return
        self.wait(lambda: len(host.told.matching()) > n_told, "I2: the stranger is told")
        if host.lock(holder.but(reclaim=True)) != nlm.S_GRANTED:
            raise Violation("I4: the stranger may not have its lock again")
        self.await_service(promised)
        if host.lock(waiter) != nlm.S_BLOCKED:
            raise Violation("I8: it polls after the restart, and does not wait")
        host.unlock(holder)
        host.wait_granted(waiter)
        self.free_stranger()

    def begin(self):
        """Before a first run has a client with locks, it may be killed before it has stored that its list of them is
        complete. Then its next run grants every reclaim, for the whole of grace."""
        self.daemon.start()
        first = self.stranger.lock_of(self.files[0])
        self.wait(lambda: self.heard(lambda: self.stranger.lock(first), None) == nlm.S_GRANTED, "the first lock is granted")
        self.free_stranger()

    def run(self):
        self.begin()
        for player in self.players:
            player.start()
        end = time.monotonic() + self.args.seconds
        rounds = 0
        while rounds < self.args.rounds and time.monotonic() < end:
            lapse(self.random.uniform(0.002, 0.06))  # it strikes at a random moment
            if self.random.random() < 0.2:
                self.spoof()
            self.fault.strike()
            if self.world.violations:
                raise Violation(self.world.violations[0])
            rounds += 1
            if rounds % 20 == 0:
                self.rest()
        self.rest()
        totals = {key: sum(player.n[key] for player in self.players) for key in self.players[0].n}
        totals["probes"], totals["continued"] = self.n_probes, self.n_continued
        totals.update(self.wire.n if self.wire else {})
        print(f"torture: {rounds} rounds, seed {self.args.seed}, {self.args.store}, {self.args.kill}: {totals}")
        if self.args.continues and self.args.kill == "daemon" and self.n_continued < rounds / 2:
            raise Violation(f"only {self.n_continued} of {rounds} runs went on")
        if rounds < self.args.rounds:
            raise Violation(f"only {rounds} rounds in {self.args.seconds} s")

    def last_run(self):
        """What the players wait for, and the log of the last run."""
        log = self.daemon.log
        log = log[max(log.rfind(" clients and locks loaded"), 0) :]
        players = [f"{p.host.name}: told of {p.told_state()}, reclaimed {p.reclaimed_state}, waits for {p.waiting}, {p.n}" for p in self.players]
        shown = log if len(log) <= 2 * SHOWN else f"{log[:SHOWN]}\n[...]\n{log[-SHOWN:]}"
        return "\n".join([*players, f"believed: {self.world.held}", f"reserved: {self.world.reservations.now()}", shown])

    def close(self):
        for player in self.players:
            player.is_over = True
        for player in self.players:
            if player.ident:
                player.join(5)
            player.host.close()
        self.stranger.close()
        self.daemon.close()
        self.fault.close()
        if self.cluster:
            self.cluster.close()
        if self.wire:
            self.wire.close()
        self.stage.close()
        self.network.close()


def run_jobs(args):
    """The rounds shared by several worlds, each a process of its own; the worst status of them."""
    children = []
    for i in range(args.jobs):
        rounds = args.rounds // args.jobs + (i < args.rounds % args.jobs)
        words = ["--rounds", rounds, "--seconds", args.seconds, "--store", args.store, "--kill", args.kill,
                 "--seed", args.seed + i, *(["--continue"] if args.continues else [])]  # fmt: skip
        children.append(subprocess.Popen([sys.executable, __file__, args.program, *map(str, words)]))
    return max(child.wait() for child in children)


def why_not(args):
    fault = FAULTS[args.kill]
    if fault.needs_database and args.store != "postgres":
        return f"{args.kill} is a fault of --store postgres"
    if args.store == "postgres" and not cluster.programs():
        return "no PostgreSQL here"
    return netns.is_possible() or fault.why_not(args.program)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=os.environ.get("HOLDFASTD"))
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--store", default="lmdb", choices=("lmdb", "postgres", "memory"))
    parser.add_argument("--kill", default="daemon", choices=tuple(FAULTS))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--continue", dest="continues", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    if args.jobs > 1:
        sys.exit(run_jobs(args))
    reason = why_not(args)
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    torture = Torture(args)
    try:
        torture.run()
        torture.daemon.stop()
    except (Violation, Failed, AssertionError) as violation:
        print(f"torture: seed {args.seed}, {args.store}, {args.kill}: {violation}\n{torture.last_run()}")
        sys.exit(1)
    finally:
        torture.close()


if __name__ == "__main__":
    main()
