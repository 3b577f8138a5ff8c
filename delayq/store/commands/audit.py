"""What was changed by hand, as the scripts that changed it wrote it down."""

from __future__ import annotations

from typing import Any

import msgspec

from delayq.store.commands.command import Command, plain
from delayq.words import shown

__all__ = ["Audited", "AuditedMessage", "audited", "audited_from", "trim_audit"]


class AuditedMessage(msgspec.Struct, frozen=True):
    """A message that was changed: its id, and the topic and business keys that it had."""

    id: str
    topic: str
    keys: tuple[str, ...] = ()


class _By(msgspec.Struct, frozen=True):
    actor: str = ""
    key: str = ""
    address: str = ""
    action: str = ""
    reason: str = ""
    act: str = ""
    run: str = ""


_by = msgspec.json.Decoder(_By)


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """Who changed what, when (Unix ms, and which in that ms) and from where: `messages`, or what `detail` says.

    `actor` is the name of a key of the API, whose id is `key`, or what somebody else calls himself. `count` is how many messages
    were changed; an entry names as many as 4 KB hold. What is one `act` was done together, from `since` on; `run` is the run of a
    backfill that it was done to.
    """

    at: int
    number: int
    actor: str
    key: str
    address: str
    action: str
    reason: str
    messages: tuple[AuditedMessage, ...] = ()
    detail: str = ""
    count: int = 0
    act: str = ""
    since: int = 0
    run: str = ""


def audited(stream: str, most: int, newest: str = "+", oldest: str = "-") -> Command[list[Audited]]:
    """Up to so many entries of a stream, the newest first, between two ids of entries."""

    def read(reply: list[Any]) -> list[Audited]:
        return [_audited(id, fields) for id, fields in reply or ()]

    return plain("XREVRANGE", stream, newest, oldest, "COUNT", most, read=read)


def audited_from(stream: str, most: int, oldest: str) -> Command[list[Audited]]:
    """Up to so many entries of a stream, the oldest first, from the id of an entry on."""

    def read(reply: list[Any]) -> list[Audited]:
        return [_audited(id, fields) for id, fields in reply or ()]

    return plain("XRANGE", stream, oldest, "+", "COUNT", most, read=read)


def _audited(id: bytes, fields: Any) -> Audited:
    at, _, number = id.decode().partition("-")
    found = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
    try:
        by = _by.decode(found.get(b"by", b"{}"))
    except msgspec.DecodeError:  # a hand wrote it
        by = _By()
    lines = found.get(b"on", b"").decode(errors="replace").split("\n")
    messages = tuple(_message(line) for line in lines if "\0" in line)
    return Audited(
        at=int(at),
        number=int(number),
        actor=by.actor,
        key=by.key,
        address=by.address,
        action=shown(by.action),
        reason=by.reason,
        messages=messages,
        detail="" if messages else "\n".join(lines),
        count=max(len(messages), _number(found.get(b"n"))) if messages else 0,
        act=by.act,
        since=_number(found.get(b"since")) or int(at),
        run=by.run,
    )


def _message(line: str) -> AuditedMessage:
    id, topic, keys = (*line.split("\0", 2), "")[:3]
    return AuditedMessage(id, topic, tuple(key for key in keys.split() if not key.startswith("delayq:")))


def trim_audit(stream: str, before: int) -> Command[int]:
    """Let go of the entries of a stream that are older (Unix ms), about."""
    return plain("XTRIM", stream, "MINID", "~", before, read=int)


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0
