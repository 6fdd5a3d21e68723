"""Plays about what survives: one daemon over one store, killed and started again, and hosts that hear of its restarts."""

import unittest

import cluster
from nsm import Host
from play import Play

ALL_TOLD = "clients told of the server's restart"


class Recovering(Play):
    """Each test begins without locks, registered clients or grace."""

    backend = ()
    more_settings = ()
    host_class = Host

    @classmethod
    def setUpClass(cls):
        cls.settings = (*cls.backend, "recovery.grace=auto", "recovery.window_seconds=3600", "nsm.allow_mon=any",
                        "api.listen=127.0.0.1:0", *cls.more_settings)  # fmt: skip
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.log_began = self.log_restarted = len(self.daemon.log)
        for host in self.hosts:
            host.deaf = False
            host.state = None
            host.grants.items.clear()
            host.told.items.clear()
            host.statuses.items.clear()

    def tearDown(self):
        # The store forgets this test's clients, and the next restart notifies none.
        self.restart("--clear-store")
        super().tearDown()

    def restart(self, *flags, kill=True, **settings):
        for host in self.hosts:
            host.drop_callers()
        if kill:
            self.daemon.crash()
        else:
            self.daemon.stop()
        self.log_restarted = len(self.daemon.log)
        self.daemon.start(*[f"{key.replace('__', '.')}={value}" for key, value in settings.items()], flags=flags)

    @property
    def log(self):
        """Of this test."""
        return self.daemon.log[self.log_began :]

    def until_all_are_told(self, how=ALL_TOLD):
        """After a restart: the server sends no further notice."""
        self.until(lambda: how in self.daemon.log[self.log_restarted :], f"all were told, or not: {how}")
        self.stage.settle()

    def held(self, host, *where, **more):
        lock = self.lock_of(host, *where, **more)
        self.assert_granted(host, lock)
        return lock

    def held_and_seen(self, host, says, *where, **more):
        """The same of a host whose statd says the number @says; the server has asked it since."""
        host.state = says
        n = len(host.asked.matching())
        lock = self.held(host, *where, **more)
        host.asked.wait(n + 1)
        host.test(lock)
        return lock


class OverPostgres:
    """Beside a Recovering: its store is a PostgreSQL of its own."""

    @classmethod
    def setUpClass(cls):
        if not cluster.programs():
            raise unittest.SkipTest("no PostgreSQL here")
        cls.cluster = cluster.Cluster().start()
        cls.addClassCleanup(cls.cluster.close)
        cls.backend = ("store.backend=postgres", f"store.postgres={cls.cluster.connection}")
        super().setUpClass()
