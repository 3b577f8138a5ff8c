"""Who changes something by hand, and the entry about it that a script writes into the audit."""

from __future__ import annotations

from secrets import token_hex
from typing import Final, Literal, get_args

import msgspec

from delayq.clock import SystemClock
from delayq.errors import InvalidMessage
from delayq.store.commands import Retention

__all__ = ["ACTIONS", "Action", "By", "changed_by", "entry_of", "new_act", "one_act"]

LONGEST_REASON: Final = 200
#: What is done by hand, by its name in an entry.
Action = Literal[
    "cancel", "reschedule", "deliver_now", "redrive", "discard", "pause", "resume", "put_policy", "delete_policy", "repair",
    "write_off", "reshard", "bump_era", "undo_backfill",
]  # fmt: skip
ACTIONS: Final[tuple[str, ...]] = get_args(Action)


class By(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who changes something by hand: his name, the id of his key, from which address, and why.

    `changed` gets the ids of the messages that are written down as changed by him: not of those that were so already.
    `patterns` are those of the topics that his key may change, if they are not all: they bound how many pauses and policies
    he may make, and are not written down. What is done as one `act` is one entry; `run` is the backfill that it is done to.
    """

    actor: str
    key: str = ""
    address: str = ""
    reason: str = ""
    act: str = ""
    run: str = ""
    changed: list[str] = []
    patterns: tuple[str, ...] | None = None

    def check(self) -> None:
        """Raise InvalidMessage for a reason that is too long, or for what is not one line."""
        if not self.actor.isprintable():
            raise InvalidMessage("actor", "is a line of printable text")
        if len(self.reason) > LONGEST_REASON or not self.reason.isprintable():
            raise InvalidMessage("reason", f"is a line of at most {LONGEST_REASON} characters")


def entry_of(by: By | None, action: Action, retention: Retention) -> str:
    """What a script is told that writes it down; nothing if nobody is to be."""
    if by is None:
        return ""
    by.check()
    said = msgspec.json.encode(
        msgspec.to_builtins(msgspec.structs.replace(by, changed=[], patterns=None)) | {"action": action}
    ).decode()
    return f"{retention.audit_most} {retention.audit_window} {said}"


def new_act() -> str:
    """A name for an act: when it begins (Unix ms), and a number by which it differs from others."""
    return f"{SystemClock().now()}-{token_hex(4)}"


def one_act(by: By | None) -> By | None:
    """The same, for changes that are one act together, unless they are part of one already."""
    if by is None or by.act:
        return by
    return msgspec.structs.replace(by, act=new_act())


def changed_by(by: By | None) -> list[str] | None:
    """Where the ids go of what is changed by somebody."""
    return None if by is None else by.changed
