"""Lines of JSON on standard output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delayq.domain.routes import Route
from tests.support.waiting import eventually
from tests.targets.adapters import Seen


class LogAdapter:
    """What was written since it was made."""

    can_hang = False

    def __init__(self, output: pytest.CaptureFixture[str]) -> None:
        self._output = output
        self._lines: list[dict[str, Any]] = []

    def route(self, topic: str) -> Route:
        return Route(name=topic, match=topic, target="log:")

    def read(self, topic: str, count: int) -> list[Seen]:
        def arrived() -> list[dict[str, Any]]:
            said = self._output.readouterr().out.splitlines()
            self._lines += [json.loads(line) for line in said if line.startswith('{"topic":')]
            return [line for line in self._lines if line["topic"] == topic]

        eventually(lambda: len(arrived()) >= count, f"{count} lines of {topic}")
        return [_seen(line) for line in arrived()]

    def close(self) -> None:
        """Nothing to let go."""


def _seen(line: dict[str, Any]) -> Seen:
    return Seen(
        id=line["id"],
        topic=line["topic"],
        tags=line["tags"],
        keys=tuple(line["keys"]),
        properties=line["properties"],
        ordering_key=None,
        payload=line["body"].encode(),
        due=line["due"],
        attempt=line["attempt"],
    )
