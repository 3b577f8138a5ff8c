"""Writes each message as one line of JSON to standard output, for reading or for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from delayq.base.errors import ConfigError
from delayq.domain.routes import Route
from delayq.targets import OK, Delivery, Result


class LogTarget:
    """A line of JSON per message on standard output; delivered once the operating system has the line."""

    max_batch = 500

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        if url != "log:":
            raise ConfigError(f"route {route.name}: the target for standard output must be 'log:', and nothing more")
        self._route = route

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Write the batch."""
        lines = [
            msgspec.json.encode(
                {
                    "topic": one.topic,
                    "id": one.id,
                    "due": one.due,
                    "attempt": one.attempt,
                    "tags": one.tags,
                    "keys": one.keys,
                    "properties": dict(one.properties),
                    "body": one.payload.decode(errors="replace"),
                }
            )
            for one in batch
        ]
        try:
            _write(b"\n".join(lines) + b"\n")
        except OSError as error:
            return [Result.unavailable(f"standard output: {error}")] * len(batch)
        return [OK] * len(batch)

    def close(self) -> None:
        """Close nothing."""


def _write(text: bytes) -> None:
    """Write UTF-8, even if the locale has another encoding."""
    raw = getattr(sys.stdout, "buffer", None)  # a stream in memory, such as a notebook's, has none
    if raw is None:
        sys.stdout.write(text.decode())
    else:
        sys.stdout.flush()  # before it, the output of others
        raw.write(text)
    sys.stdout.flush()
