"""Plays with the command line beside the daemon."""

import os
import subprocess

from play import Play
from until import PATIENCE

HOLDFAST = os.environ.get("HOLDFAST") or os.path.join(os.path.dirname(os.environ.get("HOLDFASTD", "")), "holdfast")
OK, FAILED, USAGE, UNREACHABLE, DENIED, NOT_FOUND = range(6)


class CliPlay(Play):
    settings = ("api.listen=127.0.0.1:0",)

    def words(self, *words):
        return [HOLDFAST, "--state-dir", f"{self.daemon.state_dir}/state", *words]

    def run_cli(self, *words, code=OK, env=None):
        with self.daemon.namespace:
            done = subprocess.run(self.words(*words), capture_output=True, text=True, timeout=PATIENCE, check=False,
                                  stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done
