"""The webhooks of ./dev up --demo: a bank that is closed now and then, and an office that refuses what it cannot use."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from delayq.embedded.processes import LOCALHOST

#: The bank is closed at the beginning of each such period.
PERIOD_SECONDS: Final = 200
CLOSED_SECONDS: Final = 60


class Endpoint:
    """Both, on a free port of loopback, from `with` on until its end."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._completed: set[str] = set()  # invoices that were refused once, and that somebody has completed
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def routes(self) -> str:
        """The route table of the demo, as DELAYQ_ROUTES takes it."""
        url = f"http://{LOCALHOST}:{self._server.server_port}"
        topics = {"bank": "payments.*", "office": "invoices.*", "printer": "labels.*"}
        webhooks = [
            {"name": name, "match": match, "target": f"{url}/{name}", "allow": [LOCALHOST]}
            for name, match in topics.items()
        ]
        return json.dumps([*webhooks, {"name": "streams", "maxLength": 1_000}])

    def answer(self, path: str, id: str, body: dict[str, Any]) -> tuple[int, str]:
        """The status for a message, and its words."""
        if path == "/bank" and (time.monotonic() - self._began) % PERIOD_SECONDS < CLOSED_SECONDS:
            return 503, "the bank is closed for maintenance"
        if path == "/bank" and body.get("card") == "expired":
            return 402, "the card has expired"
        if path == "/office" and body.get("street") is None and id not in self._completed:
            self._completed.add(id)
            return 422, "the address has no street"
        if path == "/printer" and body.get("paper") == "A6":
            return 500, "there is no A6 paper"
        return 204, ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        super().__init__((LOCALHOST, 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of an answer go together
    server: _Server

    def do_POST(self) -> None:
        """Take a message, or say why not."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, words = self.server.endpoint.answer(self.path, self.headers["ce-id"], body)
        self.send_response(status)
        if status != 204:
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(words)))
        self.end_headers()
        self.wfile.write(words.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: ./dev up prints the log of the workers."""
