"""The Lua scripts: read from their files, their includes put in, named by their SHA-1."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["NAMES", "Script", "load", "source", "stopped_when_full"]

_INCLUDE = re.compile(r"^-- @include (.+)$", re.MULTILINE)
_SCRIPT = re.compile(r"^-- @script (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^ +|^ *--.*\n", re.MULTILINE)
_FLAGS = re.compile(r"^-- @flags (.+)$", re.MULTILINE)

NAMES = (
    "ack", "announce", "barrier", "bump_era", "bury", "cancel", "cancel_own", "claim", "close", "dead_letters",
    "discard", "discard_own", "find", "get", "glance", "layout", "page", "park", "pull", "redrive", "redrive_own",
    "relist", "remove", "repair", "reschedule", "reschedule_own", "restore", "retire", "retry", "schedule",
    "search", "spend", "stats", "unpark", "write_off",
)  # fmt: skip


#: Without these nothing would ever leave a full Redis: what was sent would be sent again for ever.
EMPTYING = (
    "ack", "bury", "cancel", "cancel_own", "claim", "discard", "discard_own", "park", "pull", "retry", "unpark",
)  # fmt: skip


class Script(NamedTuple):
    """The text that the server gets, and its SHA-1."""

    text: str
    sha: str


def source(name: str) -> str:
    """The script with its includes, and the script that it goes on with, in place."""
    folder = files("delayq.store") / "lua"

    def included(match: re.Match[str]) -> str:
        return "\n".join((folder / "include" / f"{part}.lua").read_text() for part in match.group(1).split())

    text = _INCLUDE.sub(included, (folder / f"{name}.lua").read_text())
    return _SCRIPT.sub(lambda match: source(match.group(1)), text)


@cache
def load(name: str, flags: bool = True) -> Script:
    """The script `name`.

    With `flags`, a head tells the server what the script may do when memory is full: those that free memory or only
    read go on, those that schedule are refused as a whole. A server that cannot read it (fakeredis) gets none.
    Indents and lines of comment stay here: the server reads every byte of what is sent whole.
    """
    written = source(name)
    text = _COMMENT.sub("", written)
    if flags:
        wanted = _FLAGS.search(written)
        head = f"#!lua flags={wanted.group(1)}" if wanted else "#!lua"
        text = f"{head}\n{text}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def stopped_when_full() -> list[str]:
    """Scripts that a full Redis would refuse, though they are what empties it; none, unless a file was changed."""
    return [name for name in EMPTYING if "allow-oom" not in load(name).text.partition("\n")[0]]
