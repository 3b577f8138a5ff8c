"""The caller of a manual change, and the entry that a script writes into the audit."""

from __future__ import annotations

from secrets import token_hex
from typing import Final, Literal, get_args

import msgspec

from delayq.base.clock import SystemClock
from delayq.base.errors import InvalidMessage
from delayq.domain.words import stored
from delayq.store.commands import Retention

LONGEST_REASON: Final = 200
#: The manual changes, as entries name them.
Action = Literal[
    "cancel", "reschedule", "deliverNow", "redrive", "discard", "pause", "resume", "putPolicy", "deletePolicy",
    "deleteGroup", "repair", "writeOff", "reshard", "bumpEra", "undoBackfill",
]  # fmt: skip
ACTIONS: Final[tuple[str, ...]] = get_args(Action)


class By(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller of a manual change: name, id of the API key, address and reason.

    `changed` gets the ids of the messages that the call really changed. `patterns` are the topics that the key may
    change, if these are not all topics. They bound the number of pauses and policies, and the audit does not have them.
    All changes of one `act` are one entry. `run` is the backfill that is changed. If the change is not `written` into the
    audit, only the ended ids have the name.
    """

    actor: str
    key: str = ""
    address: str = ""
    reason: str = ""
    act: str = ""
    run: str = ""
    changed: list[str] = []
    patterns: tuple[str, ...] | None = None
    written: bool = True

    def check(self) -> None:
        """Raise InvalidMessage for a reason that is too long, or for text of more than one line."""
        if not self.actor.isprintable():
            raise InvalidMessage("actor", "must be a line of printable text")
        if len(self.reason) > LONGEST_REASON or not self.reason.isprintable():
            raise InvalidMessage("reason", f"must be a line of at most {LONGEST_REASON} characters")


def entry_of(by: By | None, action: Action, retention: Retention) -> str:
    """The argument of a script that writes the entry; '' if none is to be written."""
    if by is None or not by.written:
        return ""
    by.check()
    said = msgspec.json.encode(
        msgspec.to_builtins(msgspec.structs.replace(by, changed=[], patterns=None)) | {"action": stored(action)}
    ).decode()
    return f"{retention.audit_most} {retention.audit_window} {said}"


def new_act() -> str:
    """A new name for an act: the time at which it begins (Unix ms), and a random number."""
    return f"{SystemClock().now()}-{token_hex(4)}"


def one_act(by: By | None) -> By | None:
    """The caller with a new act, unless the caller is in an act already."""
    if by is None or by.act:
        return by
    return msgspec.structs.replace(by, act=new_act())


def changed_by(by: By | None) -> list[str] | None:
    """The list that gets the ids of changed messages; None if no entry is written."""
    return None if by is None or not by.written else by.changed


def name_of(by: By | None) -> str:
    """The name that is remembered with the ids that a caller ends; '' without one."""
    return "" if by is None else by.actor
