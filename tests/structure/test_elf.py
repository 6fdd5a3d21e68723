#!/usr/bin/env python3
"""The programs as they were linked: what makes a mistake in them harder to use is there.

    test_elf.py PROGRAM…

Reads the ELF headers by itself: there need be no binutils where the tests run.
"""

import struct
import sys

SKIPPED = 77  # meson's word for it
ET_DYN = 3
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO, PF_X = 2, 0x6474E551, 0x6474E552, 1
DT_FLAGS, DT_FLAGS_1, DT_TEXTREL, DT_RPATH, DT_RUNPATH = 30, 0x6FFFFFFB, 22, 15, 29
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 4, 8, 1, 0x08000000


class Elf:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            print(f"skipped: {path} is no ELF of 64 bits, little-endian")
            sys.exit(SKIPPED)
        self.kind, _, _, _, at, _, _, _, size, n = struct.unpack_from("<HHIQQQIHHH", self.data, 16)
        self.segments = [struct.unpack_from("<IIQQQQQQ", self.data, at + i * size) for i in range(n)]

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)

    @property
    def dynamic(self):
        """{tag: value} of what the loader reads."""
        _, _, offset, _, _, size, _, _ = self.segment(PT_DYNAMIC)
        return dict(struct.iter_unpack("<qQ", self.data[offset : offset + size]))

    def has(self, name):
        """Whether it names that function, of libc or of its own."""
        return b"\0" + name + b"\0" in self.data


def faults(elf, is_sanitized):
    dynamic = elf.dynamic
    flags, flags_1 = dynamic.get(DT_FLAGS, 0), dynamic.get(DT_FLAGS_1, 0)
    stack = elf.segment(PT_GNU_STACK)
    found = {
        "is at a fixed address: no PIE": elf.kind != ET_DYN or not flags_1 & DF_1_PIE,
        "has no RELRO": not elf.segment(PT_GNU_RELRO),
        "resolves functions when they are called first: no BIND_NOW": not (flags & DF_BIND_NOW or flags_1 & DF_1_NOW),
        "has a stack that can be executed": not stack or stack[1] & PF_X,
        "has segments that can be written and executed": any(s[0] == 1 and s[1] & 3 == 3 for s in elf.segments),
        "has relocations in its code": DT_TEXTREL in dynamic or flags & DF_TEXTREL,
        "looks for libraries in a folder of its own": DT_RPATH in dynamic or (DT_RUNPATH in dynamic and not is_sanitized),
        "has no stack protector": not elf.has(b"__stack_chk_fail"),
        "has no _FORTIFY_SOURCE": not is_sanitized and not elf.has(b"__snprintf_chk"),
    }
    return [text for text, is_so in found.items() if is_so]


def main():
    n_bad = 0
    for path in sys.argv[1:]:
        elf = Elf(path)
        for text in faults(elf, elf.has(b"__asan_init") or elf.has(b"__tsan_init")):
            print(f"{path} {text}")
            n_bad += 1
    if n_bad:
        sys.exit(1)
    print(f"{len(sys.argv) - 1} programs are as hard as they should be")


if __name__ == "__main__":
    main()
