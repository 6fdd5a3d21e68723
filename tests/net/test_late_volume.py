#!/usr/bin/env python3
"""A volume that is mounted after the server's start: what is locked in its files has its keys, and all calls find it there.

Without the volume, its directory is on the file system of the other export, and the lock manager knows files of both by
that export.
"""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from exported import Exported
from nsm import Host
from play import main
from rpc import auth_sys, call_message

GIVEN_UP = "client not told of the server's restart: giving up"
CRASHED = "client crashed, locks released"
TWO_HOMES = "since this reload an export is on the file system of another one, and clients have locks by both"


def exported(name, folder=None):
    return f"{{{{path: {{base}}/{folder or name}, name: /{name}, squash: none, local_locks: off}}}}"


class LateVolume(Exported):
    host_class = Host
    folders = ("two", "one", "volume")  # files are made in the first
    exports = tuple(exported(name) for name in ("one", "two"))
    settings = (
        "store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=3600", "api.listen=127.0.0.1:0"
    )  # fmt: skip

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run(["mount", "-t", "tmpfs", "none", f"{cls.base}/volume"], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", f"{cls.base}/volume"], check=True)

    def setUp(self):
        self.daemon.crash()
        self.mount()
        self.addCleanup(self.leave_without)
        self.restart()
        super().setUp()
        self.log_began = len(self.daemon.log)

    def log(self):
        """Of this test."""
        return self.daemon.log[self.log_began :]

    def handle_of(self, path, share="/two", folder=None):
        return super().handle_of(path, share, folder)

    def leave_without(self):
        self.daemon.crash()
        self.umount()
        self.restart()

    def mount(self):
        subprocess.run(["mount", "--bind", f"{self.base}/volume", f"{self.base}/two"], check=True)

    def umount(self):
        subprocess.run(["umount", f"{self.base}/two"], check=True)

    def reload(self):
        before = self.daemon.log.count("configuration loaded again")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.daemon.log.count("configuration loaded again") > before, "it is loaded again")

    def hold_and_come_late(self):
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock)
        self.come_late()
        return lock

    def come_late(self):
        self.start_without()
        self.mount()
        self.reload()

    def start_without(self):
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.umount()
        self.daemon.start()


class Reclaims(LateVolume):
    def test_lock_is_reclaimed(self):
        lock = self.hold_and_come_late()
        self.assertEqual(self.a.lock(lock.but(reclaim=True, state=0)), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)

    def test_lock_is_reclaimed_after_grace(self):
        """The server has dropped it, and knows that no other client had the range since."""
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock)
        self.start_without()
        self.assertEqual(self.rest.call("POST", "/api/v1/grace/end", token=True).status, 200)
        self.mount()
        self.reload()
        self.assertEqual(self.a.lock(lock.but(reclaim=True, state=0)), nlm.S_GRANTED)
        self.assert_denied(self.b, self.lock_of(self.b, 0, 10))
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)


class Ghost(LateVolume):
    settings = (*LateVolume.settings, "recovery.notify_timeout_ms=300", "recovery.notify_retry_seconds=3")

    def test_lock_of_a_client_that_could_not_be_told_is_reclaimed(self):
        lock = self.lock_of(self.a, 0, 10)
        self.assert_granted(self.a, lock)
        self.a.deaf = True
        self.addCleanup(setattr, self.a, "deaf", False)
        self.start_without()
        self.until(lambda: GIVEN_UP in self.log(), "it is given up")
        self.mount()
        self.reload()
        self.assertEqual(self.a.lock(lock.but(reclaim=True, state=0)), nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)


