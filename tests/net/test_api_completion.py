#!/usr/bin/env python3
"""Completion in real bash, zsh and fish, against a running server: every command, every option, ids and shares.

Each shell is asked as a person asks it, with the key, on a terminal; fish can also say what it would offer.
"""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from play import Play, main
from terminal import Terminal

HOLDFAST = os.path.abspath(os.environ.get("HOLDFAST") or os.path.join(os.path.dirname(os.environ.get("HOLDFASTD", "")), "holdfast"))
COMPLETION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli", "completion")
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"

# Control-G has the shell's line editor say what its line is.
BASH_REPORT = """bind -x '"\\C-g": printf "line=%s=line" "$READLINE_LINE"'"""
ZSH_REPORT = "report() { print -rn -- line=$BUFFER=line }; zle -N report; bindkey '^G' report"


class Completion(Play):
    settings = ("api.listen=127.0.0.1:0",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.help = subprocess.run([HOLDFAST, "--help"], capture_output=True, text=True, check=True).stdout
        cls.commands = re.findall(r"^  (\w+) ", cls.help[: cls.help.index("options:")], re.M)
        cls.options = sorted(set(re.findall(r"--[a-z-]+", cls.help)))
        assert len(cls.commands) >= 12 and len(cls.options) >= 10

    def setUp(self):
        super().setUp()
        self.assert_granted(self.a, self.lock_of(self.a))
        self.id = f"nlm:{self.a.address}:{self.a.name}"
        self.env = {"PATH": f"{os.path.dirname(HOLDFAST)}:{os.environ['PATH']}", "HOME": self.daemon.state_dir, "TERM": "dumb",
                    "HOLDFAST_STATE_DIR": f"{self.daemon.state_dir}/state", "PS1": "$ "}  # fmt: skip

    # What to type, and what the line is then
    def lines(self):
        elsewhere = {"HOLDFAST_STATE_DIR": "/nowhere"}
        where = f"--state-dir {self.daemon.state_dir}/state"
        begun = self.id[:-1]
        yield "holdfast wai", "holdfast waiters ", {}
        yield "holdfast --json sha", "holdfast --json shares ", {}
        yield "holdfast grace e", "holdfast grace end ", {}
        yield "holdfast cluster mo", "holdfast cluster move ", {}
        yield "holdfast store che", "holdfast store check ", {}
        yield "holdfast exports im", "holdfast exports import ", {}
        yield "holdfast top cl", "holdfast top clients ", {}
        yield "holdfast us", "holdfast usage ", {}
        yield f"holdfast release {begun}", f"holdfast release {self.id} ", {}
        yield f"holdfast release --yes {begun}", f"holdfast release --yes {self.id} ", {}
        yield f"holdfast clients {begun}", f"holdfast clients {self.id} ", {}
        yield f"holdfast notify {begun}", f"holdfast notify {self.id} ", {}
        yield f"holdfast locks --client {begun}", f"holdfast locks --client {self.id} ", {}
        yield f"holdfast {where} release {begun}", f"holdfast {where} release {self.id} ", elsewhere
        yield "holdfast clients --status unr", "holdfast clients --status unreachable ", {}
        yield "holdfast clients --protocol ns", "holdfast clients --protocol nsm ", {}
        yield "holdfast --tok", "holdfast --token-file", {}

    def drive(self, words, *setup):
        for typed, wanted, env in self.lines():
            with self.subTest(line=typed):
                terminal = Terminal(words, self.daemon.namespace, 30, 200, env={**self.env, **env})
                for line in setup:
                    terminal.write(f"{line}\n")
                terminal.write("echo rea''dy\n")
                terminal.wait("ready\r\n")
                terminal.text = ""
                terminal.write(f"{typed}\t\a")
                terminal.wait("=line")
                terminal.process.kill()
                terminal.end()
                found = re.search("line=(.*?)=line", terminal.text, re.S)[1]
                self.assertEqual(found.rstrip(" ="), wanted.rstrip(), terminal.text)

    def test_bash(self):
        if not os.path.exists(BASH_COMPLETION):
            self.skipTest("no bash-completion")
        self.drive(["bash", "--norc", "--noprofile", "-i"], f"source {BASH_COMPLETION}", f"source {COMPLETION}/holdfast.bash",
                   BASH_REPORT)  # fmt: skip

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        self.drive(["zsh", "-f", "-i"], f"fpath=({COMPLETION} $fpath)", "autoload -Uz compinit; compinit -u -D", ZSH_REPORT)  # fmt: skip

    def test_every_command_and_option_in_bash(self):
        if not os.path.exists(BASH_COMPLETION):
            self.skipTest("no bash-completion")
        for cur, wanted in (("", self.commands), ("--", self.options)):
            script = f'source {BASH_COMPLETION}; source {COMPLETION}/holdfast.bash; COMP_WORDS=(holdfast "{cur}"); COMP_CWORD=1; ' \
                     f'COMP_LINE="holdfast {cur}"; COMP_POINT=${{#COMP_LINE}}; _holdfast; printf "%s\\n" "${{COMPREPLY[@]}}"'  # fmt: skip
            done = subprocess.run(["bash", "--norc", "-c", script], env=self.env, capture_output=True, text=True, check=False)
            self.assertEqual(sorted(done.stdout.split()), sorted(wanted), done.stderr)

    def test_zsh_names_every_command_and_option(self):
        with open(f"{COMPLETION}/_holdfast", encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(sorted(re.findall(r"^\t\t'([a-z]+):", text, re.M)), sorted(self.commands))
        self.assertEqual(sorted(set(re.findall(r"'(--[a-z-]+)=?\[", text))), self.options)

    def fish(self, line, **env):
        script = f"source {COMPLETION}/holdfast.fish; complete -C '{line}'"
        with self.daemon.namespace:
            done = subprocess.run(["fish", "--no-config", "-c", script], env={**self.env, **env}, capture_output=True,
                                  text=True, check=True)  # fmt: skip
        return sorted(offer.split("\t")[0] for offer in done.stdout.splitlines())

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish")
        for typed, wanted, env in self.lines():
            self.assertEqual(self.fish(typed, **env), [wanted.split()[-1]], typed)
        self.assertEqual(self.fish("holdfast "), sorted(self.commands))
        self.assertEqual(self.fish("holdfast --"), self.options)
        self.assertEqual(self.fish("holdfast locks --share "), ["0"])
        for line in ("holdfast grace end ", "holdfast cluster take ", f"holdfast release {self.id} ", "holdfast locks "):
            self.assertEqual(self.fish(line), [], "there is nothing more to say")


if __name__ == "__main__":
    main()
