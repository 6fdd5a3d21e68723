"""What is done to the nodes of a service, their wires and their database, in the torture of takeovers.

Each fault ends when what it broke is mended, or when another node serves; the torture starts what was killed.
"""

import signal

from until import lapse


class Faults:
    def __init__(self, torture):
        self.torture = torture
        self.random = torture.random
        self.pg = torture.pg

    def all(self):
        """{name: (how likely, what is done)}"""
        return {
            "kill": (4, self.kill_active),
            "kill standby": (1, self.kill_standby),
            "kill both": (1, self.kill_both),
            "kill successor": (1, self.kill_successor),
            "stop and go on": (3, self.stand_still),
            "short stop": (1, self.stand_still_shortly),
            "move": (3, self.move),
            "take": (2, self.take),
            "terminate": (2, self.terminate),
            "link down": (2, self.pull_wire),
            "link of the standby": (1, self.pull_wire_of_standby),
            "database away": (1, self.freeze_database),
            "database killed": (1, self.kill_database),
            "all killed": (1, self.kill_all),
            "cut from the database": (2, self.cut_way),
            "way stands still": (2, self.freeze_way),
            "standby cut from the database": (1, self.cut_way_of_standby),
        }

    def strike(self, active, standby):
        faults = {name: fault for name, fault in self.all().items() if self.torture.args.fault in ("", name)}
        name = self.random.choices(list(faults), [weight for weight, _ in faults.values()])[0]
        self.torture.say(f"{name}: {active.name} serves")
        faults[name][1](active, standby)
        return name

    def until_takes_over(self, standby):
        self.torture.wait(lambda: standby.role == "active", f"{standby.name} takes over")

    def while_away(self, longest):
        lapse(self.random.uniform(0.05, longest))  # an outage of any length

    # Processes

    def kill_active(self, active, standby):
        """The machine, or the process alone."""
        self.random.choice((active.crash, active.kill_process))()
        if self.random.random() < 0.3:
            active.start()  # at once: whichever of them is faster has it
        else:
            self.until_takes_over(standby)

    def kill_standby(self, active, standby):
        standby.crash()
        self.while_away(0.3)

    def kill_both(self, active, standby):
        for node in self.random.sample((active, standby), 2):
            node.crash()
        self.while_away(0.5)

    def kill_successor(self, active, standby):
        """It has claimed the service, and perhaps not begun to serve."""
        active.crash()
        self.until_takes_over(standby)
        self.while_away(0.1)
        standby.crash()

    def stand_still(self, active, standby):
        """Beyond its lease; it goes on when another node serves, with what has come into its sockets."""
        active.pause()
        try:
            self.until_takes_over(standby)
            self.while_away(0.3)
        finally:
            active.go_on()

    def stand_still_shortly(self, active, standby):
        active.pause()
        try:
            self.while_away(self.torture.lease)
        finally:
            active.go_on()

    # Orders

    def move(self, active, standby):
        target = self.random.choice(("move", f"move?to={standby.name}"))
        if self.torture.order(active, target):
            self.until_takes_over(standby)

    def take(self, active, standby):
        if self.torture.order(standby, "take"):
            self.until_takes_over(standby)

    def terminate(self, active, standby):
        active.stop()
        self.until_takes_over(standby)

    # Wires

    def pull_wire(self, active, standby):
        self.torture.wire.pull(active.number)
        try:
            self.until_takes_over(standby)
        finally:
            self.torture.wire.plug_in(active.number)

    def pull_wire_of_standby(self, active, standby):
        self.torture.wire.pull(standby.number)
        self.while_away(0.5)
        self.torture.wire.plug_in(standby.number)

    # The database

    def freeze_database(self, active, standby):
        self.pg.signal(signal.SIGSTOP)
        try:
            self.while_away(2.5 * self.torture.lease)
        finally:
            self.pg.signal(signal.SIGCONT)

    def kill_database(self, active, standby):
        self.pg.kill()
        self.while_away(self.torture.lease)
        self.pg.start()

    def kill_all(self, active, standby):
        self.pg.kill()
        active.crash()
        standby.crash()
        self.pg.start()

    def cut_way(self, active, standby):
        active.way.cut()
        try:
            self.until_takes_over(standby)
        finally:
            active.way.mend()

    def freeze_way(self, active, standby):
        active.way.freeze()
        try:
            self.until_takes_over(standby)
            self.while_away(0.3)
        finally:
            active.way.mend()

    def cut_way_of_standby(self, active, standby):
        standby.way.cut()
        self.while_away(2 * self.torture.lease)
        standby.way.mend()
