"""Everything at once: twenty scripted clients and two kernels lock and wait, while the server is killed, clients reboot, the
wire is cut and a stranger lies. Afterwards all must agree on who has what.

The seed is in the report of the play; HF_E2E_SEED repeats its choices, though not their timing.
"""

import os
import random
import time

import nsm
from fakehost import NSM
from kernels import Kernel
from ledger import FILES, SLOT, SLOTS, Ledger
from rpc import NoReply, Refused, Stage, UdpCaller, call_message, exchange
from scripted import Host, Scripted
from stage import Play
from until import lapse
from xdr import Out

N_SCRIPTED = 20


class Storm(Play):
    # A client that cannot be told within five seconds may only be slow. It must not lose a lock for that.
    settings = ("recovery.window_seconds=40", "log.level=info")
    captured = 300
    weight = 10

    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("HF_E2E_SEED") or random.randrange(10**6))
        self.random = random.Random(self.seed)
        self.ledger = Ledger(self.note)
        self.services = Stage()
        self.addCleanup(self.services.close)
        handles = self.find_handles()
        self.graces = []
        self.scripted = []
        self.actors = []
        self.addCleanup(self.end)
        for number in range(N_SCRIPTED):
            namespace, place = self.stage.host(("scripted", number))
            host = Host(self.services, namespace, place, "10.98.0.1")
            self.addCleanup(host.close)
            self.scripted.append(Scripted(host, handles, self.ledger, self.seed * 100 + number))
        self.kernels = [Kernel(client, self.ledger, self.seed * 100 + 50 + i) for i, client in enumerate((self.a, self.b))]
        self.actors = [*self.scripted, *self.kernels]
        namespace, address = self.third_host()
        self.liar = UdpCaller(("10.98.0.1", 2049), (address, 0), namespace, reserved=True)
        self.addCleanup(self.liar.close)

    def find_handles(self):
        """The scripted ones have no mount; a kernel's lock shows them the handle."""
        handles = {}
        for name in FILES:
            process = self.a.opens(name)
            process.locks()
            (lock,) = self.server.locks
            handles[name] = bytes.fromhex(lock["handle"])
            process.closes()
            self.server.has(locks=0)
        return handles

    def end(self):
        for actor in self.actors:
            actor.is_over = True
        for actor in self.actors:
            if actor.ident:
                actor.join(5)

    # ---- what happens

    def server_is_killed(self):
        self.server.is_killed()
        lapse(self.random.uniform(0, 0.3))  # it is away for a while, of any length
        self.server.starts()
        if self.random.random() < 0.3:
            lapse(self.random.uniform(0, 0.5))  # and again at a random moment, perhaps in grace
            self.server.is_killed()
            self.server.starts()
        # Each restart waits until grace is over: one that clients have not recovered from proves less.
        self.server.ends_grace(90)
        self.graces.append(time.monotonic() - self.server.killed_at)

    def server_restarts(self):
        self.server.stops()
        self.server.starts()

    def scripted_reboots(self):
        self.random.choice(self.scripted).reboot()

    def kernel_reboots(self):
        self.random.choice(self.kernels).reboot()

    def kernel_is_cut_off(self):
        client = self.random.choice((self.a, self.b))
        client.is_cut_off()
        lapse(self.random.uniform(0.5, 3))  # a cut of any length
        client.is_back()

    def stranger_lies(self):
        """Says that a host was restarted that was not."""
        victim = self.random.choice(self.actors)
        state = self.random.choice((1, 5, 99, 2**31 - 1))
        self.note(f"third host: says that {victim.name} has state {state}")
        message = call_message(NSM, 1, nsm.NOTIFY, Out().string(victim.name).i32(state).bytes())
        try:
            exchange(self.liar, message, 2)
        except (NoReply, Refused, OSError):
            pass

    EVENTS = ((server_is_killed, 4), (server_restarts, 1), (scripted_reboots, 4), (kernel_is_cut_off, 2), (stranger_lies, 4),
              (kernel_reboots, 0.7))  # fmt: skip

    def test_storm(self):
        for actor in self.actors:
            actor.start()
        # Whatever else: each of these once.
        events = [self.EVENTS[i][0] for i in (0, 2, 3, 4)]
        self.random.shuffle(events)
        end = time.monotonic() + (120 if self.is_long_run else 20)
        n = 0
        while time.monotonic() < end and not self.ledger.wrongs:
            lapse(self.random.uniform(0.2, 2))  # at a random moment
            event = events.pop() if events else self.random.choices(*zip(*self.EVENTS))[0]
            self.note(f"-- {event.__name__}")
            event(self)
            n += 1
        self.all_rest()
        totals = {}
        for actor in self.actors:
            for key, count in actor.counts.items():
                totals[key] = totals.get(key, 0) + count
        grace = f"grace over {max(self.graces):.1f} s after a kill at the latest"
        self.report(f"seed {self.seed}, {n} events, {totals}, {grace}")
        self.assertEqual(self.ledger.wrongs, [])
        self.all_agree()

    # ---- afterwards

    def all_rest(self):
        for actor in self.actors:
            actor.shall_rest.set()
        for actor in self.actors:
            self.assertTrue(actor.rests.wait(120) or self.ledger.wrongs, f"{actor.name} does not come to rest")
        if not self.ledger.wrongs:
            self.server.ends_grace(90)
            self.server.has(waiters=0)

    def found(self, server):
        """What the API shows, in the ledger's terms but for the owners: {(file, slot, client): is exclusive}"""
        shown = {}
        for lock in server.locks:
            file, name = os.path.basename(lock["file"]), lock["owner"].split(":")[1]
            first, n = lock["offset"] // SLOT, lock["length"] // SLOT
            assert lock["offset"] % SLOT == 0 and lock["length"] == n * SLOT and first + n <= SLOTS, lock
            for slot in range(first, first + n):
                shown[file, slot, name] = lock["mode"] == "exclusive"
        return shown

    def believed(self):
        return {(file, slot, owner.split("/")[0]): mode for (file, slot, owner), mode in self.ledger.all().items()}

    def assert_found(self, server, where):
        found, believed = self.found(server), self.believed()
        wrong = {key: (found.get(key), believed.get(key)) for key in found | believed if found.get(key) != believed.get(key)}
        self.assertEqual(wrong, {}, f"{where} and the clients do not agree: (exclusive there, exclusive here)")

    def all_agree(self):
        """Lock table, API, metrics, the kernels' own lists, and the store: by what a server that was killed finds."""
        self.server.wait("the API shows what the clients believe",
                         lambda server: self.found(server) == self.believed(), 30)  # fmt: skip
        self.assert_found(self.server, "the API")
        locks = self.server.locks
        held = sum(n for name, n in self.server.rest.metrics().items() if name.startswith("nlm_locks_held"))
        self.assertEqual(held, len(locks))
        for kernel in self.kernels:
            lines = kernel.client.does("cat /proc/locks").splitlines()
            own = {(lock["offset"], lock["length"]) for lock in locks if lock["owner"].split(":")[1] == kernel.name}
            theirs = {(int(line.split()[-2]), int(line.split()[-1]) - int(line.split()[-2]) + 1)
                      for line in lines if "POSIX" in line and "->" not in line}  # fmt: skip
            self.assertEqual(own, theirs, f"the kernel of {kernel.name} and the server do not agree")
        self.server.is_killed()
        self.server.starts()
        self.assert_found(self.server, "the store")
        self.server.ends_grace(90)
        self.assert_found(self.server, "what was reclaimed")
        self.assertEqual({lock["state"] for lock in self.server.locks} - {"held"}, set())
