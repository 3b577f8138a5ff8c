"""A wake only moves the moment at which the owner looks, and nothing is late for ever; without a rule something is."""

from __future__ import annotations

import pytest

from tests.model.wake_model import Rules, check


def test_nothing_is_late_for_ever_in_any_state() -> None:
    what, how, _ = check(Rules())
    assert (what, how) == (None, "every state")


@pytest.mark.parametrize("rule", Rules.__struct_fields__)
def test_something_is_late_for_ever_without_each_rule(rule: str) -> None:
    what, _, _ = check(Rules(**{rule: False}))
    assert what == "a due message waits, and its owner sleeps"
