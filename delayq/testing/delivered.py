"""What a test sees of a message that arrived."""

from __future__ import annotations

import msgspec

from delayq.targets import Delivery

__all__ = ["Delivered"]


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it arrived; `at` is when, Unix ms."""

    id: str
    topic: str
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    ordering_key: str
    payload: bytes
    due: int
    attempt: int
    at: int

    @staticmethod
    def of(one: Delivery, at: int) -> Delivered:
        """What a target is given, kept for a test to look at."""
        return Delivered(
            id=one.id,
            topic=one.topic,
            tags=one.tags,
            keys=one.keys,
            properties=dict(one.properties),
            ordering_key=one.ordering_key,
            payload=one.payload,
            due=one.due,
            attempt=one.attempt,
            at=at,
        )
