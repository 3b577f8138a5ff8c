"""A worker's own HTTP server: /livez, /readyz and /metrics, on threads of their own."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from delayq.errors import ConfigError
from workers.node.node import Node
from workers.node.redis_clock import FAR

__all__ = ["complaints", "serve"]

TIMEOUT = 10.0


def complaints(node: Node) -> list[str]:
    """What keeps a worker from doing its work well, a sentence each; nothing when all is well."""
    found = []
    if not node.ready:
        found.append("this worker does not take part: it starts, stops, or waits for Redis or ZooKeeper")
    if not node.redis_clock.answers:
        found.append("Redis does not answer")
    if node.skew.far:
        off = f"{abs(node.skew.ms)} ms {'behind' if node.skew.ms > 0 else 'ahead of'} that of Redis"
        found.append(f"the clock of this worker is {off}, and {FAR} is too much: synchronise both clocks (NTP)")
    for queue, job in sorted(node.jobs.items()):
        if not job.alive and not job.finished:
            found.append(f"queue {queue}: the thread that pulls it has ended")
        if job.stuck:
            found.append(f"queue {queue} is stuck: it hands out messages, and none is confirmed")
        if job.pulls_fail is not None and node.redis_clock.answers:
            found.append(f"queue {queue}: nothing can be pulled: {job.pulls_fail}")
    if node.watch is not None:
        found += list(node.watch.alarms.values())
    return found


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
