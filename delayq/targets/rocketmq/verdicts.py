"""The outcome of a message by RocketMQ's answers."""

from __future__ import annotations

from typing import Any, Final

from delayq.targets import OK, Result
from delayq.targets.rocketmq.client import Code, grpc

#: RocketMQ's own names of answers that say: the broker has it, but not as safely as it should. A route may accept them.
ACCEPTABLE: Final = {
    "FLUSH_DISK_TIMEOUT": Code.MASTER_PERSISTENCE_TIMEOUT,
    "FLUSH_SLAVE_TIMEOUT": Code.SLAVE_PERSISTENCE_TIMEOUT,
    "SLAVE_NOT_AVAILABLE": Code.HA_NOT_AVAILABLE,
}
#: The message itself is at fault.
_REJECTED: Final = frozenset({
    Code.ILLEGAL_TOPIC, Code.ILLEGAL_MESSAGE_TAG, Code.ILLEGAL_MESSAGE_KEY, Code.ILLEGAL_MESSAGE_GROUP,
    Code.ILLEGAL_MESSAGE_PROPERTY_KEY, Code.ILLEGAL_MESSAGE_ID, Code.PAYLOAD_TOO_LARGE, Code.MESSAGE_BODY_TOO_LARGE,
    Code.MESSAGE_BODY_EMPTY, Code.REQUEST_HEADER_FIELDS_TOO_LARGE, Code.MESSAGE_PROPERTIES_TOO_LARGE,
    Code.MESSAGE_CORRUPTED,
})  # fmt: skip
#: The proxy took nothing; somebody has to mend it, or to wait.
_UNAVAILABLE: Final = frozenset({
    Code.BAD_REQUEST, Code.ILLEGAL_ACCESS_POINT, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    Code.UNRECOGNIZED_CLIENT_TYPE, Code.CLIENT_ID_REQUIRED, Code.UNAUTHORIZED, Code.PAYMENT_REQUIRED, Code.FORBIDDEN,
    Code.NOT_FOUND, Code.TOPIC_NOT_FOUND, Code.TOO_MANY_REQUESTS, Code.NOT_IMPLEMENTED, Code.UNSUPPORTED,
    Code.VERSION_UNSUPPORTED,
})  # fmt: skip
#: How a proxy may say that it takes one message a request.
_ONE_ONLY: Final = frozenset({Code.BAD_REQUEST, Code.NOT_IMPLEMENTED, Code.UNSUPPORTED, Code.VERSION_UNSUPPORTED})
#: The same as _UNAVAILABLE, in the codes of gRPC.
_NOT_SENT: Final = frozenset({
    grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED,
})  # fmt: skip
#: How gRPC words that there was no connection on which to send.
_NO_CONNECTION: Final = ("failed to connect to all addresses", "DNS resolution failed", "empty address list")


def judge(status: Any, accept: frozenset[int], *, several: bool = False) -> Result:
    """The outcome by the proxy's answer. The codes in `accept` count as OK.

    'rejected' of `several` messages in one request: nothing of it was taken, and each may be sent alone.
    """
    code = status.code
    if code == Code.OK or code in accept:
        return OK
    reason = f"{Code.Name(code) if code in Code.values() else code}: {_shown(status.message)}"
    if code in _REJECTED or (several and code in _ONE_ONLY):
        return Result.rejected(reason)
    return Result.unavailable(reason) if code in _UNAVAILABLE else Result.unknown(reason)


def failed(where: str, error: Any) -> Result:
    """The outcome of a call that ended without an answer."""
    code, details = error.code(), error.details() or ""
    reason = f"{where}: {_shown(details) or code.name}"
    if code is grpc.StatusCode.UNAVAILABLE and details.startswith(_NO_CONNECTION):
        return Result.unavailable(reason)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Result.unknown(f"{where}: no answer in time")
    return Result.unavailable(reason) if code in _NOT_SENT else Result.unknown(reason)


def _shown(text: str) -> str:
    """How it begins, in one line that does nothing to a terminal."""
    return " ".join("".join(one if one.isprintable() else " " for one in text[:2_000]).split())[:300]
