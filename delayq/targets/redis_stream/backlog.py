"""How much of a stream nobody has worked on yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from delayq.errors import StoreError, StoreUnavailable
from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store

__all__ = ["backlogs"]


def backlogs(store: Store, streams: Sequence[str], within: float = inf) -> Mapping[str, int]:
    """Return for each stream the entries that its slowest consumer group has yet to read or to acknowledge.

    Without groups, or if the server does not know the lag of a group, all entries count.
    A key of another type has no backlog. Raises StoreUnavailable, also if the answers take longer than `within` ms.
    """
    asked: list[Command[Any]] = []
    for stream in streams:
        asked += [
            plain("XLEN", stream, read=int),
            plain("XINFO", "GROUPS", stream, read=_behind, key=stream),
        ]
    answers = store.end(store.begin(asked, within=within))
    for answer in answers:
        if isinstance(answer, StoreUnavailable):
            raise answer
    return {
        stream: _backlog(length, behind)
        for stream, length, behind in zip(streams, answers[::2], answers[1::2], strict=True)
    }


def _behind(reply: list[list[Any]]) -> list[int | None]:
    """The entries that each group has to read and to acknowledge; None if the server does not know (or is older than 7)."""
    groups = [{words[i].decode(): words[i + 1] for i in range(0, len(words), 2)} for words in reply]
    return [None if one.get("lag") is None else one["lag"] + one["pending"] for one in groups]


def _backlog(length: int | StoreError, behind: list[int | None] | StoreError) -> int:
    if isinstance(length, StoreError):
        return 0
    if isinstance(behind, StoreError) or not behind:
        return length
    return max(length if one is None else one for one in behind)
