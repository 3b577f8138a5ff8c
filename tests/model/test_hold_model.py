"""The model of what a pause holds, and of what follows it, holds, and breaks without each of its rules."""

from __future__ import annotations

import pytest

from tests.model.hold_model import Rules, check

LIMIT = 100_000


def test_what_is_held_comes_back_in_order_in_every_state() -> None:
    what, how, _ = check(Rules(), LIMIT)
    assert what is None, how
    assert how == "every state", "the search was cut short"


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("held_back", "1 overtakes 0"),
        ("remembers", "1 overtakes 0"),
        ("learns", "1 overtakes 0"),
        ("rewinds", "1 overtakes 0"),
        ("drops", "0 may be sent while its topic is paused"),
        ("note", "1 overtakes 0"),
    ],
)
def test_it_breaks_without_each_rule(rule: str, breaks: str) -> None:
    what, _, _ = check(Rules(**{rule: False}), LIMIT)
    assert what is not None
    assert breaks in what
