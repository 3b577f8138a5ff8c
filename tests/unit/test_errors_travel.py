"""An error of delayq is the same in another process: pickle and copy keep its text, its arguments and its attributes."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import coordinator
import delayq
from delayq.base.errors import (
    Conflict,
    DelayqError,
    InvalidMessage,
    MissingExtra,
    OtherFilter,
    PastDue,
    StillDue,
    StoreError,
    TooManyPending,
    TooManyPolicies,
)

#: Errors whose `__init__` takes other arguments than the text.
OWN_ARGUMENTS: dict[type[DelayqError], tuple[Any, ...]] = {
    InvalidMessage: ("body", "it is too large"),
    Conflict: ("order-42", "delivered"),
    OtherFilter: ("mail", ("paid", "void")),
    PastDue: ("order-42",),
    TooManyPending: ("order-42", "orders", 1_000),
    TooManyPolicies: ("pause", 100, True),
    StillDue: (1, ["node-1"]),
    MissingExtra: ("a route to Kafka", "kafka"),
}


def every_error() -> Iterator[type[DelayqError]]:
    """All of them, also those of modules that only a command or a job imports."""
    for package in (delayq, coordinator):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".spark." not in module.name and "__main__" not in module.name:
                importlib.import_module(module.name)
    waiting: list[type[DelayqError]] = [DelayqError]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting += kind.__subclasses__()


def test_every_error_survives_pickle_and_copy() -> None:
    for kind in every_error():
        survives(kind)


def survives(kind: type[DelayqError]) -> None:
    error = kind(*OWN_ARGUMENTS.get(kind, ("what went wrong",)))
    error.add_note("seen by the caller")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_the_id_that_an_error_was_given_travels_along() -> None:
    error = StoreError("Redis is away").about("order-42")
    assert pickle.loads(pickle.dumps(error)).id == "order-42"


def refuse(field: str) -> None:
    raise InvalidMessage(field, "it is too large", too_large=True)


@pytest.mark.processes
def test_a_process_pool_hands_on_what_a_worker_raised() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(InvalidMessage) as raised:
        pool.submit(refuse, "body").result()
    assert (raised.value.field, raised.value.reason, raised.value.too_large) == ("body", "it is too large", True)
