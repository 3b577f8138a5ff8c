"""One thing has one word in every interface: the words of all names are those of docs/glossary.md.

Interfaces are the OpenAPI document, the command line, the Python client, metrics, events of logs and findings.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from typer.main import get_command

from api.routes import OPERATIONS
from delayq import Client, Filter, Message, Policy
from delayq.cli.app import UNDO, _app
from delayq.client.looking.audit import WantedEntries
from devtools.checks.logged import calls
from devtools.pages import DOCS, at, names_in, read, rows_after

GLOSSARY: Final = DOCS / "glossary.md"
#: The list of plain words in names, at the end of the glossary.
PLAIN: Final = "<!-- plain words:"
OPENAPI: Final = DOCS / "openapi.json"
#: Operations of the API that are none of a client.
HTTP_ONLY: Final = {"me", "livez", "readyz", "metrics"}


class Name(NamedTuple):
    """A name of an interface, and where it stands."""

    text: str
    where: str


def complaints() -> Iterator[str]:
    """Names consist of the words of the glossary, and the glossary lists no word in vain."""
    text = read(GLOSSARY)
    known = {_root(word) for entry in re.findall(r"\*\*(.+?)\*\*", text) for word in _words(entry)}
    line = text.partition(PLAIN)[0].count("\n") + 1
    plain = re.findall(r"[a-z]+", text.partition(PLAIN)[2].partition("-->")[2])
    roots = {_root(word): word for word in plain}
    unused = set(plain)
    for name in _names():
        words = _words(name.text)
        unused -= {roots.get(_root(word)) for word in words}
        for word in sorted(word for word in words if _root(word) not in known | roots.keys()):
            yield at(
                GLOSSARY,
                line,
                f"{name.where}: the word {word} of {name.text} is not in the glossary: use a word that is",
            )
    for word in sorted(unused | {word for root, word in roots.items() if root in known}):
        yield at(GLOSSARY, line, f"remove {word} from the plain words: no name has it, or an entry explains it")
    yield from _operations(line)


def _words(name: str) -> set[str]:
    """The words of a name, in small letters and without numbers."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _root(word: str) -> str:
    """A word without what plurals and verbs end with: `queues` is `queue`, and `cancelled` is `cancel`."""
    for end in ("ing", "ed", "es", "s", "e"):
        if word.endswith(end) and len(word) - len(end) > 2 and not word.endswith("ss"):
            word = word.removesuffix(end)
            break
    word = word.removesuffix("e")
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] + "y" if word.endswith("i") else word


def _names() -> Iterator[Name]:
    yield from _openapi(json.loads(read(OPENAPI)), "docs/openapi.json")
    yield from _command_line(get_command(_app("--help")), "delayq")
    yield Name(UNDO.partition(" ")[2], "delayq backfill")
    yield from _python()
    for row in rows_after(DOCS / "observability.md", "<!-- metrics:"):
        name, _, labels, *_ = row.cells
        if not name.startswith("`process_"):
            yield from (Name(one, "metrics") for one in (name.strip("`"), *names_in(labels)))
    for call in calls():
        yield from (Name(one, "logs") for one in (call.event, *call.fields))
    for row in rows_after(DOCS / "doctor.md", "<!-- findings:"):
        yield Name(row.cells[0].strip("`"), "findings")


def _openapi(part: Any, where: str) -> Iterator[Name]:
    """The names of fields and parameters, the values of enums and the ids of operations."""
    if isinstance(part, list):
        for one in part:
            yield from _openapi(one, where)
    if not isinstance(part, dict):
        return
    if isinstance(part.get("properties"), dict):
        yield from (Name(one, where) for one in part["properties"])
    for values in (part.get("enum"), part.get("x-extensible-enum")):
        if isinstance(values, list):
            yield from (Name(one, where) for one in values if isinstance(one, str))
    if part.get("in") in ("path", "query"):
        yield Name(part["name"], where)
    if "operationId" in part:
        yield Name(part["operationId"], where)
    for name, one in part.items():
        if name != "example":
            yield from _openapi(one, where)


def _command_line(command: Any, where: str) -> Iterator[Name]:
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--") and option != "--help":
                yield Name(option.removeprefix("--"), where)
    for name, one in getattr(command, "commands", {}).items():
        if name != UNDO:
            yield Name(name, where)
        yield from _command_line(one, f"{where} {name}")


def _python() -> Iterator[Name]:
    """The methods of a client, their arguments, and the fields of what they take."""
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            arguments = (one for one in inspect.signature(method).parameters if one != "self")
            yield from (Name(one, f"Client.{name}") for one in (name, *arguments))
    for kind in (Message, Filter, Policy, WantedEntries):
        yield from (Name(one, kind.__name__) for one in kind.__struct_fields__)


def _operations(line: int) -> Iterator[str]:
    """Each operation of the API is a method of a client."""
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isfunction)}
    for handled in OPERATIONS:
        if (name := handled.handle.__name__) not in methods | HTTP_ONLY:
            yield at(GLOSSARY, line, f"{handled.path}: {name} is no method of Client: call both the same")
