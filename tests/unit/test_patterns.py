from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.base.errors import InvalidMessage
from delayq.domain.patterns import check_pattern, compiled, covered, covers, matches, overlap

#: c is in no pattern. Patterns of so many characters are told apart by texts of so many.
TEXTS = ["".join(one) for length in range(6) for one in product("abc", repeat=length)]
patterns = st.text("ab*?", min_size=1, max_size=3)


@given(patterns, patterns)
def test_what_a_pattern_covers_and_shares_is_what_counting_all_texts_says(one: str, other: str) -> None:
    whole = {text for text in TEXTS if compiled(one).match(text)}
    part = {text for text in TEXTS if compiled(other).match(text)}
    assert covers(one, other) == (part <= whole)
    assert overlap(one, other) == overlap(other, one) == bool(part & whole)


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("orders.*", ["orders.*", "orders.eu", "orders.?*", "orders.*.*"], ["*", "orders*", "order?.*", "sms.*"]),
        ("*", ["*", "?", "orders.*"], []),
        ("?*", ["a*", "*?", "*a*"], ["*"]),
        ("a.b", ["a.b"], ["a?b", "a.*"]),
    ],
)
def test_patterns_of_topics(pattern: str, covered: list[str], not_covered: list[str]) -> None:
    assert [one for one in covered if not covers(pattern, one)] == []
    assert [one for one in not_covered if covers(pattern, one)] == []


def test_a_pattern_that_would_take_for_ever_covers_nothing() -> None:
    assert not covers("*a" + "?" * 120, "*a" + "?" * 120 + "*a*" * 20)


@pytest.mark.parametrize("pattern", ["", "a b", "[ab]", "{a,b}", "a,b", "a ", "a" * 256, "ä", "delayq:*", 7, None])
def test_what_is_no_pattern_is_refused(pattern: object) -> None:
    with pytest.raises(InvalidMessage, match="match"):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a[bc]", "[!a]b", "[]", "a[", "{a,b}", "a.c", "a|b", "(a)", "a\\d"])
def test_only_a_star_and_a_question_mark_mean_more_than_themselves(pattern: str) -> None:
    assert matches(pattern, pattern)
    assert [topic for topic in ("ab", "ac", "bb", "a", "b", "abc", "a1") if matches(pattern, topic)] == []


def test_a_pattern_of_many_stars_is_compared_in_no_time() -> None:
    assert not matches("*a" * 100, "a" * 99 + "b")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("*", "orders.*"), {1: 0}),
        (("orders.*", "orders.eu.*", "*", "sms"), {1: 0, 3: 2}),
        (("a", "a"), {1: 0}),
        (("?*", "*"), {1: 0}),
        (("**", "*"), {1: 0}),
        (("orders.eu.*", "orders.*", "o*", "*"), {}),
        (("a?", "a*", "?b"), {}),
        ((), {}),
    ],
)
def test_a_pattern_gets_no_topics_where_an_earlier_one_takes_them_all(
    patterns: tuple[str, ...], expected: dict[int, int]
) -> None:
    assert covered(patterns) == expected
