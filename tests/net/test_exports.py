#!/usr/bin/env python3
"""Exports as the operator writes them, across a wire: rules for different clients, clients by name, groups of
users who are in many.

    HOLDFASTD=PATH test_exports.py [unittest's own arguments]
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported, nfs
from nameserver import NameServer
from play import main
from rpc import NoReply, auth_sys, call_message, exchange
from until import until

LOADED = "configuration loaded again"


class Exports(Exported):
    def client(self, host, **how):
        with host.namespace:
            client = nfs.Client(2049, remote=host.server, local=host.address, **how)
        self.addCleanup(client.close)
        return client

    def reload(self, exports):
        before = self.daemon.log.count(LOADED)
        self.write_config(exports)
        self.addCleanup(self.write_config, self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        until(lambda: self.daemon.log.count(LOADED) > before, "the exports were read again", more=lambda: self.daemon.log)


class Rules(Exports):
    """One export: the host a may do all as root, all others of its network may read; b is among them."""

    settings = ("api.listen=127.0.0.1:8049",)
    exports = (
        "{{path: {base}/data, name: /data, access: ro, rules: [{{clients: [10.98.0.10, '::1', 127.0.0.0/8], access: rw, "
        "squash: none}}, {{clients: [10.98.0.0/24], squash: all, anon_uid: 4321, anon_gid: 4322}}]}}",
    )

    def test_rights_of_files(self):
        a, b = self.client(self.a), self.client(self.b, uid=4321)
        os.chmod(self.path, 0o600)
        root = a.root("/data")
        self.assertEqual(b.root("/data"), root)
        self.assertEqual(a.write(self.fh, b"x").stat, nfs.OK)
        self.assertEqual(b.read(self.fh, 0, 1).stat, nfs.ACCES)
        os.chown(self.path, 4321, 4322)
        self.assertEqual(self.client(self.b, uid=1).read(self.fh, 0, 1).stat, nfs.OK)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.ROFS)

    def test_rights_of_locks(self):
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10))
        self.assertEqual(self.b.ask(nlm.LOCK, self.lock_of(self.b, 20, 10)).stat, nlm.S_ROFS)
        shared = self.lock_of(self.b, 20, 10, exclusive=False)
        self.assert_granted(self.b, shared)

    def test_a_reload_changes_the_rule_of_a_client(self):
        b = self.client(self.b)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.ROFS)
        self.reload(("{{path: {base}/data, name: /data, squash: none, rules: [{{clients: [10.98.0.11, 127.0.0.0/8]}}]}}",))
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.OK)
        self.assertEqual(self.client(self.a).write(self.fh, b"x").stat, nfs.ACCES)
        self.reload(self.exports)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.ROFS)

    def test_rules_are_shown(self):
        share = self.rest.get("/api/v1/shares").json["shares"][0]
        self.assertEqual(share["access"], "rw")
        self.assertEqual(share["allowed"], ["10.98.0.10", "::1", "127.0.0.0/8", "10.98.0.0/24"])
        self.assertEqual(share["rules"][1], {"clients": ["10.98.0.0/24"], "access": "ro", "squash": "all", "anon_uid": 4321,
                                             "anon_gid": 4322, "secure": False})  # fmt: skip


class Names(Exports):
    """Clients by name: alpha (the host a) reads, all of lab (b, and d from its first call on) write, all others of
    example.org have nothing. A name server of the test's own knows them."""

    n_hosts = 9
    exports = (
        "{{path: {base}/data, name: /data, squash: none, rules: [{{clients: [127.0.0.0/8, '::1']}}, "
        "{{clients: [alpha.example.org], access: ro}}, {{clients: ['*.lab.example.org', gone.example.org, near]}}]}}",
    )

    @classmethod
    def make_daemon(cls, settings):
        cls.names = NameServer(cls.network.server)
        cls.addClassCleanup(cls.names.close)
        daemon = super().make_daemon(settings)
        for path, text in (("/etc/resolv.conf", "nameserver 127.0.0.1\nsearch corp.test\noptions timeout:1 attempts:1\n"),
                           ("/etc/hosts", "127.0.0.1 localhost\n10.98.0.16 noted.lab.example.org noted\n"),
                           ("/etc/nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n")):  # fmt: skip
            daemon.over[path] = os.path.join(cls.base, os.path.basename(path))
            with open(daemon.over[path], "w", encoding="ascii") as out:
                out.write(text)
        for number, name in enumerate(("alpha", "ws1.lab", "liar.lab", "ws2.lab", "ws3.lab", "other")):
            address = f"10.98.0.{10 + number}"
            cls.names.add(f"{name}.example.org", "192.0.2.1" if name == "liar.lab" else address)
            cls.names.add_reverse(address, f"{name}.example.org")
        # The search list has a host that is called like one of lab.
        cls.names.add_reverse("10.98.0.17", "ghost.lab.example.org")
        for name in ("ghost.lab.example.org", "gone.example.org"):
            cls.names.add(f"{name}.corp.test", "10.98.0.17")
        cls.names.add("near.corp.test", "10.98.0.18")
        return daemon

    def setUp(self):
        super().setUp()
        self.names.is_silent = False
        self.d, self.e, self.f, self.g, self.h, self.i = self.hosts[3:]

    def test_hosts_and_domains(self):
        a, b = self.client(self.a), self.client(self.b)
        # The very first call waits for the look-up, but on a busy machine not long enough.
        root = self.until(lambda: a.mnt("/data"), "a may mount", passes=lambda answer: answer.stat == 0).fh
        self.assertEqual(self.until(lambda: b.mnt("/data"), "b may mount", passes=lambda answer: answer.stat == 0).fh, root)
        self.assertEqual(a.write(self.fh, b"x").stat, nfs.ROFS)
        self.assertEqual(b.write(self.fh, b"x").stat, nfs.OK)
        for host in (self.c, self.f):  # c: its name has another address
            client = self.client(host)
            self.assertEqual(client.mnt("/data").stat, 13)
            self.until(lambda: client.getattr(self.fh).stat, "it is refused", passes=lambda stat: stat == nfs.ACCES)
        self.assertEqual(self.daemon.log.count("a host of an export has no address; its clients are refused host=gone"), 1)
        asked = len(self.names.asked)
        for _ in range(100):
            self.assertEqual(b.getattr(root).stat, nfs.OK)
        self.assertEqual(len(self.names.asked), asked, "what is known is not asked again at once")

    def test_a_name_with_a_dot_is_whole(self):
        """The search list of resolv.conf counts only for names without a dot."""
        for host in (self.g, self.i):  # in /etc/hosts; "near" in the domain of the search list
            client = self.client(host)
            self.until(lambda: client.mnt("/data").stat, "it may mount", passes=lambda stat: stat == 0)
        ghost = self.client(self.h)
        stat = self.until(lambda: ghost.getattr(self.fh).stat, "it is answered", passes=lambda stat: stat != nfs.JUKEBOX)
        self.assertEqual(stat, nfs.ACCES)
        asked = [name for name, _ in self.names.asked if name.endswith(".corp.test")]
        self.assertEqual(set(asked), {"near.corp.test"})

    def test_a_reload_asks_anew(self):
        """What was known counts until the answer is there."""
        client = self.client(self.a)
        self.until(lambda: client.mnt("/data").stat, "it may mount", passes=lambda stat: stat == 0)
        self.names.add("alpha.example.org", "192.0.2.9")
        self.addCleanup(self.reload, self.exports)
        self.addCleanup(self.names.add, "alpha.example.org", self.a.address)
        self.assertEqual(client.getattr(self.fh).stat, nfs.OK)
        self.reload(self.exports)
        self.until(lambda: client.getattr(self.fh).stat, "it is refused", passes=lambda stat: stat == nfs.ACCES)

    def test_while_a_name_is_not_known(self):
        """The name server does not answer: the client is to try again, and others are served meanwhile."""
        self.names.is_silent = True
        d, near = self.client(self.d), nfs_near(self)
        begun = time.monotonic()
        self.assertEqual(d.getattr(self.fh).stat, nfs.JUKEBOX)
        self.assertEqual(d.write(self.fh, b"x").stat, nfs.JUKEBOX)
        self.assertEqual(near.getattr(self.fh).stat, nfs.OK)
        self.assertLess(time.monotonic() - begun, 3, "nothing waited for the name server")
        lock = self.lock_of(self.d, 0, 10)
        self.assertEqual(self.d.ask(nlm.LOCK, lock).stat, nlm.S_GRACE)
        self.assertEqual(self.d.ask(nlm.TEST, lock).stat, nlm.S_GRACE)
        # A client takes S_GRACE for a final no to a reclaim: it gets no answer, and asks again.
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.but(reclaim=True).args(nlm.LOCK), cred=auth_sys(self.d.name))
        self.assertRaises(NoReply, exchange, self.d.caller("tcp"), message, 0.5)
        self.d.drop_callers()
        self.until(lambda: "cannot look up the name of a client; it is tried again peer=10.98.0.13" in self.daemon.log,
                   "the failure is logged")  # fmt: skip
        self.names.is_silent = False
        self.until(lambda: d.getattr(self.fh).stat, "it is known", passes=lambda stat: stat == nfs.OK)
        self.assertEqual(d.write(self.fh, b"x").stat, nfs.OK)
        self.assert_granted(self.d, lock)
        self.assertEqual(self.daemon.log.count("it is tried again peer=10.98.0.13"), 1)

    def test_mount_does_not_wait_for_ever(self):
        self.names.is_silent = True
        e, near = self.client(self.e), nfs_near(self)
        begun = time.monotonic()
        self.assertEqual(e.mnt("/data").stat, 13)
        self.assertLess(time.monotonic() - begun, 20)
        self.assertIn("client refused for now: the names of the export's clients are not looked up yet", self.daemon.log)
        self.assertEqual(near.mnt("/data").stat, 0)
        self.names.is_silent = False
        self.until(lambda: e.mnt("/data").stat, "it may mount", passes=lambda stat: stat == 0)

    def test_shown(self):
        with self.network.server, nfs.Client(2049) as client:
            self.assertEqual(client.exports()["/data"][2:], ["alpha.example.org", "*.lab.example.org", "gone.example.org", "near"])


