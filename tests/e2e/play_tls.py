"""RPC-with-TLS (RFC 9289) with kernel clients and their agent, tlshd: files cross the wire encrypted, and locks survive what they
survive without TLS. The client sends MOUNT, NLM and NSM in the clear even then. These plays need Debian 13."""

import os
import time

import certs
from server import Server
from stage import Play
from until import until

CLEAR_CALLS = "nfs && rpc.msgtyp == 0 && nfs.procedure_v3 != 0"
AGENT = """
mkdir -p /etc/tls && cat >/etc/tlshd.conf <<'END'
[authenticate.client]
x509.truststore=/etc/tls/ca.pem
x509.certificate=/etc/tls/client.pem
x509.private_key=/etc/tls/client.key
END
chmod 600 /etc/tls/client.key; tlshd -s >/tmp/tlshd.log 2>&1 & """
# Sockets of generic netlink (16) that are in a group. The kernel tells the group of handshakes, and does not wait for it.
LISTENERS = """awk '$2 == 16 && $4 !~ /^0+$/' /proc/net/netlink | wc -l"""


class SecuredServer(Server):
    """Its export demands @transport; with @identities, of clients with these names."""

    def secure(self, transport, identities):
        self.ca = certs.Authority(os.path.join(self.daemon.state_dir, "ca"))
        certificate, key = self.ca.issue("server", "DNS:server")
        self.config = os.path.join(self.daemon.state_dir, "holdfast.yaml")
        with open(self.config, "w", encoding="ascii") as out:
            out.write(f"tls: {{certificate: {certificate}, key: {key}, client_ca: {self.ca.certificate}}}\n"
                      f"exports:\n  - {{path: {self.export}, name: /data, transport: {transport}, identities: {identities}}}\n")  # fmt: skip

    def starts(self, *settings):
        self.note(f"{self.name}: starts")
        self.daemon.start(*settings, flags=("--config", self.config))


class Secured(Play):
    debian = 13
    is_mounted = False
    transport = "tls"
    identities = "[]"

    def make_server(self):
        server = SecuredServer(self.stage.program, self.stage.network.server, self.settings, self.note)
        server.secure(self.transport, self.identities)
        self.addCleanup(self.look_at_agents)
        return server

    def look_at_agents(self):
        for client in (self.a, self.b):
            if not client.guest.is_gone:
                client.does("cat /tmp/tlshd.log", status=None)

    def copy_to(self, client, path, name):
        with open(path, encoding="ascii") as file:
            client.guest.run(f"mkdir -p /etc/tls; cat >/etc/tls/{name} <<'END'\n{file.read()}END")

    def starts_agent(self, client):
        """With a certificate in the machine's own name."""
        certificate, key = self.server.ca.issue(client.name, f"DNS:{client.name}")
        for path, name in ((self.server.ca.certificate, "ca.pem"), (certificate, "client.pem"), (key, "client.key")):
            self.copy_to(client, path, name)
        # The clock of an emulated machine may be late, and the certificates are valid from now on.
        client.does(f"date -s @{int(time.time()) + 1} >/dev/null")
        client.does(AGENT)
        until(lambda: client.guest.run(LISTENERS, status=None).strip() != "0", f"tlshd of {client.name} listens to the kernel")

    def mounts(self, *clients):
        for client in clients:
            self.starts_agent(client)
            client.mounts(options=f"vers=3,xprtsec={self.transport}")

    def tearDown(self):
        for client in (self.a, self.b):
            client.tidy()
            if not client.guest.is_gone:
                client.does("killall tlshd", status=None)
        super().tearDown()

    def assert_nothing_in_the_clear(self):
        self.assertTrue(self.capture.find("tls || tcp.payload contains 17:03:03"), "there is TLS on the wire")
        self.assertEqual(self.capture.find(CLEAR_CALLS), [])


