"""Answers to calls with many ids or keys: each of them is checked and answered separately."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from api.asgi import Answer, encode
from api.wire import problems
from api.wire.problems import Problem
from delayq import InvalidMessage, StoreError
from delayq.answers.results import ResultOut, ResultsOut
from delayq.domain.message import check_id

T = TypeVar("T")
#: The requests and results of such calls, for the documentation.
TO_MANY: Final[dict[str, Any]] = {"gives": {200: ResultsOut}, "problems": (400, 408, 413, 415, 503, 507)}
#: Makes the result of an outcome, by its id.
Result = Callable[[Any, str], ResultOut]


def check_each(
    field: str, values: Sequence[str], most: int, check: Callable[[str], str]
) -> tuple[list[str], dict[str, ResultOut]]:
    """Return the well-formed values, and the result of each malformed one. Raises InvalidMessage for too many values."""
    if len(values) > most:
        raise InvalidMessage(field, f"at most {most} are accepted in one request; {len(values)} were given")
    valid: list[str] = []
    refused: dict[str, ResultOut] = {}
    for index, value in enumerate(values):
        try:
            valid.append(check(value))
        except InvalidMessage as error:
            problem = problems.problem_of(InvalidMessage(f"{field}[{index}]", error.reason)).out
            if field == "ids":
                refused[value] = ResultOut(status=problem.status, id=value, problem=problem)
            else:
                refused[value] = ResultOut(status=problem.status, key=value, problem=problem)
    return valid, refused


async def ask_each(
    ask: Callable[[Sequence[str]], Awaitable[Sequence[T]]], values: Sequence[str]
) -> Iterator[T | StoreError]:
    """Return the outcome of each value; if Redis cannot be reached, that error."""
    try:
        return iter(await ask(values) if values else ())
    except StoreError as error:
        return iter([error] * len(values))


def result_of(outcome: str | Problem | StoreError, id: str, statuses: Mapping[str, int]) -> ResultOut:
    """The outcome of an id: a word that decides the status, or the error."""
    if isinstance(outcome, str):
        return ResultOut(status=statuses.get(outcome, 409), id=id, result=outcome)
    problem = problems.problem_of(outcome).out
    return ResultOut(status=problem.status, id=id, problem=problem)


async def answer_ids(
    ids: Sequence[str], most: int, ask: Callable[[Sequence[str]], Awaitable[Sequence[Any]]], result: Result
) -> Answer:
    """Return a result for each id, in order."""
    valid, refused = check_each("ids", ids, most, check_id)
    outcomes = await ask_each(ask, valid)
    return answer_results([refused.get(id) or result(next(outcomes), id) for id in ids])


def answer_results(results: list[ResultOut]) -> Answer:
    """Return 200 with the results; 503 or 507 if every one failed because of the store, and nothing was done."""
    if results and all(one.status in (503, 507) and not one.messages for one in results):
        kind = "unavailable" if any(one.status == 503 for one in results) else "full"
        raise Problem(kind, "Nothing could be done. Repeat the same request, which is safe.", results=results)
    return Answer(200, encode(ResultsOut(results)))
