"""The worlds of a run: each is a process with a stage of its own that takes the next play as soon as it is done with one."""

import io
import json
import os
import signal
import sys
import time
import unittest

from guest import die_with_parent
from stage import Play, Stage

MOST_SECONDS = 900  # of a play: whatever hangs must not hang the run


class Worlds:
    def __init__(self, program, image, accelerator, directory):
        self.program = program
        self.image = image
        self.accelerator = accelerator
        self.directory = directory
        self.n = int(os.environ.get("HF_E2E_WORLDS") or min(4, len(os.sched_getaffinity(0))))

    def count(self, plays):
        return min(self.n, len(plays))

    def play(self, plays, results):
        """Plays them all; @results gets one after the other as it comes."""
        orders, orders_in = os.pipe()
        os.write(orders_in, "".join(f"{play:<255}\n" for play in plays).encode())
        os.close(orders_in)
        said, said_in = os.pipe()
        children = [self._start(number, orders, said, said_in) for number in range(self.count(plays))]
        os.close(orders)
        os.close(said_in)
        left = set(plays)
        try:
            with open(said, encoding="utf-8") as lines:
                for line in lines:
                    result = json.loads(line)
                    left.discard(result["play"])
                    results.add(result)
        finally:
            for child in children:
                self._end(child)
        for play in sorted(left):
            results.add({"play": play, "result": "FAILED", "seconds": 0, "says": ["its world came to an end"]})

    @staticmethod
    def _end(child):
        try:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def _start(self, number, orders, said, said_in):
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            die_with_parent()
            os.close(said)
            self._live(number, orders, said_in)
            status = 0
        except SystemExit:
            pass
        except BaseException:  # pylint: disable=broad-except
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)  # pylint: disable=protected-access

    def _live(self, number, orders, said_in):
        machines = os.path.join(self.directory, f"world-{number}")
        stage = Play.stage = Stage(self.program, self.image, self.accelerator,
                                   os.path.join(self.directory, "records"), machines)  # fmt: skip
        try:
            # A line is shorter than what a pipe takes or gives in one piece, so that worlds never share one.
            while line := os.read(orders, 256):
                result = play_one(line.decode().strip(), stage)
                os.write(said_in, line_of(result))
                if result["result"] == "GONE":
                    break  # no other play would have better machines
        finally:
            stage.close()


def line_of(result):
    """In one piece through a pipe that others write to as well."""
    while len(line := (json.dumps(result) + "\n").encode()) > 4096:
        result["says"].pop()
    return line


def give_up(*_):
    raise TimeoutError(f"the play is not over after {MOST_SECONDS} s")


def play_one(name, stage):
    begun = time.monotonic()
    stage.reports = []
    result = unittest.TextTestResult(unittest.runner._WritelnDecorator(io.StringIO()), True, 0)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(MOST_SECONDS)
    unittest.TestLoader().loadTestsFromName(name).run(result)
    signal.alarm(0)
    says = [*stage.reports, *(reason for _, reason in result.skipped)]
    for _, trace in result.errors + result.failures:
        says += trace.strip().splitlines()[-12:]
    if result.shouldStop:
        what = "GONE"
    elif not result.wasSuccessful():
        what = "FAILED"
    else:
        what = "skipped" if result.skipped else "ok"
    return {"play": name, "result": what, "seconds": round(time.monotonic() - begun, 1),
            "says": [line[:200] for line in says][:14]}  # fmt: skip
