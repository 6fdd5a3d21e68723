"""The API of a holdfastd, as a script calls it."""

import http.client
import json
import os
import socket
import threading
import time

from until import PATIENCE, until


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """Of an error, in its one shape."""
        error = self.json
        assert set(error) == {"error"} and set(error["error"]) == {"code", "message"}, error
        return error["error"]["code"]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Rest:
    """@daemon's; @host is the address to call it by, in its namespace or another."""

    def __init__(self, daemon, host="127.0.0.1", namespace=None, path=None):
        self.daemon = daemon
        self.host = host
        self.namespace = namespace or daemon.namespace
        self.path = path

    @property
    def port(self):
        with open(self.daemon.ports_file, encoding="utf-8") as ports:
            return json.load(ports)["api"]

    @property
    def token(self):
        with open(os.path.join(self.daemon.state_dir, "state", "api.token"), encoding="utf-8") as token:
            return token.read().strip()

    def connection(self):
        if self.path:
            return UnixConnection(self.path)
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def call(self, method, target, headers=None, body=None, token=False):
        headers = dict(headers or {})
        if token:
            headers["Authorization"] = f"Bearer {self.token}"
        with self.namespace:
            connection = self.connection()
            connection.connect()
        try:
            connection.request(method, target, body=body, headers=headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, target, **how):
        return self.call("GET", target, **how)

    def raw(self, room=None):
        """A socket to it; @room: bytes that it takes without being read."""
        with self.namespace:
            s = socket.socket()
        if room:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        s.settimeout(PATIENCE)
        s.connect((self.host, self.port))
        return s

    def wait(self, target, test, what="it"):
        """What GET @target answers, as soon as it passes @test."""
        return until(lambda: self.get(target).json, f"{what} comes", passes=test)

    def metrics(self):
        """{'name{labels}': value}"""
        lines = self.get("/metrics").body.decode().splitlines()
        return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


class Events:
    """A reader of /api/v1/events, on a thread of its own."""

    def __init__(self, rest, target="/api/v1/events", headers=None):
        self.items = []
        self.changed = threading.Condition()
        until(lambda: self._ask(rest, target, headers or {}), "there is room for another reader")
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "text/event-stream"
        self.response.readline()  # the first ping: the server sends events from now on
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _ask(self, rest, target, headers):
        """False: there are too many, of which some may have hung up, which is seen within a second."""
        with rest.namespace:
            self.connection = rest.connection()
            self.connection.connect()
        self.connection.request("GET", target, headers=headers)
        self.response = self.connection.getresponse()
        if self.response.status != 503:
            return True
        self.connection.close()
        return False

    def _read(self):
        event = {}
        try:
            for line in self.response:
                line = line.decode().rstrip("\n")
                if line.startswith(":"):
                    continue
                if line:
                    key, value = line.split(": ", 1)
                    event[key] = json.loads(value) if key == "data" else value
                elif event:
                    with self.changed:
                        self.items.append(event)
                        self.changed.notify_all()
                    event = {}
        except (OSError, ValueError, AttributeError):
            pass

    def wait(self, kind, test=lambda data: True):
        end = time.monotonic() + PATIENCE
        with self.changed:
            while True:
                for event in self.items:
                    if event["event"] == kind and test(event["data"]):
                        return event
                left = end - time.monotonic()
                assert left > 0, f"no {kind}; all: {self.items}"
                self.changed.wait(left)

    def close(self):
        self.connection.sock and self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE)
        self.connection.close()
