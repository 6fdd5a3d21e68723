"""Plays in which the server asks hosts for their state numbers: the hosts are scripted, what their statd says and where
their lock manager is."""

import nsm
from play import Play
from rpc import call_message
from until import comes
from xdr import Out

LOOK = 4  # seconds that the server waits for a silent host here


def notice(name, state):
    return call_message(nsm.NSM, 1, nsm.NOTIFY, Out().string(name).i32(state).bytes())


class Asked(Play):
    """At the beginning of a test the server knows nothing of the hosts, and all of them have the number 5."""

    host_class = nsm.Host
    settings = ("nsm.allow_mon=any", f"recovery.notify_timeout_ms={LOOK * 1000}")
    locks_by = "tcp"

    def setUp(self):
        super().setUp()
        self.began = len(self.daemon.log)
        for host in self.hosts:
            host.state = 5
            host.deaf = False
            host.portmap_delay = 0
            host.asked.items.clear()

    def tearDown(self):
        for host in self.hosts:
            host.drop_callers()
        self.daemon.crash()
        self.daemon.start()
        super().tearDown()

    @property
    def log(self):
        """Of this test."""
        return self.daemon.log[self.began :]

    def hold(self, host, state=5, transport=None, **how):
        """A lock of @host's. If the host answers, the server has asked it since a test cleared host.asked."""
        lock = self.lock_of(host, state=state)
        self.assert_granted(host, lock, transport=transport or self.locks_by, **how)
        if not host.deaf and host.portmap:
            comes(host.asked.matching, LOOK)
            host.test(lock)
        return lock
