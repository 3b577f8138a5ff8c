"""The model of pauses and their version holds, and breaks without each of its rules: scripts and owners are written from it."""

from __future__ import annotations

import pytest

from tests.model.pause_model import AGAIN, BOTH, LOST, TRUTH, VERSIONS, WORLDS, Rules, World, check

LIMIT = 800_000
HANDED_OUT = "handed out after a pause was answered"
NOT_CERTAIN = "cancelled for certain"
FOR_EVER = "it waits for ever"


@pytest.mark.parametrize("world", WORLDS)
def test_a_pause_holds_and_a_cancel_is_true_in_every_state(world: World) -> None:
    what, how, _ = check(Rules(), world, LIMIT)
    assert what is None, how
    assert how == "every state", "the search was cut short"


@pytest.mark.parametrize(
    ("rule", "world", "breaks"),
    [
        ("version", TRUTH, HANDED_OUT),
        ("equal", TRUTH, NOT_CERTAIN),
        ("upwards", BOTH, HANDED_OUT),
        ("last", TRUTH, HANDED_OUT),
        ("watermark", TRUTH, NOT_CERTAIN),
        ("lowered", TRUTH, NOT_CERTAIN),
        ("earliest", BOTH, "in flight, though it has been held since before it was due"),
        ("active", AGAIN, NOT_CERTAIN),
        ("anew", TRUTH, NOT_CERTAIN),
        ("exposes", TRUTH, NOT_CERTAIN),
        ("applies", TRUTH, FOR_EVER),
        ("raises", VERSIONS, FOR_EVER),
        pytest.param("own", LOST, NOT_CERTAIN),
    ],
)
def test_it_breaks_without_each_rule(rule: str, world: World, breaks: str) -> None:
    what, _, _ = check(Rules(**{rule: False}), world, LIMIT)
    assert what is not None
    assert breaks in what
