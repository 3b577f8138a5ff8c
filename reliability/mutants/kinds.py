"""Mutants that tests plant by themselves, in a process of their own: a test passes if it finds its mutant."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from reliability.chaos.mutants import MUTANTS as CHAOS
from reliability.chaos.mutants import Mutant as ChaosMutant
from reliability.mutants.rules import MUTANTS, OF_PAUSES, Mutant
from tests.workers import test_living_owner as living

ROOT: Final = Path(__file__).resolve().parents[2]


class Kind(NamedTuple):
    """`files` are patterns of files of tests, also as they were named before; `tests` matches the functions that plant one."""

    name: str
    files: tuple[str, ...]
    tests: re.Pattern[str]


KINDS: Final = (
    Kind(
        "state machine",
        ("tests/protocol/test_*.py",),
        re.compile(
            r"machine_fails_(without|for)|shows_what_breaks_without|without_the_rule|does_not_look_again|neither_pulls_nor"
        ),
    ),
    Kind("living owner", ("tests/workers/test_living_owner*.py",), re.compile(r"random_life.*fails")),
    Kind(
        "scripts and owner",
        (
            "tests/store/test_*.py",
            "tests/store/test_resharding.py",
            "tests/workers/test_[!l]*.py",
            "tests/workers/test_limits.py",
        ),
        re.compile(r"without_a_rule|without_the_rule|fails_when|mistake_would_be_seen|planted_mistake"),
    ),
    Kind(
        "model",
        ("tests/reliability/test_models.py", "tests/model/test_*.py"),
        re.compile(r"breaks_without_each|breaks_with_what|late_for_ever_without"),
    ),
    Kind(
        "chaos",
        ("tests/reliability/test_negative_controls.py", "tests/chaos/test_negative_controls.py"),
        re.compile(r"a_run_fails_without"),
    ),
)


def name_of(test: str) -> str:
    """The mutant of a test: its parameter, or the sentence that is the name of its function."""
    function, bracket, parameter = test.rpartition("::")[2].partition("[")
    if bracket and not re.fullmatch(r"\d*", parameter.removesuffix("]")):
        return parameter.removesuffix("]").replace("-", " ")
    return function.removeprefix("test_").replace("_", " ")


def place_of(kind: Kind, test: str) -> str:
    """Where that is planted: a script, a method of the worker, a model."""
    if kind.name == "model":
        return "the model"
    return _places().get(name_of(test), "the code that the test replaces")


@cache
def _places() -> Mapping[str, str]:
    rules: list[Mutant | ChaosMutant] = [*MUTANTS, *OF_PAUSES, *CHAOS]
    rules += [one[0] for name in ("SCRIPT_MUTANTS", "HELD_MUTANTS") for one in getattr(living, name, ())]
    places = {rule.name.replace("-", " "): _scripts(rule) for rule in rules}
    for name, (owner, attribute, *_) in (living.MUTANTS | living.BACKLOG_MUTANTS).items():
        places[name.replace("-", " ")] = f"`{_file(owner)}`, {owner.__name__}.{attribute}"
    return places


def _scripts(rule: Mutant | ChaosMutant) -> str:
    scripts = sorted({script for script, _, _ in rule.changes})
    return ", ".join(f"`{script}.lua`" for script in scripts) or "the worker"


def _file(owner: Callable[..., object]) -> str:
    return Path(inspect.getfile(owner)).relative_to(ROOT).as_posix()
