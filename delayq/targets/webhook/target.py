"""An HTTP endpoint: each message is a POST with the headers of CloudEvents 1.0 and the signature of Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Final
from urllib.parse import quote

import msgspec

from delayq.base.clock import Clock, SystemClock
from delayq.base.errors import ConfigError
from delayq.base.secrets import revealed
from delayq.base.times import format_instant
from delayq.base.written import options_as
from delayq.domain.message import TRACEPARENT
from delayq.domain.routes import Route
from delayq.targets import OK, Delivery, Result
from delayq.targets.webhook.connections import FAILURES, Connection, Connections
from delayq.targets.webhook.egress import Egress, Refused, endpoint_of, literal
from delayq.targets.webhook.path import check_topic_in, filled, refusal

# Imported after `connections`, which names the missing extra.
import httpcore2  # isort: skip

#: The largest part of an answer that is read, in bytes, and in ms after its status.
MOST_READ: Final = 64 * 1024
READ_FOR: Final = 2_000
#: These 4xx mean that nothing was accepted now, for any message.
LATER: Final = frozenset({425, 429})
#: These say no more than that this request failed: as a 500 does.
OPEN: Final = frozenset({408, 409})
#: The headers that delayq sets; a route must not set them.
RESERVED: Final = frozenset({
    "connection", "content-length", "content-type", "expect", "host", "idempotency-key", "keep-alive",
    "proxy-authorization", "proxy-connection", "te", "trailer", "traceparent", "transfer-encoding", "upgrade", "user-agent",
})  # fmt: skip
RESERVED_PREFIXES: Final = ("ce-", "delayq-", "webhook-")

_TOKEN = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)
#: CloudEvents writes all but visible ASCII, and of that '"' and '%', in per cents.
_PLAIN = "".join(map(chr, range(0x21, 0x7F))).translate({ord('"'): None, ord("%"): None})


class _Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `options` of a route. A secret is 'env:NAME', 'file:PATH', or itself. Times are ms."""

    secret: str | tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    content_type: str = ""
    source: str = "/delayq"
    connect_timeout: int = 5_000
    ca: str = ""
    final_statuses: Sequence[int] = ()
    retried_statuses: Sequence[int] = ()


