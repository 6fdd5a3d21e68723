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


class LateVolume(Exported):
    host_class = Host
    folders = ("two", "one", "volume")  # files are made in the first
    exports = tuple(
        f"{{{{path: {{base}}/{name}, name: /{name}, squash: none, local_locks: off}}}}" for name in ("one", "two")
    )
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
        self.daemon.crash()
        for host in self.hosts:
            host.drop_callers()
        self.umount()
        self.daemon.start()
        self.mount()
        self.reload()


class Reclaims(LateVolume):
    def test_lock_is_reclaimed(self):
        lock = self.hold_and_come_late()
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


del LateVolume

if __name__ == "__main__":
    if not os.environ.get("HF_MOUNTS") and os.geteuid() == 0:
        os.environ["HF_MOUNTS"] = "private"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    main()
