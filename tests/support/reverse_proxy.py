"""A web server in front of another one, under a path of its own, as operators put services behind one name."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from delayq.embedded.processes import LOCALHOST

__all__ = ["ReverseProxy"]

#: What is between two hops and no further.
_HOPS: Final = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length"}


class ReverseProxy:
    """`with ReverseProxy(port, "/ops/") as proxy:` hands on what comes under /ops/, without it; all else is 404."""

    def __init__(self, port: int, prefix: str) -> None:
        self.server = _Server((LOCALHOST, 0), _Handler)
        self.server.upstream, self.server.prefix = port, prefix
        self._thread = threading.Thread(
            target=self.server.serve_forever, args=(0.05,), name="reverse-proxy", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it hands on from."""
        return f"http://{LOCALHOST}:{self.server.server_address[1]}{self.server.prefix}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    upstream = 0
    prefix = "/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser leaves pages when it likes to."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.path.startswith(self.server.prefix):
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        behind = http.client.HTTPConnection(LOCALHOST, self.server.upstream, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
        behind.request(self.command, "/" + self.path.removeprefix(self.server.prefix), body or None, headers)
        answer = behind.getresponse()
        content = answer.read()
        behind.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOPS:
                self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _hand_on

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
