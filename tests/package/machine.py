"""A fresh Debian with systemd in qemu (build-machine), beside the client machines of the plays. What happens to its disk is
forgotten when it goes off."""

import shlex

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

    def boot(self, **_):
        self.how = {}
        words = f"{KERNEL} systemd.show_status=no hf.address={self.address}"
        disks = [f"file={self.image}/disk,snapshot=on", f"file={self.packages},readonly=on"]
        self.launch(self.kernel, words, disks, memory=768)

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
        """All paths that a package could leave."""
        left_out = ("/proc", "/sys", "/dev", "/run", "/tmp", "/packages", "/srv", "/var/lib/dpkg", "/var/lib/apt", "/var/log",
                    "/var/cache", "/var/lib/systemd", "/var/tmp", "/var/lib/nfs", "/root")  # fmt: skip
        prune = " -o ".join(f"-path {shlex.quote(path)}" for path in left_out)
        return set(self.run(f"find / \\( {prune} \\) -prune -o -print").splitlines())
