"""How much of a stream nobody has worked on yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from delayq.base.errors import StoreError, StoreUnavailable
from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store
from delayq.store.connect.threads import CLOCK
from delayq.store.keys import Keys


def backlogs(store: Store, streams: Sequence[str], within: float = inf) -> Mapping[str, int]:
    """Return for each stream the entries that its slowest consumer group has yet to read or to acknowledge.

    Without groups, or if the server does not know the lag of a group, all entries count.
    A key of another type has no backlog. Raises StoreUnavailable, also if the answers take longer than `within` ms.
    """
    until = CLOCK.precise() + within

    def answers_to(asked: list[Command[Any]]) -> list[Any]:
        answers = store.end(store.begin(asked, within=until - CLOCK.precise())) if asked else []
        for answer in answers:
            if isinstance(answer, StoreUnavailable):
                raise answer
        return answers

    asked: list[Command[Any]] = []
    for stream in streams:
        asked += [plain("XLEN", stream, read=int), plain("XINFO", "GROUPS", stream, read=_groups, key=stream)]
    answers = answers_to(asked)
    lengths, groups = answers[::2], answers[1::2]
    found = [
        (stream, one) for stream, some in zip(streams, groups, strict=True) if isinstance(some, list) for one in some
    ]
    in_calls = [
        (one, keys)
        for stream, one in found
        if one["pending"] and (keys := _consumers_key(store.keys, stream, one["name"]))
    ]
    counts = answers_to([plain("HGET", key, "inCalls", read=_number) for _, key in in_calls])
    for (one, _), count in zip(in_calls, counts, strict=True):
        one["pending"] += 0 if isinstance(count, StoreError) else count
    return {stream: _backlog(length, some) for stream, length, some in zip(streams, lengths, groups, strict=True)}


def _number(text: bytes | None) -> int:
    return int(text or 0)


def _groups(reply: list[list[Any]]) -> list[dict[str, Any]]:
    return [{words[i].decode(): words[i + 1] for i in range(0, len(words), 2)} for words in reply]


def _consumers_key(keys: Keys, stream: str, group: bytes) -> str | None:
    """The key that counts the entries of a group that Redis does not know as pending; None if delayq cannot receive them."""
    try:
        return keys.consumers(stream, group.decode()).consumers
    except ValueError:
        return None


def _backlog(length: int | StoreError, groups: list[dict[str, Any]] | StoreError) -> int:
    if isinstance(length, StoreError):
        return 0
    if isinstance(groups, StoreError) or not groups:
        return length
    # A server without a lag does not know it, or is older than 7.
    return max(length if one.get("lag") is None else one["lag"] + one["pending"] for one in groups)
