"""What a command is: which script, on which keys, with which arguments, and how to read the reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from delayq.words import shown

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

#: What a closed queue says of an id that it does not have: ask the next layout.
MOVED: Final = "moved"


class Command(msgspec.Struct, Generic[T], frozen=True):
    """One call to Redis: a script by name, or (`script` empty) a plain command in `args`.

    `misled` says of an answer whether it shows that the server is not the primary. `once`: it is not sent again after its reply
    was lost.
    """

    script: str
    keys: Sequence[str]
    args: Sequence[Arg]
    read: Callable[[Any], T]
    misled: Callable[[T], bool] | None = None
    once: bool = False


class Kept(list[Command[Any]]):
    """Commands whose changes have to be in so many replicas, and on the primary's disk, before they are answered."""

    __slots__ = ("fsync", "replicas")

    def __init__(self, commands: Iterable[Command[Any]], replicas: int, fsync: bool) -> None:
        super().__init__(commands)
        self.replicas = replicas
        self.fsync = fsync


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how many ended ids are remembered (`final`), and which; and how long the audit is kept, how many entries."""

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
    """A plain Redis command. In a cluster it goes where `key` lies; without one its second word is taken for it."""
    return Command("", (key,) if key else (), args, read, once=once)


def allowed(ids: Sequence[str], topics: Sequence[str] | None) -> tuple[str, ...]:
    """The ids as arguments, with what the caller may touch of them.

    With `topics`, those that each id's message had when it was looked at ('' for one that has ended): what has another
    topic by now is answered like an id that nobody knows. None is for a caller that may touch everything.
    """
    return ("", *ids) if topics is None else ("1", *ids, *topics)


def every(*args: Arg, read: Callable[[list[Any]], T], misled: Callable[[T], bool] | None = None) -> Command[T]:
    """A plain command for every primary: `read` gets the list of their replies (of one, without a cluster)."""

    def read_all(reply: Any) -> T:
        return read(reply.replies if isinstance(reply, Replies) else [reply])

    return Command("", EVERY, args, read_all, misled)


class Replies(msgspec.Struct, frozen=True):
    """What all primaries of a cluster replied."""

    replies: list[Any]


def number(text: bytes | None) -> int:
    """A count that a hand may have damaged: what is no number counts as 0, as in the scripts. A sign may stand before it."""
    return int(text) if text and (text.isdigit() or text.removeprefix(b"+").isdigit()) else 0


def by_name(reply: Any) -> dict[str, bytes]:
    """A reply that is a hash."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(errors="replace"): value for name, value in pairs}


def texts(reply: list[bytes]) -> list[str]:
    """A reply that is a list of texts."""
    return [text.decode() for text in reply]


def words(reply: list[bytes]) -> list[str]:
    """Return the words of a reply as interfaces write them."""
    return [shown(text.decode()) for text in reply]
