"""What feeds the limit where there is no redis-cli: it sends a file of commands and counts the replies."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

import hiredis

from benchmarks.errors import BenchmarkError

__all__ = ["feed"]

_CHUNK = 1 << 17


def feed(port: int, path: Path, replies: int) -> None:
    """Send the file and wait for `replies` replies; an error among them is a BenchmarkError."""
    with socket.create_connection(("127.0.0.1", port)) as connection, path.open("rb") as file:
        sender = Thread(target=connection.sendfile, args=(file,), daemon=True)
        sender.start()
        _count(connection, replies)
        sender.join()


def _count(connection: socket.socket, replies: int) -> None:
    reader = hiredis.Reader(notEnoughData=Ellipsis)
    seen = 0
    while seen < replies:
        chunk = connection.recv(_CHUNK)
        if not chunk:
            raise BenchmarkError(f"the server closed the connection after {seen} of {replies} replies")
        reader.feed(chunk)
        while (reply := reader.gets()) is not Ellipsis:
            if isinstance(reply, Exception):
                raise BenchmarkError(f"the server answered {reply}")
            seen += 1
