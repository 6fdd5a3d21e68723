#!/usr/bin/env python3
"""The wait that all others are made of: it takes what comes, asks again, and says what was seen where nothing came."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

# pylint: disable=wrong-import-position
from until import InVain, comes, insist, until


class Until(unittest.TestCase):
    def test_gives_what_came(self):
        looks = iter([0, None, "", "it", "too late"])
        self.assertEqual(until(lambda: next(looks), "it comes"), "it")

    def test_passes_decides(self):
        looks = iter(range(10))
        self.assertEqual(until(lambda: next(looks), "it is 5", passes=lambda n: n == 5), 5)
        self.assertEqual(until(lambda: 0, "it is 0", passes=lambda n: n == 0), 0)

    def test_says_what_was_seen(self):
        looks = []
        with self.assertRaises(InVain) as caught:
            until(lambda: looks.append(1) or [len(looks)], "pigs fly", 0.05, passes=lambda _: False, more=lambda: "a log")
        self.assertEqual(str(caught.exception), f"waited 0.05 s in vain until pigs fly; last seen: [{len(looks)}]\na log")
        self.assertGreater(len(looks), 2)

    def test_looks_even_without_time(self):
        self.assertTrue(until(lambda: True, "it is so", 0))
        with self.assertRaises(InVain):
            until(lambda: False, "it is so", 0)

    def test_a_look_may_end_it(self):
        with self.assertRaises(ZeroDivisionError):
            until(lambda: 1 / 0, "it comes")

    def test_patience_that_has_an_end(self):
        looks = iter([False, True])
        self.assertTrue(comes(lambda: next(looks), 5))
        self.assertFalse(comes(lambda: False, 0.01))

    def test_insisting(self):
        failures = [KeyError(), KeyError()]

        def act():
            if failures:
                raise failures.pop()
            return "done"

        self.assertEqual(insist(act, KeyError, lambda: False), "done")
        self.assertIsNone(insist(act, KeyError, lambda: True))
        failures.append(ValueError())
        with self.assertRaises(ValueError):
            insist(act, KeyError, lambda: False)


if __name__ == "__main__":
    unittest.main(verbosity=2)
