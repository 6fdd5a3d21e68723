#!/usr/bin/env python3
"""The packages on a fresh Debian with its own kernel, as a newcomer meets them: installed, configured with one line, used by
a kernel client, killed, upgraded, started by the next boot, beside the kernel's own NFS server, removed and purged; all under
systemd in a virtual machine.

    test_package.py DIR RELEASE DEB [unittest's own arguments]

DIR is where ./dev package keeps its things, RELEASE a Debian: 12 or 13.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
E2E = os.path.join(HERE, "..", "e2e")
sys.path[:0] = [HERE, os.path.join(E2E, "lib"), os.path.join(HERE, "..", "net", "lib")]
os.environ["PATH"] += ":/usr/sbin:/sbin"

import netns  # noqa: E402
from guest import Guest, find_accelerator, find_machine  # noqa: E402
from machine import PATIENCE, Machine  # noqa: E402
from stage import Client  # noqa: E402
from until import until  # noqa: E402

SKIPPED = 77
CODENAMES = {"12": "bookworm", "13": "trixie"}
KERNELS = {"12": "6.1.", "13": "6.12."}
CONFIG = "/etc/holdfast/holdfast.yaml"


def note(text):
    print(f"{time.monotonic() - BEGUN:7.1f} {text}", flush=True)


def build(words):
    built = subprocess.run(words, check=False)
    if built.returncode == SKIPPED:
        sys.exit(SKIPPED)
    if built.returncode != 0:
        sys.exit(f"{words[0]} failed")


def make_newer(deb, folder):
    """The same package with a higher version."""
    tree = os.path.join(folder, "tree")
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    control = os.path.join(tree, "DEBIAN", "control")
    with open(control, encoding="utf-8") as file:
        text = re.sub(r"^Version: (.*)$", r"Version: \1+newer", file.read(), flags=re.M)
    with open(control, "w", encoding="utf-8") as file:
        file.write(text)
    newer = os.path.join(folder, "newer.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, newer], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def make_packages(deb, directory):
    """A disk with the package and a newer one."""
    disk = os.path.join(directory, "packages")
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        os.chmod(folder, 0o755)
        shutil.copy(deb, os.path.join(folder, "holdfast.deb"))
        make_newer(deb, folder)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-F", "-d", folder, disk, "32m"], check=True, stdout=subprocess.DEVNULL)
    return disk


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = netns.Network()
        cls.addClassCleanup(cls.network.close)
        cls.server = Machine(cls.network.server, IMAGE, ACCELERATOR, os.path.join(DIRECTORY, "server"),
                             os.path.join(GUEST, "vmlinuz"), PACKAGES)  # fmt: skip
        cls.addClassCleanup(cls.server.close)
        cls.a = Guest("a", cls.network.server, GUEST, ACCELERATOR, os.path.join(DIRECTORY, "a"))
        cls.addClassCleanup(cls.a.crash)
        cls.server.boot()
        cls.a.boot(fresh=True)

    def does(self, text, **how):
        note(f"# {text}")
        try:
            said = self.server.run(text, timeout=PATIENCE, **how)
        except AssertionError:
            note(self.server.run("systemctl status --no-pager -l -n 30 holdfastd", status=None))
            raise
        for line in re.sub(r".*\r", "", said).splitlines():
            note(f"  {line}")
        return said

    def is_served(self, what):
        self.server.waits("systemctl show --value -p StatusText holdfastd", f"the status is {what}",
                          lambda said: re.search(what, said))  # fmt: skip

    def locks(self):
        return re.findall(r'"state": "(\w+)"', self.server.run("holdfast --json locks", status=None))

    def is_held(self):
        until(lambda: self.locks() == ["held"], "the lock is reclaimed", PATIENCE, more=self.server.journal)

    def is_reclaimed(self):
        self.is_held()
        self.server.waits("holdfast --json grace", "grace is over", lambda said: re.search('"active": false', said))

    def restarts(self):
        return int(self.server.shows("NRestarts"))

    def has_booted(self):
        self.server.waits("systemctl is-system-running", "it has booted", lambda said: said in ("running", "degraded"))
        self.does("mkdir -p /packages && mount -o ro /dev/vdb /packages")

    def test_a_newcomer(self):
        """One story: each step finds what the one before left."""
        server = self.server.wait_ready()
        self.has_booted()
        self.assertTrue(self.does("uname -r").startswith(KERNELS[RELEASE]), "not the kernel of this Debian")
        self.before = server.files()
        self.installs()
        self.exports_a_directory()
        self.a.wait_ready()
        client = Client(self.a, note)
        client.mounts(f"{server.address}:/srv/data")
        client.opens("f").locks(0, 10)
        self.is_killed()
        self.hangs()
        self.is_upgraded()
        self.is_started_by_the_boot()
        client.tidy()
        client.mounts(f"{server.address}:/srv/data")
        client.opens("g").locks(0, 10)
        client.tidy()
        self.steps_aside()
        self.is_purged()
        self.is_installed_beside_the_kernels()
        self.is_purged()

    def installs(self):
        server = self.server
        self.does("apt-get install -y /packages/holdfast.deb")
        self.assertTrue(server.is_active())
        self.assertEqual(server.run("systemctl is-enabled holdfastd"), "enabled")
        # Nothing is exported, and it says so.
        self.is_served("^no export is configured: clients can mount nothing")
        self.assertIn("no export is configured", server.journal())
        self.assertRegex(self.does("holdfast status"), r"exports +none: clients can mount nothing")
        # A user of its own, and what it keeps is for it alone.
        pid = server.shows("MainPID")
        self.assertEqual(server.run(f"stat -c %U /proc/{pid}"), "holdfast")
        self.assertEqual(server.run("stat -c '%U %a' /var/lib/holdfast"), "holdfast 700")
        caps = re.findall(r"Cap(?:Prm|Bnd|Amb):\s*(\w+)", server.run(f"cat /proc/{pid}/status"))
        self.assertEqual([int(cap, 16) for cap in caps], [0x4DF, 0x4DF, 0])
        self.assertNotIn("type=1326", server.run("dmesg"), "the kernel refused a system call")
        self.assertIn("exposure level", self.does("systemd-analyze security --no-pager holdfastd | tail -1"))

    def exports_a_directory(self):
        self.does("install -d -m 1777 /srv/data")
        self.does(f"sed -i 's,^#  - path: /srv/data$,  - path: /srv/data,' {CONFIG}")
        self.does(f"holdfastd --config {CONFIG} --check")
        self.does("systemctl restart holdfastd")
        self.is_served("^serving 1 export; port 2049")
        self.assertRegex(self.does("holdfast status"), r"exports +1\n")

    def is_killed(self):
        self.assertEqual(self.locks(), ["held"])
        n = self.restarts()
        self.does("systemctl kill -s KILL holdfastd")
        until(lambda: self.restarts() > n and self.server.is_active(), "systemd has restarted it", PATIENCE)
        self.is_reclaimed()

    def hangs(self):
        """The watchdog, with less patience than the unit has."""
        self.assertEqual(self.server.shows("WatchdogUSec"), "1min")
        self.does("mkdir -p /run/systemd/system/holdfastd.service.d && printf '[Service]\\nWatchdogSec=2\\nTimeoutAbortSec=1\\n' "
                  ">/run/systemd/system/holdfastd.service.d/soon.conf && systemctl daemon-reload && systemctl restart holdfastd")
        self.is_reclaimed()
        n = self.restarts()
        self.does("kill -STOP $(systemctl show --value -p MainPID holdfastd)")
        until(lambda: self.restarts() > n and self.server.is_active(), "systemd has restarted it", PATIENCE)
        self.assertIn("Watchdog timeout", self.server.run("journalctl -b --no-pager -o cat -u holdfastd -t systemd"))
        self.is_reclaimed()
        self.does("rm -r /run/systemd/system/holdfastd.service.d && systemctl daemon-reload")

    def is_upgraded(self):
        pid = self.server.shows("MainPID")
        self.does("apt-get install -y /packages/newer.deb")
        self.assertIn("+newer", self.server.run("dpkg-query -W holdfast"))
        self.assertNotEqual(self.server.shows("MainPID"), pid)
        self.assertTrue(self.server.is_active())
        self.assertIn("path: /srv/data", self.server.run(f"grep -v '^#' {CONFIG}"))
        self.is_reclaimed()

    def is_started_by_the_boot(self):
        """Nothing but systemd starts it; the client, which saw the server's machine go, has its lock again."""
        server = self.server
        boot = server.run("cat /proc/sys/kernel/random/boot_id")
        note("# systemctl reboot")
        server.reboot()
        self.assertNotEqual(server.run("cat /proc/sys/kernel/random/boot_id"), boot)
        self.has_booted()
        self.does("systemctl status --no-pager -l holdfastd", status=None)
        self.assertTrue(server.is_active())
        self.assertEqual(self.restarts(), 0)
        self.is_served("^serving 1 export; port 2049")
        self.is_held()
        # The store may lack locks that were not written back before another boot; so grace would last its whole time.
        self.does("holdfast grace end", status=None)
        self.is_reclaimed()

    def steps_aside(self):
        """For those that were there before; it stops none of them, and says what to do."""
        server = self.server
        self.does("systemctl stop holdfastd && systemctl start rpcbind nfs-server")
        self.does("systemctl start holdfastd")
        self.assertFalse(server.is_active())
        self.assertEqual(server.run("systemctl is-failed holdfastd", status=None), "inactive")
        self.assertTrue(server.is_active("nfs-server"))
        self.assertRegex(server.journal(), "another server has port 2049, .* systemctl disable --now nfs-server")
        self.does("systemctl stop nfs-server && systemctl start rpc-statd")
        self.does("systemctl start holdfastd")
        self.is_served("registrations are missing at rpcbind: see the log")
        self.assertIn("stop rpc.statd: systemctl stop rpc-statd", server.journal())
        self.assertTrue(server.is_active("rpc-statd"))
        self.does("systemctl stop rpc-statd && systemctl reload holdfastd")
        self.is_served(r"^serving 1 export; port 2049, \d+ clients, 0 locks$")  # no word of registrations any more

    def is_purged(self):
        server = self.server
        self.does("apt-get remove -y holdfast")
        self.assertFalse(server.is_active())
        self.does("test -e /etc/holdfast/holdfast.yaml")
        self.does("apt-get purge -y holdfast")
        self.assertEqual(server.files() - self.before, set())
        self.does("getent passwd holdfast", status=2)
        self.does("getent group holdfast", status=2)
        self.assertNotIn("holdfast", server.run("systemctl list-unit-files --no-pager; ls -R /var/lib/systemd"))
        self.assertEqual(server.run("find / -xdev -iname '*holdfast*' -not -path '/packages/*'"), "")

    def is_installed_beside_the_kernels(self):
        server = self.server
        self.does("systemctl start nfs-server")
        self.assertIn("another server has port 2049", self.does("apt-get install -y /packages/holdfast.deb"))
        self.assertFalse(server.is_active())
        self.assertTrue(server.is_active("nfs-server"))


if __name__ == "__main__":
    BEGUN = time.monotonic()
    base, RELEASE, package = os.path.abspath(sys.argv[1]), sys.argv[2], os.path.abspath(sys.argv[3])
    reason = netns.is_possible() or find_machine()
    if reason:
        print(f"package: skipped: {reason}")
        sys.exit(SKIPPED)
    # The machines of the plays: that of Debian 12, where ./dev runs, has what is installed here.
    OTHER = [] if RELEASE == "12" else [CODENAMES[RELEASE]]
    GUEST = os.path.join(base, "..", "e2e", f"guest-{RELEASE}" if OTHER else "guest")
    IMAGE = os.path.join(base, f"debian-{RELEASE}")
    DIRECTORY = os.path.join(base, f"world-{RELEASE}")
    build([os.path.join(E2E, "build-guest"), GUEST, *OTHER])
    build([os.path.join(HERE, "build-machine"), IMAGE, CODENAMES[RELEASE], GUEST, package])
    os.makedirs(DIRECTORY, exist_ok=True)
    PACKAGES = make_packages(package, DIRECTORY)
    ACCELERATOR = find_accelerator(GUEST)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
