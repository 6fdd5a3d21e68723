#!/usr/bin/env python3
"""Who may do what with which export: MOUNT, rules, squashing, reloading."""

import os
import shutil
import signal
import unittest

import nfs
import server
from until import until

PORTMAP_TOOLS = shutil.which("showmount")
LOADED = "the exports were loaded again"


class Mount(server.Case):
    exports = {
        "data": "/data,squash=none",
        "ro": "/ro,ro,squash=none",
        "all": "/all,squash=all",
        "root": "/root",
        "secure": "/secure,secure,squash=none",
        "far": "/far,client=192.0.2.0/24",
        "rules": "/rules,client=127.0.0.2,squash=none,client=127.0.0.3,squash=all,anon=4321,client=127.0.0.4,secure,"
        "client=127.0.0.0/29,ro,client=127.0.0.6",
    }

    def test_by_name_and_by_path(self):
        self.assertEqual(self.nfs.root(self.server.path("data")), self.data)
        self.assertEqual(self.nfs.root("/data/"), self.data)
        self.assertEqual(self.nfs.root("//data//"), self.data)
        self.assertEqual(self.nfs.mnt("/data").flavours, [1])

    def test_below(self):
        os.makedirs(self.path("a/b"))
        name = "/data/" + os.path.basename(self.local)
        self.assertEqual(self.nfs.root(name), self.dir)
        fh = self.nfs.root(name + "/a/b")
        self.assertEqual(self.nfs.getattr(fh).attr.fileid, os.lstat(self.path("a/b")).st_ino)
        self.write_local("f")
        self.assertEqual(self.nfs.mnt(name + "/f").stat, 20)
        self.assertEqual(self.nfs.mnt(name + "/none").stat, 2)
        os.symlink("a", self.path("inside"))
        os.symlink("/etc", self.path("absolute"))
        os.symlink("../../../..", self.path("up"))
        self.ok(self.nfs.mnt(name + "/inside/b"))
        for way in ("/absolute", "/up", "/../..", "/a/../../.."):
            self.assertEqual(self.nfs.mnt(name + way).stat, 13, way)

    def test_not_there(self):
        for path in ("/", "/none", "/dat", "/dataset", "data", "", "/etc"):
            self.assertEqual(self.nfs.mnt(path).stat, 2, path)

    def test_lists(self):
        with self.server.client() as other:
            other.umntall()
            other.root("/data")
            other.root("/ro")
            other.root("/ro")
            for version in (1, 3):
                self.assertEqual(sorted(set(other.dump(version))), [("127.0.0.1", "/data"), ("127.0.0.1", "/ro")])
            other.umnt("/data")
            self.assertEqual(other.dump(), [("127.0.0.1", "/ro")])
            other.umntall(1)
            self.assertEqual(other.dump(), [])

    def test_dump_is_bounded(self):
        """One path has many spellings; one host has at most 64 entries, the latest."""
        os.mkdir(self.path("x"))
        begin = f"/data/{os.path.basename(self.local)}"
        ways = []
        for i in range(200):
            way = begin + "".join("/x/.." if i >> bit & 1 else "/." for bit in range(11))
            ways.append(way + "/." * ((1000 - len(way)) // 2))
            self.ok(self.nfs.mnt(ways[-1]))
        self.assertEqual(self.nfs.dump(), [("127.0.0.1", way) for way in ways[-64:]])
        self.nfs.umntall()

    def test_a_way_up_while_others_rename(self):
        """The kernel begins anew when something was renamed, wherever that was; so must the server."""
        os.mkdir(self.path("x"))
        mover = os.fork()
        if mover == 0:
            while True:
                os.rename(self.path("x"), self.path("y"))
                os.rename(self.path("y"), self.path("x"))
        try:
            way = f"/{os.path.basename(self.local)}/.."
            for _ in range(1000):
                self.ok(self.nfs.mnt("/data" + way * (1000 // len(way))))
        finally:
            os.kill(mover, signal.SIGKILL)
            os.waitpid(mover, 0)

    def test_exports(self):
        with self.server.client() as other:
            shown = {"/data": [], "/ro": [], "/all": [], "/root": [], "/secure": [], "/far": ["192.0.2.0/24"],
                     "/rules": ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.0/29", "127.0.0.6"]}  # fmt: skip
            self.assertEqual(other.exports(3), shown)
            self.assertEqual(other.exports(1), shown)
            self.assertEqual(other.exports(1, 6), shown)

    def test_over_udp(self):
        udp = self.client(udp=True)
        self.assertEqual(udp.root("/data"), self.data)
        self.assertIn("/data", udp.exports())

    def test_old_versions(self):
        for version in (1, 2):
            answer = self.nfs.mnt("/data", version)
            self.assertIn(answer.stat, (0, 13))  # 13: the server's handles are longer on this file system
            self.assertEqual(self.nfs.mnt("/none", version).stat, 2)
            self.assertEqual(self.nfs.exports(version), self.nfs.exports(3))
            self.nfs.umnt("/data", version)

    def test_address_rule(self):
        self.assertEqual(self.nfs.mnt("/far").stat, 13)
        self.assertEqual(self.server.log.count("its address is not among the export's clients"), 1)
        self.nfs.mnt("/far")
        self.assertEqual(self.server.log.count("its address is not among the export's clients"), 1)
        self.assertIn("peer=127.0.0.1:", self.server.log)
        self.assertIn("export=/far rule=clients program=mount", self.server.log)

    def test_secure(self):
        self.assertEqual(self.nfs.mnt("/secure").stat, 1)
        self.assertIn("export=/secure rule=secure program=mount", self.server.log)
        low = self.client(reserved=True)
        fh = low.root("/secure")
        self.ok(low.getattr(fh))
        self.refused(nfs.PERM, self.nfs.getattr(fh))

    def test_rules_of_one_export(self):
        """The first rule that has the client applies, with its own access, squash and anonymous user."""
        os.chmod(self.server.path("rules"), 0o777)
        owners = {"127.0.0.2": (0, 0), "127.0.0.3": (4321, 4321)}
        for address, owner in owners.items():
            client = self.client(local=address)
            root = client.root("/rules")
            self.ok(client.create(root, address))
            st = os.lstat(self.server.path("rules", address))
            self.assertEqual((st.st_uid, st.st_gid), owner)
            self.assertEqual(client.access(root).bits, 31)
        self.assertEqual(self.client(local="127.0.0.4").mnt("/rules").stat, 1)
        self.ok(self.client(local="127.0.0.4", reserved=True).create(root, "x"))
        for address in ("127.0.0.5", "127.0.0.6"):  # the rule of 127.0.0.6 alone comes too late
            client = self.client(local=address)
            self.assertEqual(client.root("/rules"), root)
            self.refused(nfs.ROFS, client.create(root, "y"))
            self.assertEqual(client.access(root).bits, 3)
            self.assertEqual(self.ok(client.lookup(root, "x")).attr.uid, 65534)
        self.assertEqual(self.client(local="127.0.0.9").mnt("/rules").stat, 13)
        self.refused(nfs.ACCES, self.client(local="127.0.0.9").getattr(root))

    def test_read_only(self):
        with open(self.server.path("ro", "f"), "wb") as out:
            out.write(b"content")
        root = self.nfs.root("/ro")
        fh = self.nfs.lookup(root, "f").fh
        self.assertEqual(self.ok(self.nfs.read(fh)).data, b"content")
        self.assertEqual(self.nfs.access(fh).bits, 1)
        self.assertEqual(self.nfs.access(root).bits, 3)
        answers = (
            self.nfs.setattr(fh, mode=0o777), self.nfs.write(fh, b"x"), self.nfs.create(root, "x"),
            self.nfs.mkdir(root, "x"), self.nfs.symlink(root, "x", b"y"), self.nfs.mknod(root, "x", nfs.FIFO),
            self.nfs.mknod(root, "x", nfs.REG),
            self.nfs.remove(root, "f"), self.nfs.rmdir(root, "x"), self.nfs.rename(root, "f", root, "g"),
            self.nfs.link(fh, root, "g"), self.nfs.commit(fh))  # fmt: skip
        for answer in answers:
            self.refused(nfs.ROFS, answer)
            self.assertIsNotNone(answer.wcc.after)
        self.refused(nfs.ROFS, self.nfs.link(fh, self.dir, "g"))
        self.assertEqual(os.listdir(self.server.path("ro")), ["f"])

    def test_between_exports(self):
        self.write_local("f")
        fh, other = self.find("f"), self.nfs.root("/all")
        self.refused(nfs.XDEV, self.nfs.link(fh, other, "g"))
        self.refused(nfs.XDEV, self.nfs.rename(self.dir, "f", other, "g"))

    def test_squash_root(self):
        os.chmod(self.server.path("root"), 0o777)
        root = self.nfs.root("/root")
        self.ok(self.nfs.create(root, "by-root"))
        self.ok(self.client(uid=7, gid=0, gids=(0, 5)).create(root, "by-7"))
        self.ok(self.client(cred=nfs.ANONYMOUS).create(root, "by-anonymous"))
        owners = {name: os.lstat(self.server.path("root", name)) for name in os.listdir(self.server.path("root"))}
        owners = {name: (st.st_uid, st.st_gid) for name, st in owners.items()}
        self.assertEqual(owners, {"by-root": (65534, 65534), "by-7": (7, 65534), "by-anonymous": (65534, 65534)})
        os.mkdir(self.server.path("root", "closed"), 0o770)  # of group 0
        self.refused(nfs.ACCES, self.client(uid=7, gid=0, gids=(0,)).lookup(self.nfs.lookup(root, "closed").fh, "x"))

    def test_squash_all(self):
        os.chmod(self.server.path("all"), 0o777)
        root = self.nfs.root("/all")
        self.ok(self.client(uid=1000, gid=1000).create(root, "f"))
        st = os.lstat(self.server.path("all", "f"))
        self.assertEqual((st.st_uid, st.st_gid), (65534, 65534))

    def test_squash_none(self):
        os.chmod(self.local, 0o700)
        self.ok(self.nfs.create(self.dir, "f"))
        self.assertEqual(os.lstat(self.path("f")).st_uid, 0)
        self.refused(nfs.ACCES, self.client(cred=nfs.ANONYMOUS).create(self.dir, "g"))


class Reload(unittest.TestCase):
    def setUp(self):
        self.server = server.Server(server.Case.program, {"a": "/a,squash=none", "b": "/b,squash=none"})
        self.addCleanup(self.server.close)
        self.server.start()
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def reload(self):
        before = self.server.log.count(LOADED)
        self.server.process.send_signal(signal.SIGHUP)
        until(lambda: self.server.log.count(LOADED) > before, "the exports were read again",
              server.PATIENCE, more=lambda: self.server.log[-2000:])  # fmt: skip

    def test_handles_stay(self):
        fh = self.client.root("/a")
        made = self.client.create(fh, "f").fh
        self.reload()
        self.assertEqual(self.client.root("/a"), fh)
        self.assertEqual(self.client.getattr(made).stat, nfs.OK)
        self.server.stop()

    def test_a_directory_that_was_replaced(self):
        fh = self.client.root("/a")
        made = self.client.create(fh, "f").fh
        os.rename(self.server.path("a"), self.server.path("was-a"))
        os.mkdir(self.server.path("a"))
        self.assertEqual(self.client.getattr(made).stat, nfs.OK)  # the server has that directory, not its name
        self.reload()
        self.assertNotEqual(self.client.root("/a"), fh)
        for handle in (fh, self.client.root("/b")):
            self.client.getattr(handle)
        self.assertEqual(self.client.lookup(fh, "f").stat, nfs.STALE)  # it is outside now
        self.server.stop()

    def test_a_directory_that_is_gone_is_left_out(self):
        os.rmdir(self.server.path("a"))
        self.reload()
        self.assertIn("cannot export a directory", self.server.log)
        self.assertEqual(self.client.mnt("/a").stat, 2)
        self.client.root("/b")
        self.server.stop()


if __name__ == "__main__":
    server.main()
