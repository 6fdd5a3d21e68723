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
        self.server.is_killed_and_starts("recovery.window_seconds=60")
        self.server.wait("clienta could not be told", self.is_unreachable)
        self.assertTrue(self.server.status["grace"]["active"])
        self.a.is_back()
        self.server.wait("the lock is held again",
                         lambda server: [lock["state"] for lock in server.locks] == ["held"], 50)  # fmt: skip
        self.server.ends_grace(timeout=70)
        self.bob.is_denied(0, 10, timeout=30)

    def test_healed_after_grace_the_next_holder_is_safe(self):
        self.server.is_killed_and_starts("recovery.window_seconds=8")
        self.server.ends_grace(timeout=30)
        self.bob.locks(0, 10, timeout=30)
        told = self.server.rest.metrics().get('nsm_notifications_total{result="success"}', 0)
        self.a.is_back()
        self.server.wait(
            "clienta is told",
            lambda server: server.rest.metrics().get('nsm_notifications_total{result="success"}', 0) > told, 90,
        )  # fmt: skip
        eve = self.a.opens("f")
        self.server.has(locks=1)
        (lock,) = self.server.locks
        self.assertIn("clientb", lock["owner"])
        self.assertEqual(eve.asks("test w 0 10").split()[0], "held")