class GoesOn(LateVolume):
    settings = (*LateVolume.settings, "recovery.after_crash=continue")

    def test_no_other_client_gets_it(self):
        lock = self.hold_and_come_late()
        self.assertIn("going on where the last run ended", self.daemon.log)
        self.assert_denied(self.b, self.lock_of(self.b, 0, 10))
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 10))

    def test_no_other_client_gets_what_it_reserved(self):
        mine = self.lock_of(self.a, access=2, deny=3)
        self.assertEqual(self.a.share(mine), nlm.S_GRANTED)
        self.come_late()
        self.assertEqual(self.b.share(self.lock_of(self.b, access=2, deny=3)), nlm.S_DENIED)
        self.assertEqual(self.a.unshare(mine), nlm.S_GRANTED)
        self.assertEqual(self.b.share(self.lock_of(self.b, access=2, deny=3)), nlm.S_GRANTED)


class Beside(LateVolume):
    """One more export of the volume, which is there from the start."""

    settings = (*GoesOn.settings, "recovery.notify_timeout_ms=2000")
    more = "three"
    exports = (*LateVolume.exports, exported(more, "volume"))

    def share_of_volume(self):
        return self.handle_of(os.path.join(self.base, "volume", os.path.basename(self.path)), f"/{self.more}", "volume")

    def test_lock_excludes_a_lock_by_the_other_export(self):
        lock = self.hold_and_come_late()
        late = self.lock_of(self.b, 0, 10, fh=self.share_of_volume())
        self.assert_denied(self.b, late)
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.assert_granted(self.b, late)
        self.assert_denied(self.a, lock)
        self.assertEqual(self.b.unlock(late), nlm.S_GRANTED)

    def test_lock_by_the_other_export_excludes(self):
        """Once nothing is locked by the export that came late, both have the home of the volume."""
        lock = self.hold_and_come_late()
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.reload()
        late = self.lock_of(self.b, 0, 10, fh=self.share_of_volume())
        self.assert_granted(self.b, late)
        self.assert_denied(self.a, lock)
        self.assertEqual(self.b.unlock(late), nlm.S_GRANTED)
        self.assertNotIn(TWO_HOMES, self.log())

    def test_locks_by_both_are_told_of(self):
        lock = self.lock_of(self.a, 0, 10)
        other = self.lock_of(self.b, 20, 10, fh=self.share_of_volume())
        self.assert_granted(self.a, lock)
        self.assert_granted(self.b, other)
        self.come_late()
        self.assertIn(TWO_HOMES, self.log())
        self.assertEqual(self.a.unlock(lock), nlm.S_GRANTED)
        self.reload()
        self.assert_denied(self.a, self.lock_of(self.a, 20, 10))
        self.assertEqual(self.b.unlock(other), nlm.S_GRANTED)


    def test_home_of_a_lock_under_way_stays(self):
        """The UNLOCK comes behind its LOCK, whose host is asked about its state number, and the reload in between."""
        self.assert_granted(self.b, self.lock_of(self.b, 0, 10))
        lock = self.lock_of(self.a, 500, 10, fh=self.share_of_volume(), state=7)
        self.start_without()
        elsewhere = self.handle_of(self.make_file("one"), "/one", "one")
        self.a.state = 5
        self.assert_granted(self.a, self.lock_of(self.a, fh=elsewhere, state=5), transport="udp")
        self.a.asked.wait()
        self.a.deaf = True
        self.addCleanup(setattr, self.a, "deaf", False)
        self.addCleanup(setattr, self.a, "state", None)
        call = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys(self.a.name))
        self.a.caller("udp").send(call)
        self.b.test(self.lock_of(self.b, fh=elsewhere), transport="udp")  # behind it in the queue of the same socket
        self.mount()
        self.reload()
        self.assertEqual(self.a.unlock(lock, transport="udp"), nlm.S_GRANTED)
        self.until(lambda: CRASHED in self.log(), "the number is believed, for lack of a denial")
        self.assert_granted(self.b, self.lock_of(self.b, 500, 10, fh=lock.fh))


class BesideFirst(Beside):
    """It is the first in the list."""

    exports = (exported(Beside.more, "volume"), *LateVolume.exports)


del LateVolume

if __name__ == "__main__":
    if not os.environ.get("HF_MOUNTS") and os.geteuid() == 0:
        os.environ["HF_MOUNTS"] = "private"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    main()
