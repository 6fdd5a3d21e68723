"""The stage: a wire with the server and two client machines, and the plays on it.

The machines live as long as the run; a play finds them as after a boot, or they are booted for it. The server is
new for each play. Of a play that fails, everything said and sent is kept.
"""

import os
import shutil
import subprocess
import time
import unittest

import netns
from capture import Capture
from guest import Gone, Guest
from process import Process
from server import Server
from until import until

MOUNT = "/mnt"
ROUTER = "10.97.0.1"
MASQUERADE = b"""
table ip nat {
	chain after {
		type nat hook postrouting priority 100
		oifname "eth0" masquerade
	}
}
"""


class Stage:
    """What all plays of a world share. @machines: the directory of theirs."""

    def __init__(self, program, image, accelerator, records, machines):
        self.program = program
        self.image = image
        self.accelerator = accelerator
        self.records = records
        self.machines = machines
        self.network = netns.Network()
        self.guests = {}
        self.hosts = {}
        self.machines_of_nodes = []
        self.router = None
        self.reports = []

    def guest(self, letter):
        """A machine that answers and has nothing mounted; it may still be booting."""
        guest = self.guests.get(letter)
        if guest is None:
            directory = os.path.join(self.machines, letter)
            guest = Guest(letter, self.network.server, self.image, self.accelerator, directory)
            self.guests[letter] = guest
        if guest.is_gone:
            guest.crash()
            guest.lives_at("wire", f"10.98.0.{guest.number}")
            guest.boot(fresh=True)
        return guest

    def host(self, key):
        """Another host on the wire, the same one for the same @key: its namespace and number."""
        if key not in self.hosts:
            self.hosts[key] = self.network.add_client()
        return self.hosts[key]

    def make_router(self):
        """Between the wire and a second one, `lan`, whose hosts all have the router's address outside."""
        if self.router:
            return self.router
        namespace, number = self.host("router")
        self.network.server.batch(
            [
                "link add lan type bridge",
                "link set lan up",
                f"link add lan0 type veth peer name lan0 netns {namespace.path}",
                "link set lan0 master lan up",
            ]
        )
        namespace.batch([f"addr add {ROUTER}/16 dev lan0", "link set lan0 up"])
        with namespace:
            with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
                file.write("1")
            made = subprocess.run(["nft", "-f", "-"], input=MASQUERADE, capture_output=True, check=False)
        if made.returncode != 0:
            raise unittest.SkipTest(f"no address translation here: {made.stderr.decode().splitlines()[0]}")
        self.router = f"10.98.0.{10 + number}"
        return self.router

    def close(self):
        for guest in self.guests.values():
            guest.crash()
        for machine in self.machines_of_nodes:
            machine.namespace.close()
        self.network.close()


class Client:
    """What the plays say about a machine, in their own words."""

    def __init__(self, guest, note):
        self.guest = guest
        self.note = note
        self.processes = []
        self.name = guest.name
        self.address = guest.address  # as the server sees it

    def does(self, text, **how):
        self.note(f"{self.name}: {text}")
        try:
            said = self.guest.run(text, **how)
        except AssertionError as failure:
            self.note(str(failure))
            raise
        if said:
            self.note(f"{self.name}: -> {said[:2000]}")
        return said

    def has_no(self, program):
        """As soon as the last one has ended."""
        until(lambda: not self.guest.run(f"pidof {program}", status=None), f"{program} of {self.name} has ended")

    def has_reclaimed(self):
        """Once it has begun: its kernel does that in a thread, which ends after the last lock."""
        until(lambda: not self.guest.run("grep -s -- -recl /proc/[0-9]*/comm", status=None), f"{self.name} has reclaimed")

    def mounts(self, source="server:/data", options="vers=3", at=MOUNT):
        # busybox has a mount of its own, which is not what a user has
        self.does(f"mkdir -p {at} && /bin/mount -t nfs {'-o ' + options if options else ''} {source} {at}")

    def unmounts(self, at=MOUNT):
        self.does(f"/bin/umount {at}")

    def opens(self, name, at=MOUNT):
        """A new process with the file open."""
        process = Process(self.guest, f"{at}/{name}", self.note)
        self.processes.append(process)
        return process

    def crashes(self):
        self.note(f"{self.name}: loses power")
        self.guest.crash()

    def boots(self, **how):
        self.note(f"{self.name}: boots")
        self.guest.boot(**how)
        self.guest.wait_ready()

    def is_cut_off(self):
        self.note(f"{self.name}: is cut off")
        self.guest.unplug()

    def is_back(self):
        self.note(f"{self.name}: is back on the wire")
        self.guest.plug()

    def moves_behind(self, router):
        """To the other wire, where no host outside can call it."""
        self.note(f"{self.name}: moves behind {router}")
        address = f"10.97.0.{self.guest.number}"
        self.guest.lives_at("lan", address, ROUTER)
        self.does(f"ip -4 addr flush dev eth0 && ip addr add {address}/16 dev eth0 && ip route add default via {ROUTER}")
        self.address = router

    def moves_back(self):
        self.guest.lives_at("wire", f"10.98.0.{self.guest.number}")
        self.guest.run(f"ip -4 addr flush dev eth0 && ip addr add {self.guest.address}/16 dev eth0")

    def tidy(self):
        """Leaves the machine as after a boot, or powers it off."""
        if self.guest.is_gone:
            return
        try:
            self.guest.plug()
            self.guest.run(f"killall -9 locker runner; hostname {self.name}; grep -q nfs /proc/mounts || exit 0; "
                           "for m in $(awk '$3 ~ /^nfs/ { print $2 }' /proc/mounts); do /bin/umount $m || exit 1; done",
                           timeout=8)  # fmt: skip
            if self.guest.commands:
                raise Gone("something still runs there")
            if self.guest.gateway:
                self.moves_back()
        except (AssertionError, Gone) as error:
            self.note(f"{self.name}: is powered off: {str(error).splitlines()[0]}")
            self.guest.crash()


