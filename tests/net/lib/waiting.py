"""Plays about clients that wait for a lock."""

import nlm
from play import Play


class Waiting(Play):
    n_hosts = 5

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            host.grants.items.clear()
            host.lookups.items.clear()

    def hold(self, host=None, **more):
        """@host (or a) locks the whole file."""
        lock = self.lock_of(host or self.a, **more)
        self.assert_granted(host or self.a, lock)
        return lock

    def waits(self, host, offset=0, length=0, **more):
        lock = self.lock_of(host, offset, length, block=True, **more)
        self.assert_blocked(host, lock)
        return lock

    def release(self, lock, host=None, **how):
        self.assertEqual((host or self.a).unlock(lock, **how), nlm.S_GRANTED)

    def await_free(self, lock):
        self.await_stat(lambda: self.c.test(lock).stat)

    def await_granted(self, host, lock):
        self.await_stat(lambda: host.lock(lock))

    def await_stat(self, ask):
        """What a client sees that asks again and again."""
        self.until(ask, "it is granted", passes=lambda stat: stat == nlm.S_GRANTED)

    def assert_no_try_has_failed(self, *hosts):
        """To tell them of their locks, each of which has 5 s."""
        log = self.daemon.log
        for host in hosts:
            self.assertNotIn(f"a GRANTED call failed client={self.id_of(host)} ", log)
