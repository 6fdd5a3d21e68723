#!/usr/bin/env python3
"""Real peers: Debian's rpc.statd and sm-notify on the client's side. And what each of them is told if the server has two addresses.

rpc.statd gets the server's SM_NOTIFY, and its call-back to the lock manager that registered with it shows that it
accepted it; sm-notify frees what its host held. rpc.statd registers with a real rpcbind; then the fake host's portmap
takes its place, so that a test can choose over which transport statd is found.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
import nsm
from fakehost import NSM, Record
from forger import Forger
from nsm import Host
from play import Play, main
from recovering import OverPostgres, Recovering
from rpc import UdpCaller, call_message, exchange
from until import until
from xdr import In

STATD_PORT = 4045
PROGRAMS = ("rpcbind", "rpc.statd", "sm-notify", "unshare")


def find(program):
    return shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")


def lose_second_address(play):
    """Until the end of the test."""
    play.network.server.batch([f"addr del {play.network.SERVER[1]}/16 dev wire"])
    play.addCleanup(play.network.server.batch, [f"addr add {play.network.SERVER[1]}/16 dev wire"])


class RealHost(Host):
    """Its statd is a real one; its lockd is the test's and writes down what statd tells it."""

    def __init__(self, *args, **how):
        self.restarts = Record()
        self.directory = tempfile.mkdtemp(prefix="hf-statd-")
        self.processes = []
        self.transports = ("udp", "tcp")
        super().__init__(*args, portmap=False, **how)
        self.prepare()
        rpcbind = self.spawn("rpcbind", "-f", "-w")
        self.until_answered(100000, 2, 111)
        self.spawn("rpc.statd", "-F", "-d", "-P", self.directory, "-p", str(STATD_PORT), "-n", self.name)
        self.until_answered(NSM, 1, STATD_PORT)
        self.end(rpcbind)
        self.start_portmap()

    def prepare(self):
        """statd drops root and becomes the user that owns its directory."""
        for name in ("sm", "sm.bak"):
            os.mkdir(os.path.join(self.directory, name))
        with open(os.path.join(self.directory, "state"), "wb") as state:
            state.write((3).to_bytes(4, sys.byteorder))

    def spawn(self, program, *words):
        """With a /run and a host name of its own."""
        script = f'mount -t tmpfs tmpfs /run && hostname {self.name} && exec "$@"'
        with open(os.path.join(self.directory, "log"), "ab") as log, self.namespace:
            process = subprocess.Popen(
                [find("unshare"), "--mount", "--uts", "sh", "-c", script, "sh", find(program), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def until_answered(self, program, version, port):
        what = f"program {program} answers at port {port}"
        until(lambda: self.is_answered(program, version, port), what, more=lambda: self.log)

    def is_answered(self, program, version, port):
        caller = UdpCaller(("127.0.0.1", port), ("127.0.0.1", 0), self.namespace)
        try:
            exchange(caller, call_message(program, version, 0), 0.1)
            return True
        except Exception:  # pylint: disable=broad-except
            return False
        finally:
            caller.close()

    @property
    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def port_of(self, program, protocol):
        if program == NSM:
            return STATD_PORT if {6: "tcp", 17: "udp"}[protocol] in self.transports else 0
        return super().port_of(program, protocol)

    def _on_lockd(self, call):
        if call.procedure == nlm.SM_NOTIFY:
            self.restarts.add(nsm.status_of(call))
            return call.answer()
        return super()._on_lockd(call)

    def monitor(self, server, priv):
        """As its kernel does before the first lock: SM_MON to its own statd, by loopback, from a reserved port."""
        caller = UdpCaller(("127.0.0.1", STATD_PORT), ("127.0.0.1", 0), self.namespace, reserved=True)
        args = nsm.mon_args(server, self.name, nlm.PROGRAM, nlm.SM_NOTIFY, priv).replace(
            # version 3, as Linux has it
            (1).to_bytes(4, "big") + nlm.SM_NOTIFY.to_bytes(4, "big"),
            (3).to_bytes(4, "big") + nlm.SM_NOTIFY.to_bytes(4, "big"),
        )
        results = In(exchange(caller, call_message(NSM, 1, nsm.MON, args)))
        caller.close()
        return results.u32(), results.i32()

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()

    def close(self):
        for process in self.processes:
            self.end(process)
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Peers(Play):
    n_hosts = 0
    settings = ("store.backend=lmdb", "recovery.grace=auto", "recovery.window_seconds=3600")

    @classmethod
    def setUpClass(cls):
        missing = [program for program in PROGRAMS if not find(program)]
        if missing:
            raise unittest.SkipTest(f"missing: {missing}")
        super().setUpClass()
        namespace, number = cls.network.add_client()
        cls.hosts.append(RealHost(cls.stage, namespace, number, cls.network.SERVER[0]))
        namespace, number = cls.network.add_client()
        cls.hosts.append(Host(cls.stage, namespace, number, cls.network.SERVER[0]))

    def setUp(self):
        super().setUp()
        self.a.restarts.items.clear()
        self.a.transports = ("udp", "tcp")

    def tearDown(self):
        for host in self.hosts:
            host.drop_callers()
        self.daemon.crash()
        self.daemon.start(flags=["--clear-store"])
        super().tearDown()

    def until_statd_takes_it(self, priv):
        """What it tells its lock manager."""
        try:
            return self.a.restarts.wait(test=lambda status: status.priv == priv)[0]
        except AssertionError:
            return self.fail(f"statd did not take it:\n{self.a.log[-3000:]}\n{self.daemon.log[-2000:]}")

    def restart_and_be_told(self):
        priv = os.urandom(16)
        self.assertEqual(self.a.monitor(self.network.SERVER[0], priv)[0], nsm.SUCC, self.a.log)
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        self.a.drop_callers()
        self.daemon.crash()
        self.daemon.start()
        restart = self.until_statd_takes_it(priv)
        self.assertEqual(restart.name, self.network.SERVER[0])
        self.assertEqual(restart.state % 2, 1)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_our_restart_reaches_statd_by_udp(self):
        self.restart_and_be_told()

    def test_our_restart_reaches_statd_by_tcp(self):
        self.a.transports = ("tcp",)
        self.restart_and_be_told()

    def test_each_restart_is_news(self):
        for _ in range(3):
            self.restart_and_be_told()

    def test_a_restart_without_the_address_that_was_used(self):
        priv = os.urandom(16)
        self.assertEqual(self.a.monitor(self.network.SERVER[1], priv)[0], nsm.SUCC, self.a.log)
        lock = self.lock_of(self.a, state=3)
        self.assertEqual(self.a.lock(lock, server=self.network.SERVER[1]), nlm.S_GRANTED)
        self.a.drop_callers()
        self.daemon.crash()
        lose_second_address(self)
        self.daemon.start()
        self.until_statd_takes_it(priv)
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_a_restart_reaches_statd_for_each_address_that_was_used(self):
        """statd watches two servers, as it seems to its kernel, which reclaims what it locked at each."""
        privs = {server: os.urandom(16) for server in self.network.SERVER}
        locks = {}
        for i, (server, priv) in enumerate(privs.items()):
            self.assertEqual(self.a.monitor(server, priv)[0], nsm.SUCC, self.a.log)
            locks[server] = self.lock_of(self.a, 10 * i, 10, state=3)
            self.assertEqual(self.a.lock(locks[server], server=server), nlm.S_GRANTED)
        self.a.drop_callers()
        self.daemon.crash()
        self.daemon.start()
        for server, priv in privs.items():
            self.assertEqual(self.until_statd_takes_it(priv).name, server)
            self.assertEqual(self.a.lock(locks[server].but(reclaim=True), server=server), nlm.S_GRANTED)

    def die(self):
        """What a restart leaves of its kernel: no connection, and a lock manager elsewhere."""
        self.a.drop_callers()
        self.a.start_lockd()

    def test_sm_notify_frees_what_its_host_held(self):
        """statd was started before sm-notify has raised the number, and says the old one."""
        priv = os.urandom(16)
        self.assertEqual(self.a.monitor(self.network.SERVER[0], priv)[0], nsm.SUCC, self.a.log)
        lock = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, lock)
        self.assert_blocked(self.b, self.lock_of(self.b))
        self.die()
        notify = self.a.spawn("sm-notify", "-d", "-f", "-P", self.a.directory)
        try:
            self.b.wait_granted(lock)
        except AssertionError:
            self.fail(f"not granted:\n{self.a.log[-3000:]}\n{self.daemon.log[-2000:]}")
        self.a.end(notify)
        self.assertIn("it told the server of its restart", self.daemon.log)


class ChoosyHost(Host):
    """Its statd gives no answer to a notice under the name @unheard, and answers the others after @delay seconds."""

    unheard = None
    delay = 0

    def _on_statd(self, call):
        is_notice = call.procedure == nsm.NOTIFY
        is_unheard = is_notice and In(call.args).string() == self.unheard
        is_late = is_notice and not is_unheard and self.delay
        self.deaf = is_unheard or is_late
        if is_late:
            threading.Timer(self.delay, call.answer).start()
        return super()._on_statd(call)


class Addresses(Recovering):
    """The server has two addresses."""

    n_hosts = 2
    backend = ("store.backend=lmdb",)
    host_class = ChoosyHost
    more_settings = ("recovery.notify_timeout_ms=2000",)

    def setUp(self):
        super().setUp()
        self.a.unheard = None
        self.a.delay = 0

    def status(self, host):
        return self.rest.get(f"/api/v1/clients/{quote(self.id_of(host))}").json["status"]

    def notices(self, host):
        """What it was told: the server's name and the source, in order."""
        return [(notice.name, notice.source) for notice in host.told.items]

    def test_the_address_that_was_used_is_gone(self):
        """A statd that knows the server by that address takes a notice under it, from anywhere."""
        one, two = self.network.SERVER
        lock = self.lock_of(self.a)
        self.assertEqual(self.a.lock(lock, server=two), nlm.S_GRANTED)
        self.b.mon("server", server=two)
        for host in self.hosts:
            host.drop_callers()
        self.daemon.crash()
        lose_second_address(self)
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.until_all_are_told()
        self.assertEqual(self.notices(self.a), [("server", one), (two, one)])
        self.assertEqual([status.source for status in self.b.statuses.items], [one])
        self.assertEqual(self.a.lock(lock.but(reclaim=True)), nlm.S_GRANTED)

    def test_a_notice_that_decides_is_answered(self):
        """The statd answers the name that it does not know, and not the address that it knows: it is told again."""
        two = self.network.SERVER[1]
        self.assertEqual(self.a.lock(self.lock_of(self.a), server=two), nlm.S_GRANTED)
        self.a.unheard = two
        self.a.drop_callers()
        self.daemon.crash()
        lose_second_address(self)
        self.log_restarted = len(self.daemon.log)
        self.daemon.start()
        self.until_all_are_told("the unreachable ones lose their locks")
        self.assertEqual(self.status(self.a), "crashed")
        self.a.unheard = None
        self.until(lambda: self.status(self.a) == "notified", "it is told")

    def names_after_restart(self, *hosts):
        """Under which names each of them was told."""
        for host in hosts:
            host.told.items.clear()
        self.restart()
        self.until_all_are_told()
        names = [[name for name, _ in self.notices(host)] for host in hosts]
        return names if len(names) > 1 else names[0]

    def test_each_address_at_which_a_client_locked_is_named(self):
        one, two = self.network.SERVER
        locks = [self.lock_of(self.a, 0, 10), self.lock_of(self.a, 20, 10)]
        for lock, server in zip(locks, (one, two)):
            self.assert_granted(self.a, lock, server=server)
        self.held(self.b, 40, 10)
        self.assertEqual(self.names_after_restart(self.a, self.b), [["server", two, one], ["server", one]])
        for lock, server in zip(locks, (one, two)):
            self.assert_granted(self.a, lock.but(reclaim=True), server=server)
        self.assertEqual(self.names_after_restart(self.a), ["server", two, one])

    def test_a_share_and_a_wait_count_as_a_lock(self):
        one, two = self.network.SERVER
        self.held(self.b, 0, 10)
        self.assert_blocked(self.a, self.lock_of(self.a, 0, 10), server=one)
        self.assertEqual(self.a.share(self.lock_of(self.a).but(fh=b"another", access=1), server=two), nlm.S_GRANTED)
        self.assertEqual(self.names_after_restart(self.a), ["server", two, one])

    def test_the_names_of_ipv6(self):
        one, two = self.network.SERVER6
        self.assert_granted(self.a, self.lock_of(self.a, 0, 10), server=one)
        self.assert_granted(self.a, self.lock_of(self.a, 20, 10), server=two)
        self.assertEqual(self.names_after_restart(self.a), ["server", two, one])

    def further_addresses(self, n):
        """Of the server, until the end of the test."""
        further = [f"10.98.7.{i}" for i in range(1, n + 1)]
        self.network.server.batch([f"addr add {address}/16 dev wire" for address in further])
        self.addCleanup(self.network.server.batch, [f"addr del {address}/16 dev wire" for address in further])
        return further

    def lock_at(self, host, *servers):
        for i, server in enumerate(servers):
            self.assert_granted(host, self.lock_of(host, 10 * i, 10), server=server)

    def test_a_further_name_is_answered_or_given_again(self):
        """It alone is given again, and the client, which answers, loses nothing."""
        one, two = self.network.SERVER
        self.lock_at(self.a, one, two)
        self.a.unheard = one
        self.restart()
        self.until_all_are_told("clients told of the server's restart told=1 failed=0")
        self.assertEqual(self.status(self.a), "unreachable")
        self.a.unheard = None
        self.until(lambda: self.status(self.a) == "notified", "it is told")
        names = [name for name, _ in self.notices(self.a)]
        self.assertEqual([names.count("server"), names.count(two), names[-1]], [1, 1, one], names)

    def test_a_slow_statd_is_told_of_each_address(self):
        """It answers each name in time, and not all of them within the time for one."""
        servers = [*self.network.SERVER, *self.further_addresses(1)]
        self.lock_at(self.a, *servers)
        self.a.delay = 1.2
        self.restart()
        self.until_all_are_told("clients told of the server's restart told=1 failed=0")
        names = [name for name, _ in self.notices(self.a)]
        self.assertEqual(list(dict.fromkeys(names)), ["server", servers[2], *servers[:2]])
        self.assertEqual(self.status(self.a), "notified")

    def test_calls_that_take_nothing_name_no_address(self):
        """Nor do notices leave from there, of this run or of the next."""
        one, two = self.network.SERVER
        self.held(self.a, 0, 10)
        self.held(self.b, 20, 10)
        for transport in ("tcp", "udp"):
            self.a.test(self.lock_of(self.a, 500, 1), server=two, transport=transport)
            self.a.unlock(self.lock_of(self.a, 500, 1), server=two, transport=transport)
            self.assert_denied(self.a, self.lock_of(self.a, 20, 10), server=two, transport=transport)
        self.log_restarted = len(self.daemon.log)
        root = nsm.Local(self.network.server, reserved=True)
        root.ask(nsm.SIMU_CRASH)
        root.close()
        self.until_all_are_told()
        self.assertEqual(self.notices(self.a), [("server", one), (one, one)])
        self.assertEqual(self.names_after_restart(self.a), ["server", one])

    def test_a_datagram_does_not_move_a_client(self):
        """It may be forged. Its address is named, and the notices still come from the other one."""
        one, two = self.network.SERVER
        self.held(self.a, 0, 10)
        self.assert_granted(self.a, self.lock_of(self.a, 20, 10), server=two, transport="udp")
        self.restart()
        self.until_all_are_told()
        self.assertEqual(self.notices(self.a), [("server", one), (one, one), (two, one)])

    def hold_and_go_on(self, host):
        """The second run does not know over which transport the host calls, and no call has come yet."""
        self.restart(recovery__after_crash="continue")
        self.held(host, 0, 10)
        self.restart(recovery__after_crash="continue")
        self.assertIn("going on", self.daemon.log[self.log_restarted :])

    def test_a_datagram_bars_no_client_of_the_run_before(self):
        """One from a reserved port, and the client calls from ordinary ones."""
        self.hold_and_go_on(self.a)
        self.assert_granted(self.a, self.lock_of(self.a, 20, 10), transport="udp", reserved=True)
        self.held(self.a, 40, 10)
        self.restart()
        self.held(self.a, 0, 10, reclaim=True)

    def test_forged_datagrams_displace_no_address(self):
        one, two = self.network.SERVER
        self.lock_at(self.a, one, two)
        for i, server in enumerate(self.further_addresses(18)):
            forger = Forger(self.b.namespace, (server, 2049))
            lock = self.lock_of(self.a, 1000 + 10 * i, 5, svid=99)
            forger.send(self.a.address, 700, call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK)))
            forger.close()
        self.until(lambda: "a client uses too many addresses of the server" in self.log, "the log says it")
        self.held(self.a, 3000, 10)  # the reply waits until its registration is stored, with all addresses
        names = self.names_after_restart(self.a)
        self.assertEqual([len(names), names[:2], names[-1]], [17, ["server", two], one], names)


class AddressesInPostgres(OverPostgres, Addresses):
    pass


if __name__ == "__main__":
    main()
