"""Requests as bytes, the JSON of messages, and how long a call is repeated. Nothing here does I/O."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from delayq.base import json_text
from delayq.base.errors import ConfigError, InvalidMessage
from delayq.domain.codec import json_of
from delayq.domain.message import Message
from delayq.store.keys import new_id

#: The bounds of one request. The API's own defaults are as high or higher.
MOST_IDS: Final = 1_000
MOST_KEYS: Final = 100
MOST_BYTES: Final = 4 * 1024 * 1024
#: ms before the second attempt, and at most before another one.
FIRST_PAUSE: Final = 100
LONGEST_PAUSE: Final = 5_000
#: Statuses after which the same request is sent again.
REPEATED: Final = frozenset({429, 503})
T = TypeVar("T")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `extra` (ms) is what the server may need besides the usual time; `id` names the message in errors.

    `may_repeat` is False for a call that would be done twice if it is sent again after a lost answer.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    extra: int = 0
    id: str | None = None
    may_repeat: bool = True


class Answer(msgspec.Struct, frozen=True):
    """The status, the body, and after how many ms the server asks for another attempt.

    `content_type` is empty if the server names none, and `location` is the target of a redirect.
    """

    status: int
    body: bytes
    retry_after: int = 0
    content_type: str = ""
    location: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the call succeeded."""
        return 200 <= self.status < 300


class Base:
    """The address of an API, and the bytes of the requests to it."""

    def __init__(self, url: str, api_key: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"the URL of the API is wrong: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the URL of the API is wrong: write it as https://host or http://host:8080")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError(
                "the URL of the API is wrong: it has no user, query or fragment; the key is DELAYQ_API_KEY"
            )
        if api_key and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ConfigError("the key of the API is wrong: it has characters that no key has")
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.is_tls else 80)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
        authorization = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = f"host: {parts.netloc}\r\naccept: application/json\r\nuser-agent: delayq-python\r\n{authorization}"

    def request(self, call: Call) -> bytes:
        """Return the bytes of a request."""
        query = f"?{urlencode(call.query, quote_via=quote)}" if call.query else ""
        lines = [f"{call.method} {self._path}{call.path}{query} HTTP/1.1\r\n{self._head}"]
        lines += [f"{name}: {value}\r\n" for name, value in call.headers.items()]
        if call.body is not None:
            lines.append(f"content-type: application/json\r\ncontent-length: {len(call.body)}\r\n")
        elif call.method != "GET":
            lines.append("content-length: 0\r\n")
        return "".join([*lines, "\r\n"]).encode() + (call.body or b"")


class Attempts:
    """How long a call is repeated: up to `longest` ms from `began`, both by the precise monotonic clock."""

    def __init__(self, began: float, longest: int) -> None:
        self._end = began + longest
        self._pause = float(FIRST_PAUSE)

    def pause(self, now: float, retry_after: int = 0) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the time does not suffice for it."""
        pause = max(retry_after, self._pause * random.uniform(0.5, 1))  # no secret
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return None if now + pause > self._end else pause / 1000


class Sized(msgspec.Struct, frozen=True):
    """A message as JSON, with the id that it has before the first attempt, and its place in the call."""

    place: int
    id: str
    json: msgspec.Raw


def message_json(message: Message, place: int = 0, id_prefix: str = "") -> Sized:
    """Return the JSON of a message. Raises InvalidMessage only for what JSON cannot carry; the API checks the rest."""
    if not isinstance(message, Message):
        raise InvalidMessage("message", f"item {place} has the type {type(message).__name__}; it has to be a Message")
    body: Any = message.body
    id = message.id if message.id is not None else id_prefix + new_id()
    fields: dict[str, Any] = {
        "topic": message.topic,
        "id": id,
        "delayTime": message.delay_time,
        "expectDate": message.expect_date,
        "delayLevel": message.delay_level,
        "tags": message.tags or None,
        "keys": message.keys or None,
        "properties": message.properties or None,
        "orderingKey": message.ordering_key or None,
        "maxAttempts": message.max_attempts,
        "expireAfter": message.expire_after,
        "window": message.window,
        "again": message.again or None,
    }
    if message.again and message.id is None:
        raise InvalidMessage("again", "is True only for a message with an id of your own")
    if isinstance(body, (bytes, bytearray, memoryview)):
        fields["bodyBase64"] = base64.b64encode(body).decode()
    elif isinstance(body, str):
        fields["body"] = body
    else:
        text = json_of(body)
        # The API takes a JSON string as text. With its quotes, the text has the same bytes as the JSON.
        fields["body"] = text.decode() if text.startswith(b'"') else msgspec.Raw(text)
    try:
        return Sized(place, id, msgspec.Raw(json_text.encode({k: v for k, v in fields.items() if v is not None})))
    except UnicodeEncodeError:
        raise InvalidMessage("body", "has a text that is not valid Unicode (a lone surrogate); send bytes") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidMessage("message", f"is no JSON ({error})") from None


def hand_back_json(message: Message, more: Mapping[str, Any]) -> msgspec.Raw:
    """Return the JSON of a message that is handed back, with more fields. Raises InvalidMessage as `message_json` does."""
    # `message_json` writes it as text
    is_text = isinstance(message.body, msgspec.Raw) and bytes(message.body).startswith(b'"')
    more = {**more, "contentType": "application/json" if is_text else None}
    added = msgspec.json.encode({name: value for name, value in more.items() if value is not None})
    return msgspec.Raw(bytes(message_json(message).json)[:-1] + b"," + added[1:])


def split(messages: Sequence[Sized]) -> Iterator[Sequence[Sized]]:
    """Split messages into batches of at most MOST_IDS messages and about MOST_BYTES bytes."""
    begin = size = 0
    for place, one in enumerate(messages):
        length = len(bytes(one.json)) + 1
        if place > begin and (place - begin >= MOST_IDS or size + length > MOST_BYTES):
            yield messages[begin:place]
            begin, size = place, 0
        size += length
    if begin < len(messages):
        yield messages[begin:]
