"""The Lua scripts: read from their files, their includes put in, named by their SHA-1.

The head of a script has `-- @flags` for the server. It has `-- @promise` if its answer is a promise to a caller: then it
has a deadline, and may wait for replicas or the disk. It has `-- @empties` if a full Redis needs it to remove messages.
A script that includes `fence` is sent by a queue's owner, which names itself.

A script that writes begins with a guard. Redis refuses a forbidden command only when the script reaches it, and half of a
change may be made by then. So the guard checks all commands that can run after the first write, and the script does
everything or nothing. Two lines of a script make that cheaper. `-- @first` names commands that need no check, because
each runs before the first write, is the first write, or never runs after it. `-- @guard` names commands that are needed
rarely: they are checked at this line, which is also before the first write. Redis itself checks the rights for all keys
of a script before it begins.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache  # noqa: TID251  # the keys are names of scripts
from importlib.resources import files
from typing import Final, NamedTuple

_INCLUDE = re.compile(r"^ *-- @include (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n|^ +", re.MULTILINE)
_FLAGS = re.compile(r"^-- @flags (.+)$", re.MULTILINE)

_MARK = re.compile(r"^-- @(promise|empties)$", re.MULTILINE)
_FIRST = re.compile(r"^-- @first (.+)$", re.MULTILINE)
_GUARD = re.compile(r"^ *-- @guard (.+)$", re.MULTILINE)
_CALL = re.compile(r"(?<!p)call\('([A-Z]+)'")
#: Called by pcall, or the beginning of an argument of pcall: the script continues if Redis refuses it.
_TRY = re.compile(r"(?:pcall\(|\{ )'(XINFO', 'STREAM|XGROUP', '[A-Z]+|[A-Z]+)'")
_SUBCOMMAND = re.compile(r"(?<!p)call\('(XINFO', '[A-Z]+)'")

_FOLDER = files("delayq.store") / "lua"
#: The callers of a script: clients, consumers, a queue's owner, readers, and operations on queues and layouts.
#: Includes of which a development server has its own ones.
_MOVED: Final = ("clock", "appending")
_ROOMS: Final = ("client", "consumer", "meta", "owner", "reading")
_PLACES: Final = {
    one.name.removesuffix(".lua"): one for room in _ROOMS for one in (_FOLDER / room).iterdir() if one.is_file()
}
NAMES: Final = tuple(sorted(_PLACES))


class Script(NamedTuple):
    """The text of a script for the server, its SHA-1, and the facts in its head."""

    text: str
    sha: str
    promise: bool
    empties: bool
    fenced: bool


def written(name: str) -> str:
    """Return the script as its file has it."""
    return _PLACES[name].read_text(encoding="utf-8")


def source(name: str, *, development: bool = False) -> str:
    """Return the script with its includes and guards, for a development server or for others."""
    whole = _GUARD.sub(
        lambda match: _guard(match.group(1).split()), _included(name, "advanced_" if development else "")
    )
    commands = guarded(name)
    return f"{_guard(commands)}\n{whole}" if commands else whole


def _included(name: str, clock: str = "") -> str:
    def included(match: re.Match[str]) -> str:
        files = (f"{clock if part in _MOVED else ''}{part}.lua" for part in match.group(1).split())
        texts = ((_FOLDER / "include" / file).read_text(encoding="utf-8") for file in files)
        return _INCLUDE.sub(included, "\n".join(texts))

    return _INCLUDE.sub(included, written(name))


@cache
def called(name: str) -> frozenset[str]:
    """Return the commands of a script, in lower case, as the rights of a user name them: 'hget', 'xinfo|stream'."""
    text = _included(name)
    more = (one.replace("', '", "|").lower() for one in (*_TRY.findall(text), *_SUBCOMMAND.findall(text)))
    return frozenset((*(one.lower() for one in _CALL.findall(text) if one != "XINFO"), *more))


def guarded(name: str) -> tuple[str, ...]:
    """Return the commands that a script checks before it begins; none for one that only reads, or runs a single
    command.
    """
    text = _included(name)
    flags, first = _FLAGS.search(text), _FIRST.search(text)
    commands = set(_CALL.findall(text))
    if len(commands) < 2 or (flags is not None and "no-writes" in flags.group(1)):
        return ()
    elsewhere = " ".join((*(first.groups() if first is not None else ()), *_GUARD.findall(text)))
    return tuple(sorted(commands.difference(elsewhere.split())))


def _guard(commands: Sequence[str]) -> str:
    """Return Lua that ends the script if its user may not run one of these. It makes neither tables nor functions."""
    asks = " or ".join(f"not may('{one}',KEYS[1])and'{one}'" for one in commands)
    return (
        f"do local may=redis.acl_check_cmd local lacks=may and({asks})\n"
        "if lacks then return redis.error_reply('NOPERM this user may not run '..lacks..' on '..KEYS[1]"
        "..', so the script has done nothing')end end"
    )


@cache
def load(name: str, moved_in: str = "") -> Script:
    """Return the script `name`. With `moved_in`, the key with the moved time, it is for a development server.

    Its first line has the flags for the server. With a full memory, the server runs scripts that free memory or only
    read, and refuses those that schedule. Indents and comment lines are removed, because the server parses every byte.
    """
    whole = source(name, development=True) if moved_in else source(name)  # replacements in tests take only the name
    whole = whole.replace("MOVED_IN", f"'{moved_in}'")
    wanted = _FLAGS.search(whole)
    head = f"#!lua flags={wanted.group(1)}" if wanted else "#!lua"
    text = f"{head}\n{_COMMENT.sub('', whole)}"
    marks = _MARK.findall(whole)
    included = " ".join(_INCLUDE.findall(written(name))).split()
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(text, sha, "promise" in marks, "empties" in marks, "fence" in included)


def stopped_when_full() -> list[str]:
    """Return scripts that a full Redis would refuse, although they empty it; none, unless a file was changed.

    Without them, nothing would ever leave a full Redis: delivered messages would be sent again and again.
    """
    return [name for name in NAMES if load(name).empties and "allow-oom" not in load(name).text.partition("\n")[0]]
