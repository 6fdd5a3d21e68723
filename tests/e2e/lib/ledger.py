"""What all actors of a storm believe to hold, at one glance.

An actor writes down a lock after it was told of it, and strikes it out before it says that it gives it back: so two
actors that stand here for the same slot prove that the server gave it to both.
"""

import math
import random
import threading

from until import until

FILES = ("storm0", "storm1", "storm2")
SLOTS = 12
SLOT = 10  # bytes


class Ledger:
    def __init__(self, note):
        self.note = note
        self.guard = threading.Lock()
        self.held = {}  # (file, slot) -> {owner: is exclusive}
        self.wrongs = []
        self.n_taken = 0

    def take(self, owner, key, exclusive):
        with self.guard:
            others = {who: mode for who, mode in self.held.get(key, {}).items() if who != owner}
            if others and (exclusive or any(others.values())):
                self._wrong(f"{owner} was given {key}, which {sorted(others)} has")
            self.held.setdefault(key, {})[owner] = exclusive
            self.n_taken += 1

    def give(self, owner, key):
        with self.guard:
            self.held.get(key, {}).pop(owner, None)

    def give_all(self, is_meant):
        """Of every owner that @is_meant."""
        with self.guard:
            for owners in self.held.values():
                for owner in [one for one in owners if is_meant(one)]:
                    del owners[owner]

    def of(self, owner):
        with self.guard:
            return {key: owners[owner] for key, owners in self.held.items() if owner in owners}

    def all(self):
        """{(file, slot, owner): is exclusive}"""
        with self.guard:
            return {(*key, owner): mode for key, owners in self.held.items() for owner, mode in owners.items()}

    def wrong(self, text):
        with self.guard:
            self._wrong(text)

    def _wrong(self, text):
        self.note(f"WRONG: {text}")
        self.wrongs.append(text)


class Actor(threading.Thread):
    """A client in the storm. It acts until the storm is over, and may be asked to rest meanwhile."""

    def __init__(self, name, ledger, seed):
        super().__init__(name=name, daemon=True)
        self.ledger = ledger
        self.random = random.Random(seed)
        self.is_over = False
        self.shall_reboot = False
        self.shall_rest, self.rests = threading.Event(), threading.Event()

    def pick(self):
        return self.random.choice(FILES), self.random.randrange(SLOTS)

    def reboot(self):
        """From another thread: it does so at the next occasion."""
        self.shall_reboot = True

    def act(self):
        raise NotImplementedError

    def go_down_and_up(self):
        raise NotImplementedError

    def attend(self):
        """What has to be done even at rest. True: something was."""
        if not self.shall_reboot:
            return False
        self.shall_reboot = False
        self.ledger.give_all(lambda owner: owner.startswith(self.name + "/"))
        self.go_down_and_up()
        return True

    def has_rested(self):
        """At rest: nothing is done but what has to be."""
        self.rests.set()
        return self.is_over or not self.shall_rest.is_set() or self.attend()

    def run(self):
        try:
            while not self.is_over:
                if self.attend():
                    continue
                if self.shall_rest.is_set():
                    until(self.has_rested, "it goes on", math.inf)
                else:
                    self.rests.clear()
                    self.act()
        except Exception as error:  # pylint: disable=broad-except
            if not self.is_over:
                self.ledger.wrong(f"{self.name}: {error!r}")
