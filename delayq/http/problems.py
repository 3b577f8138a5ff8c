"""Reads answers, and refuses those that no delayq has written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from delayq.answers.problems import PREFIX, ProblemOut
from delayq.base.errors import ConfigError, DelayqError
from delayq.http.calls import Answer

T = TypeVar("T")
#: How the API answers a path that it does not have. Other calls that are 404 name a message, a topic or a policy.
_UNKNOWN_PATH: Final = "Unknown path"
#: The most characters of a redirect's target that an error names.
_MOST_LOCATION: Final = 200

_decoder = msgspec.json.Decoder(ProblemOut)


def problem_in(answer: Answer, url: str) -> ProblemOut:
    """Return the problem in a refusal. Raises ConfigError if no delayq has written it."""
    try:
        problem = _decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = None
    if problem is not None and problem.type.startswith(PREFIX):
        if problem.kind == "not-found" and problem.detail.startswith(_UNKNOWN_PATH):
            raise ConfigError(f"{url} has no such path: is this the URL of its API?")
        return problem
    if answer.status >= 500 or answer.status == 429:  # a proxy before the API
        return ProblemOut(f"{PREFIX}unavailable", "", answer.status, f"{url} answered {answer.status}")
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
