"""What people run on a mount: a repository and a build in it, a database that two machines write to at once."""

from stage import MOUNT
from tools import IN, PROGRAM_PATIENCE, ToolPlay

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


class Programs(ToolPlay):
    weight = 5

    def test_git_clone_and_build(self):
        self.a.does(self.script("author", AUTHOR), timeout=PROGRAM_PATIENCE)
        said = self.b.does(self.script("builder", BUILDER), timeout=PROGRAM_PATIENCE)
        self.assertEqual(said.splitlines()[-1].strip(), "42", "41 objects and the program are new, and nothing else")

    def test_sqlite_from_two_clients(self):
        """With its rollback journal, which rests on fcntl locks alone."""
        database = f"{MOUNT}/base"
        rounds = 15
        self.a.does(f"{IN} sqlite3 {database} 'PRAGMA journal_mode=DELETE; CREATE TABLE t (who TEXT, n INTEGER)'")
        self.together(**{
            who: f"for i in $(seq {rounds}); do {IN} sqlite3 {database} "
                 f"'.timeout 120000' \"INSERT INTO t VALUES ('{who}', $i)\" || exit 1; done"
            for who in ("a", "b")
        })  # fmt: skip
        for client in (self.a, self.b):
            said = client.does(f"{IN} sqlite3 {database} 'PRAGMA integrity_check; SELECT who, count(*) FROM t GROUP BY 1'")
            self.assertEqual(said.split(), ["ok", f"a|{rounds}", f"b|{rounds}"])
