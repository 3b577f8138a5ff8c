"""The properties of a message that RabbitMQ delivers, read as AMQP writes them.

The reader of pika raises an error for some values of producers, and so ends the connection. Such values are a time in ms or
before 1970, and tables in tables in tables. It also cuts off the fractions of numbers. Here an unreadable value refuses
only its own message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from typing import Any, Final

import pika

from delayq.base.errors import InvalidMessage

#: The last second of the year 9999.
LAST_SECOND: Final = 253_402_300_799

_FLAGS, _SIZE, _LONG, _SECONDS, _FLOAT = map(Struct, (">H", ">I", ">i", ">q", ">f"))


class ReceivedProperties(pika.BasicProperties):  # type: ignore[misc]  # pika has no types
    """The properties of a message. `refusal` is the reason if they are invalid.

    Headers are text, bool, int, float, Decimal, datetime, bytes, None, or a list of these; a table is an empty dict.
    """

    def __init__(self, encoded: bytes) -> None:
        super().__init__()
        self.refusal: InvalidMessage | None = None
        try:
            self._read(_Encoded(encoded))
        except _TooShort:
            self._refuse("properties", "they end too early")

    def _refuse(self, field: str, reason: str) -> None:
        """The first reason counts; the rest is read all the same, for the message's id."""
        if self.refusal is None:
            self.refusal = InvalidMessage(field, reason)

    def _read(self, encoded: _Encoded) -> None:
        flags = encoded.number(_FLAGS)
        if flags & 1:
            self._refuse("properties", "AMQP has no more than 15 of them")
            return
        for name, read in _FIELDS:
            flags, set_ = (flags << 1) & 0xFFFF, flags & 0x8000
            if set_:
                setattr(self, name, read(self, encoded, name))

    def _short(self, encoded: _Encoded, name: str) -> str:
        return self._text(encoded.take(encoded.take(1)[0]), name.replace("_", "-"), "it is not UTF-8")

    def _text(self, raw: bytes, field: str, reason: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._refuse(field, f"{reason}: {raw!r}")
            return raw.decode(errors="backslashreplace")

    def _octet(self, encoded: _Encoded, _: str) -> int:
        return encoded.take(1)[0]

    def _seconds(self, encoded: _Encoded, _: str) -> int:
        seconds: int = encoded.number(_SECONDS)
        return seconds

    def _table(self, encoded: _Encoded, _: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        table = _Encoded(_bytes(encoded))
        try:
            self._entries(table, found)
        except _TooShort:
            self._refuse("headers", "they end too early")
        return found

    def _entries(self, table: _Encoded, found: dict[str, Any]) -> None:
        while table.is_left:
            name = self._text(table.take(table.take(1)[0]), "headers", "a name is not UTF-8")
            value = _value(table, _VALUES)
            if isinstance(value, _Unreadable):
                self._refuse("headers", f"{name!r}: {value.why}")
                if not value.has_end:
                    break
            else:
                found[name] = value


#: In the order of their flags, from the highest.
_FIELDS: Final[tuple[tuple[str, Callable[[ReceivedProperties, _Encoded, str], Any]], ...]] = (
    ("content_type", ReceivedProperties._short),
    ("content_encoding", ReceivedProperties._short),
    ("headers", ReceivedProperties._table),
    ("delivery_mode", ReceivedProperties._octet),
    ("priority", ReceivedProperties._octet),
    ("correlation_id", ReceivedProperties._short),
    ("reply_to", ReceivedProperties._short),
    ("expiration", ReceivedProperties._short),
    ("message_id", ReceivedProperties._short),
    ("timestamp", ReceivedProperties._seconds),
    ("type", ReceivedProperties._short),
    ("user_id", ReceivedProperties._short),
    ("app_id", ReceivedProperties._short),
    ("cluster_id", ReceivedProperties._short),
)


class _TooShort(Exception):
    """There are fewer bytes than their own sizes say."""


class _Unreadable:
    """An unreadable value, and the reason. `has_end` is true if the beginning of the next value is known."""

    def __init__(self, why: str, *, has_end: bool = True) -> None:
        self.why = why
        self.has_end = has_end


class _Encoded:
    """Bytes to be read from their beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def is_left(self) -> bool:
        """Whether there is more."""
        return self._place < len(self._data)

    def take(self, size: int) -> bytes:
        """Read this number of bytes. Raises _TooShort."""
        end = self._place + size
        if end > len(self._data):
            raise _TooShort
        start, self._place = self._place, end
        return self._data[start:end]

    def number(self, form: Struct) -> Any:
        """A number in this form. Raises _TooShort."""
        return form.unpack(self.take(form.size))[0]


def _value(encoded: _Encoded, readers: Mapping[int, Callable[[_Encoded], Any]]) -> Any:
    """A value with its kind before it."""
    (kind,) = encoded.take(1)
    read = readers.get(kind)
    if read is None:
        return _Unreadable(f"it is of the kind {chr(kind)!r}, which AMQP 0-9-1 does not have", has_end=False)
    return read(encoded)


def _number(form: Struct) -> Callable[[_Encoded], Any]:
    return lambda encoded: encoded.number(form)


def _bytes(encoded: _Encoded) -> bytes:
    return encoded.take(encoded.number(_SIZE))


def _text_or_bytes(encoded: _Encoded) -> str | bytes:
    raw = _bytes(encoded)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _single(encoded: _Encoded) -> float:
    """A number of single precision, as the shortest decimal that means the same: 19.99, not 19.989999771118164."""
    value: float = encoded.number(_FLOAT)
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        with suppress(OverflowError):  # the largest of them, rounded up
            if _FLOAT.pack(short) == _FLOAT.pack(value):
                return short
    return value


def _decimal(encoded: _Encoded) -> Decimal:
    digits, raw = encoded.take(1)[0], encoded.number(_LONG)
    return Decimal((raw < 0, tuple(map(int, str(abs(raw)))), -digits))


def _time(encoded: _Encoded) -> datetime | _Unreadable:
    seconds: int = encoded.number(_SECONDS)
    if not 0 <= seconds <= LAST_SECOND:
        return _Unreadable(f"the time {seconds} is not between 1970 and 9999; AMQP's times are seconds since 1970")
    return datetime.fromtimestamp(seconds, UTC)


def _array(encoded: _Encoded) -> list[Any] | _Unreadable:
    items = _Encoded(_bytes(encoded))
    found: list[Any] = []
    while items.is_left:
        found.append(_value(items, _ITEMS))
        if isinstance(found[-1], _Unreadable) and not found[-1].has_end:
            return _Unreadable(found[-1].why)
    return found


def _skipped(empty: Callable[[], Any]) -> Callable[[_Encoded], Any]:
    def read(encoded: _Encoded) -> Any:
        _bytes(encoded)
        return empty()

    return read


#: Readers by the kind of value. Values in tables are no properties, so tables of any depth are skipped without recursion.
_VALUES: Final[Mapping[int, Callable[[_Encoded], Any]]] = {
    **{ord(kind): _number(Struct(f">{code}")) for kind, code in zip("bBsUuIilLd", "bBhhHiIqqd", strict=True)},
    ord("t"): lambda encoded: encoded.take(1) != b"\0",
    ord("f"): _single,
    ord("D"): _decimal,
    ord("T"): _time,
    ord("S"): _text_or_bytes,
    ord("x"): _bytes,
    ord("A"): _array,
    ord("F"): _skipped(dict),
    ord("V"): lambda _: None,
}
_ITEMS: Final = {**_VALUES, ord("A"): _skipped(list)}