def nfs_near(test):
    """A client that needs no look-up."""
    with test.network.server:
        client = nfs.Client(2049)
    test.addCleanup(client.close)
    return client


class UsersOfThisHost(Exports):
    N = 40
    exports = ("{{path: {base}/data, name: /data, squash: none}}",)

    @classmethod
    def make_daemon(cls, settings):
        daemon = super().make_daemon(settings)
        members = "".join(f"g{i}:x:{6000 + i}:many\n" for i in range(cls.N))
        for path, text in (
            ("/etc/passwd", "root:x:0:0::/:/bin/sh\nmany:x:5000:5000::/:/bin/sh\nfew:x:5001:5001::/:/bin/sh\n"),
            ("/etc/group", f"root:x:0:many\nmany:x:5000:\nfew:x:5001:\n{members}"),
            ("/etc/nsswitch.conf", "hosts: files\npasswd: files\ngroup: files\n"),
        ):
            daemon.over[path] = os.path.join(cls.base, os.path.basename(path))
            with open(daemon.over[path], "w", encoding="ascii") as out:
                out.write(text)
        return daemon

    def belongs_to(self, gid):
        os.chown(self.path, 0, gid)
        os.chmod(self.path, 0o660)

    def read_stat(self, host, **who):
        """The client tries again while the groups are being looked up."""
        client = self.client(host, **who)
        return self.until(lambda: client.read(self.fh, 0, 1), "it is answered", passes=lambda answer: answer.stat != nfs.JUKEBOX).stat

    def lock_stat(self, uid):
        lock = self.lock_of(self.a, 0, 10)
        cred = auth_sys(self.a.name, uid, uid, ())
        ask = lambda: exchange(self.a.caller("tcp"), call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=cred))
        return self.until(lambda: nlm.res_of(nlm.LOCK, ask()), "it is answered", passes=lambda answer: answer.stat != nlm.S_GRACE).stat


