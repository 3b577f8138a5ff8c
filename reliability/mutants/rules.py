"""Rules of the protocol, each removed from the shipped scripts: the given steps must fail without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from delayq.store import scripts

#: A rule of the state machine and its arguments.
Step = tuple[str | int | bool, ...]
Path = tuple[Step, ...]


@dataclass(frozen=True)
class Mutant:
    """Replacements in scripts: (script, what stands there, what stands there instead).

    After the steps of `path` a node that owns the queue breaks the promise that `says` names. With the rule they break none.
    """

    name: str
    changes: tuple[tuple[str, str, str], ...]
    says: str = ""
    path: Path = ()


TICK: Step = ("tick", 0)
PULLED: Path = (("schedule", "a", 0, False), TICK, TICK)
CLOCK_OF_REDIS_AHEAD: Step = ("the_clock_of_redis_steps", 3_600_000)
#: The owner learns the topic the first time, and pulls the message the second time.
PULLED_AHEAD: Path = (("schedule", "a", 20, False), CLOCK_OF_REDIS_AHEAD, CLOCK_OF_REDIS_AHEAD)
BOTH_CLOCKS_AHEAD: Path = (("schedule", "a", 3_000_000, False), ("both_clocks_are_far_ahead_for_a_while",))
NOBODY_HEARS: Step = ("everything_arrives_but_nobody_hears_of_it",)
REDRIVEN: Path = (("schedule", "a", 20, False), NOBODY_HEARS, ("redrive", "a", 20), ("cancel", "a"))
FAILED: Path = (*PULLED, ("send_ends", 0, 0, "unavailable"), TICK)
READ: Step = ("a_node_reads_the_policies", 0)
USED_AGAIN: Step = ("cancel_and_use_the_id_again", "a")

#: A message that waits behind its key is cancelled, and its turn comes later.
CANCELLED_BEHIND_ITS_KEY: Path = (
    ("schedule", "d.00aa", 1, False),
    ("schedule", "e.00aa", 2, False),
    ("time_passes", 20),
    TICK,
    TICK,
    ("cancel", "e.00aa"),
    ("time_passes", 1_000),
    ("send_ends", 0, 0, "ok"),
    TICK,
    TICK,
)
#: The clock of Redis makes Redis hand out a message whose due time is ahead again.
RETRIED_BEFORE_THE_OFFSET: Path = (
    USED_AGAIN,
    ("the_clock_of_a_node_steps", 0, -20),
    NOBODY_HEARS,
    USED_AGAIN,
    CLOCK_OF_REDIS_AHEAD,
    NOBODY_HEARS,
)
#: The second message is due before the moment that the owner sleeps for. The tick only moves its next look.
DUE_BEFORE_THE_NEXT_LOOK: Path = (
    ("schedule", "a", 20, False),
    TICK,
    ("schedule", "b", 10, False),
    TICK,
    ("time_passes", 10),
)


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
        path=(*PULLED_AHEAD, ("cancel", "a")),
    ),
    Mutant(
        "forgetting exposed",
        (
            ("cancel", _CERTAIN, "local certain = untouched(record, due, floor, paused)"),
            ("reschedule", _MOVABLE, "if not untouched(record, score, floor_of_certainty(state, now)) then"),
        ),
        says="was in flight before, yet it was cancelled for certain",
        path=REDRIVEN,
    ),
    Mutant(
        "removing before delivering",
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
        says="is gone and was never delivered",
        path=PULLED,
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
        path=(*PULLED, ("cancel", "a"), ("schedule", "b", 0, False), TICK, TICK),
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
        says="is gone and was never delivered",
        path=(
            ("schedule", "a", 1, False),
            ("time_passes", 20),
            TICK,
            TICK,
            USED_AGAIN,
            ("send_ends", 0, 0, "ok"),
            TICK,
        ),
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
        path=(*PULLED, ("schedule", "b", 1, False), ("time_passes", 1)),
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
        path=(("schedule", "a", 20, False), NOBODY_HEARS, ("redrive", "a", 0), TICK, USED_AGAIN, NOBODY_HEARS),
    ),
    Mutant(
        "redrive that forgets exposed",
        (("redrive", "redis.call('HSET', attempts, id, '0')", ""),),
        says="was in flight before, yet it was cancelled for certain",
        path=REDRIVEN,
    ),
    Mutant(
        "a certain cancel by the clock alone",
        (("cancel", _CERTAIN, "local certain = place == 'pending' and due > now"),),
        says="was sent, yet it was cancelled for certain",
        path=(*FAILED, ("cancel", "a")),
    ),
    Mutant(
        "a reschedule by the clock alone",
        (("reschedule", _MOVABLE, "if not score or score <= now then"),),
        says="was sent, yet it was rescheduled",
        path=(*FAILED, ("reschedule", "a", 25)),
    ),
    Mutant(
        "lowering the watermark without exposing",
        (("pull", "redis.call('HSETNX', attempts_key, sub(page[i], 1, -9), '0')", ""),),
        says="was sent, yet it was cancelled for certain",
        path=(*BOTH_CLOCKS_AHEAD, TICK, ("cancel", "a")),
    ),
    Mutant(
        "firing by the later of two clocks",
        (("pull", "tonumber(ARGV[3]) < now then", "tonumber(ARGV[3]) > now then"),),
        says="ms early",
        path=(("the_clock_of_a_node_steps", 0, 20), ("schedule", "a", 20, False), TICK, TICK),
    ),
    Mutant(
        "an ended id that stands for any content",
        (("schedule", "digest ~= digest_of(content, asked)", "false"),),
        says="though the call was other",
        path=(
            ("schedule", "a", 1, False),
            ("time_passes", 20),
            TICK,
            TICK,
            ("send_ends", 0, 0, "ok"),
            TICK,
            ("schedule", "a", 20, False),
        ),
    ),
)

#: Shown by the machine with pauses.
OF_PAUSES = (
    Mutant(
        "a mark of now alone",
        (("apply_policies", "math.max(clock(ARGV[1]), tonumber(known[3] or '') or -1,", "math.max(clock(ARGV[1]),"),),
        says="was sent, yet it was cancelled for certain",
        path=(*BOTH_CLOCKS_AHEAD, ("pause", "g.*"), ("cancel", "a")),
    ),
    Mutant(
        "the latest mark",
        (("cancel", "if one[2] < lowest and", "if (lowest == math.huge or one[2] > lowest) and"),),
        says="was held all along",
        path=(("pause", "g.*"), ("schedule", "a", 5, False), ("time_passes", 8), ("pause", "*"), ("cancel", "a")),
    ),
    Mutant(
        "a mark that outlives its pause",
        (
            (
                "apply_policies",
                "redis.call('HDEL', state, 'paused')",
                "redis.call('HDEL', state, 'paused') redis.call('HSET', state, 'marks', known[2] or '')",
            ),
            (
                "apply_policies",
                "string.gmatch(paused,",
                "string.gmatch(paused .. '\\n' .. (redis.call('HGET', state, 'marks') or ''),",
            ),
        ),
        says="was sent, yet it was cancelled for certain",
        path=(
            ("pause", "g.t"),
            ("schedule", "a", 5, False),
            ("resume", "g.t"),
            READ,
            ("time_passes", 8),
            TICK,
            TICK,
            ("pause", "g.t"),
            ("cancel", "a"),
        ),
    ),
    Mutant(
        "force that outlives its attempt",
        (("retry", "string.format('%.0f', tries + 1)", "'+0' .. string.format('%.0f', tries + 1)"),),
        says="is sent after its topic was paused",
        path=(
            ("pause", "g.t"),
            READ,
            ("schedule", "a", 5, False),
            ("deliver_now", "a", True),
            TICK,
            TICK,
            ("send_ends", 0, 0, "unavailable"),
            TICK,
            ("time_passes", 20),
            TICK,
            TICK,
        ),
    ),
    Mutant(
        "policies that wake nobody",
        (("apply_policies", "redis.pcall('PUBLISH', ARGV[2], 'policies')", ""),),
        says="sleeps on when the queue has other policies",
        path=(
            ("pause", "g.t"),
            READ,
            ("schedule", "a", 5, False),
            ("time_passes", 8),
            TICK,
            TICK,
            TICK,
            ("resume", "g.t"),
        ),
    ),
    Mutant(
        "a pull that hands out what its queue pauses",
        (("pull", "return mark_of ~= nil and mark_of(topic) < math.huge", "return false"),),
        says="after its topic was paused",
        path=(
            ("schedule", "a", 5, False),
            ("schedule", "s1", 5, False),
            TICK,
            ("pause", "*"),
            READ,
            ("time_passes", 8),
            TICK,
            TICK,
        ),
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
