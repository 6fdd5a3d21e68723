#!/usr/bin/env python3
"""Clients lock, unlock, wait, reclaim and are restarted, while the daemon (or its database) is killed at random moments.

    torture.py PATH/holdfastd [--rounds N] [--store lmdb|postgres] [--kill daemon|database] [--seed N] [--seconds S]

What is checked, from the outside only:
  I1  nobody is told GRANTED for what another one believes to have
  I2  whoever was told GRANTED or BLOCKED hears of every restart
  I3  nobody gets what another one believes to have, be it before, in or after grace
  I4  what was held before is granted again to who reclaims it
  I5  a restarted client's locks are gone when its notice is answered
  I7  the state number is odd and grows
  I10 at rest the server holds what its clients believe to have, and nothing else
"""

import argparse
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import cluster
import netns
import nlm
from daemon import Daemon
from nsm import Host
from rpc import NoReply, Stage, call_message, exchange

N_PLAYERS, N_FILES, N_UNITS, UNIT = 4, 3, 6, 10
SKIPPED = 77


class Violation(Exception):
    pass


class Lost(Exception):
    """No answer: it may have been done or not."""


class World:
    """What the players believe, all of them at one glance."""

    def __init__(self):
        self.lock = threading.Lock()
        self.held = {}  # (file, unit) -> {player: (exclusive, svid)}
        self.violations = []

    def take(self, player, key, exclusive, svid):
        with self.lock:
            others = {p: x for p, (x, _) in self.held.setdefault(key, {}).items() if p is not player}
            if others and (exclusive or any(others.values())):
                self.violations.append(f"I1: {player.host.name} got {key}, which {[p.host.name for p in others]} has")
            self.held[key][player] = exclusive, svid

    def give(self, player, key):
        with self.lock:
            self.held.get(key, {}).pop(player, None)

    def of(self, player):
        with self.lock:
            return {key: players[player] for key, players in self.held.items() if player in players}

    def fail(self, text):
        with self.lock:
            self.violations.append(text)


