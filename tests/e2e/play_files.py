"""Files through the Linux client: mount, write, read back, rename, unlink."""

from stage import MOUNT, Play


class Mount(Play):
    is_mounted = False

    def test_by_name_and_by_address(self):
        for source in ("server:/data", "10.98.0.1:/data"):
            self.a.mounts(source)
            self.a.does(f"echo hello >{MOUNT}/f && cat {MOUNT}/f")
            self.a.unmounts()

    def test_showmount_lists_the_export(self):
        said = self.a.does("showmount -e server")
        self.assertIn("/data", said)


class Files(Play):
    def test_what_one_writes_the_other_reads(self):
        self.a.does(f"dd if=/dev/urandom of={MOUNT}/big bs=64k count=64 2>/dev/null")
        ours = self.a.does(f"md5sum <{MOUNT}/big")
        self.assertEqual(self.b.does(f"md5sum <{MOUNT}/big"), ours)

    def test_rename(self):
        self.a.does(f"cd {MOUNT} && mkdir d && echo one >d/x && mv d/x y && [ ! -e d/x ]")
        self.assertEqual(self.b.does(f"cat {MOUNT}/y"), "one")

    def test_an_unlinked_open_file_lives_until_it_is_closed(self):
        file = self.a.opens("f")
        file.writes("still here")
        self.a.does(f"rm {MOUNT}/f && [ ! -e {MOUNT}/f ]")
        file.reads("still here")
        file.closes()
        self.assertEqual(self.a.does(f"ls -A {MOUNT}"), "")
