"""An HTTP endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from delayq.base.times import parse_instant
from delayq.domain.routes import Route
from delayq.webhooks import read_webhook
from tests.support.receiver import Answer, Receiver, Request
from tests.support.waiting import eventually
from tests.targets.adapters import Seen


class WebhookAdapter:
    """A receiver, each of whose topics has a path of its own."""

    can_hang = True

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._well = threading.Event()
        self._well.set()
        receiver.answer = self._answer

    def _answer(self, request: Request) -> Answer:
        while not self._well.wait(0.05) and not self._receiver.over.is_set():
            pass
        return Answer(410 if request.headers["ce-id"].startswith("refused") else 200)

    def route(self, topic: str) -> Route:
        return Route(name=topic, match=topic, target=self._receiver.url(path="/{topic}"), allow=("127.0.0.0/8",))

    def read(self, topic: str, count: int) -> list[Seen]:
        def arrived() -> list[Request]:
            return [one for one in list(self._receiver.requests) if one.path == f"/{topic}" and _taken(one)]

        eventually(lambda: len(arrived()) >= count, f"{count} requests to /{topic}")
        return [_seen(request) for request in arrived()]

    def refuse(self, topic: str) -> Mapping[str, Any]:
        """A message that the endpoint says it never wants."""
        return {"id": "refused"}

    def never(self, topic: str) -> list[dict[str, Any]]:
        """Topics that would lead out of the path."""
        return [{"topic": ".."}, {"topic": "."}]

    def hang(self) -> None:
        """From now on take what comes and answer nothing."""
        self._well.clear()

    def heal(self) -> None:
        """Be well again."""
        self._well.set()

    def close(self) -> None:
        self.heal()


def _taken(request: Request) -> bool:
    return not request.headers["ce-id"].startswith("refused")


def _seen(request: Request) -> Seen:
    headers = {name: unquote(value) for name, value in request.headers.items() if name.startswith("ce-")}
    return Seen(
        id=headers["ce-id"],
        topic=headers["ce-type"],
        tags=headers.get("ce-tags", ""),
        keys=tuple(headers.get("ce-keys", "").split()),
        properties=json.loads(request.headers.get("delayq-properties", "{}")),
        ordering_key=headers.get("ce-partitionkey", ""),
        payload=request.body,
        due=parse_instant(headers["ce-time"]),
        attempt=int(headers["ce-attempt"]),
        received=read_webhook(request.headers, request.body),
    )
