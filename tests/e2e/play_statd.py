"""A client whose rpc.statd does not run: it hears of no restart of the server, and its kernel knows."""

from stage import Play


class Statd(Play):
    def setUp(self):
        super().setUp()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")
        self.addCleanup(self.is_started)

    def is_stopped(self, how=""):
        self.a.does(f"killall {how} rpc.statd", status=None)
        self.a.has_no("rpc.statd")

    def is_started(self):
        if not self.a.guest.is_gone:
            self.a.does("pidof rpc.statd >/dev/null || rpc.statd --no-notify")

    def test_stopped_before_the_first_lock(self):
        """The client's kernel asks for no lock that it could not reclaim; it does when its statd is back."""
        self.is_stopped()
        self.ada.begins("set w 0 10")
        self.bob.locks(0, 10)
        self.bob.unlocks(0, 10)
        self.assertEqual([one["address"] for one in self.server.clients], [self.b.address])
        self.ada.still_waits()
        self.is_started()
        self.ada.gets("granted")
        self.bob.is_denied(0, 10)

    def test_stopped_while_a_lock_is_held(self):
        """It cannot be told of the restart: so grace goes on for the others, and as soon as it can be told, it reclaims."""
        self.ada.locks(0, 10)
        self.is_stopped()
        self.server.is_killed_and_starts("recovery.window_seconds=3600")
        self.bob.begins("set w 0 10")
        self.server.wait("clienta could not be told",
                         lambda server: server.client(self.a.address)["status"] == "crashed")  # fmt: skip
        self.server.refuses_for_grace()
        self.bob.still_waits()
        self.is_started()
        self.server.wait("clienta reclaims",
                         lambda server: [lock["state"] for lock in server.locks] == ["held"], 120)  # fmt: skip
        self.server.ends_grace()
        self.bob.gets("denied")
        self.ada.unlocks(0, 10)
        self.bob.locks(0, 10)

    def test_killed_without_a_word(self):
        """Its port is still in its machine's rpcbind. A new statd has another one, and is told."""
        self.ada.locks(0, 10)
        self.is_stopped("-9")
        self.server.is_killed_and_starts("recovery.window_seconds=3600")
        self.server.wait("clienta could not be told",
                         lambda server: server.client(self.a.address)["status"] == "crashed")  # fmt: skip
        self.is_started()
        self.server.wait("clienta reclaims",
                         lambda server: [lock["state"] for lock in server.locks] == ["held"], 120)  # fmt: skip
        self.server.ends_grace()
        self.bob.is_denied(0, 10)
