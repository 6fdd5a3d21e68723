"""A client machine: Debian's kernel in qemu, on the wire of the play, obeying through its agent (guest/agent.c)."""

import ctypes
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import threading

PATIENCE = 60.0  # seconds for anything that must happen; emulation on a busy machine is slow
BOOT_PATIENCE = 180.0
BOOT_TRIES = 3

MACHINES = {
    # The models are those that boot fastest in software; with KVM it is the host's own.
    "x86_64": ("qemu-system-x86_64", ["-M", "q35", "-cpu", "qemu64"], "ttyS0"),
    "aarch64": ("qemu-system-aarch64", ["-M", "virt,gic-version=3", "-cpu", "cortex-a72"], "ttyAMA0"),
}
# no_timer_check: on a busy machine an emulated timer may be late for the kernel's check of it, which then panics.
KERNEL = ("no_timer_check quiet loglevel=4 panic=-1 audit=0 cryptomgr.notests random.trust_bootloader=on mitigations=off "
          "nokaslr")  # fmt: skip


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no machine outlives its play


def find_machine():
    """None, or why there can be no client machine here."""
    if platform.machine() not in MACHINES:
        return f"no client machine for {platform.machine()}"
    program = MACHINES[platform.machine()][0]
    if not shutil.which(program):
        return f"{program} is not installed"
    return None if os.path.exists("/dev/net/tun") else "this kernel has no tap devices for the machines"


def emulator_of(image):
    """The machine may need another qemu than the one that is installed."""
    own = os.path.join(image, "qemu")
    return own if os.path.exists(own) else MACHINES[platform.machine()][0]


def find_accelerator(image):
    """KVM where it works, else emulation in software. That /dev/kvm opens proves little: in a machine that is itself
    virtual it may creep. So a bare kernel has to come to its end, the panic for want of a root, in the time it takes."""
    _, machine, _ = MACHINES[platform.machine()]
    probe = [emulator_of(image), *machine, "-nodefaults", "-display", "none", "-no-reboot", "-accel", "kvm", "-m", "256"]
    probe += ["-kernel", os.path.join(image, "vmlinuz"), "-append", "panic=-1"]
    try:
        subprocess.run(probe, check=True, timeout=4, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError):
        return "tcg,thread=multi,tb-size=128"
    return "kvm"


class Gone(Exception):
    """The machine is not there, or went away meanwhile."""


class Command:
    """A shell command under way in the machine."""

    def __init__(self, guest, number, text):
        self.guest = guest
        self.number = number
        self.text = text
        self.output = ""
        self.status = None

    def _wait(self, test, what, timeout):
        if not self.guest.changed.wait_for(lambda: test() or self.guest.is_gone, timeout):
            raise AssertionError(f"{self.guest.name}: {what} within {timeout} s: {self.text}\n{self.output}")
        if not test():
            raise Gone(f"{self.guest.name} went away during: {self.text}")

    def end(self, timeout=PATIENCE):
        """Waits for it to end; gives its status."""
        with self.guest.changed:
            self._wait(lambda: self.status is not None, "did not end", timeout)
            return self.status

    def line(self, timeout=PATIENCE):
        """The next line that it says."""
        with self.guest.changed:
            self._wait(lambda: "\n" in self.output or self.status is not None, "said nothing", timeout)
            line, _, self.output = self.output.partition("\n")
            return line

    def has_line(self):
        with self.guest.changed:
            return "\n" in self.output

    def wait_line(self, timeout):
        with self.guest.changed:
            self.guest.changed.wait_for(lambda: "\n" in self.output or self.guest.is_gone, timeout)

    def type(self, text):
        self.guest.send(self.number, "I", text.encode())

    def close_input(self):
        self.guest.send(self.number, "Z")

    def signal(self, number):
        self.guest.send(self.number, "S", struct.pack(">I", number))


