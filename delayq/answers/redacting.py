"""Redacts parts of bodies by JSON paths such as `$.card` or `$.items[*].name`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from delayq.answers.messages import MessageOut

#: The text in place of a redacted part.
HIDDEN: Final = "[redacted]"
_text = msgspec.json.Decoder(str)
_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+|\*)\]")


def redact(message: MessageOut, paths: Iterable[str]) -> None:
    """Redact the parts of a message's body at the paths, if the body is JSON, also as text or as bytes."""
    steps = [[name or place for name, place in _STEP.findall(path)] for path in paths]
    if isinstance(message.body_base64, str):
        shown = _shown(base64.b64decode(message.body_base64), steps)
        message.body_base64 = base64.b64encode(shown).decode()
    elif isinstance(message.body, Raw):
        body = bytes(message.body)
        if body.startswith(b'"'):  # a text, which may have JSON in it
            shown = msgspec.json.encode(_shown(_text.decode(body).encode(), steps).decode())
        else:
            shown = _shown(body, steps)
        message.body = Raw(shown)


def _shown(text: bytes, paths: Sequence[Sequence[str]]) -> bytes:
    """Return the text with the parts at the paths redacted, if it is JSON or almost JSON."""
    try:
        known = text.decode(json.detect_encoding(text), "surrogateescape")
        value = json.loads(
            known, strict=False, parse_int=_as_it_came, parse_float=_as_it_came, parse_constant=_as_it_came
        )
    except RecursionError:  # nested too deeply to find the parts
        return msgspec.json.encode(HIDDEN)
    except ValueError:
        return text
    for path in paths:
        value = _without(value, path)
    try:
        return msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
        return msgspec.json.encode(HIDDEN)


def _as_it_came(number: str) -> Raw:
    """Return a number with all its digits."""
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
