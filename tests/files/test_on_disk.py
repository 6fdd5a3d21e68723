#!/usr/bin/env python3
"""The tests of the file service on another file system than the one that happens to be here.

    test_on_disk.py PATH/files_serve KIND TEST...

KIND is one of disk.KINDS; on overlay the kernel gives no handles, so the finder is at work. TEST is the path of a test
program, run as it is with its directories there.
"""

import os
import subprocess
import sys
import tempfile

import disk

PATIENCE = 30  # seconds that a caller goes on when told to try again later; walks of the finder are 5 s apart


def main():
    disk.enter_namespace()
    program, kind, tests = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    failed = []
    with tempfile.TemporaryDirectory(prefix="hf-disk-") as base:
        os.chmod(base, 0o755)  # some of them are an ordinary user
        held = disk.Disk(kind, base)
        try:
            os.chmod(held.path, 0o1777)
            environment = {**os.environ, "TMPDIR": held.path, "HF_TEST_DISK": kind, "HF_TEST_PATIENCE": str(PATIENCE)}
            for test in tests:
                print(f"== {test} on {kind}", flush=True)
                words = [sys.executable, test, program]
                if subprocess.run(words, env=environment, check=False).returncode:
                    failed.append(test)
        finally:
            held.close()
    if failed:
        sys.exit(f"failed on {kind}: {' '.join(failed)}")


main()
