"""HTTP calls as a client behind a load balancer makes them: to any API, and without an answer to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
import msgspec

from reliability.chaos.history import History

SECONDS = 6.0
NOBODY = -1
_HEADERS = {"content-type": "application/json"}


class Reply(msgspec.Struct):
    """An answer; status 0 is none."""

    status: int
    body: Mapping[str, Any]

    @property
    def unknown(self) -> bool:
        """Whether it must be repeated: there is no answer, or the API answers that the outcome is unknown."""
        return self.status == 0 or self.status >= 500


class Calls:
    """One thread's connections to the APIs. It stays with one of them until that fails it."""

    def __init__(self, urls: Sequence[str], first: int, history: History) -> None:
        self._history = history
        self._clients = [httpx2.Client(base_url=url, timeout=SECONDS, headers=_HEADERS) for url in urls]
        self._at = first % len(urls)

    def __call__(self, method: str, path: str, body: Any = None) -> Reply:
        """Ask once."""
        content = msgspec.json.encode(body) if body is not None else None
        try:
            answer = self._clients[self._at].request(method, path, content=content)
            reply = Reply(answer.status_code, msgspec.json.decode(answer.content))
        except (httpx2.HTTPError, msgspec.DecodeError):
            reply = Reply(0, {})
        if reply.status == 500:  # repeated as well, but it is no answer that the API should give
            self._history.say("odd", [(NOBODY, f"{method} {path}", 500)])
        if reply.unknown:
            self._at = (self._at + 1) % len(self._clients)
        return reply

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()
