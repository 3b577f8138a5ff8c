"""For receivers of webhooks: check the signature of a request, and read the message from its headers.

    message = verify_webhook(request.headers, request.body, "whsec_…")

The headers are those of CloudEvents 1.0, and the signature is that of Standard Webhooks.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from delayq.base.clock import Clock, SystemClock
from delayq.base.errors import DelayqError
from delayq.base.times import parse_instant
from delayq.received import Received

__all__ = ["Received", "SignatureError", "read_webhook", "verify_webhook"]

#: Seconds between the signature and now, at most.
TOLERANCE: Final = 300
_PREFIX: Final = "whsec_"
_properties = msgspec.json.Decoder(dict[str, str])


class SignatureError(DelayqError):
    """The request was not signed by this delayq, or it was signed too long ago. Answer it with 401."""


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Sequence[str],
    *,
    tolerance: int = TOLERANCE,
    clock: Clock | None = None,
) -> Received:
    """Return the message of a request that delayq signed within the last `tolerance` seconds. Raises SignatureError.

    `body` are the bytes as they arrived. `secret` is the route's; give both secrets while you change them.
    """
    found = _lower(headers)
    id, timestamp, signatures = (found.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id and timestamp and signatures):
        raise SignatureError("the request is not signed")
    signed = f"{id}.{timestamp}.".encode() + body
    secrets = [secret] if isinstance(secret, str) else secret
    expected = [b"v1," + base64.b64encode(hmac.digest(_key(one), signed, "sha256")) for one in secrets]
    given = [one.encode() for one in signatures.split(" ")]
    if not any(hmac.compare_digest(one, other) for one in expected for other in given):
        raise SignatureError("the signature is wrong")
    now = (clock or SystemClock()).now() / 1000
    if (
        not timestamp.isascii()
        or not timestamp.isdigit()
        or len(timestamp) > 15
        or abs(now - int(timestamp)) > tolerance
    ):
        raise SignatureError("it was signed too long ago: it may be a replay")
    # Only the id, the time and the body are signed: the id of the message is the signed one.
    return msgspec.structs.replace(read_webhook(headers, body), id=id.replace("~", "."))


def read_webhook(headers: Mapping[str, str], body: bytes) -> Received:
    """Return the message of a request whose signature was checked before. Raises SignatureError if delayq did not send it."""
    found = _lower(headers)
    try:
        return Received(
            id=found["ce-id"],
            topic=unquote(found["ce-type"]),
            due=parse_instant(found["ce-time"]),
            attempt=int(found.get("ce-attempt", "1")),
            tags=unquote(found.get("ce-tags", "")),
            keys=tuple(unquote(found.get("ce-keys", "")).split()),
            ordering_key=unquote(found.get("ce-partitionkey", "")),
            properties=_properties.decode(found.get("delayq-properties", "{}")),
            body=body,
            content_type=found.get("content-type", ""),
        )
    except KeyError as error:
        raise SignatureError(f"{error.args[0]} is missing: delayq did not send this message") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise SignatureError(f"a header is malformed ({error}): delayq did not send this message") from None


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_PREFIX))
