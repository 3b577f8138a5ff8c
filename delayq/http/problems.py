"""Problems of the API (RFC 9457) as the errors that the client of Redis raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from delayq.base.errors import (
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

T = TypeVar("T")
_PREFIX: Final = "urn:delayq:problem:"
#: How the API answers a path that it does not have. Other calls that are 404 name a message, a topic or a policy.
_UNKNOWN_PATH: Final = "Unknown path"
#: The most characters of a redirect's target that an error names.
_MOST_LOCATION: Final = 200


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
        problem = _decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = None
    if problem is not None and problem.type.startswith(_PREFIX):
        if problem.kind == "not-found" and problem.detail.startswith(_UNKNOWN_PATH):
            raise ConfigError(f"{url} has no such path: is this the URL of its API?")
        return problem
    if answer.status >= 500 or answer.status == 429:  # a proxy before the API
        return Problem(f"{_PREFIX}unavailable", f"{url} answered {answer.status}", answer.status)
    if 300 <= answer.status < 400 and answer.location:
        # The key is for this address alone, and a redirect may turn POST into GET.
        there = f"a redirect to {answer.location[:_MOST_LOCATION]!r}, which delayq does not follow"
        raise ConfigError(f"{url} answered {answer.status}, {there}: is this the URL of its API?")
    raise _of_another_service(url, answer.status, "problem")


def read_answer(answer: Answer, url: str, make: Callable[[bytes], T]) -> T:
    """Return the body of a good answer, read by `make`. Raises ConfigError if no delayq has written it."""
    is_json = not answer.content_type or "json" in answer.content_type.lower()
    try:
        if is_json:
            return make(answer.body)
    except (
        msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
        DelayqError,
    ):  # fmt: skip  # whatever a value of another form raises
        pass
    raise _of_another_service(url, answer.status, "answer")


def _of_another_service(url: str, status: int, missing: str) -> ConfigError:
    article = "an" if missing == "answer" else "a"
    return ConfigError(f"{url} answered {status} without {article} {missing} of delayq: is this the URL of its API?")


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
