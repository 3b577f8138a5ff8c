"""The model of the protocol holds, and breaks without each of its rules: it is what the scripts were written from."""

from __future__ import annotations

import pytest

from tests.model.protocol_model import Rules, check

LIMIT = 400_000


def search(rules: Rules) -> str | None:
    """What breaks first, over one id that is scheduled twice and over two ids."""
    for ids, reuse in ((1, True), (2, False)):
        what, how, _ = check(rules, ids, reuse, LIMIT)
        if what is not None:
            return what
        assert how == "every state", "the search was cut short"
    return None


def test_the_protocol_holds_in_every_state() -> None:
    assert search(Rules()) is None


@pytest.mark.timeout(600)  # 8 s of CPU; beside others it may get little of one
def test_without_fencing_it_holds_in_every_state_too() -> None:
    assert search(Rules(fence=False)) is None


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("watermark", "forwarded after it was cancelled for certain"),
        ("remember_exposed", "forwarded after it was cancelled for certain"),
        ("compare_generation", "is gone and was never forwarded"),
        ("forward_before_remove", "is gone and was never forwarded"),
        pytest.param("due_as_offset", "a due message is behind the offset and nothing is in flight"),
        ("lower_exposes", "forwarded after it was cancelled for certain"),
        ("own_epochs", "two nodes own the queue under one epoch"),
    ],
)
def test_it_breaks_without_each_rule(rule: str, breaks: str) -> None:
    what = search(Rules(**{rule: False}))
    assert what is not None
    assert breaks in what