class Groups(UsersOfThisHost):
    """server.manage_gids: the groups that this host knows of a user count, and not those that the client names."""

    settings = ("server.manage_gids=true",)

    def test_a_user_of_many_groups(self):
        gids = tuple(range(6000, 6016))  # all that fit
        for gid in (6000, 6017, 6000 + self.N - 1, 5000):
            self.belongs_to(gid)
            self.assertEqual(self.read_stat(self.a, uid=5000, gid=5000, gids=gids), nfs.OK, gid)
        self.belongs_to(6000 + self.N)
        self.assertEqual(self.read_stat(self.a, uid=5000, gid=5000, gids=gids), nfs.ACCES)

    def test_locks(self):
        self.belongs_to(6030)
        self.assertEqual(self.lock_stat(5000), nlm.S_GRANTED)
        self.assertEqual(self.lock_stat(5001), nlm.S_FAILED)

    def test_what_the_client_names_does_not_count(self):
        self.belongs_to(6030)
        self.assertEqual(self.read_stat(self.a, uid=5001, gid=5001, gids=(6030,)), nfs.ACCES)

    def test_the_group_of_the_call_is_the_clients(self):
        """As with the kernel's server: newgrp has effect on a client."""
        self.belongs_to(6030)
        self.assertEqual(self.read_stat(self.a, uid=5001, gid=6030), nfs.OK)
        self.assertEqual(self.read_stat(self.a, uid=5001, gid=6031), nfs.ACCES)

    def test_a_user_that_is_not_known_here(self):
        """As with the kernel's server: only the group of the call."""
        self.belongs_to(6030)
        self.assertEqual(self.read_stat(self.a, uid=7777, gid=7777, gids=(6030,)), nfs.ACCES)
        self.assertEqual(self.read_stat(self.a, uid=7777, gid=6030, gids=(7777,)), nfs.OK)

    def test_group_0_is_never_looked_up(self):
        self.belongs_to(0)
        self.assertEqual(self.read_stat(self.a, uid=5000, gid=5000), nfs.ACCES)
        self.assertEqual(self.read_stat(self.a, uid=0, gid=0), nfs.OK)


