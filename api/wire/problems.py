"""All errors as RFC 9457 `application/problem+json`: the mistake, its place, and the remedy."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, UnsetType

from delayq import (
    ConfigError,
    Conflict,
    InvalidMessage,
    LayoutMismatch,
    NotDevelopment,
    NotDone,
    NotDurable,
    NotReady,
    OtherFilter,
    PoliciesChanged,
    StillDue,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TooManyPending,
    TooManyPolicies,
)
from delayq.answers.problems import PREFIX, ProblemOut
from delayq.answers.service import FindingOut

Headers = tuple[tuple[bytes, bytes], ...]

#: kind → status and title; the kind ends the problem's type.
KINDS: Final[dict[str, tuple[int, str]]] = {
    "invalid": (400, "Invalid request"),
    "unauthorized": (401, "Missing or unknown API key"),
    "forbidden": (403, "Not allowed with this key"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "timeout": (408, "Request timeout"),
    "conflict": (409, "Conflict with the state of the message"),
    "other-filter": (409, "Another filter of the group"),
    "not-development": (409, "Not a development server"),
    "still-due": (409, "Messages are still due"),
    "too-many": (409, "Too many policies or pauses"),
    "changed": (412, "Changed meanwhile"),
    "too-large": (413, "Too large"),
    "unsupported": (415, "Unsupported format of the body"),
    "misdirected": (421, "Wrong host"),
    "rate": (429, "Too many requests of this key"),
    "quota": (429, "Too many waiting messages of this key"),
    "pending": (429, "Too many waiting messages of this topic"),
    "locked": (429, "Too many failed attempts"),
    "head-too-large": (431, "Request head too large"),
    "internal": (500, "Internal error"),
    "unavailable": (503, "Store unavailable"),
    "overloaded": (503, "Overloaded"),
    "not-ready": (503, "Not ready"),
    "full": (507, "Store full"),
}

#: With 401: a key is missing, or it is wrong.
CHALLENGE: Final[Headers] = ((b"www-authenticate", b'Bearer realm="delayq"'),)
WRONG: Final[Headers] = ((b"www-authenticate", b'Bearer realm="delayq", error="invalid_token"'),)
#: Seconds after which to retry: the end of messages is unknown.
RETRY_AFTER: Final = 5
_AWAY: Final = {
    False: "Redis is unreachable, or its reply was lost",
    True: "Redis is unreachable, or refuses commands now",
}
_NOT_DONE: Final = "nothing was done. Repeat the same request, which is safe"
_NOT_DONE_ID: Final = "nothing was done. Repeat with the same id, {id}"
_REPEAT: Final = "the outcome is unknown. Repeat the same request, which is safe"
_REPEAT_ID: Final = "the outcome is unknown. Repeat with the same id, {id}; the message is scheduled once"


class Problem(Exception):
    """Raised by a handler: the answer is this problem. See `KINDS` and `ProblemOut`. `retry_after` is in seconds."""

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
        self.out = ProblemOut(f"{PREFIX}{kind}", title, status, detail, field, id, state, missing, results, findings)


def problem_of(error: Exception) -> Problem:
    """Return any error as a problem. An error that delayq does not raise itself is reported as an internal error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidMessage):
        kind = "too-large" if error.too_large else "invalid"
        return Problem(kind, f"{error.field}: {error.reason}", field=error.field)
    if isinstance(error, Conflict):
        return Problem("conflict", str(error), field="id", id=error.id, state=error.state or UNSET)
    if isinstance(error, OtherFilter):
        return Problem("other-filter", f"{error}.", field="tags")
    if isinstance(error, TooManyPending):
        detail = f"{error}. Cancel some of them, or wait."
        return Problem("pending", detail, retry_after=RETRY_AFTER, field="topic", id=error.id)
    if isinstance(error, TooManyPolicies):
        return Problem("too-many", f"{error}.")
    if isinstance(error, PoliciesChanged):
        return Problem("changed", f"{error}.")
    if isinstance(error, NotDevelopment):
        return Problem("not-development", f"{error}.")
    if isinstance(error, StillDue):
        return Problem("still-due", f"{error}.")
    if isinstance(error, NotReady):  # another server and a repeat cannot help
        return Problem("not-ready", f"{error}.", status=409)
    if isinstance(error, StoreFull):
        detail = "Redis has no memory left, so nothing was scheduled. Deliveries and cancels continue"
        if error.id is None:
            return Problem("full", f"{detail}. Repeat later.")
        return Problem("full", f"{detail}. Repeat later with the same id, {error.id}.", id=error.id)
    if isinstance(error, StoreError):
        # The cause is shown by /readyz alone, because it names hosts.
        away = isinstance(error, StoreUnavailable)
        what = _AWAY[isinstance(error, NotDone)] if away else f"Redis answered with an error ({error})"
        if isinstance(error, NotDurable):
            what = str(error)
        if isinstance(error, StoreRefused):  # its names are shown by /readyz alone
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
            "The API has too little memory, and the outcome is unknown. Repeat later, with the same id if you gave one."
        )
        return Problem("overloaded", detail)
    return Problem("internal", "An internal error of the service. Its log has the details.")