class Reclaiming:
    """Beside a Secured: what holds for a client with a certificate and for one without."""

    def test_locks_are_reclaimed_after_the_death_of_the_server(self):
        self.mounts(self.a, self.b)
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)
        # Before that the server has promised nothing, and its next run does not know the client.
        self.server.wait("the waiter is answered", lambda server: server.answers("BLOCKED") == 1)
        self.server.is_killed_and_starts()
        self.server.ends_grace()
        self.server.has(locks=1, waiters=1)
        bob.still_waits()
        ada.writes("after the restart")
        ada.unlocks(0, 10)
        bob.gets()
        self.assert_nothing_in_the_clear()


class Encrypted(Reclaiming, Secured):
    def test_files_and_locks(self):
        self.mounts(self.a, self.b)
        self.a.does("dd if=/dev/urandom of=/mnt/big bs=64k count=64 2>/dev/null && md5sum </mnt/big >/mnt/sum")
        self.assertEqual(self.b.does("md5sum </mnt/big"), self.b.does("cat /mnt/sum"))
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.is_denied(0, 10)
        bob.waits(0, 10)
        ada.unlocks(0, 10)
        bob.gets()
        self.assert_nothing_in_the_clear()

    def test_a_client_without_tls_gets_nothing(self):
        self.assertNotEqual(self.b.guest.run("mkdir -p /mnt; /bin/mount -t nfs -o vers=3,retry=0,soft,timeo=50,retrans=1 server:/data "
                                             "/mnt >/dev/null 2>&1; echo $?", status=None).strip(), "0")  # fmt: skip


class Authenticated(Reclaiming, Secured):
    transport = "mtls"
    identities = "[clienta, clientb]"

    def test_the_reboot_of_a_client_frees_its_locks(self):
        self.mounts(self.a, self.b)
        self.a.opens("f").locks(0, 10)
        bob = self.b.opens("f")
        bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)
        self.a.crashes()
        self.a.boots()
        self.mounts(self.a)
        bob.gets()
        self.server.has(locks=1, waiters=0)
        self.assert_nothing_in_the_clear()


class Idle(Secured):
    """Linux closes a connection without NFS calls, after five minutes; here the server breaks it. A program that unlocks then has
    none: the kernel asks again, as it does after no other refusal, until another call has connected."""

    transport = "mtls"
    settings = ("tls.grace_seconds=0",)

    def test_an_unlock_waits_for_the_connection(self):
        self.mounts(self.a, self.b)
        ada, bob = self.a.opens("f"), self.b.opens("f")
        ada.locks(0, 10)
        bob.waits(0, 10)
        self.server.has(locks=1, waiters=1)
        self.server.breaks_connections_of(self.a)
        self.server.wait("clienta has no TLS connection", lambda server: server.client(self.a.address)["tls_connection"] == "none")
        ada.begins("unset 0 10")
        self.server.wait("the UNLOCK is put off", lambda server: server.answers("TLS_REQUIRED", procedure="UNLOCK") > 0)
        ada.still_waits()
        bob.still_waits()
        self.server.has(locks=1, waiters=1)
        self.a.does("echo again >/mnt/g")
        ada.gets("unlocked")
        bob.gets()
        self.assert_nothing_in_the_clear()


class Clear(Secured):
    """The counterpart: what the other plays do not find on the wire is found if a client does not use TLS."""

    transport = "any"

    def test_calls_in_the_clear_are_found(self):
        self.a.mounts(options="vers=3")
        self.a.does("echo plain >/mnt/f && cat /mnt/f")
        self.assertTrue(self.capture.find(CLEAR_CALLS))


class Named(Secured):
    transport = "mtls"
    identities = "[clienta]"

    def test_only_the_named_client_may_use_it(self):
        self.mounts(self.a)
        self.a.opens("f").locks(0, 10)
        self.starts_agent(self.b)
        self.assertNotEqual(self.b.guest.run("mkdir -p /mnt; /bin/mount -t nfs -o vers=3,xprtsec=mtls,retry=0,soft,timeo=50,retrans=1 "
                                             "server:/data /mnt >/dev/null 2>&1; echo $?", status=None).strip(), "0")  # fmt: skip
