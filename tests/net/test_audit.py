#!/usr/bin/env python3
"""log.audit: which client created, removed, renamed or changed what, and what was refused.

    test_audit.py PATH/holdfastd [unittest's own arguments]
"""

import json
import os
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from commandline import CliPlay
from exported import OneExport, nfs
from play import PATIENCE, main
from rpc import AUTH_NONE, UdpCaller, call_message, exchange
from xdr import Out

UID, GID = 1234, 567
LONG = b"\x01" * 250


class Audited(OneExport, CliPlay):
    n_hosts = 1

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="hf-audit-")
        cls.addClassCleanup(folder.cleanup)
        cls.audit = os.path.join(folder.name, "audit.log")
        cls.make_audit()
        cls.settings = ("api.listen=127.0.0.1:0", f"log.audit={cls.audit}")
        super().setUpClass()
        cls.folder = cls.flags[-1].rsplit(":", 1)[0]
        with cls.daemon.namespace:
            cls.user = nfs.Client(cls.nfs.port, uid=UID, gid=GID)
        cls.addClassCleanup(cls.user.close)

    @classmethod
    def make_audit(cls):
        """The server makes the file itself."""

    def setUp(self):
        super().setUp()
        self.began = len(self.lines())
        self.root = self.user.root("/data")
        self.wait(1)  # the mount
        self.began += 1

    def lines(self, path=None):
        with open(path or self.audit, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be under way

    def wait(self, n):
        """The next @n lines of this test."""
        return self.until(lambda: self.lines()[self.began :], "they are written", passes=lambda l: len(l) >= n)


class Audit(Audited):
    def last(self, n=1):
        found = self.wait(n)
        self.assertEqual(len(found), n, found)
        line = found[-1]
        self.assertRegex(line.pop("time"), r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((line.pop("client"), line.pop("uid"), line.pop("gid")), ("127.0.0.1", UID, GID))
        self.assertEqual(line.pop("export"), "/data")
        return line

    def test_changes_of_names_and_rights(self):
        made = self.user.create(self.root, b"a", mode=0o640)
        self.assertEqual(self.last(1), {"op": "create", "path": self.folder, "name": "a", "result": "OK"})
        self.assertEqual(self.user.setattr(made.fh, mode=0o600, size=7).stat, nfs.OK)
        self.assertEqual(self.last(2), {"op": "setattr", "path": f"{self.folder}/a", "mode": "0600", "size": 7, "result": "OK"})
        below = self.user.mkdir(self.root, b"d", mode=0o755).fh
        self.assertEqual(self.last(3)["op"], "mkdir")
        self.assertEqual(self.user.rename(self.root, b"a", below, b"b").stat, nfs.OK)
        self.assertEqual(self.last(4), {"op": "rename", "path": self.folder, "name": "a", "to_path": f"{self.folder}/d",
                                        "to_name": "b", "result": "OK"})  # fmt: skip
        self.assertEqual(self.user.link(made.fh, self.root, b"c").stat, nfs.OK)
        self.assertEqual(self.last(5)["to_name"], "c")
        self.assertEqual(self.user.symlink(self.root, b"s", b"c").stat, nfs.OK)
        self.assertEqual(self.user.remove(below, b"b").stat, nfs.OK)
        self.assertEqual(self.last(7), {"op": "remove", "path": f"{self.folder}/d", "name": "b", "result": "OK"})
        self.assertEqual(self.user.rmdir(self.root, b"d").stat, nfs.OK)
        self.assertEqual(self.last(8)["op"], "rmdir")

    def test_names_that_are_no_text(self):
        name = b'x"\\\n\xff\xc3\xa4'
        self.assertEqual(self.user.create(self.root, name).stat, nfs.OK)
        line = self.last(1)
        self.assertEqual((line["name"], line["name_hex"]), ('x"\\\n\ufffd\u00e4', name.hex()))
        self.assertEqual(self.user.remove(self.root, name).stat, nfs.OK)
        self.assertEqual(self.user.create(self.root, LONG).stat, nfs.OK)
        self.assertEqual(self.last(3)["name"], LONG.decode())

    def test_long_names_push_nothing_out(self):
        below = above = self.root
        for _ in range(3):
            below = self.user.mkdir(below, b"\x02" * 250, mode=0o755).fh
            above = self.user.mkdir(above, b"\xff" * 250, mode=0o755).fh
        self.user.create(below, b"\x03" * 255)
        self.assertEqual(self.user.rename(below, b"\x03" * 255, above, b"\xfd" * 255).stat, nfs.OK)
        line = self.last(8)
        self.assertEqual((line["op"], line["result"], line["name"], line["to_name_hex"]), ("rename", "OK", "\x03" * 255, "fd" * 255))
        self.assertEqual([key for key in line if key.endswith("cut")], ["path_cut", "to_path_cut"])
        self.assertTrue(line["path"].startswith(f"{self.folder}/\x02"))
        self.assertEqual(list(line)[:2], ["op", "result"])

    def test_what_is_refused(self):
        with open(os.path.join(self.folder, "secret"), "wb") as out:
            os.fchmod(out.fileno(), 0o600)
        secret = self.user.lookup(self.root, b"secret").fh
        self.assertNotEqual(self.user.read(secret).stat, nfs.OK)
        self.assertEqual(self.last(1), {"op": "read", "path": f"{self.folder}/secret", "result": "ACCES"})
        self.assertNotEqual(self.user.setattr(secret, mode=0o666).stat, nfs.OK)
        self.assertEqual(self.last(2), {"op": "setattr", "path": f"{self.folder}/secret", "mode": "0666", "result": "PERM"})

    def test_half_of_a_change(self):
        """The name was made, or the file was cut, before a later step failed."""
        too_long = {"size": 1 << 63}
        for how, name in ((nfs.UNCHECKED, b"u"), (nfs.GUARDED, b"g")):
            self.assertEqual(self.user.create(self.root, name, how=how, **too_long).stat, nfs.FBIG)
            self.assertTrue(os.path.exists(os.path.join(self.folder.encode(), name)))
        self.assertEqual(self.last(2), {"op": "create", "path": self.folder, "name": "g", "result": "FBIG", "made": "partly",
                                        "size": 1 << 63})  # fmt: skip
        self.assertEqual(self.user.create(self.root, b"u", how=nfs.UNCHECKED, **too_long).stat, nfs.FBIG)  # changes nothing
        path = os.path.join(self.folder, "of-another")
        with open(path, "wb") as out:
            out.write(b"text")
            os.fchmod(out.fileno(), 0o666)
        fh = self.user.lookup(self.root, b"of-another").fh
        self.assertEqual(self.user.setattr(fh, size=0, atime=(1, 0)).stat, nfs.PERM)
        self.assertEqual(os.path.getsize(path), 0)
        self.assertEqual(self.last(3), {"op": "setattr", "path": path, "result": "PERM", "made": "partly", "size": 0})

    def test_what_is_not_written(self):
        """Reading and writing, changes of times, and changes that failed."""
        made = self.user.create(self.root, b"quiet")
        self.user.write(made.fh, b"text")
        self.user.read(made.fh)
        self.user.setattr(made.fh, mtime=(1, 0))
        self.assertNotEqual(self.user.remove(self.root, b"no such name").stat, nfs.OK)
        self.user.remove(self.root, b"quiet")
        self.assertEqual([line["op"] for line in self.wait(2)], ["create", "remove"])

    def test_mounts(self):
        self.user.root("/data")
        self.assertEqual(self.last(1), {"op": "mount", "path": "/data", "result": "OK"})
        os.symlink("/", os.path.join(self.folder, "way-out"))
        self.assertNotEqual(self.user.mnt("/data/way-out").stat, nfs.OK)
        self.assertEqual(self.last(2), {"op": "mount", "path": "/data/way-out", "result": "ACCES"})
        with self.daemon.namespace, nfs.Client(self.nfs.port, cred=(AUTH_NONE, b"")) as client:
            client.root("/data")
        line = self.wait(3)[2]
        self.assertEqual((line["export"], "uid" in line, "gid" in line), ("/data", False, False))

    def test_create_that_cuts_a_file(self):
        fh = self.user.create(self.root, b"long").fh
        self.user.write(fh, b"text")
        self.assertEqual(self.user.create(self.root, b"long", how=nfs.UNCHECKED, size=0).stat, nfs.OK)
        self.assertEqual(self.last(2), {"op": "create", "path": self.folder, "name": "long", "size": 0, "result": "OK"})
        self.assertEqual(os.path.getsize(os.path.join(self.folder, "long")), 0)

    def test_the_file_is_opened_again_at_a_reload(self):
        self.user.create(self.root, b"before")
        self.wait(1)
        os.rename(self.audit, f"{self.audit}.1")
        self.user.create(self.root, b"between")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: os.path.exists(self.audit), "there is a new file")
        self.user.create(self.root, b"after")
        found = self.until(self.lines, "it is in the new file", passes=bool)
        self.assertEqual([line["name"] for line in found], ["after"])
        self.assertEqual([line.get("name") for line in self.lines(f"{self.audit}.1")[-2:]], ["before", "between"])


class Flood(Audited):
    def test_refusals_are_bounded_and_changes_are_not(self):
        os.symlink("/", os.path.join(self.folder, "out"))
        for _ in range(130):
            self.assertEqual(self.user.mnt("/data/out").stat, nfs.ACCES)
            self.user.create(self.root, b"a")
        with self.daemon.namespace:
            datagrams = UdpCaller(("127.0.0.1", self.nfs.port))
        self.addCleanup(datagrams.close)
        for _ in range(120):
            exchange(datagrams, call_message(nfs.MOUNT, 3, 1, Out().string("/data").bytes()), PATIENCE)
        self.daemon.stop()
        found = self.lines()[self.began :]
        self.daemon.start()  # as each test leaves it
        for op, result, n in (("mount", "ACCES", 100), ("mount", "OK", 100), ("create", "OK", 130)):
            self.assertEqual(sum(line["op"] == op and line["result"] == result for line in found if "result" in line), n)
        self.assertEqual([(line["of"], line["lines"]) for line in found if line["op"] == "left_out"],
                         [("refused mounts", 30), ("mounts over UDP", 20)])  # fmt: skip


class FloodOfRefusals(Audited):
    N_WRITTEN = 1000  # of refused calls, in a minute

    def refuse(self, n):
        """By a mode that a symbolic link does not take, and a time that only its owner may set: nothing is changed."""
        for _ in range(n):
            self.assertEqual(self.user.setattr(self.link, mode=0o777, atime=(1, 0)).stat, nfs.PERM)

    def test_half_of_a_change_is_never_left_out(self):
        path = os.path.join(self.folder, "of-another")
        with open(path, "wb") as out:
            os.fchmod(out.fileno(), 0o666)
        os.symlink("x", os.path.join(self.folder, "link"))
        fh, self.link = (self.user.lookup(self.root, name).fh for name in (b"of-another", b"link"))
        self.refuse(self.N_WRITTEN + 50)
        for size in range(20):
            self.assertEqual(self.user.setattr(fh, size=size, atime=(1, 0)).stat, nfs.PERM)
        self.daemon.stop()
        found = [line for line in self.lines()[self.began :] if line["op"] == "setattr"]
        self.daemon.start()  # as each test leaves it
        self.assertEqual([line["size"] for line in found if "size" in line], list(range(20)))
        self.assertTrue(all((line.get("made") == "partly") == ("size" in line) for line in found))
        self.assertIn(len(found) - 20, range(self.N_WRITTEN, self.N_WRITTEN + 51))  # a minute may end in between


class SlowDisk(Audited):
    """A file that takes nothing: no call waits, and what is lost is counted."""

    @classmethod
    def make_audit(cls):
        os.mkfifo(cls.audit)
        cls.reader = os.open(cls.audit, os.O_RDONLY | os.O_NONBLOCK)
        cls.addClassCleanup(os.close, cls.reader)

    def setUp(self):  # the file cannot be read twice
        CliPlay.setUp(self)
        self.dir = self.user.mkdir(self.user.root("/data"), LONG, mode=0o755).fh

    def change(self):
        self.assertEqual(self.user.setattr(self.dir, mode=0o755).stat, nfs.OK)
        self.n_calls += 1
        self.n_bytes += 6 * len(LONG)  # at least: each byte is escaped

    def is_full(self):
        """A pipe takes 64 KiB, and the server has two buffers of 1 MiB."""
        return self.n_bytes > 3 << 20

    def test_lines_are_lost_and_the_file_says_how_many(self):
        self.n_bytes = self.n_calls = 0
        while not self.is_full():
            self.change()
        text, end = [], threading.Event()

        def read():
            os.set_blocking(self.reader, True)
            while not end.is_set():
                text.append(os.read(self.reader, 1 << 16))
                if not text[-1]:
                    return

        thread = threading.Thread(target=read, daemon=True)
        thread.start()

        def is_all_said():
            """Each call is in a line, or counted as lost."""
            self.change()  # wakes the writer, and the reader
            lines = list(map(json.loads, b"".join(text).decode().splitlines()[:-1]))
            n_lost = sum(line["lines"] for line in lines if line["op"] == "lost")
            n_there = sum(line["op"] == "setattr" for line in lines)
            return n_lost and n_lost + n_there >= self.n_calls - 5

        self.until(is_all_said, "the file says how many are lost")
        self.assertIn("lines of the audit log are lost", self.daemon.log)
        end.set()
        self.change()
        thread.join()


if __name__ == "__main__":
    main()
