"""Patterns of topics, with `*` for any text and `?` for any character: matches, coverage and overlap.

Everything that has patterns uses this module: routes, policies, pauses, keys, consumers, searches and the command line.
Every other character of a pattern stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from functools import lru_cache  # noqa: TID251  # the keys are patterns of at most 255 characters
from typing import Final

from delayq.base.errors import InvalidMessage

_PATTERN: Final = re.compile(r"(?!delayq:)[A-Za-z0-9._:*?-]{1,255}")
#: The maximum number of steps of `covers`. Only patterns that are made for it exceed them.
_MOST_STEPS: Final = 20_000
#: Remembered patterns: more than the maximum of pauses, limits and policies.
REMEMBERED: Final = 4_096


def check_pattern(value: object, field: str = "match") -> str:
    """Return the pattern. Raises InvalidMessage."""
    if not isinstance(value, str) or not _PATTERN.fullmatch(value):
        characters = "1 to 255 characters of A-Z a-z 0-9 . _ : - with * and ?"
        raise InvalidMessage(field, f"must be {characters}, not beginning with 'delayq:'")
    return value


def matches(pattern: str, topic: str) -> bool:
    """Return whether a topic matches a pattern."""
    return compiled(pattern).match(topic) is not None


def is_pattern(text: str) -> bool:
    """Return whether a text can match more than one topic."""
    return "*" in text or "?" in text


@lru_cache(maxsize=REMEMBERED)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern. All policies are read repeatedly, so it is cached."""
    return re.compile(translate(pattern.replace("[", "[[]")))  # fnmatch has classes of characters, patterns do not


class _Places:
    """A pattern as an automaton: a set of places in it, as bits, and the transitions by a character."""

    def __init__(self, pattern: str) -> None:
        text = re.sub(r"\*+", "*", pattern)
        self._stars = sum(1 << i for i, one in enumerate(text) if one == "*")
        self._marks = sum(1 << i for i, one in enumerate(text) if one == "?")
        self._literals: dict[str, int] = {}
        for i, one in enumerate(text):
            if one not in "*?":
                self._literals[one] = self._literals.get(one, 0) | 1 << i
        #: A character for each class of characters that the pattern distinguishes; '' is one that it does not contain.
        self.characters = ("", *self._literals)
        self.first = self._past_stars(1)
        self.end = 1 << len(text)

    def _past_stars(self, places: int) -> int:
        return places | (places & self._stars) << 1

    def step(self, places: int, character: str) -> int:
        """Return the places after a character."""
        taken = places & (self._marks | self._literals.get(character, 0))
        return self._past_stars(taken << 1 | places & self._stars)


def covers(pattern: str, other: str) -> bool:
    """Return whether `pattern` matches everything that `other` matches. False if that takes too many steps."""
    if pattern in ("*", other):
        return True
    whole = _Places(pattern)
    text = re.sub(r"\*+", "*", other)
    seen = {(0, whole.first)}
    left = list(seen)
    while left:
        at, places = left.pop()
        if at == len(text):
            if not places & whole.end:
                return False
            continue
        one = text[at]
        behind = at if one == "*" else at + 1
        found = {(behind, whole.step(places, each)) for each in (whole.characters if one in "*?" else one)}
        if one == "*":
            found.add((at + 1, places))
        left += found - seen
        seen |= found
        if len(seen) > _MOST_STEPS:
            return False
    return True


@lru_cache(maxsize=16)
def covered(patterns: tuple[str, ...]) -> Mapping[int, int]:
    """Return the places of patterns whose topics an earlier pattern takes alone, each with the place of that pattern.

    A status reads it for all policies, so the result is cached.
    """
    known: list[tuple[str, str]] = []
    found: dict[int, int] = {}
    for place, one in enumerate(patterns):
        topics = one if one.strip("*") else "?*"  # no topic is empty
        for before, (start, pattern) in enumerate(known):
            if topics.startswith(start) and covers(pattern, topics):
                found[place] = before
                break
        known.append((re.split(r"[*?]", one, maxsplit=1)[0], one))
    return found


def overlap(pattern: str, other: str) -> bool:
    """Return whether some topic matches both."""
    seen = {(0, 0)}
    left = list(seen)
    while left:
        i, j = left.pop()
        one, each = pattern[i : i + 1], other[j : j + 1]
        if not one and not each:
            return True
        if "*" in (one, each):  # it stands for nothing more, or for the next part of the other one
            found = {(i + 1, j)} if one else set()
            found |= {(i, j + 1)} if each else set()
        else:
            found = {(i + 1, j + 1)} if one and each and (one == each or "?" in (one, each)) else set()
        left += found - seen
        seen |= found
    return False
