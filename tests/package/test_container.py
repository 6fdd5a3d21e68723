#!/usr/bin/env python3
"""contrib/container/Containerfile: the image can be built from the package, and serves as docs/guide/install.md says.

    test_container.py SOURCE DIR [unittest's own arguments]

DIR is where ./dev package leaves the package. Where the registry does not give the image to begin with, one from Debian's
mirror takes its place, and is kept for a week. Ends with 77, and says why, where there is no buildah and no podman. With
podman alone the image is built and not run: that would need a runtime for containers, which may itself be refused in a
container. buildah needs none (BUILDAH_ISOLATION=chroot): its containers have capabilities, a filter of system calls and a
tree of files of their own, and the processes and the network of the caller.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import urllib.request
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "net", "lib"), os.path.join(HERE, "..", "files")]
os.environ["PATH"] += ":/usr/sbin:/sbin"
os.environ["BUILDAH_ISOLATION"] = "chroot"  # so that a build needs no runtime, either

import netns  # noqa: E402
import nfs  # noqa: E402
from daemon import Daemon, Failed  # noqa: E402
from until import until  # noqa: E402
from visitor import Visitor  # noqa: E402

SKIPPED = 77
BUILDERS = {"buildah": ["buildah", "bud"], "podman": ["podman", "build"]}
BASE = "localhost/holdfast-test-base"
PATIENCE = 120.0
WEEK = 7 * 24 * 3600
STATE = "/var/lib/holdfast"
EXPORT = "/srv/data"

# The kernel's numbers. buildah gives a container DEFAULT, and drops what --cap-drop names after it has added.
CAPABILITIES = {"chown": 0, "dac_override": 1, "dac_read_search": 2, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6,
                "setuid": 7, "setpcap": 8, "net_bind_service": 10, "sys_chroot": 18, "setfcap": 31}  # fmt: skip
DEFAULT = set(CAPABILITIES) - {"dac_read_search"}

# What a rootless podman gives a user: the user itself as root, and a range as all others.
USER, RANGE, N_RANGE = 1000, 100000, 65536
IDS = f"0 {USER} 1\n1 {RANGE} {N_RANGE}\n"
FIRST_PORT = "/proc/sys/net/ipv4/ip_unprivileged_port_start"


def call(*words, **how):
    return subprocess.run(words, check=True, text=True, **how)


def said_by(*words):
    return call(*words, stdout=subprocess.PIPE).stdout.strip()


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def pull(name):
    return subprocess.run([BUILDER, "pull", f"docker.io/library/{name}"], check=False).returncode == 0


def make_base(codename):
    """Much like Debian's slim image. It is kept for a week."""
    made = os.path.join(DIR, f"container-{codename}")
    is_there = subprocess.run([BUILDER, "inspect", "--type", "image", BASE], check=False, stdout=subprocess.DEVNULL)
    if is_there.returncode == 0 and os.path.exists(made) and time.time() - os.path.getmtime(made) < WEEK:
        return True
    subprocess.run([BUILDER, "rmi", BASE], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
        options += ["--quiet", "--variant=apt", '--aptopt=Acquire::Languages "none"']
        root = os.path.join(folder, "root.tar")
        if subprocess.run(["mmdebstrap", *options, codename, root], check=False).returncode != 0:
            return False
        with open(os.path.join(folder, "Containerfile"), "w", encoding="utf-8") as file:
            file.write("FROM scratch\nADD root.tar /\n")
        call(*BUILDERS[BUILDER], "-t", BASE, folder)
    os.makedirs(made, exist_ok=True)
    os.utime(made)
    return True


def find_base():
    """The image that the Containerfile begins with, or one like it; None where neither can be had."""
    name, codename = re.search(r"^ARG BASE=(debian:(\w+).*)$", read(CONTAINERFILE), flags=re.M).groups()
    if pull(name):
        return f"docker.io/library/{name}"
    return BASE if make_base(codename) else None


def podman_run():
    """The options of `podman run` in the guide, and the words after the image's name."""
    text = read(SOURCE, "docs", "guide", "install.md")
    words = shlex.split(re.search(r"^    podman run (.*?)\n\n", text, flags=re.M | re.S)[1])
    at = len(words) - 1 - words[::-1].index("holdfast")
    return words[:at], words[at + 1 :]


def guides_capabilities():
    options, _ = podman_run()
    assert options[options.index("--cap-drop") + 1] == "all", options
    return set(options[options.index("--cap-add") + 1].split(","))


class Contained(Daemon):
    """The server of the image, in a new container with each start(); what the guide calls volumes stays.

    @words: a function that gives what to run, for this server and its newest container."""

    def __init__(self, namespace, words):
        super().__init__("holdfastd", namespace)
        self.words = words
        self.containers = []
        self.pid = None
        self.volumes = {os.path.join(self.state_dir, "state"): STATE, os.path.join(self.state_dir, "data"): EXPORT}
        for folder in self.volumes:
            os.mkdir(folder)
        self.data = os.path.join(self.state_dir, "data")
        os.chmod(self.data, 0o1777)
        os.chmod(self.state_dir, 0o711)

    def start(self, *_, **__):
        self.containers.append(said_by("buildah", "from", IMAGE))
        # Else buildah mounts, now and then, a volume of its own there in place of the one that it is given.
        call("buildah", "config", "--volume", f"{STATE}-", self.containers[-1])
        with self.open_log() as log, self.namespace:
            self.process = subprocess.Popen(self.words(self), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = until(self.find, "the server in the container has started", PATIENCE, more=lambda: self.log)
        return self

    def is_below(self, pid):
        try:
            while pid > 1 and pid != self.process.pid:
                pid = int(re.search(r"^PPid:\s*(\d+)", read(f"/proc/{pid}/status"), flags=re.M)[1])
        except OSError:
            return False  # it has ended
        return pid == self.process.pid

    def find(self):
        """The server's pid, once it serves: no other one that a run before this left in the file."""
        if self.process.poll() is not None:
            raise Failed(f"the container has ended with {self.process.returncode}:\n{self.log}")
        try:
            pid = json.loads(read(self.ports_file))["pid"]
            return pid if self.is_below(pid) else None
        except (OSError, ValueError):
            return None

    def says(self, text):
        """The log comes through buildah, and so a little later."""
        until(lambda: text in self.log, f"it logs {text}", PATIENCE, more=lambda: self.log)

    def crash(self):
        """kill -9 of the server; where it did not come so far, of all that was started for it."""
        all_of_it = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self.is_below(pid)]
        for pid in [self.pid] if self.pid else all_of_it:
            os.kill(pid, signal.SIGKILL)
        self.pid = None
        self.reap()

    def end(self):
        """As `podman stop` does."""
        os.kill(self.pid, signal.SIGTERM)
        self.pid = None
        if self.process.wait(PATIENCE) != 0:
            raise Failed(f"the container ended with {self.process.returncode}:\n{self.log}")

    def close(self):
        super().close()
        for container in self.containers:
            call("buildah", "rm", container, stdout=subprocess.DEVNULL)


def names_of(capabilities):
    return ",".join(f"CAP_{name.upper()}" for name in sorted(capabilities))


def run_words(*words):
    """As `podman run` in the guide, but for the names of the volumes."""
    given = guides_capabilities()
    options = ["--cap-add", names_of(given - DEFAULT), "--cap-drop", names_of(DEFAULT - given)]

    def of(server):
        volumes = [word for pair in server.volumes.items() for word in ("-v", ":".join(pair))]
        return ["buildah", "run", *options, *volumes, server.containers[-1], "--", *words]

    return of


def limited(*words, flags=()):
    """@words with the guide's capabilities, started by root."""
    given = ",".join("+" + name for name in sorted(guides_capabilities()))
    return ["setpriv", *flags, "--inh-caps=-all", f"--bounding-set=-all,{given}", *words]


def words_in_root(*words, is_read_only=False):
    """@words in the container's files, without buildah: for what its containers cannot be told."""

    def of(server):
        root = said_by("buildah", "mount", server.containers[-1])
        steps = [f"mount --bind '{root}' '{root}'"]
        for folder, path in [*server.volumes.items(), ("/proc", "/proc"), ("/dev", "/dev")]:
            steps += [f"mkdir -p '{root}{path}'", f"mount --rbind '{folder}' '{root}{path}'"]
        if is_read_only:
            steps += [f"mount -o remount,ro,bind '{root}'"]
        script = " && ".join([*steps, 'exec "$@"'])
        return ["unshare", "--mount", "sh", "-c", script, "sh", "chroot", root, *words]

    return of


class Container(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        call(*BUILDERS[BUILDER], "--network", "host", "--build-arg", f"BASE={FROM}", "-f", CONTAINERFILE, "-t", IMAGE, DIR)
        cls.addClassCleanup(call, BUILDER, "rmi", IMAGE, stdout=subprocess.DEVNULL)
        config = json.loads(said_by(BUILDER, "inspect", "--type", "image", IMAGE))
        cls.config = config["OCIv1"]["config"] if BUILDER == "buildah" else config[0]["Config"]

    def setUp(self):
        if BUILDER != "buildah":
            self.skipTest("buildah is not installed")
        self.namespace = netns.Namespace("container")
        self.addCleanup(self.namespace.close)

    def serve(self, words):
        server = Contained(self.namespace, words)
        self.addCleanup(server.close)
        return server

    def is_ready(self):
        try:
            with self.namespace, urllib.request.urlopen("http://127.0.0.1:8049/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def test_no_systemd_in_it(self):
        """Only the small program for users, which the package needs."""
        container = said_by("buildah", "from", IMAGE)
        self.addCleanup(call, "buildah", "rm", container, stdout=subprocess.DEVNULL)
        packages = said_by("buildah", "run", container, "--", "dpkg-query", "-W").splitlines()
        names = {line.split("\t")[0] for line in packages}
        self.assertIn("holdfast", names)
        self.assertEqual({name for name in names if name.startswith("systemd")}, {"systemd-standalone-sysusers"})

    def test_the_server_becomes_ready(self):
        """As the image starts it, with no export."""
        self.assertEqual(self.config["Entrypoint"], ["/usr/sbin/holdfastd"])
        self.assertEqual(list(self.config["Volumes"]), [STATE])
        server = self.serve(run_words(*self.config["Entrypoint"], *self.config["Cmd"])).start()
        until(self.is_ready, "the server is ready", PATIENCE, more=lambda: server.log)
        server.says("no export is configured")
        server.end()

    def check_capabilities(self, server):
        wanted = sum(1 << CAPABILITIES[name] for name in guides_capabilities())
        has = dict(re.findall(r"^Cap(\w+):\s*(\w+)$", read(f"/proc/{server.pid}/status"), flags=re.M))
        self.assertEqual([int(has[name], 16) for name in ("Bnd", "Prm", "Eff")], [wanted] * 3)

    def owner(self, server, name):
        return os.stat(os.path.join(server.data, name)).st_uid

    def check_one_life_and_the_next(self, server):
        """A client writes and locks; kill -9; the next container knows the file by its handle, and the lock."""
        server.start()
        self.check_capabilities(server)
        until(self.is_ready, "the server is ready", PATIENCE, more=lambda: server.log)
        visitor = Visitor(self, self.namespace, EXPORT)
        visitor.comes()
        server.says("identity=callers")
        # Another user of the client's host has no right to the file, and each has files of its own.
        other = visitor.client(visitor.port(), uid=1001)
        self.assertEqual(other.read(visitor.fh).stat, nfs.ACCES)
        self.assertEqual(other.create(other.root(EXPORT), b"other", mode=0o600).stat, nfs.OK)
        server.crash()
        server.start()
        visitor.comes_back()
        server.end()

    def test_it_serves_as_the_guide_says(self):
        _, arguments = podman_run()
        server = self.serve(run_words(*self.config["Entrypoint"], *arguments))
        self.check_one_life_and_the_next(server)
        server.says("handles=kernel")
        self.assertEqual([self.owner(server, name) for name in ("file", "other")], [1000, 1001])

    def test_it_serves_as_the_manifest_says(self):
        """contrib/kubernetes: with its configuration, the same capabilities, no way to more, and no file to write to."""
        text = read(SOURCE, "contrib", "kubernetes", "holdfast.yaml")
        added = re.search(r"drop: \[ALL\]\n +add: \[(.*)\]", text)[1]
        self.assertEqual(set(added.lower().split(", ")), guides_capabilities())
        self.assertIn("allowPrivilegeEscalation: false", text)
        self.assertIn("readOnlyRootFilesystem: true", text)
        arguments = json.loads(re.search(r"^ +args: (.*)$", text, flags=re.M)[1])
        words = limited(*self.config["Entrypoint"], *arguments, flags=["--no-new-privs"])
        server = self.serve(words_in_root(*words, is_read_only=True))
        config = os.path.join(server.state_dir, "config")
        os.mkdir(config)
        server.volumes[config] = "/etc/holdfast"
        with open(os.path.join(config, "holdfast.yaml"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(re.search(r"^  holdfast\.yaml: \|\n((?:    .*\n)+)", text, flags=re.M)[1]))
        self.check_one_life_and_the_next(server)

    def hold_user_namespace(self):
        """A process of an ordinary user in a user namespace with the ids of rootless containers."""
        ordinary = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        holder = subprocess.Popen([*ordinary, "unshare", "--user", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.stdin.close)
        ours = os.readlink("/proc/self/ns/user")

        def is_apart():
            if holder.poll() is not None:
                self.skipTest("no user namespaces here for users without rights")
            return os.readlink(f"/proc/{holder.pid}/ns/user") != ours

        until(is_apart, "it has a namespace of its own")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{holder.pid}/{name}", "w", encoding="ascii") as file:
                file.write(IDS)
        return holder.pid

    def test_a_range_of_users(self):
        """Without root: clients act as themselves as far as the range goes. The namespace gives no right to the host's network,
        so the host gives away port 111."""
        try:
            with self.namespace, open(FIRST_PORT, "w", encoding="ascii") as file:
                file.write("111")
        except OSError as error:
            self.skipTest(f"{FIRST_PORT} cannot be set here: {error.strerror}")
        _, arguments = podman_run()
        # A mount namespace that belongs to the user namespace, too, as each container has it.
        within = ["nsenter", f"--user=/proc/{self.hold_user_namespace()}/ns/user", "--setuid", "0", "--setgid", "0",
                  "unshare", "--mount"]  # fmt: skip
        server = self.serve(words_in_root(*within, *limited(*self.config["Entrypoint"], *arguments)))
        for folder in server.volumes:
            os.chown(folder, USER, USER)
        self.check_one_life_and_the_next(server)
        self.assertEqual([self.owner(server, name) for name in ("file", "other")], [RANGE + 999, RANGE + 1000])
        server.start()
        stranger = Visitor(self, self.namespace, EXPORT, uid=N_RANGE + 1)
        client = stranger.client(stranger.port())
        made = client.create(client.root(EXPORT), b"stranger", mode=0o600)
        self.assertEqual(made.stat, nfs.PERM)
        server.end()


if __name__ == "__main__":
    SOURCE, DIR = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    IMAGE = f"localhost/holdfast-test-{zlib.crc32(DIR.encode()):08x}"  # not that of another working copy
    BUILDER = next(filter(shutil.which, BUILDERS), None)
    CONTAINERFILE = os.path.join(SOURCE, "contrib", "container", "Containerfile")
    reason = netns.is_possible() if BUILDER else "neither buildah nor podman is installed"
    if not reason:
        FROM = find_base()
        reason = None if FROM else "neither the registry nor Debian's mirror gives an image to begin with"
    if reason:
        print(f"container: skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
