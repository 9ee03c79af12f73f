"""A sync web application: a thread for each request, and a guarded call in each."""

import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from common import COUNT, call, denied, execute, guard, say


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        guard.run_sync(call(int(self.path.removeprefix("/"))), execute, denied=denied)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Not a word."""


class Server(ThreadingHTTPServer):
    request_queue_size = 64


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def visit(number):
    with opener.open(f"http://127.0.0.1:{server.server_port}/{number}", timeout=60) as answer:
        assert answer.status == 204


with ThreadPoolExecutor(16) as visitors:
    list(visitors.map(visit, range(COUNT)))
server.shutdown()
server.server_close()
say()