class Directory(Groups):
    """The host asks a directory service, too (tests/nss), which has walt, and the group 6100 with walt and late; it can be away."""

    services = "files hftest"

    @classmethod
    def make_daemon(cls, settings):
        daemon = super().make_daemon(settings)
        with open(daemon.over["/etc/nsswitch.conf"], "w", encoding="ascii") as out:
            out.write(f"hosts: files\npasswd: {cls.services}\ngroup: {cls.services}\n")
        with open(daemon.over["/etc/passwd"], "a", encoding="ascii") as out:
            out.write("late:x:5003:5003::/:/bin/sh\n")
        cls.word = os.path.join(cls.base, "directory")
        modules = os.path.join(os.path.dirname(os.path.abspath(os.environ["HOLDFASTD"])), "tests", "nss")
        os.stat(os.path.join(modules, "libnss_hftest.so.2"))  # it is built with the tests
        daemon.launcher = ["env", f"LD_LIBRARY_PATH={modules}", f"HF_TEST_NSS={cls.word}"]
        return daemon

    def let_directory_say(self, *lines):
        with open(self.word + ".new", "w", encoding="ascii") as out:
            out.writelines(f"{line}\n" for line in lines)
        os.rename(self.word + ".new", self.word)
        self.addCleanup(self.let_directory_answer)

    def let_directory_answer(self):
        if os.path.exists(self.word):
            os.unlink(self.word)

    def is_repeated(self, uid, error, *, gids=()):
        """Reads as @uid, who must get no other answer than to repeat the call, until the look-up has failed, and after that."""
        client = self.client(self.a, uid=uid, gid=uid, gids=gids)
        failure = f"its calls are to be repeated uid={uid} error={error}"

        def read():
            self.assertEqual(client.read(self.fh, 0, 1).stat, nfs.JUKEBOX)
            return failure in self.daemon.log

        self.until(read, failure, passes=bool)
        self.assertEqual(client.read(self.fh, 0, 1).stat, nfs.JUKEBOX)
        return client

    def test_users_and_groups_of_a_directory(self):
        self.belongs_to(6100)
        self.assertEqual(self.read_stat(self.a, uid=5002, gid=5002), nfs.OK)
        self.assertEqual(self.read_stat(self.a, uid=5000, gid=5000), nfs.ACCES)

    def test_no_group_of_the_client_counts_while_the_directory_is_away(self):
        """Whatever error it gives; ENOENT is that of libnss-ldapd and libnss-sss whose daemons are not there."""
        self.belongs_to(6030)
        for uid, number, error in ((7001, 2, "ENOENT"), (7002, 3, "ESRCH"), (7003, 1, "EPERM"), (7004, 9, "EBADF"), (7005, 111, "ECONNREFUSED")):
            self.let_directory_say(f"passwd -1 {number}")
            self.is_repeated(uid, error, gids=(6030,))
        lock = self.lock_of(self.a, 0, 10)
        cred = auth_sys(self.a.name, 7001, 7001, (6030,))
        res = exchange(self.a.caller("tcp"), call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=cred))
        self.assertEqual(nlm.res_of(nlm.LOCK, res).stat, nlm.S_GRACE)

    def test_no_user_acts_without_groups_that_could_not_be_looked_up(self):
        """The database of users answers, that of groups does not."""
        self.belongs_to(6100)
        self.let_directory_say("groups -1 2", "group -1 2")
        client = self.is_repeated(5003, "ENOENT")
        self.let_directory_answer()
        self.until(lambda: client.read(self.fh, 0, 1), "it is answered", passes=lambda answer: answer.stat != nfs.JUKEBOX)
        self.assertEqual(client.read(self.fh, 0, 1).stat, nfs.OK)