class Guest:
    """@letter is its place: clienta has 10.98.0.101 and fd98::101, on the bridge `wire` in @namespace."""

    def __init__(self, letter, namespace, image, accelerator, directory):
        self.letter = letter
        self.number = 100 + ord(letter) - ord("a") + 1
        self.name = f"client{letter}"
        self.address6 = f"fd98::{self.number}"
        self.tap = f"tap{letter}"
        self.namespace = namespace
        self.image = image
        self.accelerator = accelerator
        self.directory = directory
        self.changed = threading.Condition()
        self.sending = threading.Lock()
        self.qemu = None
        self.socket = None
        self.is_gone = True
        self.failed_boots = 0
        os.makedirs(directory, exist_ok=True)
        namespace.batch([f"tuntap add {self.tap} mode tap", f"link set {self.tap} up"])
        self.lives_at("wire", f"10.98.0.{self.number}")

    # ---- power

    def boot(self, name=None, statd=True, fresh=False):
        """Power on; does not wait for it. Its disk, statd's memory, is the one from before unless @fresh."""
        self.how = {"name": name, "statd": statd}
        disk = os.path.join(self.directory, "disk")
        if fresh or not os.path.exists(disk):
            self._make_disk(disk)
        words = f"{KERNEL} hf.name={name or self.name} hf.address={self.address} hf.address6={self.address6}"
        words += f" hf.statd={'on' if statd else 'off'} hf.gateway={self.gateway or ''}"
        disks = [f"file={disk},cache=writethrough"]
        tools = os.path.join(self.image, "tools")
        if os.path.exists(tools):
            disks.append(f"file={tools},readonly=on")
        self.launch(os.path.join(self.image, "vmlinuz"), words, disks, memory=256)

    def launch(self, kernel, words, disks, memory):
        """Starts qemu with these raw @disks, and listens to the agent in it. @memory: MiB."""
        _, machine, console = MACHINES[platform.machine()]
        ours, agent = socket.socketpair()
        arguments = [
            emulator_of(self.image), *machine, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-accel", self.accelerator, "-m", str(memory), "-smp", "1",
            "-kernel", kernel, "-initrd", os.path.join(self.image, "initramfs"),
            "-append", f"{words} console={console}", "-serial", f"file:{self.directory}/console",
            "-netdev", f"tap,id=n0,ifname={self.tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:98:00:{self.number - 100:02x}",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=c0,fd={agent.fileno()}",
            "-device", "virtserialport,chardev=c0,name=hf.agent",
        ]  # fmt: skip
        for i, disk in enumerate(disks):
            arguments += ["-drive", f"if=none,id=d{i},format=raw,{disk}", "-device", f"virtio-blk-pci,drive=d{i}"]
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

    @staticmethod
    def _make_disk(path):
        seed = path + ".seed"
        shutil.rmtree(seed, ignore_errors=True)
        for folder in ("sm", "sm.bak"):
            os.makedirs(os.path.join(seed, folder))
        for folder, _, _ in os.walk(seed):
            shutil.chown(folder, "statd", "nogroup")
        if os.path.exists(path):
            os.unlink(path)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", seed, path, "8m"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})  # fmt: skip
        shutil.rmtree(seed)

    def wait_ready(self):
        """Until it answers. A kernel that does not boot in an emulator says nothing of the server: it has another try."""
        for attempt in range(1, BOOT_TRIES + 1):
            with self.changed:
                self.changed.wait_for(lambda: self.is_ready or self.is_gone, BOOT_PATIENCE)
                if self.is_ready and not self.is_gone:
                    return self
            self.crash()
            os.replace(f"{self.directory}/console", f"{self.directory}/console.failed")
            if attempt < BOOT_TRIES:
                self.failed_boots += 1
                self.boot(**self.how)
        raise Gone(f"{self.name} does not come up, see {self.directory}/console.failed")

    def crash(self):
        """The power goes. What is on its disk stays."""
        if self.qemu and self.qemu.poll() is None:
            self.qemu.kill()
        if self.qemu:
            self.qemu.wait()
        with self.changed:
            self.is_gone = True
            # The thread that listens may see the end of this one only after the next boot: it is not its business.
            ended, self.socket = self.socket, None
            self.changed.notify_all()
        if ended:
            ended.close()

    def reboot(self, **how):
        self.crash()
        self.boot(**how)
        return self.wait_ready()

    # ---- the agent

    def _listen(self, sock):
        buffer = b""
        try:
            while data := sock.recv(65536):
                buffer += data
                while len(buffer) >= 12:
                    number, kind, size = struct.unpack_from(">III", buffer)
                    if len(buffer) < 12 + size:
                        break
                    self._on_frame(number, chr(kind), buffer[12 : 12 + size])
                    buffer = buffer[12 + size :]
        except OSError:
            pass
        with self.changed:
            if sock is self.socket:
                self.is_gone = True
                self.changed.notify_all()

    def _on_frame(self, number, kind, payload):
        with self.changed:
            if kind == "R":
                self.is_ready = True
            elif kind == "O":
                self.commands[number].output += payload.decode(errors="replace")
            elif kind == "Q":
                self.commands.pop(number).status = struct.unpack(">I", payload)[0]
            self.changed.notify_all()

    def send(self, number, kind, payload=b""):
        with self.sending:
            try:
                self.socket.sendall(struct.pack(">III", number, ord(kind), len(payload)) + payload)
            except (OSError, AttributeError):
                raise Gone(f"{self.name} is not there") from None

    # ---- commands

    def start(self, text):
        with self.changed:
            number = 1 + max(self.commands, default=0)
            command = self.commands[number] = Command(self, number, text)
        self.send(number, "X", text.encode())
        return command

    def run(self, text, status=0, timeout=PATIENCE):
        """Runs it to its end; what it said. Fails unless it ends with @status (None: any)."""
        command = self.start(text)
        ended = command.end(timeout)
        if status is not None and ended != status:
            raise AssertionError(f"{self.name}: status {ended} instead of {status}: {text}\n{command.output}")
        return command.output.strip()

    # ---- the wire

    def lives_at(self, bridge, address, gateway=None):
        """From the next boot on; a machine that runs has to be told, too."""
        self.bridge, self.address, self.gateway = bridge, address, gateway
        self.plug()

    def unplug(self):
        self.namespace.run("link", "set", self.tap, "nomaster")

    def plug(self):
        self.namespace.run("link", "set", self.tap, "master", self.bridge)