class Play(unittest.TestCase):
    """A play. Its actors: self.server, and the clients self.a and self.b, with the export mounted unless
    @is_mounted says otherwise."""

    stage = None
    settings = ()  # of holdfastd, KEY=VALUE
    is_mounted = True
    captured = 0  # bytes of each packet, 0: all
    weight = 1  # the heavy ones come first
    is_long = False  # not played unless asked for
    is_long_run = False  # it was

    def note(self, text):
        self.transcript.append(f"{time.monotonic() - self.begun:8.3f} {text}")

    def setUp(self):
        self.transcript = []
        self.begun = time.monotonic()
        self.records = os.path.join(self.stage.records, self.id().removeprefix("play_"))
        shutil.rmtree(self.records, ignore_errors=True)
        os.makedirs(self.records)
        self.addCleanup(self._keep_records)
        guests = [self.stage.guest(letter) for letter in "ab"]
        self.capture = Capture(self.stage.network.server, os.path.join(self.records, "wire.pcap"), self.captured)
        self.addCleanup(self.capture.stop)
        self.server = self.make_server()
        self.addCleanup(self.server.close)
        self.addCleanup(self._copy_log)
        self.server.starts()
        try:
            self.a, self.b = (Client(guest.wait_ready(), self.note) for guest in guests)
        except Gone:
            self._outcome.result.stop()  # no other play would have better machines
            raise
        self.addCleanup(lambda: [client.tidy() for client in (self.a, self.b)])
        if self.is_mounted:
            self.a.mounts(self.server.source)
            self.b.mounts(self.server.source)
        self.note("-- the play begins")

    def make_server(self):
        return Server(self.stage.program, self.stage.network.server, self.settings, self.note)

    def tearDown(self):
        self.note("-- the play is over")
        self.assertTrue(self.server.is_well(), "holdfastd is gone")
        for client in (self.a, self.b):
            client.tidy()
        self.server.stops()

    def _copy_log(self):
        self.server.copy_logs(self.records)

    def _keep_records(self):
        for guest in self.stage.guests.values():
            if guest.failed_boots:
                self.report(f"{guest.name} came up at the {guest.failed_boots + 1}. try")
                guest.failed_boots = 0
        result = self._outcome.result
        went_wrong = any(test is self for test, _ in result.failures + result.errors) or not self._outcome.success
        if not went_wrong and not os.environ.get("HF_E2E_KEEP"):
            shutil.rmtree(self.records)
            return
        with open(os.path.join(self.records, "transcript"), "w", encoding="utf-8") as file:
            file.write("\n".join(self.transcript) + "\n")
        for guest in self.stage.guests.values():
            for name in ("console", "console.failed"):
                console = os.path.join(guest.directory, name)
                if os.path.exists(console):
                    shutil.copy(console, os.path.join(self.records, f"{guest.name}.{name}"))
        self.capture.decode()
        self.stage.reports.append(f"see {self.records}")

    def report(self, text):
        """A measurement, for the reader of the run."""
        self.note(text)
        self.stage.reports.append(text)

    def third_host(self):
        """A third host on the wire: its namespace and address."""
        namespace, number = self.stage.host("third")
        return namespace, f"10.98.0.{10 + number}"
