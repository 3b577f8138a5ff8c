"""A worker's own HTTP server: /livez, /readyz and /metrics, on threads of their own."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from delayq.errors import ConfigError
from workers.node.complaints import complaints
from workers.node.node import Node

__all__ = ["serve"]

TIMEOUT = 10.0


def serve(host: str, port: int, node: Node, registry: CollectorRegistry) -> None:
    """Answer until the process ends; raises ConfigError if the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path == "/livez":
                self._say(200, {"status": "alive"})
            elif path == "/readyz":
                missing = complaints(node)
                self._say(
                    503 if missing else 200,
                    {"status": "not ready", "missing": missing} if missing else {"status": "ready"},
                )
            else:
                self._say(404, {"status": "there are /livez, /readyz and /metrics"})

        def _say(self, status: int, body: dict[str, Any]) -> None:
            self._answer(status, json.dumps(body).encode(), "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: probes come every few seconds."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Nothing: who asked has gone."""

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        raise ConfigError(f"DELAYQ_WORKER_PORT: cannot listen on {host}:{port}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
