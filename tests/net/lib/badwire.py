"""A wire that loses, delays, doubles and so reorders what goes over it: what tc-netem(8) does, for any kernel."""

import heapq
import itertools
import os
import select
import threading
import time

MAX_FRAME = 65536


class BadWire(threading.Thread):
    def __init__(self, random):
        super().__init__(daemon=True)
        self.random = random
        self.loss = self.doubled = 0.0  # of one
        self.delay = (0.0, 0.0)  # seconds, from and to
        self.other_end = {}
        self.waiting = []  # (when, number, end, frame)
        self.numbers = itertools.count()
        self.n = {"frames carried": 0, "frames lost": 0, "frames doubled": 0}
        self.is_over = False

    def connect(self, one, other):
        """Two file descriptors of network interfaces; the wire owns them from now on."""
        self.other_end.update({one: other, other: one})

    def set_quality(self, loss=0.0, delay=(0.0, 0.0), doubled=0.0):
        self.loss, self.delay, self.doubled = loss, delay, doubled

    def _take(self, frame, end):
        if self.random.random() < self.loss:
            self.n["frames lost"] += 1
            return
        copies = 2 if self.random.random() < self.doubled else 1
        self.n["frames doubled"] += copies - 1
        for _ in range(copies):
            when = time.monotonic() + self.random.uniform(*self.delay)
            heapq.heappush(self.waiting, (when, next(self.numbers), end, frame))

    def _read(self, end):
        try:
            while True:
                self._take(os.read(end, MAX_FRAME), self.other_end[end])
        except BlockingIOError:
            pass
        except OSError:
            pass  # the interface is not up yet, or not any more

    def _deliver(self):
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(self.waiting)
            try:
                os.write(end, frame)
                self.n["frames carried"] += 1
            except OSError:
                self.n["frames lost"] += 1

    def run(self):
        while not self.is_over:
            timeout = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else 0.1
            for end in select.select(list(self.other_end), [], [], timeout)[0]:
                self._read(end)
            self._deliver()

    def close(self):
        self.is_over = True
        if self.ident:
            self.join()
        for end in self.other_end:
            os.close(end)
        self.other_end = {}
