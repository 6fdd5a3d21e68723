"""PostgreSQL on a wire of its own, which only the nodes of a service share, and a replica of it that can take its place."""

import os
import subprocess

import cluster
from until import until


class Database(cluster.Cluster):
    """At @address in @namespace; a replica of @primary if there is one. @settings: KEY=VALUE."""

    def __init__(self, namespace, address, settings=(), primary=None):
        self.namespace = namespace
        self.address = address
        self.settings = (f"listen_addresses={address}", *settings)
        self.primary = primary
        super().__init__()

    def _make(self):
        if self.primary:
            copied = self._run("pg_basebackup", "-h", self.primary.address, "-U", "postgres", "-R", "-c", "fast").wait()
            assert copied == 0, self._last_lines()
            return
        super()._make()
        with open(os.path.join(self.path, "data", "pg_hba.conf"), "a", encoding="ascii") as rules:
            rules.write("host all,replication all samenet trust\n")

    def _run(self, program, *words):
        with self.namespace:
            return super()._run(program, *words)

    @property
    def connection(self):
        """To both of them, wherever writes are taken; to this one."""
        hosts = f"{self.primary.address},{self.address}" if self.primary else self.address
        return f"host={hosts} user=postgres dbname=postgres target_session_attrs=read-write"

    def ask(self, sql):
        done = subprocess.run([os.path.join(self.bin, "psql"), "-h", self.path, "-U", "postgres", "-qAtc", sql], check=False,
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout.strip()

    def until_it_follows(self):
        """The primary sends it what is committed."""
        until(lambda: self.primary.ask("SELECT state FROM pg_stat_replication") == "streaming", "the replica follows",
              more=self._last_lines)  # fmt: skip

    def is_promoted(self):
        assert self._run("pg_ctl", "promote", "-w").wait() == 0, self._last_lines()
