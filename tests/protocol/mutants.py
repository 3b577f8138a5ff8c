"""Rules of the protocol, each taken out of the shipped scripts or owner: the state machine must fail without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from delayq.store import scripts


@dataclass(frozen=True)
class Mutant:
    """Replacements in scripts: (script, what stands there, what stands there instead). `says` is what fails without the rule."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    says: str = ""


_CERTAIN = "local certain = not exposed and untouched(record, due, floor, paused)"
_MOVABLE = (
    "if redis.call('HEXISTS', attempts, id) == 1 or not untouched(record, score, floor_of_certainty(state, now)) then"
)

MUTANTS = (
    Mutant(
        "no watermark",
        (
            ("cancel", _CERTAIN, "local certain = place == 'pending' and not exposed"),
            ("reschedule", _MOVABLE, "if not score or redis.call('HEXISTS', attempts, id) == 1 then"),
        ),
        says="was sent, yet it was cancelled for certain",
    ),
    Mutant(
        "forgetting exposed",
        (
            ("cancel", _CERTAIN, "local certain = untouched(record, due, floor, paused)"),
            ("reschedule", _MOVABLE, "if not untouched(record, score, floor_of_certainty(state, now)) then"),
        ),
        says="was in flight before, yet it was cancelled for certain",
    ),
    Mutant(
        "removing before forwarding",
        (
            (
                "pull",
                "if appended > 0 then\n  redis.call('HDEL', pool",
                "for _, ticket in ipairs(tickets) do\n"
                "  redis.call('ZREM', queue, ticket)\n"
                "  redis.call('HDEL', pool, sub(ticket, 1, -9))\n"
                "end\n"
                "if appended > 0 then\n  redis.call('HDEL', pool",
            ),
        ),
        says="is gone and was never forwarded",
    ),
    Mutant(
        "a rank as offset",
        (
            ("pull", "local start = start_rank()", "local start = tonumber(redis.call('HGET', state, 'rank') or '0')"),
            (
                "pull",
                "return {\n  'ok',",
                "redis.call('HINCRBY', state, 'rank', kept)\nreturn {\n  'ok',",
            ),
            (
                "ack",
                "redis.call('ZREM', queue, unpack(tickets))",
                "redis.call('ZREM', queue, unpack(tickets)) redis.call('HINCRBY', state, 'rank', -#tickets)",
            ),
            (
                "retry",
                "if retried > 0 then",
                "if retried > 0 then redis.call('HINCRBY', state, 'rank', -retried)",
            ),
            ("claim", "local stored", "redis.call('HDEL', KEYS[1], 'rank')\nlocal stored"),
        ),
        says="is due and its owner sleeps",
    ),
    Mutant(
        "settling by id alone",
        (
            (
                "ack",
                "local stored = redis.call('ZMSCORE', queue, unpack(ARGV, 6, 5 + count))",
                "for i = 6, 5 + count do\n"
                "  local id = string.sub(ARGV[i], 1, -9)\n"
                "  local record = redis.call('HGET', pool, id)\n"
                "  if record then ARGV[i] = id .. '\\0' .. string.sub(record, 1, 7) end\n"
                "  ARGV[count + i] = redis.call('ZSCORE', queue, ARGV[i]) or ARGV[count + i]\n"
                "end\n"
                "local stored = redis.call('ZMSCORE', queue, unpack(ARGV, 6, 5 + count))",
            ),
        ),
        says="is gone and was never forwarded",
    ),
    Mutant(
        "a wake only for a new head",
        (
            (
                "schedule",
                "wake(state, ARGV[2], earliest, known[2], known[3])",
                "if tonumber(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]) == earliest then "
                "wake(state, ARGV[2], earliest, known[2], known[3]) end",
            ),
        ),
        says="is due and its owner sleeps",
    ),
    Mutant(
        "retry that creates",
        (
            (
                "retry",
                "if how == 'ok' then",
                "if how ~= 'changed' then",
            ),
        ),
        says="a ticket without its record",
    ),
    Mutant(
        "redrive that forgets exposed",
        (("redrive", "redis.call('HSET', attempts, id, '0')", ""),),
        says="was in flight before, yet it was cancelled for certain",
    ),
    Mutant(
        "a certain cancel by the clock alone",
        (
            ("cancel", _CERTAIN, "local certain = place == 'pending' and due > now"),
            ("reschedule", _MOVABLE, "if not score or score <= now then"),
        ),
        says="has another due than asked",
    ),
    Mutant(
        "lowering the watermark without exposing",
        (("pull", "redis.call('HSETNX', attempts_key, sub(page[i], 1, -9), '0')", ""),),
        says="was sent, yet it was cancelled for certain",
    ),
    Mutant(
        "firing by the later of two clocks",
        (("pull", "tonumber(ARGV[3]) < now then", "tonumber(ARGV[3]) > now then"),),
        says="ms early",
    ),
    Mutant(
        "an ended id that stands for any content",
        (("schedule", "digest ~= digest_of(content, asked)", "false"),),
        says="though the call was other",
    ),
)

#: Each is shown by the path of its name.
OF_PAUSES = (
    Mutant(
        "a mark of now alone",
        (("apply_policies", "math.max(clock(ARGV[1]), tonumber(known[3] or '') or -1,", "math.max(clock(ARGV[1]),"),),
        says="was sent, yet it was cancelled for certain",
    ),
    Mutant(
        "the latest mark",
        (("cancel", "if one[2] < lowest and", "if (lowest == math.huge or one[2] > lowest) and"),),
        says="was held all along",
    ),
    Mutant(
        "a mark that outlives its pause",
        (("apply_policies", "redis.call('HDEL', state, 'paused')", ""),),
        says="was sent, yet it was cancelled for certain",
    ),
    Mutant(
        "force that outlives its attempt",
        (("retry", "string.format('%.0f', tries + 1)", "'+0' .. string.format('%.0f', tries + 1)"),),
        says="is sent after its topic was paused",
    ),
    Mutant(
        "policies that wake nobody",
        (("apply_policies", "redis.call('PUBLISH', ARGV[2], 'policies')", ""),),
        says="sleeps on when the queue has other policies",
    ),
    Mutant(
        "a pull by any policies",
        (("pull", "if (known[8] or '') ~= ARGV[16] then", "if false then"),),
        says="after its topic was paused",
    ),
)


def mutated(mutant: Mutant) -> Callable[[str], str]:
    """`scripts.source` with the mutant in it; a change whose place is not found is an error of the test."""
    real: Callable[[str], str] = scripts.source

    def source(name: str) -> str:
        text = real(name)
        for script, there, instead in mutant.changes:
            if script == name:
                if text.count(there) != 1:  # no AssertionError, which a test of a mutant waits for
                    raise LookupError(f"{mutant.name}: {script}.lua has changed: {there!r}")
                text = text.replace(there, instead)
        return text

    return source


def plant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the scripts for one test."""
    replace_source(mutated(mutant), monkeypatch)


def replace_source(source: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the scripts read by this for one test: into a cache that ends with it, or later tests would run what it changed."""
    monkeypatch.setattr(scripts, "source", source)
    monkeypatch.setattr(scripts, "load", cache(scripts.load.__wrapped__))
