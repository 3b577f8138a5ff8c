"""The pages of the protocol and of Redis name every script, state, key and field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delayq.domain import message
from delayq.domain.message import State
from delayq.store import scripts
from delayq.store.commands import COUNTER_FIELDS
from delayq.store.keys import KEYS, ParkedSet, QueueKeys
from devtools import rights
from devtools.checks.generated import differences
from devtools.pages import DOCS, at, read

PROTOCOL: Final = DOCS / "protocol.md"
#: Pages with the rest of the scripts.
OTHERS: Final = tuple(DOCS / f"protocol-{part}.md" for part in ("workers", "consumers", "limits"))
REDIS: Final = DOCS / "redis.md"
KEYS_PAGE: Final = DOCS / "redis-keys.md"
#: Fields that scripts write by the same words into other hashes than `state`.
NOT_OF_STATE: Final = {"layouts", "version", "era", "advanced"}
#: Fields that are found unless scripts write them in another way.
SURELY: Final = {"epoch", "watermark", "sleep_until", "generation"}
_WRITE: Final = re.compile(r"'(?:HSET|HINCRBY)', (?:state|KEYS\[1\]), '([a-z_]+)'")
_FLAGS: Final = re.compile(r"^-- @flags (.+)$", re.MULTILINE)


def complaints() -> Iterator[str]:
    """Each script, state, key and field is described, and so are the rights that a user of Redis needs."""
    yield from differences(rights.PAGE, rights.page)
    yield from _protocol()
    text = read(KEYS_PAGE)
    for name in _keys():
        if f"| `{name}` |" not in text:
            yield at(KEYS_PAGE, 1, f"the key `{name}` has no row: add one")
    written = set(COUNTER_FIELDS).union(*(_WRITE.findall(scripts.source(name)) for name in scripts.NAMES))
    for name in sorted(SURELY - written):
        yield at(
            Path(__file__), 1, f"no script writes the field {name} of `state`: look here for how scripts write now"
        )
    for name in sorted(written - NOT_OF_STATE):
        if f"`{name}`" not in text:
            yield at(KEYS_PAGE, 1, f"the field `{name}` of `state` is not described: describe it")
    yield from _when_it_is_full(read(REDIS))


def _protocol() -> Iterator[str]:
    text = read(PROTOCOL)
    headings = re.findall(r"^##+ (.+)$", "".join((text, *map(read, OTHERS))).replace("`", ""), re.MULTILINE)
    described = {word for heading in headings for word in re.split(r", | and ", heading)}
    for name in sorted(set(scripts.NAMES) - described):
        yield at(PROTOCOL, 1, f"no heading names the script {name}: describe it")
    drawings = {
        PROTOCOL: text.partition("```text")[2].partition("```")[0],
        Path(message.__file__): message.__doc__ or "",
    }
    for name, state in vars(State).items():
        if not name.isupper():
            continue
        if f"`{state}`" not in text:
            yield at(PROTOCOL, 1, f"the state `{state}` is not described: describe it")
        for page, drawing in drawings.items():
            if not re.search(rf"\b{state}\b", drawing):
                yield at(page, 1, f"the life of a message is drawn without the state `{state}`: draw it")
    among = re.search(r"`@promise`\s\(([^)]*)\)", text)
    named = set(re.findall(r"`(\w+)`", among[1])) if among else set()
    line = text.count("\n", 0, among.start()) + 1 if among else 1
    promising = {name for name in scripts.NAMES if scripts.load(name).promise}
    for name in sorted(named ^ promising):
        yield at(PROTOCOL, line, f"{name} is either here or has @promise in its head: it should be both or neither")


def _keys() -> list[str]:
    keys = QueueKeys(KEYS.namespace, "q")
    names = [str(getattr(keys, name)) for name in QueueKeys.__slots__ if name not in ("prefix", "tag")]
    parked = [
        ParkedSet.of_route("<route>"),
        ParkedSet.of_topic("<topic>"),
        ParkedSet.of_lane("<topic>", "<ordering key>"),
    ]
    names += [*map(keys.parked, parked), keys.stream("<topic>"), KEYS.meta, KEYS.nodes]
    return [*names, KEYS.rate("<name>"), KEYS.slots("<name>"), KEYS.audit, KEYS.report("<name>")]


def _when_it_is_full(text: str) -> Iterator[str]:
    """The paragraph names the scripts that a full Redis refuses, and those that go on."""
    before, found, after = text.partition("**When it is full**")
    paragraph = after.partition("\n\n")[0]
    line = before.count("\n") + 1
    refused, separator, going_on = paragraph.partition("allow-oom")
    if not found or not separator:
        yield at(REDIS, line, "it needs a paragraph **When it is full** that names the scripts marked allow-oom")
        return
    for name in scripts.NAMES:
        flags = _FLAGS.search(scripts.source(name))
        if flags is None and name != "layout" and f"`{name}`" not in refused:
            yield at(REDIS, line, f"a full Redis refuses `{name}`: name it before allow-oom")
        if flags is not None and flags[1] == "allow-oom" and f"`{name}`" not in going_on:
            yield at(REDIS, line, f"`{name}` goes on when Redis is full: name it after allow-oom")
