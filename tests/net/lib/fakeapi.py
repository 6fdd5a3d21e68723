"""The API of a node as the test wants it: answers by method and path, over HTTP on loopback.

A body is an object for JSON, a text as it is, or a queue: a stream of the texts that are put into it, until None. Bytes are
all that is sent, with the head.
"""

import http.server
import json
import queue
import threading


class FakeApi:
    def __init__(self, port=0):
        self.answers = {}  # (method, path) -> (status, body), or a function that gives them
        self.calls = []
        self.tokens = []  # of the calls; None: it had none
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                api.tokens.append(self.headers["Authorization"])
                api.calls.append((self.command, self.path))
                found = api.answers.get((self.command, self.path.split("?")[0]), (404, {"error": {"code": "not_found", "message": "No."}}))
                status, body = found() if callable(found) else found
                if isinstance(body, queue.Queue):
                    self.stream(body)
                    return
                if isinstance(body, bytes):
                    self.wfile.write(body)
                    return
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def stream(self, texts):
                self.send_response(200)
                self.end_headers()
                for text in iter(texts.get, None):
                    self.wfile.write(text.encode())
                    self.wfile.flush()

            do_GET = do_POST = do_DELETE = answer  # the names are http.server's

            def log_message(self, *_args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def set(self, method, path, status, body):
        self.answers[(method, path)] = (status, body)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
