"""A client is cut off while the server restarts: told when the wire is whole again, and never two holders."""

from stage import Play


class Partition(Play):
    def setUp(self):
        super().setUp()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")
        self.ada.locks(0, 10)
        self.a.is_cut_off()

    def is_unreachable(self, server):
        return any(client["status"] in ("unreachable", "crashed") for client in server.get("clients")["clients"])

    def test_healed_inside_grace_it_reclaims(self):
        self.server.is_killed_and_starts("recovery.window_seconds=3600")
        self.server.wait("clienta could not be told", self.is_unreachable)
        self.assertTrue(self.server.status["grace"]["active"])
        self.a.is_back()
        self.server.wait("the lock is held again",
                         lambda server: [lock["state"] for lock in server.locks] == ["held"], 120)  # fmt: skip
        self.server.ends_grace()
        self.bob.is_denied(0, 10)

    def test_healed_after_grace_the_next_holder_is_safe(self):
        self.server.is_killed_and_starts("recovery.window_seconds=8")
        self.server.ends_grace()
        self.bob.locks(0, 10)
        refused = self.server.answers("DENIED_GRACE_PERIOD")
        self.a.is_back()
        # It is told, and wants its lock back: it had it when it last heard of the server.
        self.server.wait("clienta's reclaim is refused",
                         lambda server: server.answers("DENIED_GRACE_PERIOD") > refused, 120)  # fmt: skip
        self.assert_bob_has_it_alone()
        # Its kernel does not tell the program ada, which works on. Its UNLOCK must not release bob's lock.
        self.ada.unlocks(0, 10)
        self.assert_bob_has_it_alone()
        self.a.opens("f").is_denied(5, 1)

    def test_healed_after_grace_and_no_other_had_it_since(self):
        """Then it is as if grace had waited."""
        self.server.is_killed_and_starts("recovery.window_seconds=8")
        self.server.ends_grace()
        self.server.has(locks=0)
        self.bob.locks(20, 10)
        self.a.is_back()
        self.server.wait("clienta has its lock back", lambda server: len(server.locks) == 2, 120)
        self.bob.is_denied(5, 1)

    def assert_bob_has_it_alone(self):
        (lock,) = self.server.locks
        self.assertIn("clientb", lock["owner"])
        self.assertEqual((lock["offset"], lock["length"], lock["state"]), (0, 10, "held"))
