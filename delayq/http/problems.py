"""Problems of the API (RFC 9457) as the errors that the client of Redis raises."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq.errors import (
    ConfigError,
    Conflict,
    DelayqError,
    InvalidMessage,
    NotAllowed,
    NotDevelopment,
    NotReady,
    OtherFilter,
    PoliciesChanged,
    StillDue,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooManyPending,
    TooManyPolicies,
)
from delayq.http.calls import Answer

__all__ = ["Problem", "error_of", "problem_in"]

_PREFIX: Final = "urn:delayq:problem:"


class Problem(msgspec.Struct):
    """A problem as the API answers it."""

    type: str
    detail: str
    status: int = 0
    field: str = ""
    id: str | None = None
    state: str = ""
    missing: list[str] = []
    results: list[Any] = []

    @property
    def kind(self) -> str:
        """The end of the type, such as 'conflict'."""
        return self.type.removeprefix(_PREFIX)


_decoder = msgspec.json.Decoder(Problem)


def problem_in(answer: Answer, url: str) -> Problem:
    """Return the problem in a refusal. Raises ConfigError if no delayq has written it."""
    try:
        return _decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if answer.status >= 500 or answer.status == 429:  # a proxy before the API
            return Problem("urn:delayq:problem:unavailable", f"{url} answered {answer.status}", answer.status)
        raise ConfigError(
            f"{url} answered {answer.status} without a problem of delayq: is this the URL of its API?"
        ) from None


def error_of(problem: Problem, *, topic: str = "", id: str | None = None) -> DelayqError:
    """Return the error for a problem; `id` is that of the message, if the problem names none."""
    kind, detail = problem.kind, problem.detail.rstrip(".")
    id = problem.id if problem.id is not None else id
    if problem.status in (401, 403):
        return NotAllowed(detail)
    match kind:
        case "invalid" | "too-large":
            field = problem.field or "body"
            return InvalidMessage(field, detail.removeprefix(f"{field}: "), too_large=kind == "too-large")
        case "conflict":
            state = problem.state if problem.state in ("delivered", "cancelled", "removedInFlight", "discarded") else ""
            return Conflict(id or "", state)
        case "other-filter":
            return _made(OtherFilter, detail, group="", tags=())
        case "pending" | "quota":
            return _made(TooManyPending, detail, id=id or "", topic=topic)
        case "too-many":
            return _made(TooManyPolicies, detail, kind="", most=0, of_key=False)
        case "changed":
            return PoliciesChanged(detail)
        case "not-development":
            return NotDevelopment(detail)
        case "still-due":
            return _made(StillDue, detail, due=0, behind=[])
        case "not-ready" if problem.status == 409:
            return NotReady(detail)
        case "full":
            return _about(StoreFull(detail), id)
        case "internal":
            return _about(StoreError(f"the API failed ({detail}): the outcome is unknown"), id)
    if problem.status in (429, 502, 503, 504):
        return _about(StoreUnavailable(detail), id)
    return StoreError(detail)


def _about(error: StoreError, id: str | None) -> StoreError:
    return error if id is None else error.about(id)


def _made(type: type[DelayqError], detail: str, **attributes: Any) -> DelayqError:
    """Return an error of this type with the sentence of the API, whatever arguments its `__init__` takes."""
    error = type.__new__(type, detail)
    error.__dict__.update(attributes)
    return error
