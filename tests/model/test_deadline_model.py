"""The model of deadlines holds, and breaks without each of its rules: what clients do with the clock of Redis is written so."""

from __future__ import annotations

import pytest

from tests.model.deadline_model import Rules, check

BEHIND = "takes effect behind a newer one"
NOT_DONE = "'not done' is told of a change that took effect"


def test_what_is_told_of_a_change_stays_true_in_every_state() -> None:
    what, how, _ = check(Rules())
    assert what is None, how
    assert how == "every state", "the search was cut short"


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("deadline", BEHIND),
        ("no_later", BEHIND),
        ("at_least", BEHIND),
        ("asks_first", BEHIND),
        ("newest", BEHIND),
        ("lost_is_unknown", NOT_DONE),
        ("repeated_is_unknown", NOT_DONE),
    ],
)
def test_it_breaks_without_each_rule(rule: str, breaks: str) -> None:
    what, _, _ = check(Rules(**{rule: False}))
    assert what is not None
    assert breaks in what


@pytest.mark.parametrize("event", ["set_back", "outlives"])
def test_it_breaks_with_what_the_protocol_excepts(event: str) -> None:
    what, _, _ = check(Rules(**{event: True}))
    assert what is not None
    assert BEHIND in what
