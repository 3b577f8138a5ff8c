"""Policies and pauses: set as a whole under one version, and brought to each queue."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Arg, Command, Now, number, plain
from delayq.store.keys import AUDIT, POLICIES, QueueKeys

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

#: All workers and clients read all of them: so many pauses may stand there, with the limits that resumes have left, and so many
#: policies.
MOST_OF_EACH: Final = 500
#: So many of each on the topics of one API key.
MOST_OF_A_KEY: Final = 100
#: Whatever stands there before a change.
ANY: Final = "*"


class Change(msgspec.Struct, frozen=True):
    """What is to stand in a field ('' = nothing), if `before` does; when it `lasts`, since when that did."""

    field: str
    value: str
    before: str = ANY
    lasts: bool = False


class PoliciesSet(msgspec.Struct, frozen=True):
    """The version now, whether this call made it, and since when each change stands there (Unix ms, None: nothing does)."""

    version: str
    changed: bool
    since: tuple[int | None, ...]


class PoliciesFull(msgspec.Struct, frozen=True):
    """There are as many as there may be, of a `kind` ('pause' or 'policy'): `most` in all, or on the topics of a key."""

    kind: str
    most: int
    of_key: bool


class Applied(msgspec.Struct, frozen=True):
    """The version that a queue has, and the mark of each pattern that it pauses: a due up to which messages may have been
    handed out before."""

    version: str
    marks: Mapping[str, int]


def set_policies(
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
    """Make changes under a new version; None if not all stands there that has to, or the version is not the one `seen`.

    `maker` is 10 digits of this change, random unless given. The number of the version is greater than that of `beyond`, if
    this is another version. `entry` is for the audit. A change that adds something is refused if there were more than `most` of
    its kind then, or, with the `patterns` of the topics of the caller's key, more than `most_of_key` on these topics.
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

    return Command("set_policies", (POLICIES, AUDIT), args, read)


def policies() -> Command[Mapping[str, str]]:
    """All that stands there: `version`, when it was made (`changed`, Unix ms), and in other fields since when, a space, and
    the value."""

    def read(reply: Any) -> Mapping[str, str]:
        pairs = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))
        return {field.decode(): value.decode() for field, value in pairs}

    return plain("HGETALL", POLICIES, read=read)


def apply_policies(keys: QueueKeys, version: str, paused: Sequence[str], *, now: Now = "") -> Command[Applied]:
    """Let nobody pull from a queue who goes by other policies than these."""

    def read(reply: list[bytes]) -> Applied:
        lines = [line.split(" ", 1) for line in reply[1].decode().splitlines()]
        return Applied(reply[0].decode(), {match: int(mark) for mark, match in lines})

    return Command("apply_policies", (keys.state,), (now, keys.wake, version, *paused), read)
