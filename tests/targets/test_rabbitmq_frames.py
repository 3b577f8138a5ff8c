"""Frames that delayq writes itself are those that pika would write."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pika import frame, spec

from delayq.targets.rabbitmq.frames import content_header, frames_of, publish_method

texts = (
    some.text(max_size=60)
    .filter(lambda text: len(text.encode(errors="replace")) <= 255)
    .map(lambda text: text.encode(errors="replace").decode())
)


def by_pika(channel: int, most: int, to: tuple[str, str], properties: pika.BasicProperties, body: bytes) -> bytes:
    """What pika would write."""
    method = spec.Basic.Publish(exchange=to[0], routing_key=to[1], mandatory=True)
    frames: list[Any] = [frame.Method(channel, method), frame.Header(channel, len(body), properties)]
    step = most - 8
    frames += [frame.Body(channel, body[start : start + step]) for start in range(0, len(body), step)]
    return b"".join(one.marshal() for one in frames)


@given(
    id=texts,
    due=some.integers(2**31, 2**43),
    attempt=some.integers(1, 2**31 - 1),
    content_type=texts,
    type=texts,
    headers=some.dictionaries(texts, some.text().map(lambda text: text.encode(errors="replace").decode()), max_size=4),
    carried=some.booleans(),
    body=some.binary(max_size=300),
    most=some.integers(20, 200),
)
def test_frames_are_those_of_pika(
    id: str,
    due: int,
    attempt: int,
    content_type: str,
    type: str,
    headers: dict[str, str],
    carried: bool,
    body: bytes,
    most: int,
) -> None:
    replaced = {"app_id": "shop", "priority": 7, "correlation_id": "c"} if carried else {}
    header = content_header(id, due, attempt, content_type, type, headers, replaced)
    fields = {"content_type": content_type, "type": type, "app_id": "delayq", **replaced}
    properties = pika.BasicProperties(
        delivery_mode=2,
        message_id=id,
        timestamp=due // 1000,
        headers={"delayq-due": due, "delayq-attempt": attempt, **headers},
        **fields,
    )
    own = b"".join(frames_of(9, most, publish_method("e", "r"), header, body))
    assert own == by_pika(9, most, ("e", "r"), properties, body)


def test_what_is_too_long_for_a_short_string_is_refused() -> None:
    with pytest.raises(ValueError, match="is longer than 255 bytes"):
        content_header("x" * 256, 1, 1, "text/plain", "t", {}, {})
