"""A fresh Debian with systemd in qemu (build-machine), beside the client machines of the plays. What happens to its disk is
forgotten when it goes off."""

import os
import platform
import shlex
import socket
import subprocess
import threading

from guest import KERNEL, MACHINES, Guest, die_with_parent
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
        program, machine, console = MACHINES[platform.machine()]
        ours, agent = socket.socketpair()
        arguments = [
            program, *machine, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-accel", self.accelerator, "-m", "768", "-smp", "1",
            "-kernel", self.kernel, "-initrd", os.path.join(self.image, "initramfs"),
            "-append", f"{KERNEL} systemd.show_status=no hf.address={self.address} console={console}",
            "-serial", f"file:{self.directory}/console",
            "-netdev", f"tap,id=n0,ifname={self.tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:98:00:{self.number - 100:02x}",
            "-drive", f"if=none,id=d0,format=raw,file={self.image}/disk,snapshot=on", "-device", "virtio-blk-pci,drive=d0",
            "-drive", f"if=none,id=d1,format=raw,file={self.packages},readonly=on", "-device", "virtio-blk-pci,drive=d1",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=c0,fd={agent.fileno()}",
            "-device", "virtserialport,chardev=c0,name=hf.agent",
        ]  # fmt: skip
        with open(os.path.join(self.directory, "qemu.log"), "ab") as log, self.namespace, agent:
            self.qemu = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
                pass_fds=[agent.fileno()],
            )  # fmt: skip
        with self.changed:
            self.socket = ours
            self.commands = {}
            self.is_ready = self.is_gone = False
        threading.Thread(target=self._listen, args=(ours,), daemon=True).start()

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
