"""The model of resharding holds, and breaks without each of its rules: layouts and scripts were written from it."""

from __future__ import annotations

import pytest

from tests.model.reshard_model import PAUSED, Rules, State, check


@pytest.mark.parametrize("world", [None, PAUSED], ids=["two clients", "a pause"])
def test_resharding_twice_holds_in_every_state(world: State | None) -> None:
    what, how, _ = check(Rules(), world=world)
    assert what is None, how
    assert how == "every state", "the search was cut short"


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("list_first", "there is no place to go on"),
        ("ask_the_old", "an id is live twice"),
        ("oldest_first", "an id is live twice"),
        ("lookups_move", "look says not_found of a message that is there"),
        ("drop_empty", "a message is where nobody pulls"),
        ("drop_forgotten", "an id that has ended within the window is scheduled again"),
        ("drop_closed", "a message is where nobody pulls"),
        ("keep_closed", "a message is where nobody pulls"),
        ("skip_only_shut", "an id is live twice"),
    ],
)
def test_it_breaks_without_each_rule(rule: str, breaks: str) -> None:
    what, _, _ = check(Rules(**{rule: False}))
    assert what is not None
    assert breaks in what


@pytest.mark.parametrize("rule", ["policies_before_close", "policies_to_all", "list_behind"])
def test_a_pause_breaks_without_each_rule(rule: str) -> None:
    what, _, _ = check(Rules(**{rule: False}), world=PAUSED)
    assert what == "a message is handed out after its pause was answered"
