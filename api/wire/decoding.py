"""JSON from outside: decoded into a type, or refused with the place where it is wrong."""

from __future__ import annotations

import re
from typing import Final, NoReturn, TypeVar

import msgspec
from msgspec import UNSET

from api.wire.problems import Problem

__all__ = ["decode", "locate"]

T = TypeVar("T")

#: What to write instead, by the last name in the path of a field.
MEND: Final = {
    "delayTime": "write ms as a whole number, or a duration such as '30m' or 'PT30M'",
    "expireAfter": "write ms as a whole number, or a duration such as '30m' or 'PT30M'",
    "expectDate": "write a date such as '2027-01-31T08:00:00Z', or Unix ms as a whole number",
    "delayLevel": "write a whole number from 1",
    "maxAttempts": "write a whole number from 1",
    "keys": "write an array of strings",
    "properties": "write an object whose values are strings",
}
_AT = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_NAMED = re.compile(r"(unknown|required) field `(.*)`", re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_FAR: Final = 65_536  # how far into a request a field's name is looked for: it costs time on the event loop


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """The JSON text as the decoder's type; raises a Problem that says where and how to mend it.

    A `Raw` is a part of a text that was decoded before.
    """
    try:
        if type(raw) is bytes and not raw.isascii():
            raw.decode()  # what is skipped as it is (a body) has to be text, too
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        _wrong_type(str(error))
    except UnicodeDecodeError as error:
        _malformed(bytes(raw), error.start, f"byte {error.start} is not UTF-8")
    except msgspec.DecodeError as error:
        _not_json(bytes(raw), str(error))
    except RecursionError:
        raise Problem("invalid", "The JSON is nested too deeply; a few hundred levels are taken.") from None


def _wrong_type(message: str) -> NoReturn:
    match = _AT.match(message)
    assert match is not None
    reason, path = match.group(1), (match.group(2) or "").lstrip(".")
    if (named := _NAMED.search(reason)) is not None:
        field = f"{path}.{named.group(2)}".lstrip(".")
        _refuse(f"{field}: {'is missing' if named.group(1) == 'required' else 'there is no such field'}", field)
    reason = reason[:1].lower() + reason[1:].replace("`", "")
    mend = MEND.get(re.sub(r"\[.*?\]$", "", path).rpartition(".")[2])
    _refuse(": ".join(filter(None, (path, reason))) + (f"; {mend}" if mend else ""), path)


def _not_json(raw: bytes, message: str) -> NoReturn:
    at = _BYTE.search(message)
    reason = message.removeprefix("JSON is malformed: ")
    if at is not None:
        _malformed(raw, int(at.group(1)), _BYTE.sub(f"at byte {at.group(1)}", reason))
    if not raw:
        raise Problem("invalid", "The body is empty; send a JSON object.")
    # The decoder says 'truncated' also of a lone surrogate just before the end of a string.
    lone = re.search(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"', raw[-_FAR:])
    if lone is not None:
        start = max(0, len(raw) - _FAR) + lone.start()
        _malformed(raw, start, f"a lone surrogate at byte {start}, which is no Unicode text")
    _malformed(raw, len(raw), "it ends too early")


def _malformed(raw: bytes, offset: int, reason: str) -> NoReturn:
    field = locate(raw, offset)
    nan = raw[offset : offset + 1] in (b"N", b"I")
    hint = "; NaN and Infinity are not JSON" if nan else ""
    where = f" (in {field})" if field else ""
    _refuse(f"The JSON is malformed: {reason}{where}{hint}", field)


def _refuse(detail: str, field: str) -> NoReturn:
    raise Problem("invalid", f"{detail}.", field=field[:200] or UNSET)


def locate(raw: bytes, offset: int) -> str:
    """The path ('messages[3].delayTime') of what stands at `offset` of a JSON text; '' when that is not known."""
    if offset > _FAR:
        return ""
    stack: list[list[bytes | int | None]] = []  # of each open object its member's name, of each array an index
    for match in _TOKEN.finditer(raw, 0, offset):
        token = match.group()
        if token == b"{":
            stack.append([None])
        elif token == b"[":
            stack.append([0])
        elif token in b"}]":
            del stack[-1:]
        elif not stack:
            continue
        elif token == b",":
            index = stack[-1][0]
            stack[-1][0] = index + 1 if isinstance(index, int) else None
        elif stack[-1][0] is None:
            stack[-1][0] = token.strip(b'"')
    path = ""
    for (place,) in stack[:8]:
        if isinstance(place, int):
            path += f"[{place}]"
        elif place is not None:
            path += "." + place.decode(errors="replace")
    return path.lstrip(".")
