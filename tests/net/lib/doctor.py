"""Plays with holdfast doctor."""

import json
import os
import subprocess

from play import Play
from until import PATIENCE

HOLDFAST = os.path.abspath(os.environ.get("HOLDFAST") or os.path.join(os.path.dirname(os.environ.get("HOLDFASTD", "")), "holdfast"))
FINE, BROKEN = 0, 1


class DoctorPlay(Play):
    settings = ("api.listen=127.0.0.1:0",)

    @property
    def state_dir(self):
        return f"{self.daemon.state_dir}/state"

    def examine(self, *words, state_dir=None, before="", code=None, namespace=None):
        """The findings; @before: a shell's words before it is started, in namespaces of mounts and names of its own."""
        asked = [HOLDFAST, "--json", "--state-dir", state_dir or self.state_dir, "doctor", *words]
        if before:
            asked = ["unshare", "--mount", "--uts", "sh", "-ec", before + '; exec "$@"', "sh", *asked]
        with namespace or self.daemon.namespace:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=3 * PATIENCE, check=False,
                                  stdin=subprocess.DEVNULL)  # fmt: skip
        self.assertIn(done.returncode, (FINE, BROKEN) if code is None else (code,), done.stderr + done.stdout)
        findings = json.loads(done.stdout)
        for finding in findings:
            if finding["level"] == "bad":
                self.assertTrue(finding["breaks"] and finding["mend"], finding)
        self.assertEqual(done.returncode, BROKEN if any(f["level"] == "bad" for f in findings) else FINE)
        return findings

    def assert_found(self, findings, level, *words):
        found = [f for f in findings if all(word in f["what"] for word in words)]
        self.assertEqual([f["level"] for f in found], [level], f"{words}: {json.dumps(findings, indent=1)}")
