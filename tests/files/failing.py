"""What the tests with a failing disk (files_failing) begin with: failing.c says what can fail."""

import json
import os
import tempfile

import server


class Case(server.Case):
    @classmethod
    def setUpClass(cls):
        base = tempfile.TemporaryDirectory(prefix="hf-failing-")
        cls.addClassCleanup(base.cleanup)
        cls.failing = os.environ["HF_TEST_FAILING"] = base.name
        super().setUpClass()

    def begin(self, what):
        with open(os.path.join(self.failing, what), "wb"):
            self.addCleanup(self.end, what)

    def end(self, what):
        if self.has(what):
            os.unlink(os.path.join(self.failing, what))

    def has(self, what):
        return os.path.exists(os.path.join(self.failing, what))

    def made(self, name):
        return self.ok(self.nfs.create(self.dir, name, mode=0o644)).fh


class Audited(Case):
    """The server writes an audit log."""

    @classmethod
    def setUpClass(cls):
        base = tempfile.TemporaryDirectory(prefix="hf-audit-")
        cls.addClassCleanup(base.cleanup)
        cls.audit = os.path.join(base.name, "audit")
        cls.options = (f"audit={cls.audit}",)
        super().setUpClass()

    def audit_lines(self):
        with open(self.audit, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be under way
