"""File systems of one's own, on images: seen in a mount namespace of its own and gone with it.

What cannot be had here (the right to mount, a loop device, a file system that the kernel or the packages lack) ends the
program as skipped, with the reason.
"""

import os
import subprocess
import sys

from server import SKIPPED

SIZE = 512 << 20
KINDS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "ext4-nojournal": ["mkfs.ext4", "-q", "-F", "-O", "^has_journal"],
    "ext4-seconds": ["mkfs.ext4", "-q", "-F", "-I", "128"],  # no room for nanoseconds in its inodes
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
    "overlay": ["mkfs.ext4", "-q", "-F"],
}


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def enter_namespace():
    if os.geteuid() != 0:
        skip("mounting is for the superuser")
    if os.environ.get("HF_DISK_INSIDE"):
        return
    os.environ["HF_DISK_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "-m", "--", sys.executable, *sys.argv])


def run_or_skip(words):
    try:
        done = subprocess.run(words, capture_output=True, check=False)
    except FileNotFoundError:
        skip(f"there is no {words[0]}")
    if done.returncode:
        skip(f"{' '.join(words)}: {done.stderr.decode().strip()}")


def mount(image, where, options="loop"):
    os.makedirs(where, exist_ok=True)
    run_or_skip(["mount", "-o", options, image, where])


def unmount(where):
    subprocess.run(["umount", where], check=True)


class Disk:
    """An image in @base with a file system, mounted: tests work in .path."""

    def __init__(self, kind, base):
        self.kind = kind
        self.image = os.path.join(base, "image")
        self.root = os.path.join(base, "disk")
        self.path = os.path.join(self.root, "tests")
        with open(self.image, "wb") as out:
            out.truncate(SIZE)
        run_or_skip([*KINDS[kind], self.image])
        mount(self.image, self.root)
        os.mkdir(self.path)
        self.is_overlaid = False
        if kind == "overlay":
            self.overlay()

    def overlay(self):
        layers = [f"{name}={os.path.join(self.root, name)}" for name in ("lowerdir", "upperdir", "workdir")]
        for layer in layers:
            os.mkdir(layer.split("=", 1)[1])
        run_or_skip(["mount", "-t", "overlay", "overlay", "-o", ",".join(layers), self.path])
        self.is_overlaid = True

    def close(self):
        if self.is_overlaid:
            unmount(self.path)
            self.is_overlaid = False
        if self.root:
            unmount(self.root)
            self.root = None
