"""A load on a client machine that runs through whatever happens (guest/runner.c), and what must be true of it afterwards."""

import contextlib
import os
import signal
import sqlite3
import struct

from guest import PATIENCE
from tools import IN, PROGRAM_PATIENCE

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


class Sqlite:
    """Both clients insert rows, with the rollback journal, which rests on fcntl locks alone."""

    def __init__(self, clients, export, at, journal):
        self.clients = clients
        self.path = os.path.join(export, "base")
        self.ask("CREATE TABLE t (who TEXT, n INTEGER)")
        os.chmod(self.path, 0o666)
        insert = f"{IN} sqlite3 {at}/base '.timeout 120000' '.output /dev/null' 'PRAGMA journal_mode={journal}'"
        self.commands = [
            client.guest.start("trap ends=1 USR1; n=0; until [ $ends ]; do "
                               f"{insert} \"INSERT INTO t VALUES ('{client.name}', $n)\" || exit 1; echo $((n += 1)); done")
            for client in clients
        ]  # fmt: skip

    def ask(self, text):
        """On the server's host, which is faster, while no client inserts."""
        with contextlib.closing(sqlite3.connect(self.path)) as base, base:
            return base.execute(text).fetchall()

    def count(self):
        """The rows of both clients."""
        return sum(command.output.count("\n") for command in self.commands)

    def has_failed(self):
        return any(command.status is not None for command in self.commands)

    def ends_and_is_verified(self):
        """How many rows there are."""
        for command in self.commands:
            command.signal(signal.SIGUSR1)
        wanted = []
        for client, command in zip(self.clients, self.commands, strict=True):
            status = command.end(PROGRAM_PATIENCE)
            assert status == 0, f"{client.name}: SQLite ended with {status}: {command.output[-2000:]}"
            wanted += [(client.name, n) for n in range(command.output.count("\n"))]
        said = self.ask("PRAGMA integrity_check")
        assert said == [("ok",)], said
        said = self.ask("SELECT who, n FROM t ORDER BY 1, 2")
        assert said == wanted, f"SQLite has {said}, not {wanted}"
        return self.count()


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
