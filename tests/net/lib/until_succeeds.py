#!/usr/bin/env python3
"""For shell scripts: runs a command again until it succeeds. 1, and what it said last, if it does not in time.

    until_succeeds.py SECONDS WHAT COMMAND...
"""

import subprocess
import sys

from until import InVain, until


def main():
    timeout, what, *command = sys.argv[1:]

    def look():
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    try:
        until(look, what, float(timeout), passes=lambda ran: ran.returncode == 0, pause=0.1)
    except InVain as vain:
        sys.exit(str(vain))


main()
