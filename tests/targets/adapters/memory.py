"""The target of delayq.testing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delayq.domain.routes import Route
from delayq.testing import Delivered, MemoryTarget, register_memory_target
from tests.support.timeouts import PATIENCE
from tests.targets.adapters import Seen


class MemoryAdapter:
    """A memory target, opened anew by each route as others are: its end is not the end of what it keeps."""

    can_hang = True

    def __init__(self, target: MemoryTarget) -> None:
        self._target = target
        self._url = register_memory_target(target, "conformance")

    def route(self, topic: str) -> Route:
        return Route(name=topic, match=topic, target=self._url)

    def read(self, topic: str, count: int) -> list[Seen]:
        return [_seen(one) for one in self._target.wait_for(count, PATIENCE) if one.topic == topic]

    def refuse(self, topic: str) -> Mapping[str, Any]:
        """A message that the target was told to reject."""
        self._target.answer("rejected", id="refused")
        return {"id": "refused"}

    def hang(self) -> None:
        """From now on answer nothing."""
        self._target.answer("hang")

    def heal(self) -> None:
        """Be well again."""
        self._target.behave()

    def close(self) -> None:
        self._target.close()


def _seen(one: Delivered) -> Seen:
    return Seen(
        id=one.id,
        topic=one.topic,
        tags=one.tags,
        keys=one.keys,
        properties=one.properties,
        ordering_key=one.ordering_key,
        payload=one.payload,
        due=one.due,
        attempt=one.attempt,
    )
