#!/usr/bin/env python3
"""`meson install`, as docs/guide/install.md has it, installs what the package has.

    test_install.py SOURCE DEB [unittest's own arguments]

The programs are compiled without optimisation here; of them only what they say and their modes are compared.
"""

import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

# Where the package has a file that `meson install` has elsewhere.
MOVED = {"lib/systemd/system/holdfastd.service": "usr/lib/systemd/system/holdfastd.service"}
# What only the package has: documents, which the source tree has already, and what Debian asks of a package.
DOCUMENTS = "usr/share/doc/holdfast/"
EXAMPLES = DOCUMENTS + "examples/"
OF_DEBIAN = {"usr/share/lintian/overrides/holdfast"}
PROGRAMS = {"usr/sbin/holdfastd", "usr/bin/holdfast"}
CONFIG = "etc/holdfast/holdfast.yaml"


def content(path):
    if os.path.islink(path):
        return os.readlink(path).removesuffix(".gz").encode()  # of a manual page
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return file.read()


def files_in(root):
    """The path of each file, as `meson install` names it, and where it is."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, root)
            if relative.startswith("usr/share/man/"):
                relative = relative.removesuffix(".gz")
            found[MOVED.get(relative, relative)] = path
    return found


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="holdfast-install-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.build = os.path.join(folder, "build")
        cls.root = os.path.join(folder, "root")
        package = os.path.join(folder, "package")
        subprocess.run(["meson", "setup", cls.build, SOURCE, "--prefix", "/usr", "--sysconfdir", "/etc", "--localstatedir", "/var",
                        "-Doptimization=0"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run(["ninja", "-C", cls.build, "--quiet"], check=True)
        cls.install()
        subprocess.run(["dpkg-deb", "-x", DEB, package], check=True)
        cls.installed, cls.packaged = files_in(cls.root), files_in(package)

    @classmethod
    def install(cls):
        subprocess.run(["meson", "install", "-C", cls.build, "--no-rebuild"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DESTDIR": cls.root})  # fmt: skip

    def test_the_same_files(self):
        packaged = {path for path in self.packaged if not path.startswith(DOCUMENTS) or path.startswith(EXAMPLES)}
        self.assertEqual(set(self.installed), packaged - OF_DEBIAN)
        self.assertIn(DOCUMENTS + "copyright", self.packaged)

    def test_the_same_content(self):
        for path in set(self.installed) & set(self.packaged) - PROGRAMS:
            with self.subTest(path):
                self.assertEqual(content(self.installed[path]), content(self.packaged[path]))

    def test_the_same_modes(self):
        def mode(path):
            return oct(stat.S_IMODE(os.lstat(path).st_mode))

        for path in set(self.installed) & set(self.packaged):
            with self.subTest(path):
                self.assertEqual(mode(self.installed[path]), mode(self.packaged[path]))

    def test_the_same_version(self):
        for path in PROGRAMS:
            versions = {subprocess.run([of[path], "--version"], check=True, capture_output=True).stdout
                        for of in (self.installed, self.packaged)}  # fmt: skip
            self.assertEqual(len(versions), 1, versions)

    def test_a_configuration_stays(self):
        path = os.path.join(self.root, CONFIG)
        before = content(path)
        with open(path, "ab") as file:
            file.write(b"# the administrator's\n")
        self.addCleanup(lambda: os.truncate(path, len(before)))
        self.install()
        self.assertEqual(content(path), before + b"# the administrator's\n")


class Symbols(unittest.TestCase):
    """Debian's way: a package of its own, which debuggers find by the id of the build."""

    def test_they_are_those_of_the_programs(self):
        with tempfile.TemporaryDirectory(prefix="holdfast-symbols-") as folder:
            for package in (DEB, DEB.replace("holdfast_", "holdfast-dbgsym_")):
                subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            for program in PROGRAMS:
                notes = subprocess.run(["readelf", "-n", os.path.join(folder, program)], check=True, capture_output=True, text=True).stdout
                number = re.search(r"Build ID: (\w+)", notes)[1]
                symbols = os.path.join(folder, "usr/lib/debug/.build-id", number[:2], f"{number[2:]}.debug")
                sections = subprocess.run(["readelf", "-SW", symbols], check=True, capture_output=True, text=True).stdout
                self.assertIn(".debug_info", sections, program)


if __name__ == "__main__":
    SOURCE, DEB = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
