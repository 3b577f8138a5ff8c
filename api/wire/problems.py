"""Everything that goes wrong, as RFC 9457 `application/problem+json`: what is wrong, where, and how to mend it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq import (
    ConfigError,
    Conflict,
    InvalidMessage,
    LayoutMismatch,
    NotDevelopment,
    NotDone,
    NotDurable,
    NotReady,
    PoliciesChanged,
    StillDue,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TooManyPending,
    TooManyPolicies,
)
from delayq.answers.service import FindingOut

__all__ = ["CHALLENGE", "KINDS", "RETRY_AFTER", "WRONG", "Headers", "Problem", "ProblemOut", "problem_of"]

Headers = tuple[tuple[bytes, bytes], ...]

#: kind → status and title; the kind ends the problem's type.
KINDS: Final[dict[str, tuple[int, str]]] = {
    "invalid": (400, "The request is wrong"),
    "unauthorized": (401, "A key is missing, or not known"),
    "forbidden": (403, "The key does not allow it"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This path does not take that method"),
    "timeout": (408, "The request did not arrive in time"),
    "conflict": (409, "The state of the message does not allow it"),
    "not-development": (409, "This is not a development server"),
    "still-due": (409, "Something is due and not delivered"),
    "too-many": (409, "There are too many already"),
    "changed": (412, "It has been changed meanwhile"),
    "too-large": (413, "Too large"),
    "unsupported": (415, "The body is in a form that is not taken"),
    "misdirected": (421, "Not meant for this service"),
    "rate": (429, "Too many requests of this key"),
    "quota": (429, "Too many messages of this key are waiting"),
    "pending": (429, "Too many messages of this topic are waiting"),
    "locked": (429, "Too many attempts that failed"),
    "head-too-large": (431, "The head of the request is too large"),
    "internal": (500, "Something is broken here"),
    "unavailable": (503, "The store is away"),
    "overloaded": (503, "Too much is waiting"),
    "not-ready": (503, "Not ready"),
    "full": (507, "The store is full"),
}

#: With 401: that a key is missing, or that it is wrong.
CHALLENGE: Final[Headers] = ((b"www-authenticate", b'Bearer realm="delayq"'),)
WRONG: Final[Headers] = ((b"www-authenticate", b'Bearer realm="delayq", error="invalid_token"'),)
#: Seconds after which to try again: when messages end is not known.
RETRY_AFTER: Final = 5
_AWAY: Final = {False: "Redis is away, or its reply was lost", True: "Redis is away, or takes nothing now"}
_NOT_DONE: Final = "nothing was done, and repeating the very same request is safe"
_NOT_DONE_ID: Final = "nothing was done: repeat with the same id, {id}"
_REPEAT: Final = "the outcome is unknown, and repeating the very same request is safe"
_REPEAT_ID: Final = "the outcome is unknown: repeat with the same id, {id}, and it is scheduled once"


#: The results of a request of many parts of which every one failed.
_RESULTS: Final = {"items": {"$ref": "#/components/schemas/ResultOut"}}


class ProblemOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """What is wrong. `type` names the kind for programs, `detail` says it for people, `field` says where."""

    type: str
    title: str
    status: int
    detail: str
    field: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    missing: list[str] | UnsetType = UNSET
    results: Annotated[list[Any], Meta(extra_json_schema=_RESULTS)] | UnsetType = UNSET
    findings: list[FindingOut] | UnsetType = UNSET


class Problem(Exception):
    """Raised by a handler: the answer is this problem; see `KINDS` and `ProblemOut`. `retry_after` is in seconds."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        status: int | None = None,
        headers: Headers = (),
        retry_after: int = 1,
        field: str | UnsetType = UNSET,
        id: str | UnsetType = UNSET,
        state: str | UnsetType = UNSET,
        missing: list[str] | UnsetType = UNSET,
        results: list[Any] | UnsetType = UNSET,
        findings: list[FindingOut] | UnsetType = UNSET,
    ) -> None:
        super().__init__(detail)
        usual, title = KINDS[kind]
        status = status or usual
        self.kind = kind
        if status in (429, 503, 507):
            headers += ((b"retry-after", b"%d" % retry_after),)
        self.headers = headers
        self.out = ProblemOut(
            f"urn:delayq:problem:{kind}", title, status, detail, field, id, state, missing, results, findings
        )


def problem_of(error: Exception) -> Problem:
    """Any error as a problem; one that delayq does not raise by itself is told as a fault of this service."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidMessage):
        kind = "too-large" if error.too_large else "invalid"
        return Problem(kind, f"{error.field}: {error.reason}", field=error.field)
    if isinstance(error, Conflict):
        return Problem("conflict", str(error), field="id", id=error.id, state=error.state or UNSET)
    if isinstance(error, TooManyPending):
        detail = f"A policy says: {error}; cancel some, or wait."
        return Problem("pending", detail, retry_after=RETRY_AFTER, field="topic", id=error.id)
    if isinstance(error, TooManyPolicies):
        return Problem("too-many", f"{error}.")
    if isinstance(error, PoliciesChanged):
        return Problem("changed", f"{error}.")
    if isinstance(error, NotDevelopment):
        return Problem("not-development", f"{error}.")
    if isinstance(error, StillDue):
        return Problem("still-due", f"{error}.")
    if isinstance(error, NotReady):  # it is not this service, and no repeat will help
        return Problem("not-ready", f"{error}.", status=409)
    if isinstance(error, StoreFull):
        detail = "Redis has no memory left, and nothing was scheduled; delivering and cancelling go on"
        if error.id is None:
            return Problem("full", f"{detail}. Repeat later.")
        return Problem("full", f"{detail}. Repeat with the same id, {error.id}, later.", id=error.id)
    if isinstance(error, StoreError):
        # Why it is away is for /readyz: it names hosts.
        away = isinstance(error, StoreUnavailable)
        what = _AWAY[isinstance(error, NotDone)] if away else f"Redis answered with an error ({error})"
        if isinstance(error, NotDurable):
            what = str(error)
        if isinstance(error, StoreRefused):  # what it names is for /readyz, too
            what = "Redis does not allow this service to do that"
        not_done = isinstance(error, (NotDone, StoreRefused))
        done, done_id = (_NOT_DONE, _NOT_DONE_ID) if not_done else (_REPEAT, _REPEAT_ID)
        if error.id is None:
            return Problem("unavailable", f"{what}; {done}.")
        return Problem("unavailable", f"{what}; {done_id.format(id=error.id)}.", id=error.id)
    if isinstance(error, (ConfigError, LayoutMismatch)):
        return Problem("not-ready", f"{error}; nothing was done.")
    if isinstance(error, MemoryError):
        detail = (
            "The API has too little memory; the outcome is unknown. Repeat later, with the same id if you gave one."
        )
        return Problem("overloaded", detail)
    return Problem("internal", "This is a fault of the service; its log says more.")
