#!/usr/bin/env python3
"""One seed decides everything: two runs of it are the same, bit for bit, and those of two seeds are not.

    test_same.py PATH/holdfast-sim
"""

import subprocess
import sys


def digest(program, seed, *flags):
    done = subprocess.run([program, "--quiet", *flags, "--seed", str(seed)], text=True, capture_output=True, check=True)
    return done.stdout.split("digest ")[1].split(":")[0]


def main():
    digests = set()
    for flags in ((), ("--cluster",), ("--tls",)):
        for seed in range(1, 9):
            first, second = (digest(sys.argv[1], seed, *flags) for _ in range(2))
            assert first == second, f"seed {seed} gives {first} and {second}"
            digests.add(first)
    assert len(digests) == 24, digests


if __name__ == "__main__":
    main()
