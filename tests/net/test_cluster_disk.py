#!/usr/bin/env python3
"""A disk that hangs on one node of a service: that node does not take over, or ends, and another node serves."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import fusedisk
from play import main
from rpc import call_message
from takeover import EXPORT, NfsClient, Takeover, nfs
from until import PATIENCE
from xdr import Out


class DeadDisk(Takeover):
    """A disk that hangs on the standby."""

    @classmethod
    def setUpClass(cls):
        reason = fusedisk.why_not()
        if reason:
            raise unittest.SkipTest(reason)
        super().setUpClass()
        os.makedirs(os.path.join(cls.base, "disk"))
        cls.disk = fusedisk.FuseDisk(os.path.join(cls.base, "disk"))
        cls.addClassCleanup(cls.disk.close)
        for node in cls.nodes:
            cls.write_exports(node, EXPORT, EXPORT.replace("data", "disk"))

    def test_standby_whose_disk_does_not_answer_does_not_take_over(self):
        """It would have the service, and could not serve it."""
        self.disk.die()
        self.addCleanup(self.disk.live)
        self.standby.until_role("mismatched")
        self.assertIn("does not answer", self.standby.cluster()["reason"])
        self.active.until(lambda: "mismatched" in [node["role"] for node in self.active.cluster()["nodes"]], "it sees that")
        self.assertEqual(self.active.order("move").status, 409)
        self.disk.live()
        self.standby.until_role("standby")

    def test_standby_whose_disk_does_not_answer_ends_when_it_is_told(self):
        """The worker that examines its exports waits for the disk."""
        self.disk.die()
        self.addCleanup(self.disk.live)
        self.standby.until_role("mismatched")
        self.standby.process.send_signal(signal.SIGTERM)
        self.standby.until(lambda: not self.standby.runs, "it ends")
        self.assertEqual(self.standby.process.returncode, 0, self.standby.log)


class StuckDisk(DeadDisk):
    """A disk that hangs on the second node alone: the first one has another directory there."""

    lease = 1  # a node that takes the service over has twenty leases for that

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sound = os.path.join(cls.base, "sound")
        os.mkdir(sound)
        cls.nodes[0].over = {cls.disk.path: sound}

    def test_node_that_cannot_serve_what_it_took_ends(self):
        """The disk hangs right when this node takes the service over. It ends, and a node whose disk answers goes on."""
        sound, stuck = self.nodes
        if self.active is stuck:
            self.assertEqual(stuck.order("move").status, 202)
            self.until_serving(sound)
            self.until_one_serves()
        state = self.state_of(sound)
        lock = self.hold()
        self.disk.die()
        self.addCleanup(self.disk.live)
        sound.kill_process()
        owner = "SELECT node FROM holdfast_leases WHERE owner <> ''"
        self.until(lambda: self.pg.query(owner) == stuck.name, "the other node has the service")
        self.until(lambda: not stuck.runs, "it ends", 20 * self.lease + PATIENCE)
        self.assertEqual(stuck.process.returncode, 1)
        self.assertIn("this node has the service and cannot serve it", stuck.log)
        self.until(lambda: not self.pg.query(owner), "its witness has handed the service over")
        sound.start()
        self.until_serving(sound)
        self.assert_continued(sound, state)
        self.assert_denied(self.b)
        self.release(lock)

    def test_signal_to_stop_does_not_cut_off_a_hand_over(self):
        """A READ waits for the disk, and the node hands over: it finishes that, and then ends."""
        sound, stuck = self.nodes
        if self.active is sound:
            self.assertEqual(sound.order("move").status, 202)
            self.until_serving(stuck)
            self.until_one_serves()
        client = NfsClient(self.a)
        self.addCleanup(client.close)
        fh = client.lookup(client.root("/disk"), b"f").fh
        self.disk.die()
        self.addCleanup(self.disk.live)
        args = Out().opaque(fh).u64(0).u32(4).bytes()
        client.caller.send(call_message(nfs.NFS, 3, nfs.READ, args, cred=client.cred))
        self.assertTrue(self.disk.was_asked.wait(PATIENCE), "the READ waits for the disk")
        before = len(stuck.log)
        self.assertEqual(stuck.order("move").status, 202)
        self.until(lambda: "hands the service over" in stuck.log[before:], "it hands over")
        stuck.process.send_signal(signal.SIGTERM)
        # If this test is slow, the hand-over does not wait for the READ any more.
        self.until(lambda: any(words in stuck.log[before:] for words in ("signal=TERM", "stopped in order")), "it is told to stop")
        self.disk.live()
        self.until(lambda: not stuck.runs, "it ends")
        self.assertEqual(stuck.process.returncode, 0, stuck.log)
        self.assertIn("stopped in order", stuck.log[before:])
        self.until_serving(sound)

    def test_standby_that_is_told_to_stop_and_waits_for_its_disk_does_not_take_over(self):
        """The node that serves is killed just then. If the one that ends took the service, it would not serve."""
        sound, stuck = self.nodes
        if self.active is stuck:
            self.assertEqual(stuck.order("move").status, 202)
            self.until_serving(sound)
            self.until_one_serves()
        stuck.until_role("standby")
        before = len(stuck.log)
        self.disk.die()
        self.addCleanup(self.disk.live)
        self.assertTrue(self.disk.was_asked.wait(PATIENCE), "its exports are examined")
        stuck.process.send_signal(signal.SIGTERM)
        self.until(lambda: "signal=TERM" in stuck.log[before:], "it is told to stop")
        sound.kill_process()
        self.until(lambda: not stuck.runs, "it ends")
        self.assertEqual(stuck.process.returncode, 0, stuck.log)
        self.assertIn("gave up calls that wait for a disk", stuck.log[before:])
        self.assertNotIn("takes the service", stuck.log[before:])
        sound.start()
        self.until_serving(sound)

    test_standby_whose_disk_does_not_answer_does_not_take_over = None
    test_standby_whose_disk_does_not_answer_ends_when_it_is_told = None


if __name__ == "__main__":
    main()