class Player(threading.Thread):
    """One client host. Only its own thread sends; grants come in on the stage's."""

    def __init__(self, world, host, files, seed):
        super().__init__(daemon=True)
        self.world, self.host, self.files = world, host, files
        self.random = random.Random(seed)
        self.state = 3
        self.was_promised = False
        self.reclaimed_state = 0  # of the server: all is reclaimed that was held before
        self.waiting = None  # (key, exclusive, svid), while a grant may come
        self.svid = 0  # a new one each time: a GRANTED that comes late must not be taken for a later one
        self.guard = threading.Lock()
        self.pause, self.paused, self.is_over = threading.Event(), threading.Event(), False
        self.n = {"locked": 0, "granted": 0, "reclaimed": 0, "restarts": 0, "refused": 0}
        host.script = self.on_granted

    # Asking

    def lock_of(self, key, exclusive, svid, **more):
        file, unit = key
        return self.host.lock_of(
            self.files[file], unit * UNIT, UNIT, svid, exclusive=exclusive, state=self.state, **more
        )  # fmt: skip

    def ask(self, procedure, lock):
        """One try; Lost where nobody answers."""
        try:
            message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure))
            return nlm.res_of(procedure, exchange(self.host.caller("tcp"), message, 3)).stat
        except (OSError, EOFError, NoReply):
            self.host.drop_callers()
            raise Lost from None

    def insist(self, procedure, lock):
        """Until somebody answers; for what may be done twice."""
        while not self.is_over:
            try:
                return self.ask(procedure, lock)
            except Lost:
                time.sleep(0.002)
        return None

    # Doing

    def on_granted(self, heard):
        key = self.files.index(heard.grant.fh), heard.grant.offset // UNIT
        with self.guard:
            if not self.waiting or (self.waiting[0], self.waiting[2]) != (key, heard.grant.svid):
                return nlm.S_DENIED
            self.world.take(self, *self.waiting)
            self.waiting = None
            self.n["granted"] += 1
            return nlm.S_GRANTED

    def try_lock(self, block):
        mine = self.world.of(self)
        key = self.random.randrange(N_FILES), self.random.randrange(N_UNITS)
        if key in mine:
            return
        exclusive = self.random.random() < 0.7
        self.svid += 1
        svid = self.svid
        lock = self.lock_of(key, exclusive, svid, block=block)
        with self.guard:
            self.waiting = (key, exclusive, svid) if block else None
        try:
            stat = self.ask(nlm.LOCK, lock)
        except Lost:
            self.give_back(key, svid)
            return
        if stat == nlm.S_GRANTED:
            self.was_promised = True
            with self.guard:
                if key not in self.world.of(self):
                    self.world.take(self, key, exclusive, svid)
                self.waiting = None
            self.n["locked"] += 1
        elif stat == nlm.S_BLOCKED:
            self.was_promised = True
            self.wait_for(key, svid)
        else:
            with self.guard:
                self.waiting = None
            if stat == nlm.S_GRACE:
                time.sleep(0.003)
            self.n["refused"] += 1

    def wait_for(self, key, svid):
        end = time.monotonic() + self.random.uniform(0.001, 0.1)
        while time.monotonic() < end and self.waiting and not self.is_told():
            time.sleep(0.001)
        with self.guard:
            gave_up = self.waiting is not None
            self.waiting = None
        if gave_up:
            self.give_back(key, svid)

    def give_back(self, key, svid):
        """Whether it is held, waited for or neither: afterwards it is neither."""
        with self.guard:
            self.waiting = None
        self.world.give(self, key)
        self.insist(nlm.UNLOCK, self.lock_of(key, True, svid))

    def restart(self):
        """The host goes down and comes up again with a new state number, and its sm-notify says so."""
        with self.guard:
            self.waiting = None
            for key in self.world.of(self):
                self.world.give(self, key)
        self.state += 2
        while not self.is_over:
            try:
                self.host.notify(self.state, transport="tcp", timeout=1)
                break
            except (OSError, EOFError, NoReply):
                self.host.drop_callers()
                time.sleep(0.002)
        self.n["restarts"] += 1

    # Our restart

    def told_state(self):
        items = self.host.told.matching()
        return items[-1].state if items else 0

    def is_told(self):
        return self.told_state() > self.reclaimed_state

    def reclaim(self):
        state = self.told_state()
        for key, (exclusive, svid) in self.world.of(self).items():
            stat = self.insist(nlm.LOCK, self.lock_of(key, exclusive, svid, reclaim=True))
            if self.told_state() != state or self.is_over:
                return  # it was killed again: from the start
            if stat not in (nlm.S_GRANTED, nlm.S_NOLOCKS):
                self.world.fail(f"I4: {self.host.name} may not have {key} again: {stat}")
                self.world.give(self, key)
            self.n["reclaimed"] += 1
        self.reclaimed_state = state

    def run(self):
        try:
            while not self.is_over:
                if self.is_told():
                    self.reclaim()
                elif self.pause.is_set():
                    self.paused.set()
                    time.sleep(0.002)
                else:
                    self.paused.clear()
                    self.act()
        except Exception as error:  # pylint: disable=broad-except
            self.world.fail(f"{self.host.name}: {error!r}")

    def act(self):
        dice, mine = self.random.random(), self.world.of(self)
        if dice < 0.02:
            self.restart()
        elif dice < 0.4 and mine:
            key = self.random.choice(list(mine))
            self.give_back(key, mine[key][1])
        else:
            self.try_lock(block=self.random.random() < 0.4)


