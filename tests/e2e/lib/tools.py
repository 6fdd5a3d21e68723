"""Plays with programs from Debian's packages: they are on a disk of their own in the machines, with all that they need."""

import os

from stage import MOUNT, Play

IN = "chroot /tools"
PROGRAM_PATIENCE = 240.0  # seconds for a program's work; two emulated machines may share a core with much else


class ToolPlay(Play):
    captured = 400  # files pass by: the heads of the messages will do

    def setUp(self):
        super().setUp()
        for client in (self.a, self.b):
            for folder in (MOUNT, "/dev", "/proc", "/tmp"):
                client.does(f"grep -q ' /tools{folder} ' /proc/mounts || /bin/mount --bind {folder} /tools{folder}")

    def script(self, name, text):
        """A script, which the clients find in the export; the command that runs it."""
        with open(os.path.join(self.server.export, name), "w", encoding="utf-8") as file:
            file.write(f"set -e\nexport HOME=/tmp GIT_TEMPLATE_DIR=\ncd {MOUNT}\n{text}")
        return f"{IN} sh {MOUNT}/{name}"

    def together(self, timeout=PROGRAM_PATIENCE, **commands):
        """A command on each of the clients a and b, at the same time; what they said."""
        begun = {who: getattr(self, who).guest.start(command) for who, command in commands.items()}
        for who, command in begun.items():
            self.note(f"client{who}: {command.text}")
            status = command.end(timeout)
            self.note(f"client{who}: -> {command.output[-4000:]}")
            self.assertEqual(status, 0, f"client{who}: {command.text}\n{command.output[-2000:]}")
        return {who: command.output for who, command in begun.items()}
