#!/usr/bin/env python3
"""Every row of the procedure tables: what exists in which version answers as its row says, what does not says so."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
import nlm
from play import Play, each, main
from rpc import GARBAGE_ARGS, PROC_UNAVAIL, PROG_MISMATCH, NoReply, Refused, call_message, exchange, result_of


class Tables(Play):
    def refusal(self, procedure, args=b"", **how):
        with self.assertRaises(Refused) as caught:
            self.a.call(procedure, args, **how)
        return caught.exception

    # Procedures

    @each()
    def test_proc_0_null(self, how):
        self.assertEqual(self.a.call(nlm.NULL, b"", **how), b"")

    @each()
    def test_proc_1_test(self, how):
        mine = self.lock_of(self.a, 10, 5, svid=7)
        self.assertEqual(self.b.test(self.lock_of(self.b, 0, 0), **how).stat, nlm.S_GRANTED)
        self.assert_granted(self.a, mine, **how)
        self.assertEqual(self.b.test(self.lock_of(self.b, 0, 10), **how).stat, nlm.S_GRANTED)
        answer = self.b.test(self.lock_of(self.b, 14, 1), **how)
        self.assertEqual(answer.stat, nlm.S_DENIED)
        self.assertEqual(answer.holder, nlm.Holder(True, 7, mine.owner, 10, 5))

    def test_proc_1_test_takes_nothing(self):
        self.assertEqual(self.a.test(self.lock_of(self.a)).stat, nlm.S_GRANTED)
        self.assert_granted(self.b, self.lock_of(self.b))

    @each()
    def test_proc_2_lock(self, how):
        lock = self.lock_of(self.a, 10, 5, cookie=b"monster!")
        answer = self.a.ask(nlm.LOCK, lock, **how)
        self.assertEqual(answer, nlm.Res(b"monster!", nlm.S_GRANTED))
        self.assert_held(lock, by=1)
        self.assert_denied(self.b, self.lock_of(self.b, 0, 11), **how)
        self.assert_granted(self.b, self.lock_of(self.b, 0, 10), **how)

    @each()
    def test_proc_3_cancel(self, how):
        self.assert_granted(self.a, self.lock_of(self.a), **how)
        waiting = self.lock_of(self.b, block=True)
        self.assert_blocked(self.b, waiting, **how)
        answer = self.b.ask(nlm.CANCEL, waiting.but(cookie=b"newcook"), **how)
        self.assertEqual(answer, nlm.Res(b"newcook", nlm.S_GRANTED))
        self.assertEqual(self.a.unlock(self.lock_of(self.a), **how), nlm.S_GRANTED)
        self.assert_free(waiting)

    @each()
    def test_proc_4_unlock(self, how):
        lock = self.lock_of(self.a, 3, 4)
        self.assert_granted(self.a, lock, **how)
        answer = self.a.ask(nlm.UNLOCK, lock.but(cookie=b"ab"), **how)
        self.assertEqual(answer, nlm.Res(b"ab", nlm.S_GRANTED))
        self.assert_free(lock)

    @each()
    def test_proc_5_granted_to_us_is_denied(self, how):
        """The server waits for no lock, so it refuses a GRANTED that it is sent."""
        answer = self.a.ask(nlm.GRANTED, self.lock_of(self.a, cookie=b"grant"), **how)
        self.assertEqual(answer, nlm.Res(b"grant", nlm.S_DENIED))

    def message_pair(self, host, msg, lock, version, transport, by=None, server=None):
        """Sends a _MSG, gives its _RES as it came back as a call; @by: over which transport, if not the same."""
        caller = host.caller(transport, server)
        before = len(host.answers.items)
        caller.send(call_message(nlm.PROGRAM, version, msg, lock.args(msg, version)))
        host.answers.wait(before + 1)
        procedure, res, call = host.answers.items[-1]
        self.assertEqual(procedure, msg + 5)
        self.assertEqual(call.version, version)
        self.assertEqual(call.transport, by or transport)
        self.assertEqual(call.peer[0].removeprefix("::ffff:"), server or host.server)
        self.assertEqual(res.cookie, lock.cookie)
        return res

    @each()
    def test_proc_6_and_11_test_msg(self, how):
        mine = self.lock_of(self.a, 10, 5, svid=9)
        self.assertEqual(self.message_pair(self.b, nlm.TEST_MSG, self.lock_of(self.b), **how).stat, nlm.S_GRANTED)
        self.assert_granted(self.a, mine)
        denied = self.message_pair(self.b, nlm.TEST_MSG, self.lock_of(self.b, 11, 1, cookie=b"second"), **how)
        self.assertEqual(denied.stat, nlm.S_DENIED)
        self.assertEqual(denied.holder, nlm.Holder(True, 9, mine.owner, 10, 5))

    @each(transports=("udp",))
    def test_res_comes_from_the_port_that_was_asked(self, how):
        """macOS drops a _RES datagram from any other port (dittofs 1356)."""
        for procedure in (nlm.TEST_MSG, nlm.LOCK_MSG, nlm.CANCEL_MSG, nlm.UNLOCK_MSG):
            self.message_pair(self.b, procedure, self.lock_of(self.b, cookie=b"%d" % procedure), **how)
            self.assertEqual(self.b.answers.items[-1][2].peer[1], 2049)

    @each()
    def test_res_comes_from_the_address_that_was_asked(self, how):
        for server in (*self.network.SERVER, *self.network.SERVER6):
            for procedure in (nlm.TEST_MSG, nlm.LOCK_MSG, nlm.CANCEL_MSG, nlm.UNLOCK_MSG):
                self.message_pair(self.b, procedure, self.lock_of(self.b), server=server, **how)

    @each()
    def test_res_over_the_other_transport_where_only_that_is_registered(self, how):
        other = "udp" if how["transport"] == "tcp" else "tcp"
        host = self.add_host(lockd=(other,))
        for server in (self.network.SERVER[0], self.network.SERVER6[0]):
            self.message_pair(host, nlm.TEST_MSG, self.lock_of(host), by=other, server=server, **how)

    def test_msg_gets_an_empty_reply_too(self):
        """As Linux answers it; over TCP an unanswered call would hang its sender."""
        args = self.lock_of(self.a, cookie=b"empty").args(nlm.TEST_MSG)
        self.assertEqual(self.a.call(nlm.TEST_MSG, args), b"")

    @each()
    def test_proc_7_and_12_lock_msg(self, how):
        mine = self.lock_of(self.a, cookie=b"lockmsg")
        self.assertEqual(self.message_pair(self.a, nlm.LOCK_MSG, mine, **how).stat, nlm.S_GRANTED)
        self.assert_held(mine, by=1)
        self.assertEqual(self.message_pair(self.b, nlm.LOCK_MSG, self.lock_of(self.b), **how).stat, nlm.S_DENIED)

    @each()
    def test_proc_8_and_13_cancel_msg(self, how):
        mine, waiting = self.lock_of(self.a), self.lock_of(self.b, block=True)
        self.assert_granted(self.a, mine)
        self.assertEqual(self.message_pair(self.b, nlm.LOCK_MSG, waiting, **how).stat, nlm.S_BLOCKED)
        self.assertEqual(self.message_pair(self.b, nlm.CANCEL_MSG, waiting, **how).stat, nlm.S_GRANTED)
        self.assertEqual(self.a.unlock(mine), nlm.S_GRANTED)
        self.assert_free(mine)

    @each()
    def test_proc_9_and_14_unlock_msg(self, how):
        mine = self.lock_of(self.a, cookie=b"")
        self.assert_granted(self.a, mine)
        self.assertEqual(self.message_pair(self.a, nlm.UNLOCK_MSG, mine, **how).stat, nlm.S_GRANTED)
        self.assert_free(mine)

    @each()
    def test_proc_10_and_15_granted_of_a_lock_msg(self, how):
        """A host that asks by LOCK_MSG is told by GRANTED_MSG or GRANTED, in its version, and its answer settles it."""
        mine, waiting = self.lock_of(self.a), self.lock_of(self.b, block=True)
        self.assert_granted(self.a, mine)
        self.assertEqual(self.message_pair(self.b, nlm.LOCK_MSG, waiting, **how).stat, nlm.S_BLOCKED)
        self.assertEqual(self.a.unlock(mine), nlm.S_GRANTED)
        heard = self.b.wait_granted(waiting)
        self.assertEqual(heard.call.version, how["version"])
        self.assert_held(mine, by=waiting.svid)

    @each()
    def test_proc_10_and_15_granted_msg_to_us_is_denied(self, how):
        """By a GRANTED_RES: the server that sent GRANTED_MSG has to take its lock back."""
        grant = self.lock_of(self.a, cookie=b"its own")
        self.assertEqual(self.message_pair(self.a, nlm.GRANTED_MSG, grant, **how).stat, nlm.S_DENIED)
        self.assert_free(grant)

    @each()
    def test_procs_11_to_14_res_to_us_are_harmless(self, how):
        """Answers to questions that the server never asked."""
        caller = self.a.caller(how["transport"])
        for procedure in range(nlm.TEST_RES, nlm.UNLOCK_RES + 1):
            args = nlm.put_res(b"none", nlm.S_GRANTED)
            caller.send(call_message(nlm.PROGRAM, how["version"], procedure, args))
        self.assertEqual(self.a.call(nlm.NULL, b"", **how), b"")

    @each()
    def test_proc_15_granted_res_for_nothing_is_harmless(self, how):
        caller = self.a.caller(how["transport"])
        for cookie in (b"", b"nonsense", bytes(8), bytes(1024)):
            args = nlm.put_res(cookie, nlm.S_DENIED)
            caller.send(call_message(nlm.PROGRAM, how["version"], nlm.GRANTED_RES, args))
        self.assertEqual(self.a.call(nlm.NULL, b"", **how), b"")

    @each()
    def test_proc_16_is_for_this_host_alone(self, how):
        """The local statd's call-back: from the network it releases nothing."""
        mine = self.lock_of(self.a, state=3)
        self.assert_granted(self.a, mine)
        args = nlm.Lock(name=self.a.name, state=5).args(nlm.SM_NOTIFY)
        for host in (self.a, self.b):
            for reserved in (True, False):
                try:
                    host.call(nlm.SM_NOTIFY, args, reserved=reserved, timeout=2, **how)
                except (Refused, NoReply, EOFError):
                    host.drop_callers()
                self.assert_held(mine, by=1)

    @each((3, 4))
    def test_proc_20_share(self, how):
        mine = self.lock_of(self.a, access=1, deny=2, cookie=b"share")
        answer = self.a.ask(nlm.SHARE, mine, **how)
        self.assertEqual(answer, nlm.Res(b"share", nlm.S_GRANTED, sequence=0))
        denied = self.b.ask(nlm.SHARE, self.lock_of(self.b, access=2, deny=0), **how)
        self.assertEqual((denied.stat, denied.sequence), (nlm.S_DENIED, 0))
        self.assertEqual(self.b.share(self.lock_of(self.b, access=1, deny=0), **how), nlm.S_GRANTED)

    @each((3, 4))
    def test_proc_21_unshare(self, how):
        mine = self.lock_of(self.a, access=3, deny=3)
        self.assertEqual(self.a.share(mine, **how), nlm.S_GRANTED)
        answer = self.a.ask(nlm.UNSHARE, mine.but(cookie=b"un"), **how)
        self.assertEqual(answer, nlm.Res(b"un", nlm.S_GRANTED, sequence=0))
        self.assertEqual(self.b.share(self.lock_of(self.b, access=3, deny=3), **how), nlm.S_GRANTED)

    @each((3, 4))
    def test_proc_22_nm_lock(self, how):
        mine = self.lock_of(self.a, 10, 5, cookie=b"nm")
        self.assertEqual(self.a.ask(nlm.NM_LOCK, mine, **how), nlm.Res(b"nm", nlm.S_GRANTED))
        self.assert_held(mine, by=1)
        self.assertEqual(self.b.ask(nlm.NM_LOCK, self.lock_of(self.b), **how).stat, nlm.S_DENIED)
        self.assertEqual(self.a.unlock(mine, **how), nlm.S_GRANTED)
        self.assert_free(mine)

    @each((3, 4))
    def test_proc_23_free_all(self, how):
        mine = self.lock_of(self.a)
        self.assert_granted(self.a, mine)
        self.assertEqual(self.a.free_all(**how), b"")
        self.assert_free(mine)

    @each()
    def test_replies_come_from_the_address_that_was_asked(self, how):
        """Else a client with a connected UDP socket hears nothing; see UdpCaller."""
        for server in (*self.network.SERVER, *self.network.SERVER6):
            self.assertEqual(self.a.call(nlm.NULL, b"", server=server, **how), b"")
            self.assertEqual(self.a.test(self.lock_of(self.a), server=server, **how).stat, nlm.S_GRANTED)

    # What is not there

    @each()
    def test_holes_17_to_19(self, how):
        for procedure in (17, 18, 19):
            self.assertEqual(self.refusal(procedure, **how).stat, PROC_UNAVAIL)

    @each((1,))
    def test_version_1_has_no_shares(self, how):
        for procedure in range(20, 24):
            self.assertEqual(self.refusal(procedure, **how).stat, PROC_UNAVAIL)

    @each()
    def test_procedures_beyond_the_table(self, how):
        for procedure in (24, 25, 255, 2**32 - 1):
            self.assertEqual(self.refusal(procedure, **how).stat, PROC_UNAVAIL)

    @each((0, 2, 5, 2**32 - 1))
    def test_other_versions_are_a_mismatch(self, how):
        refused = self.refusal(nlm.NULL, **how)
        self.assertEqual((refused.stat, refused.low, refused.high), (PROG_MISMATCH, 1, 4))

    # Arguments

    PROCS_WITH_ARGS = (
        nlm.TEST, nlm.LOCK, nlm.CANCEL, nlm.UNLOCK, nlm.GRANTED,
        nlm.TEST_MSG, nlm.LOCK_MSG, nlm.CANCEL_MSG, nlm.UNLOCK_MSG, nlm.GRANTED_MSG,
        nlm.SHARE, nlm.UNSHARE, nlm.NM_LOCK, nlm.FREE_ALL,
    )  # fmt: skip

    @each()
    def test_garbage_arguments(self, how):
        """Every procedure with its arguments cut at every word, but for SHARE's last one."""
        for procedure in self.PROCS_WITH_ARGS:
            if how["version"] == 1 and procedure >= nlm.SHARE:
                continue
            whole = self.lock_of(self.a).args(procedure, how["version"])
            last = len(whole) - 4 if procedure in (nlm.SHARE, nlm.UNSHARE) else len(whole)
            for cut in range(0, last, 4):
                self.assertEqual(self.refusal(procedure, whole[:cut], **how).stat, GARBAGE_ARGS)
        self.assert_free(self.lock_of(self.a))

    @each()
    def test_garbage_messages_are_survived(self, how):
        """An asynchronous procedure has no reply that could carry an error. The connection must go on."""
        caller = self.a.caller(how["transport"])
        for procedure in (*range(nlm.TEST_MSG, nlm.SM_NOTIFY + 1),):
            for args in (b"", b"\xff" * 40, bytes(3)):
                caller.send(call_message(nlm.PROGRAM, how["version"], procedure, args))
        self.assertEqual(self.a.call(nlm.NULL, b"", **how), b"")

    @each((3, 4))
    def test_share_without_its_last_word(self, how):
        """Some clients leave out the trailing reclaim."""
        for procedure in (nlm.SHARE, nlm.UNSHARE):
            args = self.lock_of(self.a, access=1).args(procedure)[:-4]
            res = nlm.res_of(procedure, self.a.call(procedure, args, **how))
            self.assertEqual(res.stat, nlm.S_GRANTED)

    def test_bools_other_than_one_are_true(self):
        args = bytearray(self.lock_of(self.a, cookie=b"").args(nlm.LOCK))
        args[8:12] = b"\0\0\1\0"  # exclusive
        self.a.call(nlm.LOCK, bytes(args))
        self.assertTrue(self.assert_held(self.lock_of(self.a)).exclusive)

    def test_fragmented_records(self):
        message = call_message(nlm.PROGRAM, 4, nlm.LOCK, self.lock_of(self.a).args(nlm.LOCK))
        caller = self.a.caller("tcp")
        caller.send(message, n_fragments=7)
        self.assertEqual(nlm.res_of(nlm.LOCK, result_of(caller.receive())).stat, nlm.S_GRANTED)

    def test_calls_over_8_kib_are_refused(self):
        """The largest message of the protocol is far smaller. The bytes after the arguments mean nothing."""
        args = self.lock_of(self.a).args(nlm.LOCK) + bytes(16384)
        try:
            exchange(self.a.caller("tcp"), call_message(nlm.PROGRAM, 4, nlm.LOCK, args), 3)
        except (Refused, EOFError, ConnectionError):
            self.a.drop_callers()
        else:
            self.fail("it was served")
        self.assert_free(self.lock_of(self.a))

    @each()
    def test_cookie_empty(self, how):
        lock = self.lock_of(self.a, cookie=b"")
        for procedure in (nlm.LOCK, nlm.TEST, nlm.UNLOCK, nlm.CANCEL):
            self.assertEqual(self.a.ask(procedure, lock, **how).cookie, b"")

    @each()
    def test_cookie_of_1024_bytes(self, how):
        lock = self.lock_of(self.a, cookie=os.urandom(1024))
        for procedure in (nlm.LOCK, nlm.TEST, nlm.UNLOCK, nlm.CANCEL):
            self.assertEqual(self.a.ask(procedure, lock, **how).cookie, lock.cookie)

    @each()
    def test_cookie_of_1025_bytes_is_garbage(self, how):
        args = self.lock_of(self.a, cookie=bytes(1025)).args(nlm.LOCK, how["version"])
        self.assertEqual(self.refusal(nlm.LOCK, args, **how).stat, GARBAGE_ARGS)

    @each()
    def test_oh_of_1024_bytes_and_more(self, how):
        lock = self.lock_of(self.a, oh=os.urandom(1024))
        self.assert_granted(self.a, lock, **how)
        self.assertEqual(self.b.test(self.lock_of(self.b), **how).holder.oh, lock.oh)
        args = lock.but(oh=bytes(1025)).args(nlm.LOCK, how["version"])
        self.assertEqual(self.refusal(nlm.LOCK, args, **how).stat, GARBAGE_ARGS)

    @each()
    def test_oh_empty(self, how):
        self.assert_granted(self.a, self.lock_of(self.a, oh=b""), **how)
        self.assertEqual(self.b.test(self.lock_of(self.b), **how).holder.oh, b"")

    def test_oh_is_echoed_as_last_seen(self):
        """One owner by its svid; what it calls itself may change."""
        lock = self.lock_of(self.a, 0, 10, oh=b"old")
        self.assert_granted(self.a, lock)
        self.assert_granted(self.a, lock.but(oh=b"new"))
        self.assertEqual(self.assert_held(lock).oh, b"new")

    @each()
    def test_handle_of_64_bytes_and_more(self, how):
        self.fh = os.urandom(64)
        self.assert_granted(self.a, self.lock_of(self.a), **how)
        args = self.lock_of(self.a, fh=bytes(65)).args(nlm.LOCK, how["version"])
        try:
            refused = nlm.res_of(nlm.LOCK, self.a.call(nlm.LOCK, args, **how)).stat
            self.assertIn(refused, (nlm.S_STALE_FH, nlm.S_FAILED, nlm.S_NOLOCKS))
        except Refused as refused:
            self.assertEqual(refused.stat, GARBAGE_ARGS)

    def test_handle_that_differs_in_its_last_byte_is_another_file(self):
        self.assert_granted(self.a, self.lock_of(self.a, fh=self.fh + b"\0"))
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.fh + b"\1"))
        self.assert_granted(self.b, self.lock_of(self.b, fh=self.fh))

    @each()
    def test_name_of_1025_bytes_is_garbage(self, how):
        args = self.lock_of(self.a, name="x" * 1025).args(nlm.LOCK, how["version"])
        self.assertEqual(self.refusal(nlm.LOCK, args, **how).stat, GARBAGE_ARGS)

    @each()
    def test_everything_at_its_longest(self, how):
        """Name, owner, cookie and handle, from LOCK to GRANTED."""
        longest = {"oh": os.urandom(1024), "cookie": os.urandom(1024), "fh": os.urandom(64)}
        held = self.lock_of(self.a, name="x" * 1024, **longest)
        waiting = self.lock_of(self.b, name="y" * 1024, svid=5, **longest)
        self.assert_granted(self.a, held, **how)
        self.assert_blocked(self.b, waiting, **how)
        self.assertEqual(self.a.unlock(held, **how), nlm.S_GRANTED)
        grant = self.b.wait_granted(waiting).grant
        self.assertEqual((grant.name, grant.oh, grant.fh), (waiting.name, waiting.oh, waiting.fh))
        self.assertEqual(self.b.unlock(waiting, **how), nlm.S_GRANTED)

    BAD_NAMES = ("", "../etc", "a/b", ".hidden", "a\0b", "line\nfeed", "bell\a", "esc\x1b[31m")

    def test_bad_names_get_no_lock(self):
        """Names that once became file names, format strings or log lines in other servers."""
        for name in self.BAD_NAMES:
            for procedure in (nlm.LOCK, nlm.NM_LOCK, nlm.SHARE):
                with self.subTest(name=name, procedure=procedure):
                    args = self.lock_of(self.a, name=name, oh=b"x", access=3, deny=3).args(procedure)
                    try:
                        answer = nlm.res_of(procedure, self.a.call(procedure, args))
                        self.assertNotIn(answer.stat, (nlm.S_GRANTED, nlm.S_BLOCKED))
                    except Refused as refused:
                        self.assertEqual(refused.stat, GARBAGE_ARGS)
                    self.assert_free(self.lock_of(self.a))
        self.assertEqual(self.b.share(self.lock_of(self.b, access=3, deny=3)), nlm.S_GRANTED)

    def test_names_are_never_formats(self):
        for name in ("%n%n%s%s", "$(reboot)", "host%s", "ünïcode"):
            with self.subTest(name=name):
                lock = self.lock_of(self.a, name=name, oh=b"x")
                self.assertIn(self.a.lock(lock), (nlm.S_GRANTED, nlm.S_NOLOCKS, nlm.S_FAILED))
                self.a.unlock(lock)

    def test_svid_is_signed_and_any(self):
        for svid in (0, -1, 2**31 - 1, -(2**31)):
            with self.subTest(svid=svid):
                lock = self.lock_of(self.a, svid=svid)
                self.assert_granted(self.a, lock)
                self.assertEqual(self.b.test(self.lock_of(self.b)).holder.svid, svid)
                self.a.unlock(lock)

    def test_share_modes_beyond_three(self):
        for mode in ({"access": 4}, {"deny": 4}, {"access": 2**32 - 1}):
            with self.subTest(mode=mode):
                try:
                    answer = self.a.share(self.lock_of(self.a, **mode))
                    self.assertNotEqual(answer, nlm.S_GRANTED)
                except Refused as refused:
                    self.assertEqual(refused.stat, GARBAGE_ARGS)

    def test_free_all_has_an_empty_result(self):
        self.assertEqual(self.a.free_all("unknown"), b"")


if __name__ == "__main__":
    main()
