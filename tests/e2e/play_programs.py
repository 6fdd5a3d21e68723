"""What people run on a mount: a repository and a build in it, a database that two machines write to at once."""

import os

from stage import MOUNT, Play

# The tools are on a disk of their own, read-only, in a root that a program needs to find its parts.
IN = "chroot /tools"

AUTHOR = r"""
git init -q --bare bare.git
git clone -q bare.git work
cd work
for i in $(seq 40); do echo "part $i" >part$i.c; done
echo "all of it" >main.c
cat >Makefile <<'END'
prog: $(patsubst %.c,%.o,$(wildcard *.c))
	cat $^ >$@
%.o: %.c
	tr a-z A-Z <$< >$@
END
git add .
git commit -q -m first
git push -q origin HEAD
"""
BUILDER = """
git clone -q bare.git theirs
cd theirs
make -s
make -q
git fsck --strict
git status --short | wc -l
"""


class Programs(Play):
    def setUp(self):
        super().setUp()
        for client in (self.a, self.b):
            client.does(f"/bin/mount --bind {MOUNT} /tools{MOUNT} && /bin/mount --bind /dev /tools/dev")

    def runs(self, client, name, script, **how):
        """A script, which it finds in the export."""
        with open(os.path.join(self.server.export, name), "w", encoding="utf-8") as file:
            file.write(f"set -e\nexport HOME=/tmp GIT_TEMPLATE_DIR=\ncd {MOUNT}\n{script}")
        return client.does(f"{IN} sh {MOUNT}/{name}", **how)

    def test_git_clone_and_build(self):
        self.runs(self.a, "author", AUTHOR, timeout=150)
        said = self.runs(self.b, "builder", BUILDER, timeout=150)
        self.assertEqual(said.splitlines()[-1].strip(), "42", "41 objects and the program are new, and nothing else")

    def test_sqlite_from_two_clients(self):
        """With its rollback journal, which rests on fcntl locks alone."""
        database = f"{MOUNT}/base"
        rounds = 15
        self.a.does(f"{IN} sqlite3 {database} 'PRAGMA journal_mode=DELETE; CREATE TABLE t (who TEXT, n INTEGER)'")
        writers = [
            client.guest.start(
                f"for i in $(seq {rounds}); do {IN} sqlite3 {database} "
                f"\".timeout 60000\" \"INSERT INTO t VALUES ('{client.name}', $i)\" || exit 1; done"
            )
            for client in (self.a, self.b)
        ]
        for writer in writers:
            self.assertEqual(writer.end(timeout=150), 0, writer.output)
        for client in (self.a, self.b):
            said = client.does(f"{IN} sqlite3 {database} 'PRAGMA integrity_check; SELECT who, count(*) FROM t GROUP BY 1'")
            self.assertEqual(said.split(), ["ok", f"clienta|{rounds}", f"clientb|{rounds}"])
