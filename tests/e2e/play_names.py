"""Names and addresses that are not what one would like: changed, shared, of another family."""

from stage import MOUNT, Play


class Hostname(Play):
    def test_changed_under_a_mount(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        self.a.does("hostname renamed")
        eve = self.a.opens("f")
        eve.is_denied(0, 1)
        eve.locks(20, 10)
        ada.unlocks(0, 10)
        bob.locks(0, 10)
        bob.is_denied(20, 1)
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=2)
        bob.is_denied(20, 1)
        eve.closes()
        self.server.has(locks=1)

    def test_changed_between_crash_and_boot(self):
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks()
        bob.waits()
        self.server.has(waiters=1)
        self.a.crashes()
        self.a.boots(name="renamed")
        bob.gets()


class OneName(Play):
    """Two machines, both called clienta: ada and bob have the same svid and oh even."""

    is_mounted = False

    def setUp(self):
        super().setUp()
        self.b.does("hostname clienta")
        self.a.mounts()
        self.b.mounts()
        # A kernel counts its owners up.
        last = {client: self.next_svid(client) for client in (self.a, self.b)}
        for _ in range(abs(last[self.a] - last[self.b])):
            behind = min(last, key=last.get)
            last[behind] = self.next_svid(behind)
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")

    def next_svid(self, client):
        process = client.opens("counted")
        process.locks()
        (lock,) = self.server.locks
        process.closes()
        self.server.has(locks=0)
        return int(lock["owner"].split(":")[2])

    def assert_they_look_the_same(self):
        owners = [lock["owner"] for lock in self.server.locks]
        self.assertEqual((len(owners), len(set(owners))), (2, 1), owners)

    def test_they_conflict(self):
        self.ada.locks()
        self.bob.is_denied()
        self.bob.waits()
        self.server.has(locks=1, waiters=1)
        self.ada.unlocks()
        self.bob.gets()
        self.ada.is_denied()

    def test_both_reclaim(self):
        self.ada.locks(0, 10)
        self.bob.locks(10, 10)
        self.assert_they_look_the_same()
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=2)
        self.ada.is_denied(10, 1)
        self.bob.is_denied(0, 1)

    def test_the_reboot_of_one_leaves_the_other_alone(self):
        self.ada.locks(0, 10)
        self.bob.locks(10, 10)
        self.assert_they_look_the_same()
        eve = self.b.opens("f")
        eve.waits(0, 10)
        self.server.has(locks=2, waiters=1)
        self.a.crashes()
        self.a.boots()
        eve.gets()
        self.a.mounts()
        self.a.opens("f").is_denied(10, 1)


class Ipv6(Play):
    is_mounted = False

    def setUp(self):
        super().setUp()
        self.a.mounts("[fd98::1]:/data", "vers=3,proto=tcp6")
        self.b.mounts("server6:/data", "vers=3")
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")

    def test_grant(self):
        self.ada.locks()
        self.bob.waits()
        self.server.has(waiters=1)
        addresses = {client.guest.address6 for client in (self.a, self.b)}
        self.assertEqual({one["address"] for one in self.server.clients}, addresses)
        self.ada.unlocks()
        self.bob.gets()

    def test_reclaim(self):
        self.ada.locks()
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=1)
        self.bob.is_denied()

    def test_reboot_frees(self):
        self.ada.locks()
        self.bob.waits()
        self.server.has(waiters=1)
        self.a.crashes()
        self.a.boots()
        self.bob.gets()


class NoVersion(Play):
    is_mounted = False

    def test_the_client_falls_back_to_version_3(self):
        self.a.mounts(options="")
        self.assertIn("vers=3", self.a.does(f"grep ' {MOUNT} ' /proc/mounts"))
        self.a.opens("f").locks()
        self.server.has(locks=1)
