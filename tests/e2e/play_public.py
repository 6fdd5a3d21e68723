"""Tests that others wrote, as Debian packages them, on the mount."""

from stage import MOUNT
from tools import IN, ToolPlay

FIO = "fio --directory={where} --size=3m --bs=4k --ioengine=psync --thread --fallocate=none --verify=crc32c " \
      "--verify_fatal=1 --randseed=1 --minimal"  # fmt: skip


class Public(ToolPlay):
    weight = 6

    def test_stress_ng(self):
        """Its lock stressors, on both clients at once; each works on files of its own."""
        for who in "ab":
            self.a.does(f"mkdir -m 777 {MOUNT}/{who}")
        command = IN + " stress-ng --flock 1 --lockf 1 --lockf-nonblock --fcntl 1 --temp-path {} --timeout 8 2>&1"
        said = self.together(a=command.format(f"{MOUNT}/a"), b=command.format(f"{MOUNT}/b"))
        for text in said.values():
            self.assertIn("successful run completed", text)
        self.server.has(locks=0, waiters=0)

    def test_fio_verifies_what_it_wrote(self):
        """Written in order by one client and at random by the other; each then verifies what the other one wrote."""
        for who in "ab":
            self.a.does(f"mkdir -m 777 {MOUNT}/{who}")
        jobs = {"a": "--name=inorder --rw=write", "b": "--name=random --rw=randwrite"}
        self.together(**{who: f"{IN} {FIO.format(where=f'{MOUNT}/{who}')} {job}" for who, job in jobs.items()})
        swapped = {"a": "b", "b": "a"}
        self.together(**{
            who: f"{IN} {FIO.format(where=f'{MOUNT}/{swapped[who]}')} {jobs[swapped[who]]} --verify_only"
            for who in "ab"
        })  # fmt: skip

    def test_bonnie(self):
        """Blocks and seeks, and in a long run a thousand small files; it fails by itself where something does."""
        self.a.does(f"mkdir -m 777 {MOUNT}/a {MOUNT}/b")
        command = IN + f" bonnie++ -q -d {{}} -f -s 8:8k -r 4 -n {int(self.is_long_run)} -u 65534:65534 -x 1 2>&1"
        said = self.together(600, a=command.format(f"{MOUNT}/a"), b=command.format(f"{MOUNT}/b"))
        for text in said.values():
            self.assertNotIn("Can't", text)
