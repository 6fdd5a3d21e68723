"""A client host of the torture, that locks, reserves, unlocks, waits, reclaims and is restarted; and what all of them
believe."""

import math
import random
import threading

import nlm
from reserving import Lost, Reservations, Reserver
from rpc import NoReply, Refused, call_message, exchange
from until import comes, insist, until

N_FILES, N_UNITS, UNIT = 3, 6, 10
SVID = 7


class Violation(Exception):
    pass


class World:
    """What the players believe, all of them at one glance."""

    def __init__(self):
        self.lock = threading.Lock()
        self.held = {}  # (file, unit) -> {player: (exclusive, svid)}
        self.violations = []
        self.reservations = Reservations(self.fail)

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


class Player(Reserver, threading.Thread):
    """One client host. Only its own thread sends; grants come in on the stage's.

    A GRANTED is matched as Linux does it: by file, range and owner, among what is waited for now; any other one is
    denied. Nothing in the protocol tells a GRANTED of an earlier wait, given up meanwhile, from one of this wait. So
    a host must have dealt with what arrived at its lockd before it goes on after having given up: lockd of Linux is
    woken as its caller is; here the stage is waited for. On a wire that delays single packets not even that helps,
    and each request has an owner of its own (@is_wire_bad).
    """

    def __init__(self, world, host, files, seed, is_wire_bad=False):
        super().__init__(daemon=True)
        self.world, self.host, self.files, self.is_wire_bad = world, host, files, is_wire_bad
        self.random = random.Random(seed)
        self.state = 3
        self.said_state = 0  # in the last LOCK that was granted: the server has stored it
        self.was_promised = False
        self.reclaimed_state = 0  # of the server: all is reclaimed that was held before
        self.waiting = None  # (key, exclusive, svid), while a grant may come
        self.is_letting_go = False  # a grant that comes now has crossed with that
        self.accepted = None  # the last grant, by its cookie
        self.wants_new_connection = self.has_to_restart = False  # at the next opportunity
        self.svid = SVID
        self.guard = threading.Lock()
        self.pause, self.paused, self.is_over = threading.Event(), threading.Event(), False
        counted = ("answered", "locked", "granted", "reclaimed", "reserved", "reserved again", "polled", "restarts",
                   "refused", "lost", "replays")  # fmt: skip
        self.n = dict.fromkeys(counted, 0)
        host.script = self.on_granted

    # Asking

    def lock_of(self, key, exclusive, svid, **more):
        file, unit = key
        return self.host.lock_of(
            self.files[file], unit * UNIT, UNIT, svid, exclusive=exclusive, state=self.state, **more
        )  # fmt: skip

    def ask(self, procedure, lock):
        """One try; raises Lost when no answer comes, or one without a result."""
        try:
            message = call_message(nlm.PROGRAM, 4, procedure, lock.args(procedure))
            stat = nlm.res_of(procedure, exchange(self.host.caller("tcp"), message, 2)).stat
            self.n["answered"] += 1
            return stat
        except (OSError, EOFError, NoReply, Refused):
            self.host.drop_callers()
            self.n["lost"] += 1
            raise Lost from None

    def insist(self, procedure, lock):
        """Until an answer comes; for what may be done twice. A release that cannot be stored is to come again."""

        def ask():
            stat = self.ask(procedure, lock)
            if stat == nlm.S_GRACE and procedure in (nlm.UNLOCK, nlm.UNSHARE):
                raise Lost
            return stat

        return insist(ask, Lost, lambda: self.is_over)

    # Doing

    def on_granted(self, heard):
        key = self.files.index(heard.grant.fh), heard.grant.offset // UNIT
        with self.guard:
            if heard.grant.cookie == self.accepted and key in self.world.of(self):
                return nlm.S_GRANTED  # the player's answer was lost
            if not self.waiting or (self.waiting[0], self.waiting[2]) != (key, heard.grant.svid):
                if not self.is_letting_go and not self.is_wire_bad:
                    self.world.fail(f"I8: {self.host.name} is told of {key}, for which it does not wait")
                return nlm.S_DENIED
            self.world.take(self, *self.waiting)
            self.waiting, self.accepted = None, heard.grant.cookie
            self.n["granted"] += 1
            return nlm.S_GRANTED

    def try_lock(self, block):
        mine = self.world.of(self)
        key = self.random.randrange(N_FILES), self.random.randrange(N_UNITS)
        if key in mine:
            return
        exclusive = self.random.random() < 0.7
        self.svid += self.is_wire_bad
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
            self.said_state = self.state
            with self.guard:
                if key not in self.world.of(self):
                    self.world.take(self, key, exclusive, svid)
                self.waiting = None
            self.n["locked"] += 1
        elif stat == nlm.S_BLOCKED:
            self.was_promised = True
            self.wait_for(key, exclusive, svid)
        else:
            with self.guard:
                self.waiting = None
            if stat in (nlm.S_GRACE, nlm.S_NOLOCKS):
                self.pause.wait(0.003)  # it is not served now, and does not storm the server
            self.n["refused"] += 1

    def wait_for(self, key, exclusive, svid):
        def is_called():
            return comes(lambda: not self.waiting or self.is_told(), self.random.uniform(0.001, 0.1), pause=0.001)

        while is_called() and self.waiting and self.random.random() < 0.8:
            if not self.poll(key, exclusive, svid):
                break
        with self.guard:
            gave_up = self.waiting is not None
            self.is_letting_go = gave_up
            self.waiting = None
        if gave_up:
            self.give_back(key, svid)

    def poll(self, key, exclusive, svid):
        """The server was restarted, and waits die with it: asks again for what it waits for. Whether it waits.

        Before that it gives back what it waits for, and at the end so does a poll whose answer is lost: the server may
        have granted it, and died before it could say so. Then it does not end its grace before that lock is given back,
        or the window is over, and answers a poll, which is no reclaim, with GRACE as long.
        """
        lock, stat = self.lock_of(key, exclusive, svid, block=True), nlm.S_GRACE
        while self.waiting and not self.is_over and stat in (nlm.S_GRACE, nlm.S_NOLOCKS):
            if self.is_told():
                self.give_back(key, svid)
                self.reclaim()
                with self.guard:
                    self.waiting = key, exclusive, svid
                continue
            try:
                stat = self.ask(nlm.LOCK, lock)
            except Lost:
                return False
            if stat != nlm.S_GRANTED:
                self.pause.wait(0.003)
        self.n["polled"] += 1
        if stat == nlm.S_GRANTED:
            with self.guard:
                if key not in self.world.of(self):
                    self.world.take(self, key, exclusive, svid)
                self.waiting = None
        elif self.waiting and stat not in (nlm.S_BLOCKED, nlm.S_DEADLCK):
            self.world.fail(f"I8: {self.host.name} waits for {key}, polls after a restart, and is answered {stat}")
        return stat == nlm.S_BLOCKED

    def give_back(self, key, svid):
        """Whether it is held, waited for or neither: afterwards it is neither."""
        with self.guard:
            self.waiting, self.is_letting_go = None, True
        self.world.give(self, key)
        self.insist(nlm.UNLOCK, self.lock_of(key, True, svid))
        self.host.stage.settle()
        self.is_letting_go = False

    def notify(self):
        def tell():
            try:
                self.host.notify(self.state, transport="tcp", timeout=1)
            except (OSError, EOFError, NoReply, Refused):
                self.host.drop_callers()
                raise Lost from None

        insist(tell, Lost, lambda: self.is_over)

    def restart(self):
        """The host goes down and comes up again with a new state number, and its sm-notify says so."""
        with self.guard:
            self.waiting, self.is_letting_go = None, True
            for key in self.world.of(self):
                self.world.give(self, key)
        self.forget_reservations()
        self.state += 2
        self.notify()
        self.host.stage.settle()
        self.is_letting_go = False
        self.n["restarts"] += 1

    def repeat_notice(self):
        """A replay: it may take nothing. It comes after a LOCK with its number: reservations have none, and a server
        that was killed since cannot know that the notice had come before the host reserved anything."""
        self.notify()
        self.n["replays"] += 1

    # The server's restart

    def told_state(self):
        items = self.host.told.matching()
        return items[-1].state if items else 0

    def is_told(self):
        return self.told_state() > self.reclaimed_state

    def reclaim_one(self, procedure, lock, state):
        """The answer; None: the server was killed again, and all begins anew."""
        stat = self.insist(procedure, lock)  # no answer comes while the store cannot write
        return None if self.told_state() != state or self.is_over else stat

    def reclaim(self):
        state = self.told_state()
        for key, (exclusive, svid) in self.world.of(self).items():
            stat = self.reclaim_one(nlm.LOCK, self.lock_of(key, exclusive, svid, reclaim=True), state)
            if stat is None:
                return
            if stat != nlm.S_GRANTED:
                self.world.fail(f"I4: {self.host.name} may not have {key} again: {stat}")
                self.world.give(self, key)
            self.n["reclaimed"] += 1
        if self.reclaim_reservations(state):
            self.reclaimed_state = state

    def has_rested(self):
        """At rest: nothing is done but to reclaim."""
        self.paused.set()
        return self.is_over or self.is_told() or not self.pause.is_set()

    def run(self):
        try:
            while not self.is_over:
                if self.is_told():
                    self.reclaim()
                elif self.pause.is_set():
                    until(self.has_rested, "it goes on", math.inf, pause=0.002)
                else:
                    self.paused.clear()
                    self.act()
        except Exception as error:  # pylint: disable=broad-except
            self.world.fail(f"{self.host.name}: {error!r}")

    def act(self):
        dice, mine = self.random.random(), self.world.of(self)
        if self.wants_new_connection:
            self.wants_new_connection = False
            self.host.drop_callers()
        if dice < 0.02 or self.has_to_restart:
            self.restart()
            self.has_to_restart = False
        elif dice < 0.03 and self.said_state == self.state > 3:
            self.repeat_notice()
        elif dice < 0.4 and mine:
            key = self.random.choice(list(mine))
            self.give_back(key, mine[key][1])
        elif dice < 0.55:
            self.reserve_or_close()
        else:
            self.try_lock(block=self.random.random() < 0.4)
