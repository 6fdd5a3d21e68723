"""A fresh Debian with systemd in qemu (build-machine), beside the client machines of the plays. A reboot in good order keeps
what is on its disk; a loss of power does not."""

import os
import shlex
import subprocess

from guest import KERNEL, Guest
from until import until

PATIENCE = 300.0  # seconds: emulated in software on a busy machine, a boot takes minutes


class Machine(Guest):
    """@packages: a disk with the packages to install, at /packages."""

    def __init__(self, namespace, image, accelerator, directory, kernel, packages):
        super().__init__("p", namespace, image, accelerator, directory)
        self.name = "server"
        self.kernel = kernel
        self.packages = packages
        self.disk = os.path.join(directory, "disk")  # as the last boot began with it
        self.used = os.path.join(directory, "disk.used")
        self._copy(os.path.join(image, "disk"), self.disk)

    @staticmethod
    def _copy(disk, copy):
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", disk, copy], check=True)

    def boot(self, **_):
        """On a copy of the disk, so that a boot that fails can be tried again from the same state."""
        self.how = {}
        self._copy(self.disk, self.used)
        words = f"{KERNEL} systemd.show_status=no hf.address={self.address}"
        disks = [f"file={self.used},cache=unsafe", f"file={self.packages},readonly=on"]
        self.launch(self.kernel, words, disks, memory=768)

    def reboot(self, **_):
        """In good order; qemu ends when the kernel would begin again (-no-reboot), and another one goes on."""
        self.start("systemctl reboot")
        self.qemu.wait(PATIENCE)
        self.crash()
        os.replace(self.used, self.disk)
        self.boot()
        return self.wait_ready()

    def close(self):
        self.crash()
        for disk in (self.disk, self.used):
            if os.path.exists(disk):
                os.unlink(disk)

    # ---- what an administrator asks

    def shows(self, name, unit="holdfastd"):
        """A property of a unit, as systemd has it."""
        return self.run(f"systemctl show --value -p {name} {unit}")

    def is_active(self, unit="holdfastd"):
        return self.run(f"systemctl is-active {unit}", status=None) == "active"

    def journal(self):
        return self.run("journalctl -b --no-pager -o cat -u holdfastd")

    def waits(self, command, what, test):
        """Until what @command says passes @test."""
        return until(lambda: self.run(command, status=None), what, PATIENCE, passes=test,
                     more=lambda: self.run("systemctl status --no-pager -l holdfastd", status=None))  # fmt: skip

    def files(self):
        """All paths that a package could leave; not those that other programs write at any time."""
        left_out = ("/proc", "/sys", "/dev", "/run", "/tmp", "/packages", "/srv", "/var/lib/dpkg", "/var/lib/apt",
                    "/var/log/journal", "/var/log/apt", "/var/log/dpkg.log", "/var/log/alternatives.log",
                    "/var/cache", "/var/lib/systemd", "/var/tmp", "/var/lib/nfs", "/root")  # fmt: skip
        prune = " -o ".join(f"-path {shlex.quote(path)}" for path in left_out)
        return set(self.run(f"find / \\( {prune} \\) -prune -o -print").splitlines())
