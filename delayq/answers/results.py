"""The answers to requests of many parts, and about the service itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.problems import ProblemOut
from delayq.answers.service import FindingOut
from delayq.answers.times import Ms, Time, given, known, one_of
from delayq.base.errors import DelayqError
from delayq.client.scheduling.schedule import Scheduled
from delayq.domain.api_keys import Scope
from delayq.domain.message import RESULTS, STATES

T = TypeVar("T")
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

    def domain(self) -> Scheduled | None:
        """Return the message, or None for a problem."""
        if self.problem:
            return None
        id, queue, state = given(self.id), given(self.queue), given(self.state)
        return Scheduled(id, queue, given(self.due_ms), state, self.status == 201, known(self.window))


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

    def outcome(self, make: Callable[[str, str], T]) -> T | DelayqError:
        """Return the result of one id, made of the id and the word, or the error."""
        if self.problem:
            return self.problem.error(id=known(self.id))
        return make(given(self.id), given(self.result))


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

    def domain(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class HealthOut(msgspec.Struct, omit_defaults=True):
    """The service is ready. `findings` are its problems, without `text` if the API needs keys."""

    status: str
    findings: list[FindingOut] | UnsetType = UNSET
