"""Parts of bodies that are not shown: JSON paths such as `$.card` or `$.items[*].name`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from delayq.answers.messages import MessageOut

__all__ = ["HIDDEN", "redact"]

#: Stands for what is not shown.
HIDDEN: Final = "[redacted]"
_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+|\*)\]")


def redact(message: MessageOut, paths: Iterable[str]) -> None:
    """Take out of the body of a message what stands at the paths, if it is JSON: also as text, or as bytes."""
    steps = [[name or place for name, place in _STEP.findall(path)] for path in paths]
    if isinstance(message.body_base64, str):
        shown = _shown(base64.b64decode(message.body_base64), steps)
        message.body_base64 = base64.b64encode(shown).decode()
    elif isinstance(message.body, Raw):
        shown = _shown(bytes(message.body), steps)
        message.body = Raw(shown)
    elif isinstance(message.body, str):
        message.body = _shown(message.body.encode(), steps).decode()


def _shown(text: bytes, paths: Sequence[Sequence[str]]) -> bytes:
    """The text; without what stands at the paths, if it is JSON, or would be but for a character."""
    try:
        known = text.decode(json.detect_encoding(text), "surrogateescape")
        value = json.loads(
            known, strict=False, parse_int=_as_it_came, parse_float=_as_it_came, parse_constant=_as_it_came
        )
    except RecursionError:  # nested so deep that nobody can say what stands there
        return msgspec.json.encode(HIDDEN)
    except ValueError:
        return text
    for path in paths:
        value = _without(value, path)
    try:
        return msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):  # half a pair of surrogates: JSON may name it, UTF-8 has none
        return msgspec.json.encode(HIDDEN)


def _as_it_came(number: str) -> Raw:
    """Numbers keep all their digits."""
    return Raw(number.encode())


def _without(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return HIDDEN
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        if first in value:
            value[first] = _without(value[first], rest)
    elif isinstance(value, list):
        if first == "*":
            return [_without(one, rest) for one in value]
        if first.isdigit() and int(first) < len(value):
            value[int(first)] = _without(value[int(first)], rest)
    return value
