"""The ways on which producers schedule: over HTTP, or by the client of the library, straight into Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from delayq import Client, Message
from delayq.base.errors import DelayqError, StoreError
from delayq.client.scheduling.schedule import Scheduled
from delayq.config import Settings
from reliability.chaos.calls import Calls

Items = Sequence[Mapping[str, Any]]


class Sender(Protocol):
    """Belongs to one thread."""

    def send(self, wires: Sequence[Mapping[str, Any]]) -> Items:
        """Ask for these messages once: what a batch over HTTP answers to each; 0 or 5xx: the outcome is unknown."""

    def close(self) -> None:
        """Close its connections."""


class ByHttp:
    """One message by itself, several as a batch."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def send(self, wires: Sequence[Mapping[str, Any]]) -> Items:
        if len(wires) == 1:
            reply = self._calls("POST", "/v1/messages", wires[0])
            return [{**reply.body, "status": reply.status}]
        reply = self._calls("POST", "/v1/messages:batch", {"messages": wires})
        return reply.body["results"] if reply.status == 200 else [{"status": reply.status}] * len(wires)

    def close(self) -> None:
        self._calls.close()


class ByClient:
    """`delayq.Client` with the settings of the service."""

    def __init__(self, settings: Settings) -> None:
        self._client = Client(settings=settings)

    def send(self, wires: Sequence[Mapping[str, Any]]) -> Items:
        try:
            return [_item(one) for one in self._client.schedule_many([_message(wire) for wire in wires])]
        except StoreError as error:
            return [_item(error)] * len(wires)

    def close(self) -> None:
        self._client.close()


def _message(wire: Mapping[str, Any]) -> Message:
    return Message(
        id=wire["id"],
        topic=wire["topic"],
        body=wire["body"],
        keys=tuple(wire.get("keys", ())),
        ordering_key=wire.get("orderingKey", ""),
        delay_time=wire.get("delayTime"),
        expect_date=wire.get("expectDate"),
    )


def _item(outcome: Scheduled | DelayqError) -> dict[str, Any]:
    if isinstance(outcome, Scheduled):
        return {"status": 201, "id": outcome.id, "queue": outcome.queue, "dueMs": outcome.due}
    return {"status": 503 if isinstance(outcome, StoreError) else 400, "detail": str(outcome)}
