"""The server's machine loses power and boots again: what it had not written back is gone, and it knows."""

from stage import Play


class Power(Play):
    def setUp(self):
        super().setUp()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")

    def test_what_was_not_written_back(self):
        """The store after the power failure says that ada holds the first range and that the third is free. Both are out of
        date. But the store knows each client that holds locks, and those clients reclaim them. The server grants no new
        lock meanwhile."""
        self.ada.locks(0, 10)
        self.bob.locks(10, 10)
        self.server.syncs()
        self.ada.unlocks(0, 10)
        self.bob.locks(0, 10)
        self.ada.locks(20, 10)
        self.server.loses_power()
        self.server.starts("recovery.window_seconds=3600")
        eve = self.b.opens("f")
        eve.begins("set w 50 10")
        self.server.refuses_for_grace()
        self.server.wait("all is reclaimed", lambda server: self.held(server) == self.truth())
        # The server cannot know whether that was all.
        eve.still_waits()
        self.server.is_told_to_end_grace()
        self.assertEqual(self.held(self.server), self.truth())
        eve.gets("granted")
        self.ada.is_denied(0, 1)
        self.bob.is_denied(20, 1)

    @staticmethod
    def truth():
        return {("clientb", 0, 20): "held", ("clienta", 20, 10): "held"}

    @staticmethod
    def held(server):
        """{(client, offset, length): state}, with adjacent ranges of one owner as one."""
        found = {}
        for lock in sorted(server.locks, key=lambda lock: lock["offset"]):
            name, start, length = lock["owner"].split(":")[1], lock["offset"], lock["length"]
            before = [key for key in found if key[0] == name and key[1] + key[2] == start]
            if before and found[before[0]] == lock["state"]:
                del found[before[0]]
                start, length = before[0][1], before[0][2] + length
            found[name, start, length] = lock["state"]
        return found

    def test_a_client_that_held_nothing_by_the_store(self):
        """Its registration was written back with the first lock that it ever had; so it is told, and reclaims."""
        self.ada.locks(0, 10)
        self.ada.unlocks(0, 10)
        self.server.has(locks=0)
        self.server.syncs()
        self.ada.locks(0, 10)
        self.server.loses_power()
        self.server.starts("recovery.window_seconds=3600")
        self.bob.begins("set w 0 10")
        self.server.refuses_for_grace()
        self.server.wait("it is reclaimed", lambda server: [lock["state"] for lock in server.locks] == ["held"])
        self.bob.still_waits()
        self.server.is_told_to_end_grace()
        self.bob.gets("denied")


class Durable(Play):
    """Each lock is written back before its client hears of it: the list is complete, and grace ends early."""

    settings = ("store.lock_durability=machine",)

    def test_nothing_is_lost(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.locks(10, 10)
        self.server.loses_power()
        self.server.starts("recovery.window_seconds=3600")
        self.server.ends_grace()
        self.server.has(locks=2)
        self.assertEqual({lock["state"] for lock in self.server.locks}, {"held"})
        bob.is_denied(0, 1)
        ada.is_denied(10, 1)
