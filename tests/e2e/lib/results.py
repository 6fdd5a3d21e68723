"""What came of the plays of a run: as text for the terminal, and as JSON for scripts."""

import json
import time


class Results:
    def __init__(self, path, kernel, accelerator, worlds):
        self.path = path
        self.kernel = kernel
        self.accelerator = accelerator
        self.worlds = worlds
        self.begun = time.monotonic()
        self.plays = []

    def add(self, play):
        play["play"] = play["play"].removeprefix("play_")
        if play["result"] == "GONE":
            play["result"] = "FAILED"
        self.plays.append(play)
        print(f"{play['seconds']:7.1f} s  {play['result']:7}  {play['play']}", flush=True)
        for line in play["says"]:
            print(f"             {line}", flush=True)

    def count(self, result):
        return sum(play["result"] == result for play in self.plays)

    @property
    def is_good(self):
        return self.count("FAILED") == 0 and self.count("ok") > 0

    def summary(self):
        """One line."""
        text = f"{self.count('ok')} passed, {self.count('FAILED')} failed"
        if self.count("skipped"):
            text += f", {self.count('skipped')} skipped"
        return f"{text} in {time.monotonic() - self.begun:.0f} s"

    def write(self):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(
                {
                    "kernel": self.kernel,
                    "accelerator": self.accelerator,
                    "worlds": self.worlds,
                    "seconds": round(time.monotonic() - self.begun),
                    "passed": self.count("ok"),
                    "failed": self.count("FAILED"),
                    "skipped": self.count("skipped"),
                    "plays": sorted(self.plays, key=lambda play: play["play"]),
                },
                file,
                indent=1,
            )
