"""Policies and pauses: changed under one version, and brought to each queue."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Arg, Command, Now, number, plain
from delayq.store.keys import Keys, QueueKeys

__all__ = [
    "ANY",
    "MOST_OF_A_KEY",
    "MOST_OF_EACH",
    "Applied",
    "Change",
    "PoliciesFull",
    "PoliciesSet",
    "apply_policies",
    "policies",
    "set_policies",
]

#: All workers and clients read all of them, so their number is bounded: pauses with the limits of resumes, and
#: policies.
MOST_OF_EACH: Final = 500
#: The maximum of each on the topics of one API key.
MOST_OF_A_KEY: Final = 100
#: Any text before a change.
ANY: Final = "*"


class Change(msgspec.Struct, frozen=True):
    """The new text of a field ('' = nothing), if its text is `before`; with `lasts`, the same start."""

    field: str
    value: str
    before: str = ANY
    lasts: bool = False


class PoliciesSet(msgspec.Struct, frozen=True):
    """The current version, whether this call made it, and the start of each changed entry (Unix ms, None: removed)."""

    version: str
    changed: bool
    since: tuple[int | None, ...]


class PoliciesFull(msgspec.Struct, frozen=True):
    """The maximum of a `kind` ('pause' or 'policy') is reached: `most` in all, or on the topics of a key."""

    kind: str
    most: int
    of_key: bool


class Applied(msgspec.Struct, frozen=True):
    """The version of a queue, and the mark of each pattern that it pauses.

    A mark is a due time up to which messages may have been handed out before the pause.
    """

    version: str
    marks: Mapping[str, int]


def set_policies(
    keys: Keys,
    changes: Sequence[Change],
    *,
    maker: str = "",
    seen: int | None = None,
    beyond: str = "",
    entry: str = "",
    most: int = MOST_OF_EACH,
    most_of_key: int = MOST_OF_A_KEY,
    patterns: Sequence[str] = (),
    now: Now = "",
) -> Command[PoliciesSet | PoliciesFull | None]:
    """Make changes under a new version. Returns None if a field has another text, or the version is not the one `seen`.

    `maker` is 10 random digits of this change, unless given. The number of the version is greater than that of
    `beyond`, if this is another version. `entry` is for the audit. A change that adds an entry is refused if there are
    more than `most` of its kind. With the `patterns` of the caller's key, it is also refused above `most_of_key` on
    these topics.
    """
    maker = maker or f"{secrets.randbelow(10**10):010}"
    args: list[Arg] = [now, maker, "" if seen is None else seen, beyond, entry, most, most_of_key, "\n".join(patterns)]
    for one in changes:
        args += (one.field, one.before, one.value, "1" if one.lasts else "")

    def read(reply: list[Any]) -> PoliciesSet | PoliciesFull | None:
        if reply[0] == b"stale":
            return None
        if reply[0] == b"full":
            return PoliciesFull(reply[1].decode(), int(reply[2]), reply[3] == b"1")
        since = tuple(number(one) if one else None for one in reply[3:])
        return PoliciesSet(reply[1].decode(), reply[2] == b"1", since)

    return Command("set_policies", (keys.policies, keys.audit), args, read)


def policies(keys: Keys) -> Command[Mapping[str, str]]:
    """Read all entries: `version`, the time when it was made (`changed`, Unix ms), and in other fields the start, a
    space, and the text.
    """

    def read(reply: Any) -> Mapping[str, str]:
        pairs = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))
        return {field.decode(): value.decode() for field, value in pairs}

    return plain("HGETALL", keys.policies, read=read)


def apply_policies(keys: QueueKeys, version: str, paused: Sequence[str], *, now: Now = "") -> Command[Applied]:
    """Refuse pulls of a queue under other policies than these."""

    def read(reply: list[bytes]) -> Applied:
        lines = [line.split(" ", 1) for line in reply[1].decode().splitlines()]
        return Applied(reply[0].decode(), {match: int(mark) for mark, match in lines})

    return Command("apply_policies", (keys.state,), (now, keys.wake, version, *paused), read)
