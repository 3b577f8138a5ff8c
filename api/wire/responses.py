"""Answers to requests of many parts, and about the service itself. All others are in `delayq.answers`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.wire.problems import ProblemOut
from delayq.answers.service import FindingOut
from delayq.answers.times import Ms, Time, one_of
from delayq.domain.api_keys import Scope
from delayq.domain.message import RESULTS, STATES

Result = Annotated[str, Meta(extra_json_schema=one_of(*RESULTS))]


class ItemOut(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """One message of a batch: the status of a single call, and either its answer or a problem."""

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
    """The outcome of the id."""

    id: str
    result: Result


class ResultOut(msgspec.Struct, omit_defaults=True):
    """The result of one id, with the status of a single call.

    For a business key: the outcome of each of its messages; with a problem, only of those that were reached.
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
    """The key's name (null if the API needs none), its scopes by patterns of topics, and the version of delayq."""

    name: str | None
    scopes: dict[str, list[Scope]]
    version: str
    console: Annotated[
        str,
        Meta(
            description="Whether this API has a console: yes, readOnly or no.",
            extra_json_schema=one_of("yes", "readOnly", "no"),
        ),
    ]
    session: Annotated[bool, Meta(description="Whether the request has a session of the console instead of a key.")]


class HealthOut(msgspec.Struct, omit_defaults=True):
    """The service is ready. `findings` are its problems, without `text` if the API needs keys."""

    status: str
    findings: list[FindingOut] | UnsetType = UNSET
