"""A kernel client of a storm: a few processes on it that lock and wait."""

from guest import Gone
from ledger import FILES, SLOT, Actor
from until import lapse

N_PROCESSES = 2  # for each file


class Kernel(Actor):
    def __init__(self, client, ledger, seed):
        super().__init__(client.name, ledger, seed)
        self.client = client
        self.counts = {"locked": 0, "granted": 0, "refused": 0, "interrupted": 0, "reboots": 0}
        self.open_all()

    def open_all(self):
        self.processes = {
            f"{self.name}/{file}.{n}": (file, self.client.opens(file)) for file in FILES for n in range(N_PROCESSES)
        }

    def act(self):
        owner = self.random.choice(list(self.processes))
        file, process = self.processes[owner]
        mine = self.ledger.of(owner)
        key = (file, self.pick()[1])
        if mine and self.random.random() < 0.45:
            key = self.random.choice(list(mine))
            self.ledger.give(owner, key)
            process.unlocks(key[1] * SLOT, SLOT)
        elif key not in mine:
            exclusive = self.random.random() < 0.6
            self.asks(owner, process, key, exclusive)
        lapse(self.random.uniform(0, 0.05))  # its pace

    def asks(self, owner, process, key, exclusive):
        may_wait = self.random.random() < 0.5
        process.begins(f"{'wait' if may_wait else 'set'} {'w' if exclusive else 'r'} {key[1] * SLOT} {SLOT}")
        # A waiting process is interrupted at the end. A signal changes nothing for a process that was told to ask later.
        if may_wait:
            process.command.wait_line(self.random.uniform(0.2, 4))
        answer = process.ends_wait() if may_wait else process.gets_any()
        if answer == "granted":
            self.ledger.take(owner, key, exclusive)
            self.counts["granted" if may_wait else "locked"] += 1
        elif answer in ("denied", "interrupted", "EDEADLK"):
            self.counts["interrupted" if answer == "interrupted" else "refused"] += 1
        else:
            self.ledger.wrong(f"{owner}: {key}: {answer}")

    def go_down_and_up(self):
        self.client.crashes()
        try:
            self.client.boots()
        except Gone:
            if not self.is_over:
                raise
        self.client.mounts()
        self.open_all()
        self.counts["reboots"] += 1
