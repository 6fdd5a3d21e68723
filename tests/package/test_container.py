#!/usr/bin/env python3
"""contrib/container/Containerfile: the image can be built from the package, and the server in it becomes ready.

    test_container.py SOURCE DIR [unittest's own arguments]

DIR is where ./dev package leaves the package. Where the registry does not give the image to begin with, one from Debian's
mirror takes its place. Ends with 77, and says why, where there is no buildah and no podman. With podman alone the image is
built and not run: that would need a runtime for containers, which may itself be refused in a container.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "net", "lib")]
os.environ["PATH"] += ":/usr/sbin:/sbin"
os.environ["BUILDAH_ISOLATION"] = "chroot"  # so that a build needs no runtime, either

import netns  # noqa: E402
from until import until  # noqa: E402

SKIPPED = 77
BUILDERS = {"buildah": ["buildah", "bud"], "podman": ["podman", "build"]}
IMAGE = "localhost/holdfast-test"
BASE = "localhost/holdfast-test-base"
PATIENCE = 120.0


def call(*words, **how):
    return subprocess.run(words, check=True, text=True, **how)


def said_by(*words):
    return call(*words, stdout=subprocess.PIPE).stdout.strip()


def make_base(build, codename):
    with tempfile.TemporaryDirectory() as folder:
        call("mmdebstrap", "--quiet", "--variant=minbase", codename, os.path.join(folder, "root.tar"))
        with open(os.path.join(folder, "Containerfile"), "w", encoding="utf-8") as file:
            file.write("FROM scratch\nADD root.tar /\n")
        call(*build, "-t", BASE, folder)
    return BASE


class Container(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        build = BUILDERS[BUILDER]
        file = os.path.join(SOURCE, "contrib", "container", "Containerfile")
        with open(file, encoding="utf-8") as text:
            base = re.search(r"^ARG BASE=(debian:(\w+).*)$", text.read(), flags=re.M)
        if subprocess.run([BUILDER, "pull", f"docker.io/library/{base[1]}"], check=False).returncode == 0:
            base = f"docker.io/library/{base[1]}"
        else:
            base = make_base(build, base[2])
        call(*build, "--network", "host", "--build-arg", f"BASE={base}", "-f", file, "-t", IMAGE, DIR)
        cls.addClassCleanup(call, BUILDER, "rmi", IMAGE, stdout=subprocess.DEVNULL)

    def command(self, *words):
        """How to run @words in a new container, in the network of the caller."""
        if BUILDER != "buildah":
            self.skipTest("buildah is not installed")
        container = said_by("buildah", "from", IMAGE)
        self.addCleanup(call, "buildah", "rm", container, stdout=subprocess.DEVNULL)
        return ["buildah", "run", container, "--", *words]

    def test_no_systemd_in_it(self):
        """Only the small program for users, which the package needs."""
        packages = said_by(*self.command("dpkg-query", "-W")).splitlines()
        names = {line.split("\t")[0] for line in packages}
        self.assertIn("holdfast", names)
        self.assertEqual({name for name in names if name.startswith("systemd")}, {"systemd-standalone-sysusers"})

    def test_the_server_becomes_ready(self):
        """As the image starts it, with no export."""
        config = json.loads(said_by(BUILDER, "inspect", "--type", "image", IMAGE))
        config = config["OCIv1"]["config"] if BUILDER == "buildah" else config[0]["Config"]
        self.assertEqual(config["Entrypoint"], ["/usr/sbin/holdfastd"])
        command = self.command(*config["Entrypoint"], *config["Cmd"])
        namespace = netns.Namespace("container")
        self.addCleanup(namespace.close)
        with namespace:
            server = subprocess.Popen(command)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

        def is_ready():
            self.assertIsNone(server.poll(), "the server has ended")
            try:
                with namespace, urllib.request.urlopen("http://127.0.0.1:8049/readyz", timeout=5) as answer:
                    return answer.status == 200
            except OSError:
                return False

        until(is_ready, "the server is ready", PATIENCE)


if __name__ == "__main__":
    SOURCE, DIR = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    BUILDER = next(filter(shutil.which, BUILDERS), None)
    reason = netns.is_possible() if BUILDER else "neither buildah nor podman is installed"
    if reason:
        print(f"container: skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
