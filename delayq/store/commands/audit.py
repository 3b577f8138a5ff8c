"""The audit: manual changes, as the scripts that made them recorded them."""

from __future__ import annotations

from typing import Any

import msgspec

from delayq.domain.words import shown
from delayq.store.commands.command import Command, plain

__all__ = ["Audited", "AuditedMessage", "audited", "trim_audit"]


class AuditedMessage(msgspec.Struct, frozen=True):
    """A changed message: its id, and its topic and business keys at that time."""

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
    """A manual change: the actor, the time (Unix ms, and its number in that ms) and the address; `messages`, or
    `detail`.

    `actor` is the name of an API key with the id `key`, or another caller's own name. `count` is the number of changed
    messages; an entry names as many as fit into 4 KB. The changes of one `act` were made together, from `since` on.
    `run` is the backfill run that it changed.
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
    """Read a number of entries of a stream, newest first, between two ids of entries."""

    def read(reply: list[Any]) -> list[Audited]:
        return [_audited(id, fields) for id, fields in reply or ()]

    return plain("XREVRANGE", stream, newest, oldest, "COUNT", most, read=read)


def _audited(id: bytes, fields: Any) -> Audited:
    at, _, number = id.decode().partition("-")
    found = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
    try:
        by = _by.decode(found.get(b"by", b"{}"))
    except msgspec.DecodeError:  # somebody else wrote it
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
    """Remove the entries of a stream that are older than a time (Unix ms), approximately."""
    return plain("XTRIM", stream, "MINID", "~", before, read=int)


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0
