"""The way of one node to the database: a socket of its own, which forwards until it is cut or stands still."""

import os
import selectors
import shutil
import socket
import tempfile
import threading

from until import lapse

CHUNK = 65536
PORT = ".s.PGSQL.5432"


class DatabaseWire(threading.Thread):
    """A node that is given .connection reaches the database at @target through this."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target = os.path.join(target, PORT)
        self.path = tempfile.mkdtemp(prefix="hf-db-")
        os.chmod(self.path, 0o755)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.path, PORT))
        self.listener.listen(64)
        self.waker, self.sleeper = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.pairs = {}  # each end: the other one
        self.far = set()  # ends at the database
        self.is_cut = self.is_still = self.is_deaf = self.is_over = False
        self.lateness = 0  # seconds, of each answer
        for sock in (self.listener, self.sleeper):
            self.selector.register(sock, selectors.EVENT_READ)
        self.start()

    @property
    def connection(self):
        return f"host={self.path} user=postgres dbname=postgres"

    def _change(self, **what):
        for name, value in what.items():
            setattr(self, name, value)
        self.waker.send(b"x")

    def cut(self):
        """Its connections are closed, and new ones too."""
        self._change(is_cut=True)

    def freeze(self):
        """Nothing arrives any more, and nothing is closed."""
        self._change(is_still=True)

    def deafen(self):
        """What the node says arrives, and no answer does."""
        self._change(is_deaf=True)

    def slow_down(self, seconds):
        """Each answer comes so much later."""
        self._change(lateness=seconds)

    def mend(self):
        self._change(is_cut=False, is_still=False, is_deaf=False, lateness=0)

    def close(self):
        self._change(is_over=True)
        self.join()
        for sock in (self.listener, self.waker, self.sleeper, *self.pairs):
            sock.close()
        self.selector.close()
        shutil.rmtree(self.path, ignore_errors=True)

    # On its thread

    def run(self):
        while not self.is_over:
            if self.is_cut:
                for sock in list(self.pairs):
                    self._drop(sock)
            for key, _ in self.selector.select():
                if key.fileobj is self.sleeper:
                    self.sleeper.recv(CHUNK)
                    self._watch()
                elif key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj in self.pairs and not self._is_ignored(key.fileobj):
                    self._forward(key.fileobj)

    def _watch(self):
        """What stands still is not looked at."""
        for sock in (self.listener, *self.pairs):
            is_watched = sock.fileno() in self.selector.get_map()
            must_watch = not self._is_ignored(sock)
            if is_watched and not must_watch:
                self.selector.unregister(sock)
            elif must_watch and not is_watched:
                self.selector.register(sock, selectors.EVENT_READ)

    def _is_ignored(self, sock):
        return self.is_still or (self.is_deaf and sock in self.far)

    def _accept(self):
        near, _ = self.listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            if self.is_cut:
                raise OSError
            far.connect(self.target)
        except OSError:
            near.close()
            far.close()
            return
        self.far.add(far)
        for one, other in ((near, far), (far, near)):
            self.pairs[one] = other
            if not self._is_ignored(one):
                self.selector.register(one, selectors.EVENT_READ)

    def _forward(self, sock):
        try:
            data = sock.recv(CHUNK)
            if sock in self.far:
                lapse(self.lateness)
            if data:
                self.pairs[sock].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)

    def _drop(self, sock):
        other = self.pairs.pop(sock, None)
        if other is None:
            return
        del self.pairs[other]
        self.far -= {sock, other}
        for one in (sock, other):
            if one.fileno() in self.selector.get_map():
                self.selector.unregister(one)
            one.close()
