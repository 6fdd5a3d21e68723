"""Waiting for something to become so: the one loop in which tests ask again and again; and time that merely passes."""

import math
import time

PATIENCE = 25.0  # seconds for anything that must happen; nothing takes that long unless it is broken, on any machine
LONGEST_PAUSE = 0.02  # between two looks


class InVain(AssertionError):
    """It did not come in time."""


def until(look, what, timeout=PATIENCE, *, passes=bool, more=None, pause=LONGEST_PAUSE):
    """What look() gives, as soon as it @passes; InVain after @timeout seconds, which says @what did not come, what was
    last seen, and what more() gives, such as a log. @what reads on from "waited in vain until".

    The first looks follow each other soon, the later ones every @pause seconds. A look that raises ends the wait: for
    what cannot come any more.
    """
    end = time.monotonic() + timeout
    wait = 0.001
    while not passes(seen := look()):
        if time.monotonic() > end:
            text = f"waited {timeout:g} s in vain until {what}; last seen: {seen!r}"
            raise InVain(f"{text}\n{more()}" if more else text)
        time.sleep(min(wait, pause))
        wait *= 2
    return seen


def comes(look, timeout, pause=LONGEST_PAUSE):
    """Whether it does within @timeout: for those whose patience has an end."""
    try:
        return bool(until(look, "it comes", timeout, pause=pause))
    except InVain:
        return False


def lapse(seconds):
    """Time passes, and nothing is waited for: the pace of a load, an outage of some length, a fault that strikes at any
    moment, a span over which is measured what idleness costs. A test that waits for a condition calls until()."""
    time.sleep(seconds)


def insist(act, failure, is_over):
    """What act() gives as soon as it does not raise @failure, however often it must be repeated; None once is_over()."""
    given = []

    def is_done():
        try:
            if not is_over():
                given.append(act())
        except failure:
            return False
        return True

    until(is_done, "it is done", math.inf, pause=0.005)
    return given[0] if given else None
