"""Clients behind a router that gives them all its own address: they can call the server, and it cannot call them."""

from stage import Play


class Nat(Play):
    def setUp(self):
        router = self.stage.make_router()
        super().setUp()
        for client in (self.a, self.b):
            client.unmounts()
            client.moves_behind(router)
            client.mounts()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")

    def test_neighbours_conflict_and_wait(self):
        """GRANTED does not reach them. They ask again by themselves, every half minute, and have it then."""
        self.ada.locks(0, 10)
        self.assertEqual({one["address"] for one in self.server.clients}, {self.a.address})
        self.bob.is_denied(5, 1)
        self.bob.locks(10, 10)
        self.server.has(locks=2)
        self.bob.waits(0, 10)
        self.server.has(locks=2, waiters=1)
        self.ada.unlocks(0, 10)
        self.bob.gets(timeout=90)
        self.ada.is_denied(0, 10)
        self.server.has(locks=1, waiters=0)

    def test_the_reboot_of_one_leaves_its_neighbour_alone(self):
        """Its notice comes from an address that is also the other's; the name in it decides."""
        self.ada.locks(0, 10)
        self.bob.locks(10, 10)
        self.a.crashes()
        self.bob.is_denied(0, 1)
        self.a.boots()
        self.server.wait("the locks of clienta are gone", lambda server: len(server.locks) == 1)
        (lock,) = self.server.locks
        self.assertIn("clientb", lock["owner"])
        self.bob.locks(0, 10)
        self.a.mounts()
        self.a.opens("f").is_denied(10, 1)

    def test_the_server_is_killed(self):
        """No notice reaches the clients, so they cannot know that they have to reclaim. In grace no other client gets
        their locks. After grace the locks are free, and the server logs which clients it could not tell."""
        self.ada.locks(0, 10)
        self.server.is_killed_and_starts("recovery.window_seconds=3600")
        self.bob.begins("set w 0 10")
        self.server.refuses_for_grace()
        self.server.wait("clienta could not be told", lambda server: "crashed" in [c["status"] for c in server.clients])
        self.bob.still_waits()
        self.server.is_told_to_end_grace()
        self.bob.gets("granted")
        (lock,) = self.server.locks
        self.assertIn("clientb", lock["owner"])
