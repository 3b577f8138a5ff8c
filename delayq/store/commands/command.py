"""A command: its script, keys and arguments, and the reader of its reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from delayq.domain.words import shown

__all__ = [
    "EVERY",
    "MOVED",
    "RETENTION",
    "Arg",
    "Command",
    "Kept",
    "Now",
    "Replies",
    "Retention",
    "allowed",
    "by_name",
    "every",
    "number",
    "plain",
    "texts",
    "words",
]

T = TypeVar("T")
Arg = bytes | str | int

#: The answer of a closed queue about an id that it does not have: ask the next layout.
MOVED: Final = "moved"


class Command(msgspec.Struct, Generic[T], frozen=True):
    """One call to Redis: a script by name, or (`script` empty) a plain command in `args`.

    `misled` returns whether an answer shows that the server is not the primary. With `once`, it is not sent again after
    its reply was lost.
    """

    script: str
    keys: Sequence[str]
    args: Sequence[Arg]
    read: Callable[[Any], T]
    misled: Callable[[T], bool] | None = None
    once: bool = False


class Kept(list[Command[Any]]):
    """Mark commands whose changes must be in a number of replicas, and on the primary's disk, before they are answered."""

    __slots__ = ("fsync", "replicas")

    def __init__(self, commands: Iterable[Command[Any]], replicas: int, fsync: bool) -> None:
        super().__init__(commands)
        self.replicas = replicas
        self.fsync = fsync


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how many ended ids are remembered (`final`), and which; how long the audit is kept, and how many
    entries.
    """

    window: int = 15 * 60_000
    most: int = 200_000
    short: int = 30_000
    audit_window: int = 90 * 86_400_000
    audit_most: int = 100_000


RETENTION: Final = Retention()
Now = int | str


#: The keys of a command for every primary of a cluster.
EVERY: Final = ("*",)


def plain(*args: Arg, read: Callable[[Any], T], key: str = "", once: bool = False) -> Command[T]:
    """A plain Redis command. In a cluster it is sent to the primary of `key`; without `key`, its second word is the
    key.
    """
    return Command("", (key,) if key else (), args, read, once=once)


def allowed(ids: Sequence[str], topics: Sequence[str] | None) -> tuple[str, ...]:
    """Return the ids as arguments, with the topics that the caller may change.

    `topics` are those that each id's message had when it was read ('' for one that has ended). A message that has
    another topic meanwhile is answered like an unknown id. None is for a caller that may change everything.
    """
    return ("", *ids) if topics is None else ("1", *ids, *topics)


def every(*args: Arg, read: Callable[[list[Any]], T], misled: Callable[[T], bool] | None = None) -> Command[T]:
    """A plain command for every primary: `read` gets the list of their replies (one without a cluster)."""

    def read_all(reply: Any) -> T:
        return read(reply.replies if isinstance(reply, Replies) else [reply])

    return Command("", EVERY, args, read_all, misled)


class Replies(msgspec.Struct, frozen=True):
    """The replies of all primaries of a cluster."""

    replies: list[Any]


def number(text: bytes | None) -> int:
    """Return a count that may have been edited: text that is no number counts as 0, as in the scripts. It may have a
    sign.
    """
    return int(text) if text and (text.isdigit() or text.removeprefix(b"+").isdigit()) else 0


def by_name(reply: Any) -> dict[str, bytes]:
    """Read a reply that is a hash."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(errors="replace"): value for name, value in pairs}


def texts(reply: list[bytes]) -> list[str]:
    """Read a reply that is a list of texts."""
    return [text.decode() for text in reply]


def words(reply: list[bytes]) -> list[str]:
    """Return the words of a reply as interfaces write them."""
    return [shown(text.decode()) for text in reply]
