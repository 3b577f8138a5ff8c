"""A server with prepared answers: as Redis 6.2 gives them, whose scripts have no flags, or any other."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from delayq.embedded.processes import LOCALHOST

VERSION = "6.2.14"
INFO = (
    f"redis_version:{VERSION}\r\nrole:master\r\nloading:0\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n"
    "maxmemory:0\r\nused_memory:1000000\r\n"
)
REPLIES = {
    b"INFO": b"$%d\r\n%s\r\n" % (len(INFO), INFO.encode()),
    b"TIME": b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n",
    b"ROLE": b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
    b"HMGET": b"*3\r\n$-1\r\n$-1\r\n$-1\r\n",
    b"HGETALL": b"*0\r\n",
    b"CONFIG": b"*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n",
    b"EVALSHA": b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    b"EVAL": b"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n",
}


class _Handler(socketserver.StreamRequestHandler):
    replies: Mapping[bytes, bytes]

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size))
                self.rfile.readline()
            self.wfile.write(self.replies.get(words[0].upper(), b"+OK\r\n"))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: a caller may reset its connection, and a thread must not write to what pytest captures."""


@contextmanager
def answering(replies: Mapping[bytes, bytes]) -> Iterator[str]:
    """The URL of a server that replies so to these commands, and OK to any other."""
    handler = type("Handler", (_Handler,), {"replies": replies})
    with _Server((LOCALHOST, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"redis://{LOCALHOST}:{server.server_address[1]}/0"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def old_redis(*, silent: bool = False) -> Iterator[str]:
    """The URL of one; a silent one refuses INFO."""
    refusal = {b"INFO": b"-NOPERM this user may not run the 'info' command\r\n"} if silent else {}
    with answering(REPLIES | refusal) as url:
        yield url
