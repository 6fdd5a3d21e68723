#!/usr/bin/env python3
"""What fake hosts are made of: a call that comes again by UDP after it was answered is the same one, and its answer, too."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from rpc import Service, Stage, TcpCaller, UdpCaller, call_message, exchange

PROGRAM = 200100


class Repeats(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.is_silent = False
        stage = Stage()
        self.addCleanup(stage.close)
        self.service = Service(stage, self.on_call, ["127.0.0.1"])
        self.addCleanup(self.service.close)

    def on_call(self, call):
        self.calls.append(call)
        if not self.is_silent:
            call.answer(b"%03d." % len(self.calls))

    def caller(self, kind):
        port = self.service.udp_port if kind is UdpCaller else self.service.tcp_port
        caller = kind(("127.0.0.1", port), ("127.0.0.1", 0))
        self.addCleanup(caller.close)
        return caller

    def test_an_answered_call_is_not_heard_again(self):
        caller, message = self.caller(UdpCaller), call_message(PROGRAM, 1, 0)
        self.assertEqual([exchange(caller, message) for _ in range(3)], [b"001."] * 3)
        self.assertEqual(len(self.calls), 1)

    def test_an_unanswered_call_is(self):
        caller, message = self.caller(UdpCaller), call_message(PROGRAM, 1, 0)
        self.is_silent = True
        caller.send(message)
        caller.send(message)
        self.service.stage.settle()
        self.is_silent = False
        self.assertEqual(exchange(caller, message), b"003.")

    def test_calls_of_others_are_others(self):
        message = call_message(PROGRAM, 1, 0)
        callers = self.caller(UdpCaller), self.caller(UdpCaller), self.caller(TcpCaller)
        self.assertEqual([exchange(caller, message) for caller in callers], [b"001.", b"002.", b"003."])


if __name__ == "__main__":
    unittest.main(verbosity=2)
