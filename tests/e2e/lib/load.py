"""A load on a client machine that runs through whatever happens (guest/runner.c), and what must be true of it afterwards."""

import os
import signal
import struct

from guest import PATIENCE

PAGES, PAGE, SLOTS = 8, 4096, 64


class Load:
    def __init__(self, client, kind, name, at):
        self.client = client
        self.name = name
        self.command = client.guest.start(f"exec runner {kind} {at}/{name} {client.name}")
        said = self.command.line()
        assert said == "runs", f"{client.name}: {kind}: {said}"

    def has_failed(self):
        """It says something only at its end."""
        return self.command.has_line()

    def ends(self, timeout=PATIENCE):
        """How many rounds it made, and the seconds of the longest."""
        self.command.signal(signal.SIGUSR1)
        said = self.command.line(timeout)
        self.client.note(f"{self.client.name}: {self.command.text}: {said}")
        try:
            rounds, longest = said.split()
            return int(rounds), float(longest)
        except ValueError:
            raise AssertionError(f"{self.client.name}: {self.command.text}: {said}") from None


class PingPong:
    """Both clients in turn have the lock of a page and count it up: a second holder, or a lost write, shows there."""

    def __init__(self, clients, export, at):
        self.path = os.path.join(export, "turns")
        with open(self.path, "wb"):
            os.chmod(self.path, 0o666)
        self.loads = [Load(client, "turns", "turns", at) for client in clients]

    def count(self):
        with open(self.path, "rb") as file:
            return struct.unpack("=Q", file.read(8).ljust(8, b"\0"))[0]

    def ends(self):
        """How many turns there were, and the seconds of the longest."""
        ended = [load.ends() for load in self.loads]
        rounds = sum(rounds for rounds, _ in ended)
        assert all(rounds for rounds, _ in ended), f"one had no turn: {ended}"
        assert self.count() == rounds, f"the page counts {self.count()} turns, the clients had {rounds}"
        return rounds, max(longest for _, longest in ended)


class Writer(Load):
    """Writes, syncs, and is sure of what it wrote."""

    def __init__(self, client, name, at):
        super().__init__(client, "writes", name, at)

    def ends_and_is_verified(self, export):
        """The seconds of its longest round."""
        rounds, longest = self.ends()
        words = PAGES * PAGE // 8
        with open(os.path.join(export, self.name), "rb") as file:
            for slot in range(min(rounds, SLOTS)):
                wanted = rounds - 1 - (rounds - 1 - slot) % SLOTS
                found = struct.unpack(f"={words}Q", file.read(words * 8))
                assert all(word == wanted << 16 | i for i, word in enumerate(found)), (
                    f"slot {slot} of {self.name} has not round {wanted} but {found[0] >> 16}")  # fmt: skip
        assert rounds > 0
        return longest


class Reader(Load):
    """Reads a page past the cache, again and again."""

    def __init__(self, client, name, export, at):
        path = os.path.join(export, name)
        with open(path, "wb") as file:
            os.chmod(path, 0o666)
            file.write(bytes(PAGE))
        super().__init__(client, "reads", name, at)