class WebhookTarget:
    """Sends each message by itself, each over a connection that no other send uses meanwhile.

    At least once: an answer that was lost or not good is asked for again, with the same id.
    """

    max_batch = 1

    def __init__(self, url: str, route: Route, redis_url: str, *, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        try:
            options = options_as(_Options, route.options)
            check_topic_in(url)
            self._endpoint = endpoint_of(url)
            self._egress = Egress(route.allow)
            if literal(self._endpoint):  # no other attempt would find another one
                self._egress.addresses(self._endpoint, 0)
            if options.connect_timeout < 1:
                raise ValueError("connectTimeout is at least 1")
            secrets = (options.secret,) if isinstance(options.secret, str) else options.secret
            self._keys = [_key(revealed(one, "secret")) for one in secrets]
            self._own = _own_headers(options.headers)
            self._final = _statuses(options.final_statuses, "finalStatuses")
            self._retried = _statuses(options.retried_statuses, "retriedStatuses")
            if both := self._final & self._retried:
                raise ValueError(f"finalStatuses and retriedStatuses both contain {min(both)}")
            words = {word for _, value in self._own for word in (value.decode(), *value.decode().split())}
            self._hidden = sorted((word for word in words if len(word) >= 6), key=len, reverse=True)
            self._content_type = _value(options.content_type, "contentType") if options.content_type else ""
            self._source = quote(options.source, safe=_PLAIN)
            tls = ssl.create_default_context(cafile=options.ca or None) if self._endpoint.scheme == "https" else None
        except (ValueError, OSError, Refused, msgspec.ValidationError) as error:
            raise ConfigError(f"route {route.name}: the webhook cannot be used: {error}") from None
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])
        self._connect_timeout = options.connect_timeout
        self._connections = Connections(self._endpoint, tls, self._clock)
        self._agent = f"delayq/{version('delayq')}"

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Send one after the other."""
        deadline = self._clock.monotonic() + int(timeout * 1000)
        return [self._send(one, deadline) for one in batch]

    def _send(self, one: Delivery, deadline: int) -> Result:
        where = self._endpoint.authority
        if why := refusal(self._endpoint.target, one.topic):
            return Result.rejected(why)
        left = deadline - self._clock.monotonic()
        if left <= 0:
            return Result.unavailable(f"{where}: no time was left to send it")
        try:
            addresses = self._egress.addresses(self._endpoint, left / 1000)
            connection = self._connections.take(addresses, deadline, self._connect_timeout)
        except (Refused, OSError) as error:
            return Result.unavailable(f"{where}: {error}")
        response = None
        try:
            response = connection.http.handle_request(self._request(one))
            excerpt = self._rest(response, connection)
            second = connection.second_status()
        except FAILURES as error:
            return Result.unknown(f"{where}: no answer ({_shown(str(error)) or type(error).__name__})")
        finally:
            self._connections.give_back(connection, response)  # which closes it unless the answer was read to its end
        return self._judge(response, second, excerpt)

    def _rest(self, response: httpcore2.Response, connection: Connection) -> str:
        """Read the rest of the answer, so that the connection can be used again; how it begins.

        The status has decided already: what goes wrong here only ends the connection.
        """
        connection.wire.deadline = min(connection.wire.deadline, self._clock.monotonic() + READ_FOR)
        read = bytearray()
        try:
            for some in response.iter_stream():
                read += some
                if len(read) > MOST_READ:
                    break
        except FAILURES:
            pass
        finally:
            response.close()
        text = read.decode(errors="replace")
        for word in self._hidden:  # an answer may repeat what it was asked
            text = text.replace(word, "***")
        return _shown(text)

    def _judge(self, response: httpcore2.Response, second: int | None, excerpt: str) -> Result:
        outcome = self._outcome(response.status)
        doubtful = second is not None and self._outcome(second) != outcome
        if outcome == "ok" and not doubtful:
            return OK
        answered = f"{response.status} and {second or 'more'}" if doubtful else response.status
        reason = f"{self._endpoint.authority} answered {answered}" + (f": {excerpt}" if excerpt else "")
        after = self._after(response)
        if doubtful:
            return Result.unknown(f"{reason} (two answers to one request, one of them to an earlier request)", after)
        if outcome == "unavailable":
            if 300 <= response.status < 400:
                reason += " (redirects are not followed: give the route the new address)"
            return Result.unavailable(reason, after)
        return Result.rejected(reason) if outcome == "rejected" else Result.unknown(reason, after)

    def _outcome(self, status: int) -> str:
        """The outcome of a message by the status of its answer."""
        if 200 <= status < 300:
            return "ok"
        if status in self._final:
            return "rejected"
        if 300 <= status < 400 or status in LATER or status == 503:
            return "unavailable"
        return "rejected" if 400 <= status < 500 and status not in OPEN | self._retried else "unknown"

    def _after(self, response: httpcore2.Response) -> int:
        """ms by Retry-After, a number of seconds or a date; 0 without a good one."""
        given = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
        text = given.decode("latin-1")
        if re.fullmatch("[0-9]{1,9}", text):
            return int(text) * 1000
        if not _DATE.fullmatch(text):
            return 0
        try:
            return max(0, int(parsedate_to_datetime(text).timestamp() * 1000) - self._clock.now())
        except (ValueError, OverflowError):  # the 31st of February
            return 0

    # -- the request ---------------------------------------------------------------------------------------------------

    def _request(self, one: Delivery) -> httpcore2.Request:
        end = self._endpoint
        target = filled(end.target, one.topic)
        url = httpcore2.URL(scheme=end.scheme, host=end.host, port=end.port, target=target)
        return httpcore2.Request("POST", url, headers=self.headers(one), content=one.payload)

    def headers(self, one: Delivery) -> list[tuple[bytes, bytes]]:
        """All headers of the message's request, signed as of now."""
        seconds = self._clock.now() // 1000
        found = {
            "host": self._endpoint.authority,
            "user-agent": self._agent,
            "content-type": self._content_type or one.content_type,
            "content-length": str(len(one.payload)),
            "idempotency-key": quote(one.id, safe=_PLAIN),
            "ce-specversion": "1.0",
            "ce-id": quote(one.id, safe=_PLAIN),
            "ce-source": self._source,
            "ce-type": quote(one.topic, safe=_PLAIN),
            "ce-time": format_instant(one.due),
            "ce-attempt": str(one.attempt),
        }
        for name, value in (("tags", one.tags), ("keys", " ".join(one.keys)), ("partitionkey", one.ordering_key)):
            if value:
                found[f"ce-{name}"] = quote(value, safe=_PLAIN)
        if _TRACEPARENT.fullmatch(trace := one.properties.get(TRACEPARENT, "")):
            found["traceparent"] = trace  # the receiver's spans belong to the trace in which it was scheduled
        if one.properties:
            text = json.dumps(dict(one.properties), separators=(",", ":"))
            found["delayq-properties"] = text.replace("\x7f", "\\u007f")  # the one control character that it leaves
        if self._keys:
            # A dot in the id would leave open where it ends in the text that is signed.
            id = quote(one.id, safe=_PLAIN).replace(".", "~")
            found["webhook-id"] = id
            found["webhook-timestamp"] = str(seconds)
            found["webhook-signature"] = " ".join(_sign(key, id, seconds, one.payload) for key in self._keys)
        return [(name.encode(), value.encode()) for name, value in found.items()] + self._own

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


def _sign(key: bytes, id: str, seconds: int, body: bytes) -> str:
    """The signature, as Standard Webhooks writes it."""
    digest = hmac.digest(key, f"{id}.{seconds}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


def _shown(text: str) -> str:
    """How it begins, in one line that does nothing to a terminal."""
    return " ".join("".join(one if one.isprintable() else " " for one in text[:2_000]).split())[:200]


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise ValueError("secret is 'whsec_' and the base64 of 24 to 64 random bytes")
    return key


def _own_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    found = []
    for name, text in headers.items():
        low = name.lower()
        if not _TOKEN.fullmatch(low):
            raise ValueError(f"headers: {name!r} is no name of a header")
        if low in RESERVED or low.startswith(RESERVED_PREFIXES):
            raise ValueError(f"headers: {low} is not for a route to give")
        found.append((low.encode(), _value(revealed(text, f"headers: {low}"), f"headers: {low}").encode()))
    if len({name for name, _ in found}) != len(found):
        raise ValueError("headers: a name is given twice")
    return found


def _statuses(given: Sequence[int], what: str) -> frozenset[int]:
    for status in given:
        if not 300 <= status <= 599:
            raise ValueError(f"{what}: {status} is no status from 300 to 599 (2xx always means delivered)")
    return frozenset(given)


def _value(text: str, what: str) -> str:
    if not _VALUE.fullmatch(text):
        raise ValueError(f"{what}: a header's value is visible ASCII, without line breaks and spaces around it")
    return text
