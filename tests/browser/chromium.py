"""A page in real Chromium, driven through page.js; each verb there is a method here."""

import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "net", "lib"))

# pylint: disable=wrong-import-position
import play

MODULES = os.environ.get("NODE_PATH") or os.path.join(HERE, "node_modules")


class Page:
    def __init__(self, namespace):
        with namespace:
            self.process = subprocess.Popen(["node", os.path.join(HERE, "page.js")], stdin=subprocess.PIPE, text=True,
                                            stdout=subprocess.PIPE, env={**os.environ, "NODE_PATH": MODULES})  # fmt: skip

    def __getattr__(self, verb):
        def act(**order):
            self.process.stdin.write(json.dumps({"do": verb, **order}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            assert "error" not in answer, f"{verb} {order}: {answer}"
            return answer["ok"]

        return act

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class PagePlay(play.Play):
    """A play with the page of its server, not opened yet."""

    settings = ("api.listen=127.0.0.1:0",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = Page(cls.daemon.namespace)
        cls.addClassCleanup(cls.page.close)

    def url(self, token=True):
        return f"http://127.0.0.1:{self.rest.port}/" + (f"#token={self.rest.token}" if token else "")

    def shoot(self, name):
        """Kept where SCREENSHOTS names a folder."""
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            self.page.shot(path=os.path.join(folder, f"dashboard-{name}.png"))


def check():
    """Ends the test as skipped where there is no browser."""
    for what, is_there in (("node", shutil.which("node")), ("Chromium", shutil.which("chromium")),
                           ("playwright-core", os.path.isdir(os.path.join(MODULES, "playwright-core")))):  # fmt: skip
        if not is_there:
            print(f"skipped: no {what}")
            sys.exit(play.SKIPPED)


def main():
    check()
    play.main()
