"""Servers that run for the length of a block, where this machine has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import pytest

from testbed.errors import ServerMissing


class OwnServer(Protocol):
    """A server of one's own."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


Server = TypeVar("Server", bound=OwnServer)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """The server, started; skips where there is none, with the way to get it."""
    try:
        server.start()
    except ServerMissing as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()