class HiddenDirectory(Directory):
    """Another service follows the directory in nsswitch.conf: the C library does not tell that the directory is away."""

    services = "hftest files"

    def test_no_group_of_the_client_counts_while_the_directory_is_away(self):
        self.belongs_to(6030)
        self.let_directory_say("passwd -1 2")
        self.assertEqual(self.read_stat(self.a, uid=7001, gid=7001, gids=(6030,)), nfs.ACCES)

    test_no_user_acts_without_groups_that_could_not_be_looked_up = None  # it is not so here: StoppingDirectory


class StoppingDirectory(Directory):
    """The search ends at a directory that is away."""

    services = "hftest [UNAVAIL=return TRYAGAIN=return] files"


class FewGroups(Groups):
    """Without it, those that the client names count, and no others."""

    settings = ("server.manage_gids=false",)

    def test_a_user_that_is_not_known_here(self):
        self.belongs_to(6030)
        self.assertEqual(self.read_stat(self.a, uid=7777, gid=7777, gids=(6030,)), nfs.OK)
        self.assertEqual(self.read_stat(self.a, uid=7777, gid=7777, gids=(6031,)), nfs.ACCES)

    def test_a_user_of_many_groups(self):
        gids = tuple(range(6000, 6016))
        for gid, stat in ((6000, nfs.OK), (6015, nfs.OK), (6017, nfs.ACCES), (6030, nfs.ACCES)):
            self.belongs_to(gid)
            self.assertEqual(self.read_stat(self.a, uid=5000, gid=5000, gids=gids), stat, gid)

    def test_locks(self):
        self.belongs_to(6030)
        self.assertEqual(self.lock_stat(5000), nlm.S_FAILED)

    def test_what_the_client_names_does_not_count(self):
        self.belongs_to(6030)
        self.assertEqual(self.read_stat(self.a, uid=5001, gid=5001, gids=(6030,)), nfs.OK)


class GroupsByReload(UsersOfThisHost):
    """Rights that were found before do not count any more, neither those of files nor those of locks."""

    def manage(self, is_on):
        with open(self.config, "a", encoding="ascii") as out:
            out.write(f"server: {{manage_gids: {'true' if is_on else 'false'}}}\n")
        before = len(self.daemon.log)
        self.addCleanup(self.write_config, self.exports)
        self.daemon.process.send_signal(signal.SIGHUP)
        until(lambda: LOADED in self.daemon.log[before:], "it is read again", more=lambda: self.daemon.log)
        self.assertNotIn("at the next start", self.daemon.log[before:])
        self.write_config(self.exports)

    def assert_rights(self, managed):
        self.belongs_to(6030)
        self.assertEqual(self.read_stat(self.a, uid=5000, gid=5000), nfs.OK if managed else nfs.ACCES)
        self.assertEqual(self.read_stat(self.a, uid=5001, gid=5001, gids=(6030,)), nfs.ACCES if managed else nfs.OK)
        self.assertEqual(self.lock_stat(5000), nlm.S_GRANTED if managed else nlm.S_FAILED)
        self.a.free_all()

    def test_on_and_off(self):
        for managed in (False, True, False, True, False):
            with self.subTest(managed=managed):
                self.manage(managed)
                self.assert_rights(managed)


del UsersOfThisHost

if __name__ == "__main__":
    main()
