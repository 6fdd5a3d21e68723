#!/usr/bin/env python3
"""A LOCK over what was just granted, before the server has the answer to its GRANTED: a shared one over an exclusive grant, and a reclaim."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from fakehost import FakeHost
from play import main
from rpc import auth_sys, call_message, result_of
from waiting import Waiting


class Downgrade(Waiting):
    def setUp(self):
        super().setUp()
        self.b.script = FakeHost.DEFER
        held = self.hold()
        self.exclusive = self.waits(self.b, 0, 10)
        self.shared = self.exclusive.but(exclusive=False, block=False)
        self.release(held)
        self.heard = self.b.wait_granted(self.exclusive)

    def tearDown(self):
        self.b.script = nlm.S_GRANTED
        self.b.unlock(self.lock_of(self.b))
        super().tearDown()

    def send(self, lock):
        """Without waiting for the reply."""
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, lock.args(nlm.LOCK), cred=auth_sys(self.b.name))
        self.b.caller().send_together([message])

    def receive(self):
        return nlm.res_of(nlm.LOCK, result_of(self.b.caller().receive())).stat

    def assert_shared(self):
        self.assertFalse(self.assert_held(self.shared).exclusive)
        reader = self.lock_of(self.c, 0, 10, exclusive=False)
        self.assert_granted(self.c, reader)
        self.release(reader, self.c)

    def test_the_answer_comes_later(self):
        """The client has heard GRANTED before. The reply to its shared LOCK says that it now has less."""
        self.send(self.shared)
        self.assertTrue(self.assert_held(self.exclusive).exclusive)
        self.b.answer(self.heard, nlm.S_GRANTED)
        self.assertEqual(self.receive(), nlm.S_GRANTED)
        self.assert_shared()

    def test_waiters_are_served(self):
        reader = self.waits(self.c, 0, 10, exclusive=False)
        self.send(self.shared)
        self.b.answer(self.heard, nlm.S_GRANTED)
        self.assertEqual(self.receive(), nlm.S_GRANTED)
        self.c.wait_granted(reader)

    def test_the_grant_is_refused(self):
        self.send(self.shared)
        self.b.answer(self.heard, nlm.S_DENIED)
        self.assertEqual(self.receive(), nlm.S_GRANTED)
        self.assert_shared()

    def test_reclaim_of_a_lock_that_was_lost(self):
        """The client does not wait for this grant. It reclaims what it lost, and another owner has had that since."""
        self.send(self.exclusive.but(block=False, reclaim=True))
        self.assertTrue(self.assert_held(self.exclusive).exclusive)
        self.b.answer(self.heard, nlm.S_DENIED)
        self.assertEqual(self.receive(), nlm.S_GRACE)

    def test_reclaim_of_what_was_granted(self):
        self.send(self.exclusive.but(block=False, reclaim=True))
        self.b.answer(self.heard, nlm.S_GRANTED)
        self.assertEqual(self.receive(), nlm.S_GRANTED)
        self.assertTrue(self.assert_held(self.exclusive).exclusive)

    def test_no_answer(self):
        """The server waits a moment for the answer and then replies. The lock stays exclusive, for a thread of the client
        may still take the grant."""
        self.assertEqual(self.b.lock(self.shared), nlm.S_GRANTED)
        self.assertTrue(self.assert_held(self.exclusive).exclusive)
        self.b.answer(self.heard, nlm.S_GRANTED)
        self.until(lambda: self.b.lock(self.shared) == nlm.S_GRANTED and not self.holder_of(self.shared).exclusive,
                   "downgraded once it is sure")  # fmt: skip

    def test_another_part(self):
        """It has nothing to do with the grant."""
        other = self.shared.but(offset=100, length=5)
        self.send(other)
        self.assertEqual(self.receive(), nlm.S_GRANTED)
        self.b.answer(self.heard, nlm.S_GRANTED)

    def test_unlock_follows(self):
        """Whatever comes next is not kept waiting, and comes after it."""
        calls = [(nlm.LOCK, self.shared), (nlm.UNLOCK, self.exclusive)]
        self.assertEqual(self.b.ask_together(calls), [nlm.S_GRANTED] * 2)
        self.assert_free(self.exclusive)

    def test_poll_follows(self):
        """The thread that waits polls, and the reply gives it its lock. The server cannot know which of the two replies the
        client sees first, so the lock stays exclusive."""
        self.assertEqual(self.b.ask_together([(nlm.LOCK, self.shared), (nlm.LOCK, self.exclusive)]), [nlm.S_GRANTED] * 2)
        self.assertTrue(self.assert_held(self.exclusive).exclusive)

    def test_the_client_is_restarted(self):
        """The server refuses the LOCK that the client sent before its restart."""
        calls = [(nlm.LOCK, self.shared), (nlm.FREE_ALL, nlm.Lock(name=self.b.name))]
        self.assertEqual(self.b.ask_together(calls), [nlm.S_GRACE, None])
        self.assert_free(self.exclusive)


if __name__ == "__main__":
    main()
