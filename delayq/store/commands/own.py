"""What changes messages, for somebody who may touch those of certain topics only.

Each is the command of the same name, and is told of each id the topic that its message had when it was looked at; what
has another topic by now is answered like an id that nobody knows. The topic '' is for ids that have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from delayq.store.commands.command import RETENTION, Command, Now, Retention
from delayq.store.commands.dead_letters import discard, redrive
from delayq.store.commands.scheduling import cancel, reschedule
from delayq.store.keys import QueueKeys

__all__ = ["cancel_own", "discard_own", "redrive_own", "reschedule_own"]

T = TypeVar("T")


def _own(command: Command[T], topics: Sequence[str]) -> Command[T]:
    return Command(f"{command.script}_own", command.keys, (*command.args, *topics), command.read)


def cancel_own(
    keys: QueueKeys, ids: Sequence[str], topics: Sequence[str], *, now: Now = "", retention: Retention = RETENTION
) -> Command[list[str]]:
    """Cancel messages of one queue and of these topics."""
    return _own(cancel(keys, ids, now=now, retention=retention), topics)


def reschedule_own(
    keys: QueueKeys, id: str, spec: str, topic: str, *, now: Now = "", retention: Retention = RETENTION
) -> Command[tuple[str, int | None]]:
    """Give a message of this topic another due."""
    return _own(reschedule(keys, id, spec, now=now, retention=retention), (topic,))


def redrive_own(keys: QueueKeys, ids: Sequence[str], topics: Sequence[str], *, now: Now = "") -> Command[list[str]]:
    """Put dead letters of these topics back."""
    return _own(redrive(keys, ids, now=now), topics)


def discard_own(keys: QueueKeys, ids: Sequence[str], topics: Sequence[str]) -> Command[list[bool | None]]:
    """Delete dead letters of these topics for good."""
    return _own(discard(keys, ids), topics)
