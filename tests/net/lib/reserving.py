"""Share reservations in the torture: what its players believe to have reserved, and how each of them asks for it."""

import threading
from dataclasses import dataclass

import nlm

N_RESERVED = 3  # files, the first ones of all
TWICE = 0.2  # of the reclaims are sent a second time: what is counted must not be counted twice


class Lost(Exception):
    """No answer: it may have been done or not."""


@dataclass(frozen=True, eq=False)  # each is itself: two that are equal were taken one after the other
class Reservation:
    access: int
    deny: int
    svid: int

    def conflicts(self, other):
        return bool(self.access & other.deny or self.deny & other.access)


class Reservations:
    """What the players believe, all of them at one glance."""

    def __init__(self, fail):
        self.lock = threading.Lock()
        self.held = {}  # (file, player) -> Reservation
        self.fail = fail

    def take(self, player, file, mine):
        with self.lock:
            others = [p for (f, p), theirs in self.held.items() if f == file and p is not player and mine.conflicts(theirs)]
            self.held[file, player] = mine
        if others:
            self.fail(f"I1: {player.host.name} reserved file {file} as {mine}, against {[p.host.name for p in others]}")

    def give(self, player, file):
        with self.lock:
            self.held.pop((file, player), None)

    def of(self, player):
        with self.lock:
            return {file: mine for (file, p), mine in self.held.items() if p is player}

    def now(self):
        with self.lock:
            return dict(self.held)

    def clear(self):
        with self.lock:
            self.held.clear()

    def refuses(self, file, access, deny):
        """Must a SHARE of another host be refused?"""
        asked = Reservation(access, deny, 0)
        return any(f == file and asked.conflicts(theirs) for (f, _), theirs in self.now().items())


class Reserver:
    """The part of a player that reserves files. It has one reservation of a file at most, so a SHARE whose answer is
    lost is undone by one UNSHARE, however often that is repeated."""

    def share_of(self, file, mine, **more):
        return self.host.lock_of(self.files[file], svid=mine.svid, access=mine.access, deny=mine.deny, **more)

    def reserve_or_close(self):
        file = self.random.randrange(N_RESERVED)
        if file in self.world.reservations.of(self):
            self.close_file(file)
        else:
            self.reserve(file)

    def reserve(self, file):
        self.svid += self.is_wire_bad
        mine = Reservation(self.random.choice((1, 2, 3)), self.random.choice((0, 0, 1, 2, 3)), self.svid)
        try:
            stat = self.ask(nlm.SHARE, self.share_of(file, mine))
        except Lost:
            self.unshare(file, mine)
            return
        if stat == nlm.S_GRANTED:
            self.was_promised = True
            self.world.reservations.take(self, file, mine)
            self.n["reserved"] += 1
        else:
            self.n["refused"] += 1
            if stat != nlm.S_DENIED:
                self.pause.wait(0.003)  # grace, or a store that cannot write

    def unshare(self, file, mine):
        self.insist(nlm.UNSHARE, self.share_of(file, mine))

    def close_file(self, file):
        mine = self.world.reservations.of(self)[file]
        self.world.reservations.give(self, file)
        self.unshare(file, mine)

    def forget_reservations(self):
        """Its host is restarted."""
        for file in self.world.reservations.of(self):
            self.world.reservations.give(self, file)

    def reclaim_reservations(self, state):
        """False: the server was restarted once more."""
        for file, mine in self.world.reservations.of(self).items():
            if self.random.random() < TWICE:
                self.reclaim_one(nlm.SHARE, self.share_of(file, mine, reclaim=True), state)
            stat = self.reclaim_one(nlm.SHARE, self.share_of(file, mine, reclaim=True), state)
            if stat is None:
                return False
            if stat != nlm.S_GRANTED:
                self.world.fail(f"I4: {self.host.name} may not have file {file} reserved again as {mine}: {stat}")
                self.world.reservations.give(self, file)
            self.n["reserved again"] += 1
        return True
