"""Policies and pauses: set as a whole under one version, and brought to each queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Arg, Command, Now, number, plain
from delayq.store.keys import AUDIT, POLICIES, QueueKeys

__all__ = ["ANY", "Applied", "Change", "PoliciesSet", "apply_policies", "policies", "set_policies"]

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


class Applied(msgspec.Struct, frozen=True):
    """The version that a queue has, and the mark of each pattern that it pauses: a due up to which messages may have been
    handed out before."""

    version: str
    marks: Mapping[str, int]


def set_policies(
    changes: Sequence[Change], *, maker: str, seen: int | None = None, beyond: str = "", entry: str = "", now: Now = ""
) -> Command[PoliciesSet | None]:
    """Make changes under a new version; None if not all stands there that has to, or the version is not the one `seen`.

    `maker` is 10 digits of this process. The version is later than `beyond` in any case. `entry` is for the audit.
    """
    args: list[Arg] = [now, maker, "" if seen is None else seen, beyond, entry]
    for one in changes:
        args += (one.field, one.before, one.value, "1" if one.lasts else "")

    def read(reply: list[Any]) -> PoliciesSet | None:
        if reply[0] == b"stale":
            return None
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
