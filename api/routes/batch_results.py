"""Answers to calls that name many ids or keys: each is checked and answered by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from api.asgi import Answer, encode
from api.wire import problems
from api.wire.problems import Problem
from api.wire.responses import ResultOut, ResultsOut
from delayq import InvalidMessage, StoreError

__all__ = ["answer_results", "ask_each", "check_each"]

T = TypeVar("T")


def check_each(
    field: str, values: Sequence[str], most: int, check: Callable[[str], str]
) -> tuple[list[str], dict[str, ResultOut]]:
    """Those that are well formed, and the result of each that is not; raises InvalidMessage when they are too many."""
    if len(values) > most:
        raise InvalidMessage(field, f"at most {most} in one request; {len(values)} were given")
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
    """What becomes of each value; when Redis is not even found, that."""
    try:
        return iter(await ask(values) if values else ())
    except StoreError as error:
        return iter([error] * len(values))


def answer_results(results: list[ResultOut]) -> Answer:
    """200 with the results; 503 or 507 with them when every one failed for the store, and nothing was done."""
    if results and all(one.status in (503, 507) and not one.messages for one in results):
        kind = "unavailable" if any(one.status == 503 for one in results) else "full"
        raise Problem(kind, "Nothing could be done; repeating the same request is safe.", results=results)
    return Answer(200, encode(ResultsOut(results)))
