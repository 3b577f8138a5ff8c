"""The model of what a pause holds, and of what follows it, holds, and breaks without each of its rules."""

from __future__ import annotations

import pytest

from tests.model.hold_model import TOPICS, Rules, check

LIMIT = 100_000


def search(rules: Rules) -> str | None:
    """What breaks first, over each choice of the messages whose topic is paused."""
    for topic in TOPICS:
        what, how, _ = check(rules, topic, LIMIT)
        if what is not None:
            return what
        assert how == "every state", "the search was cut short"
    return None


def test_what_is_held_comes_back_in_order_in_every_state() -> None:
    assert search(Rules()) is None


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("held_back", "1 overtakes 0"),
        ("remembers", "1 overtakes 0"),
        ("learns", "1 overtakes 0"),
        ("rewinds", "1 overtakes 0"),
        ("drops", "0 may be sent while its topic is paused"),
        ("note", "1 overtakes 0"),
        ("last", "2 overtakes 1"),
        ("follows", "1 overtakes 0"),
        ("spares", "something waits for ever"),
    ],
)
def test_it_breaks_without_each_rule(rule: str, breaks: str) -> None:
    what = search(Rules(**{rule: False}))
    assert what is not None
    assert breaks in what
