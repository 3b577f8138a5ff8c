"""What goes out: of one request with many parts, and of the service itself. All else is in `delayq.answers`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.wire.problems import ProblemOut
from delayq.answers.service import FindingOut
from delayq.answers.times import Ms, Time, one_of
from delayq.api_keys import Scope
from delayq.message import RESULTS, STATES

__all__ = ["BatchOut", "EndedOut", "HealthOut", "ItemOut", "MeOut", "ResultOut", "ResultsOut"]


Result = Annotated[str, Meta(extra_json_schema=one_of(*RESULTS))]


class ItemOut(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """One message of a batch: `status` is what it would have got by itself; with it either the answer or a problem."""

    status: int
    id: str | UnsetType = UNSET
    queue: int | UnsetType = UNSET
    state: Annotated[str, Meta(extra_json_schema=one_of(*STATES))] | UnsetType = UNSET
    due_time: Time | UnsetType | None = UNSET
    due_ms: Ms | UnsetType | None = UNSET
    window: int | UnsetType = UNSET
    problem: ProblemOut | UnsetType = UNSET


class BatchOut(msgspec.Struct):
    """A result for each message, in order."""

    results: list[ItemOut]


class EndedOut(msgspec.Struct):
    """What became of the id."""

    id: str
    result: Result


class ResultOut(msgspec.Struct, omit_defaults=True):
    """One id: `status` is what it would have got by itself, and what became of it or the problem.

    Or one business key: what became of each message that carries it; beside a problem, of those that were reached.
    """

    status: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    result: Result | UnsetType = UNSET
    key: str | UnsetType = UNSET
    messages: list[ResultOut] | UnsetType = UNSET
    problem: ProblemOut | UnsetType = UNSET


class ResultsOut(msgspec.Struct):
    """A result for each id or key, in order."""

    results: list[ResultOut]


class MeOut(msgspec.Struct):
    """The key's name (null where the API takes none), what it allows by patterns of topics, and the version of delayq."""

    name: str | None
    scopes: dict[str, list[Scope]]
    version: str
    console: Annotated[
        str,
        Meta(
            description="whether this API has a console: yes, readOnly or no",
            extra_json_schema=one_of("yes", "readOnly", "no"),
        ),
    ]
    session: Annotated[bool, Meta(description="whether a session of the console stands for the key")]


class HealthOut(msgspec.Struct, omit_defaults=True):
    """It answers. `findings` is what is wrong all the same; without `text` where the API takes keys."""

    status: str
    findings: list[FindingOut] | UnsetType = UNSET
