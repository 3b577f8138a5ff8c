"""Rules of scripts and owner, each taken out, and the traffic and faults that show it: the negative controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from delayq.store import scripts
from delayq.targets import OK
from reliability.chaos.faults import Fault
from reliability.mutants.rules import MUTANTS as RULES
from reliability.mutants.rules import Mutant as Rule
from reliability.mutants.rules import mutated
from workers.queue.cursor import Cursor
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets


def _target_hangs(at: float, seconds: float) -> Fault:
    return Fault(at, "pause-target", 0, seconds)


def _target_refuses(at: float, seconds: float) -> Fault:
    return Fault(at, "refuse-worker-target", -1, seconds)


def _few(kind: str) -> tuple[Fault, ...]:
    """Few sends at a time, so that the circuit stays closed."""
    return tuple(Fault(0.8 + 0.8 * number, kind, -1, 0.25) for number in range(5))


_ANSWERS_LOST = _few("mute-worker-target")
_SENDS_LOST = _few("hole-worker-target")
_CANCELS_LATE = {"cancelled": 0.9, "moved": 0.0, "after_due": 1.0, "after": (250, 1_250), "senders": 2}


@dataclass(frozen=True)
class Mutant:
    """`finds` is what the verdict must call wrong; `traffic` are options of the run."""

    name: str
    finds: tuple[str, ...]
    faults: tuple[Fault, ...]
    traffic: Mapping[str, Any] = field(default_factory=dict)
    changes: tuple[tuple[str, str, str], ...] = ()
    owner: Callable[[], None] | None = None


def _rule(name: str) -> tuple[tuple[str, str, str], ...]:
    """The changes of a mutant of the state machine."""
    (found,) = (one for one in RULES if one.name == name)
    return found.changes


# -- owners that do what they must not ---------------------------------------------------------------------------------


def _ack_whatever_the_target_says() -> None:
    sent = InFlight.sent
    InFlight.sent = lambda self, batch, results, now: sent(self, batch, [OK] * len(batch), now)  # type: ignore[method-assign]  # it is what this is for


def _never_look_back() -> None:
    Cursor.rewind = lambda self, due: None  # type: ignore[method-assign]  # it is what this is for


def _forget_what_was_parked_before() -> None:
    ParkedSets.read = lambda self, names, now, *, every, pending=(): None  # type: ignore[method-assign]  # it is what this is for


MUTANTS = (
    Mutant(
        "a cancel that does not ask for the watermark", ("hard-cancel violations",),
        (_target_hangs(1, 2.2),), {"cancelled": 0.4, "moved": 0.0, "after_due": 0.7},
        changes=(("cancel", *_rule("no watermark")[0][1:]),),
    ),
    Mutant(
        "forgetting exposed", ("hard-cancel violations",), _ANSWERS_LOST, _CANCELS_LATE,
        changes=(("cancel", *_rule("forgetting exposed")[0][1:]),),
    ),
    Mutant(
        "removing before delivering", ("lost",), (_target_hangs(1, 2.2), Fault(2.2, "kill-worker", 0, 0.2)),
        changes=_rule("removing before delivering"),
    ),
    Mutant(
        "a rank as offset", ("lost",), (_target_hangs(1, 1.5), _target_refuses(3, 1)), {"cancelled": 0.3},
        changes=_rule("a rank as offset"),
    ),
    Mutant(
        "pulling what is not due yet", ("early",), (Fault(1, "reset-worker-redis", -1, 0),),
        changes=(("pull", "local FEW, due_by, now_text = 4, now,", "local FEW, due_by, now_text = 4, now + 25,"),),
    ),
    Mutant(
        "moving what is in flight", ("early",), (_target_hangs(1, 2),), {"moved": 0.5, "after_due": 0.7},
        changes=(("reschedule", *_rule("no watermark")[1][1:]),),
    ),
    Mutant(
        "a schedule that forgets what has ended", ("doubled by the one script",),
        tuple(Fault(at, "mute-api-redis", -1, 0.5) for at in (1, 2.5, 4)), {"short": 0.7},
        changes=(("schedule", "local how, _, digest = ending(score, by_both, window)", "local how, digest"),),
    ),
    Mutant(
        "parking without a place to park", ("lost",), (_target_refuses(1, 2),),
        changes=(("park", "redis.call('ZADD', parked, unpack(set_aside))", ""),),
    ),
    Mutant(
        "a retry that lets go", ("lost",), _SENDS_LOST, {"senders": 2},
        changes=(("retry", "redis.call('ZADD', queue, ARGV[i + 3], ticket)", "redis.call('ZREM', queue, ticket)"),),
    ),
    Mutant(
        "an owner that acks whatever the target answers", ("lost",),
        tuple(_target_refuses(at, 0.5) for at in (1, 2.5, 4)),
        owner=_ack_whatever_the_target_says,
    ),
    Mutant(
        "an owner that never looks back", ("lost",), (_target_refuses(1, 2),), owner=_never_look_back,
    ),
    Mutant(
        "a new owner that forgets what was parked", ("lost",), (_target_refuses(1, 0.8), Fault(1.6, "kill-worker", 0, 3.5)),
        owner=_forget_what_was_parked_before,
    ),
)  # fmt: skip


def plant(mutant: Mutant) -> None:
    """Change this process."""
    vars(scripts)["source"] = mutated(Rule(mutant.name, mutant.changes))
    scripts.load.cache_clear()
    if mutant.owner is not None:
        mutant.owner()
