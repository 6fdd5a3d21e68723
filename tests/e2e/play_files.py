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

    def test_over_4_gib(self):
        """Across the limit of 32 bits and beyond it; what was never written is a hole."""
        limit = 2**32
        self.a.does(f"dd if=/dev/urandom of=/tmp/data bs=64k count=1 2>/dev/null && cd {MOUNT} && "
                    f"dd if=/tmp/data of=big bs=32k seek={limit // 32768 - 1} conv=notrunc 2>/dev/null && "
                    f"dd if=/tmp/data of=big bs=32k seek={5 * limit // 4 // 32768} conv=notrunc 2>/dev/null")  # fmt: skip
        ours = self.a.does("md5sum </tmp/data")
        size = 5 * limit // 4 + 65536
        self.assertEqual(self.b.does(f"stat -c %s {MOUNT}/big"), str(size))
        self.assertLess(int(self.b.does(f"stat -c %b {MOUNT}/big")) * 512, 2**20, "holes take no room")
        for block in (limit // 32768 - 1, 5 * limit // 4 // 32768):
            self.assertEqual(self.b.does(f"dd if={MOUNT}/big bs=32k skip={block} count=2 2>/dev/null | md5sum"), ours)
        self.assertEqual(self.b.does(f"dd if={MOUNT}/big bs=32k skip=99999 count=1 2>/dev/null | tr -d '\\0' | wc -c"), "0")
        ada, bob = self.a.opens("big"), self.b.opens("big")
        ada.locks(limit + 5, 10)
        bob.is_denied(limit + 14, 1)
        bob.locks(5, 10)
        self.b.does(f"truncate -s {limit + 1} {MOUNT}/big")
        self.assertEqual(self.b.does(f"stat -c %s {MOUNT}/big"), str(limit + 1))

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
