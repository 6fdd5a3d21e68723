"""The same restarts on the other stores."""

import unittest

import cluster
import play_locks
import play_restart
from stage import Play


class Memory(Play):
    """Forgets all when it dies, so only what one life shows is played."""

    settings = ("store.backend=memory",)

    test_grant = play_locks.Fcntl.test_unlock_grants_the_waiter
    test_close_releases_all = play_locks.Fcntl.test_close_releases_all
    test_clients_conflict = play_locks.Fcntl.test_two_clients_conflict


@unittest.skipUnless(cluster.programs(), "there is no PostgreSQL here")
class Postgres(Play):
    def setUp(self):
        database = cluster.Cluster()
        self.addCleanup(database.close)
        database.start()
        self.settings = ("store.backend=postgres", f"store.postgres={database.connection}")
        super().setUp()

    test_grant = play_locks.Fcntl.test_unlock_grants_the_waiter
    test_reclaim = play_restart.Kill.test_held_locks_are_reclaimed_and_none_is_stolen
    test_waiter = play_restart.Kill.test_a_waiter_is_granted_afterwards
    test_first_new_lock = play_restart.Kill.test_time_to_the_first_new_lock
    test_killed_twice = play_restart.KilledTwice.test_the_second_time_inside_grace


class Machine(Play):
    """Locks that survive the loss of power, too."""

    settings = ("store.lock_durability=machine",)

    test_reclaim = play_restart.Kill.test_held_locks_are_reclaimed_and_none_is_stolen
    test_waiter = play_restart.Kill.test_a_waiter_is_granted_afterwards
