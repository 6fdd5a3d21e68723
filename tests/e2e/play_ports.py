"""A client with fixed ports for its lock manager and its rpc.statd (docs/guide/firewall.md), and a firewall that lets the server
call only these and the client's rpcbind."""

from stage import Play

CONFIG = r"[lockd]\nport=32803\nudp-port=32769\n[statd]\nport=662\n"
LOCKD_TCP, LOCKD_UDP, STATD, RPCBIND = 32803, 32769, 662, 111


class Fixed(Play):
    is_mounted = False

    def setUp(self):
        super().setUp()
        self.addCleanup(self.a.guest.crash)  # its kernel would keep the ports
        self.a.does(f"printf '{CONFIG}' >/etc/nfs.conf && killall rpc.statd")
        self.a.has_no("rpc.statd")
        self.a.does("rpc.statd --no-notify")
        self.server.calls_only(self.a, tcp=(RPCBIND, LOCKD_TCP, STATD), udp=(RPCBIND, LOCKD_UDP, STATD))
        self.addCleanup(self.server.calls_any)
        self.a.mounts()
        self.b.mounts()
        self.ada, self.bob = self.a.opens("f"), self.b.opens("f")

    def registered(self, program):
        """The ports of a program at the client's rpcbind."""
        rows = [line.split() for line in self.a.does("rpcinfo -p").splitlines()]
        return {(row[2], int(row[3])) for row in rows if row[0] == str(program)}

    def test_they_are_used(self):
        self.assertEqual(self.registered(100021), {("tcp", LOCKD_TCP), ("udp", LOCKD_UDP)})
        self.assertEqual(self.registered(100024), {("tcp", STATD), ("udp", STATD)})

    def test_a_grant_comes_through(self):
        self.bob.locks(0, 10)
        self.ada.waits(0, 10)
        self.server.has(waiters=1)
        self.bob.unlocks(0, 10)
        self.ada.gets("granted", timeout=20)  # the kernel asks again by itself after 30 s

    def test_the_notice_of_a_restart_comes_through(self):
        self.ada.locks(0, 10)
        self.server.is_killed_and_starts("recovery.window_seconds=3600")
        self.server.wait("clienta reclaims", lambda server: [lock["state"] for lock in server.locks] == ["held"])
        self.server.ends_grace()
        self.bob.is_denied(0, 10)


class Unprivileged(Play):
    """A server of an ordinary user has neither port 111 nor a reserved one (docs/guide/install.md): files, and no locks."""

    is_mounted = False
    settings = ("server.port=12049", "server.portmap_port=11111")

    def test_a_mount_without_a_port_mapper(self):
        for client in (self.a, self.b):
            client.mounts(options="vers=3,nolock,proto=tcp,port=12049,mountproto=tcp,mountport=12049")
        self.a.opens("f").writes("hello")
        self.b.opens("f").reads("hello")
