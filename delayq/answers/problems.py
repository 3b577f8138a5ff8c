"""Problems (RFC 9457), and the errors that the clients raise for them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.service import FindingOut
from delayq.base.errors import (
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

PREFIX: Final = "urn:delayq:problem:"
#: The results of a request with many parts, if every part failed.
_RESULTS: Final = {"items": {"$ref": "#/components/schemas/ResultOut"}}


class ProblemOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """A problem: `type` is the kind for programs, `detail` explains it to people, `field` is its place."""

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

    @property
    def kind(self) -> str:
        """The end of the type, such as 'conflict'."""
        return self.type.removeprefix(PREFIX)

    def error(self, *, topic: str = "", id: str | None = None) -> DelayqError:
        """Return the error that the client of Redis raises; `id` is that of the message, if the problem names none."""
        detail = self.detail.rstrip(".")
        id = id if self.id is UNSET else self.id
        if self.status in (401, 403):
            return NotAllowed(detail)
        match self.kind:
            case "invalid" | "too-large":
                field = self.field or "body"
                return InvalidMessage(field, detail.removeprefix(f"{field}: "), too_large=self.kind == "too-large")
            case "conflict":
                state = self.state if self.state in ("delivered", "cancelled", "removedInFlight", "discarded") else ""
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
            case "not-ready" if self.status == 409:
                return NotReady(detail)
            case "full":
                return _about(StoreFull(detail), id)
            case "internal":
                return _about(StoreError(f"the API failed ({detail}): the outcome is unknown"), id)
        if self.status in (429, 502, 503, 504):
            return _about(StoreUnavailable(detail), id)
        return StoreError(detail)


def _about(error: StoreError, id: str | None) -> StoreError:
    return error if id is None else error.about(id)


def _made(type: type[DelayqError], detail: str, **attributes: Any) -> DelayqError:
    """Return an error of this type with the sentence of the API, whatever arguments its `__init__` takes."""
    error = type.__new__(type, detail)
    error.__dict__.update(attributes)
    return error
