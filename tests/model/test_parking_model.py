"""The model of parked sets and of an owner that lives on holds, and breaks without each of its rules."""

from __future__ import annotations

import pytest

from tests.model.parking_model import Rules, check

LIMIT = 100_000


def search(rules: Rules) -> str | None:
    """What breaks first, over two messages, and over one and a Redis that goes back in time."""
    for count, back in ((2, False), (1, True)):
        what, how, _ = check(rules, count, back, LIMIT)
        if what is not None:
            return what
        assert how == "every state", "the search was cut short"
    return None


def test_what_is_parked_comes_back_in_order_in_every_state() -> None:
    assert search(Rules()) is None


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("turn", "1 overtakes 0"),
        ("incarnation", "1 overtakes 0"),
        ("note", "1 overtakes 0"),
        pytest.param("look", "something waits for ever"),
        ("rewind", "1 overtakes 0"),
        ("once", "1 overtakes 0"),
    ],
)
def test_it_breaks_without_each_rule(rule: str, breaks: str) -> None:
    what = search(Rules(**{rule: False}))
    assert what is not None
    assert breaks in what