class Torture:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.network, self.stage, self.world = netns.Network(), Stage(), World()
        settings = ["server.portmap=embedded", "server.name=server", f"store.backend={args.store}", "api.listen=",
                    # Long enough for a reclaim under load; and an end for a lock whose UNLOCK was answered
                    # just before the kill, and which is stored all the same: nobody reclaims it.
                    "recovery.window_seconds=4", "recovery.notify_timeout_ms=2000"]  # fmt: skip
        self.cluster = None
        if args.store == "postgres":
            self.cluster = cluster.Cluster().start()
            settings.append(f"store.postgres={self.cluster.connection}")
        self.daemon = Daemon(args.program, self.network.server, settings)
        self.files = [os.urandom(20) for _ in range(N_FILES)]
        self.players = [self.make_player(i) for i in range(N_PLAYERS)]
        self.stranger = self.make_host()
        self.last_state = 0

    def make_host(self):
        namespace, number = self.network.add_client()
        return Host(self.stage, namespace, number, self.network.SERVER[0])

    def make_player(self, i):
        return Player(self.world, self.make_host(), self.files, self.args.seed * 1000 + i)

    def is_in_grace(self):
        try:
            return self.stranger.test(nlm.Lock(fh=os.urandom(8), name="stranger")).stat == nlm.S_GRACE
        except (OSError, EOFError, NoReply):
            self.stranger.drop_callers()
            return True

    def wait(self, test, what):
        end = time.monotonic() + 15
        while not test():
            if self.world.violations:
                raise Violation(self.world.violations[0])
            if time.monotonic() > end:
                raise Violation(what)
            time.sleep(0.003)

    # A round

    def kill_daemon(self):
        promised = [player for player in self.players if player.was_promised]
        self.daemon.crash()
        self.daemon.start()
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 0.03))
            return  # and killed again, perhaps in grace
        for player in promised:
            self.wait(lambda p=player: p.told_state() > self.last_state, f"I2: {player.host.name} was not told")
        states = [player.told_state() for player in promised]
        if any(state % 2 == 0 for state in states):
            raise Violation(f"I7: {states}")
        self.last_state = max([self.last_state, *states])
        self.wait(lambda: not any(p.is_told() for p in self.players), "not all was reclaimed")
        self.wait(lambda: not self.is_in_grace(), "grace does not end")

    def kill_database(self):
        self.cluster.kill()
        time.sleep(self.random.uniform(0, 0.05))
        self.cluster.start()
        before = self.n_locked()
        self.wait(lambda: self.n_locked() > before + 10, "service does not go on when the database is back")

    def n_locked(self):
        return sum(player.n["locked"] for player in self.players)

    def rest(self):
        """Everybody stops; then what is held is what they believe."""
        for player in self.players:
            player.paused.clear()
            player.pause.set()
        for player in self.players:
            self.wait(player.paused.is_set, f"{player.host.name} does not come to rest")
        self.wait(lambda: not self.is_in_grace(), "grace does not end at rest")
        self.wait(self.is_as_believed, "I10: the server does not hold what its clients believe to have")
        for player in self.players:
            player.pause.clear()

    def is_as_believed(self):
        for file in range(N_FILES):
            for unit in range(N_UNITS):
                lock = nlm.Lock(fh=self.files[file], offset=unit * UNIT, length=UNIT, name="stranger", svid=99)
                is_held = self.stranger.test(lock).stat == nlm.S_DENIED
                if is_held != bool(self.world.held.get((file, unit))):
                    return False
        return True

    def run(self):
        self.daemon.start()
        for player in self.players:
            player.start()
        end = time.monotonic() + self.args.seconds
        rounds = 0
        while rounds < self.args.rounds and time.monotonic() < end:
            time.sleep(self.random.uniform(0.002, 0.06))
            if self.args.kill == "database":
                self.kill_database()
            else:
                self.kill_daemon()
            if self.world.violations:
                raise Violation(self.world.violations[0])
            rounds += 1
            if rounds % 20 == 0:
                self.rest()
        self.rest()
        totals = {key: sum(player.n[key] for player in self.players) for key in self.players[0].n}
        print(f"torture: {rounds} rounds, seed {self.args.seed}, {self.args.store}, {self.args.kill} killed: {totals}")
        return rounds

    def close(self):
        for player in self.players:
            player.is_over = True
        for player in self.players:
            if player.ident:
                player.join(5)
            player.host.close()
        self.stranger.close()
        self.daemon.close()
        if self.cluster:
            self.cluster.close()
        self.stage.close()
        self.network.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=os.environ.get("HOLDFASTD"))
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--store", default="lmdb", choices=("lmdb", "postgres"))
    parser.add_argument("--kill", default="daemon", choices=("daemon", "database"))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    args = parser.parse_args()
    reason = netns.is_possible() or (args.store == "postgres" and not cluster.programs() and "no PostgreSQL here")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    torture = Torture(args)
    try:
        torture.run()
        torture.daemon.stop()
    except Violation as violation:
        print(f"torture: seed {args.seed}: {violation}\n{torture.daemon.log[-4000:]}")
        sys.exit(1)
    finally:
        torture.close()


if __name__ == "__main__":
    main()
