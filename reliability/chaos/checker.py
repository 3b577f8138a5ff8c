"""Checks a recorded history: nothing lost, nothing early, nothing after a certain cancel, few duplicates."""

from __future__ import annotations

import re
from array import array
from binascii import crc_hqx
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reliability.chaos.history import FAULTS, FORWARDS, TRAFFIC, read

QUEUES = 16
MOST_EXAMPLES = 20
# The facts about a message, which takes 20 bytes here, so that a history of millions fits.
PLANNED, ACCEPTED, CANCELLED, EXCUSED, GENERAL, DOUBTFUL = 1, 2, 4, 8, 16, 32
#: The effect of each answer to a cancel. Without an answer it may have been carried out.
ENDS = {"cancelled": CANCELLED, "inFlight": EXCUSED, "delivered": 0, "unknown": DOUBTFUL}
_SUFFIX = re.compile(r"\.([0-9a-f]{4})$")


@dataclass
class Verdict:
    """The result. A message is accepted if the API answered so; `left` counts messages still pending at the end."""

    messages: int = 0
    unknown: int = 0  # requested, and never answered: they may be delivered or not
    forwarded: int = 0
    cancelled: int = 0
    faults: int = 0
    lost: int = 0
    early: int = 0
    after_cancel: int = 0
    duplicates: int = 0  # by the general path, which may repeat
    doubled: int = 0  # by the one script, which may not
    strangers: int = 0  # delivered, and never scheduled
    odd: int = 0  # answers that must not be
    over: int = 0  # duplicates beyond what the faults explain
    left: int = 0
    died: list[str] = field(default_factory=list)  # processes that ended by themselves
    examples: dict[str, list[Any]] = field(default_factory=dict)

    def example(self, kind: str, what: Any) -> None:
        """Keep some of what was found."""
        kept = self.examples.setdefault(kind, [])
        if len(kept) < MOST_EXAMPLES:
            kept.append(what)

    @property
    def wrong(self) -> dict[str, Any]:
        """The violations, by name."""
        every = {
            "lost": self.lost, "early": self.early, "hard-cancel violations": self.after_cancel,
            "doubled by the one script": self.doubled, "never scheduled": self.strangers, "odd answers": self.odd,
            "duplicates over the bound": self.over, "left in the queues": self.left, "died": self.died,
            "nothing was delivered": not self.forwarded, "no fault was injected": not self.faults,
        }  # fmt: skip
        return {name: value for name, value in every.items() if value}

    @property
    def line(self) -> str:
        """The last line of a run."""
        share = 100 * self.duplicates / max(1, self.messages)
        return (
            f"messages {self.messages}, faults {self.faults}, lost {self.lost}, early {self.early}, "
            f"hard-cancel violations {self.after_cancel}, duplicates {self.duplicates + self.doubled} ({share:.3f} %)"
        )


class _Messages:
    """The facts about each message in the traffic."""

    def __init__(self) -> None:
        self.flags = bytearray()
        self.floors = array("q")  # Unix ms before which it must not be delivered
        self.counts = array("H")
        self.doubts: dict[int, int] = {}  # the earliest due time of a move that may take effect at any time

    def planned(self, n: int, general: int, floor: int) -> None:
        if n >= len(self.flags):
            more = n + 1 - len(self.flags)
            self.flags.extend(bytes(more))
            self.floors.extend([0] * more)
            self.counts.extend([0] * more)
        self.flags[n] = PLANNED | (GENERAL if general else 0)
        self.floors[n] = floor

    def accepted(self, n: int, due: int | None) -> None:
        self.flags[n] |= ACCEPTED
        if due is not None:  # a delivered message has none
            self.floors[n] = due

    def moved(self, n: int, due: int) -> None:
        self.floors[n] = min(due, self.doubts.get(n, due))

    def perhaps_moved(self, n: int, due: int, *, late: bool) -> None:
        """`late`: the request may still be on its way, and be carried out after others."""
        self.floors[n] = min(self.floors[n], due)
        if late:
            self.doubts[n] = min(due, self.doubts.get(n, due))


def check(folder: Path, *, window: int, queues: int = QUEUES) -> Verdict:
    """Check the history in a folder; `window` is how many messages of a queue may be in flight."""
    verdict = Verdict()
    verdict.faults = sum(line["done"] is True for line in read(folder / FAULTS))
    messages = _Messages()
    for line in read(folder / TRAFFIC):
        _take(messages, verdict, line["what"], line["of"])
    repeated: Counter[int] = Counter()
    for line in read(folder / FORWARDS):
        general = line["stream"].startswith("general")
        for when, id, *_ in line["of"]:
            if _forwarded(messages, verdict, when, id, general=general):
                repeated[_queue_of(id) % queues] += 1
    for queue, count in repeated.items():
        if count > window * verdict.faults:
            verdict.over += count - window * verdict.faults
            verdict.example("over", [queue, count])
    for n, flags in enumerate(messages.flags):
        verdict.unknown += bool(flags) and not flags & ACCEPTED
        if flags & ACCEPTED:
            verdict.messages += 1
            verdict.cancelled += bool(flags & CANCELLED)
            if not messages.counts[n] and not flags & (CANCELLED | EXCUSED | DOUBTFUL):
                verdict.lost += 1
                verdict.example("lost", [n, "general" if flags & GENERAL else "stream", messages.floors[n]])
    return verdict


def _take(messages: _Messages, verdict: Verdict, what: str, of: list[list[Any]]) -> None:
    """One line of the traffic."""
    for n, *rest in of:
        if what == "schedule":
            messages.planned(n, *rest)
        elif what == "scheduled":
            messages.accepted(n, rest[0])
        elif what == "move":
            pass  # another line has the outcome
        elif what == "moved":
            messages.moved(n, rest[0])
        elif what in ("unmoved", "doubt"):
            # A refusal too: its request may have been repeated on the way, and the first one have moved it.
            messages.perhaps_moved(n, rest[0], late=what == "doubt")
        elif what == "ended" and rest[0] in ENDS:
            messages.flags[n] = messages.flags[n] & ~DOUBTFUL | ENDS[rest[0]]
        else:
            verdict.odd += 1
            verdict.example("odd", [n, what, *rest])


def _forwarded(messages: _Messages, verdict: Verdict, when: int, id: str, *, general: bool) -> bool:
    """One forward; whether it is a repetition that is allowed for."""
    head = id.partition(".")[0]
    n = int(head) if head.isdecimal() else -1
    if not 0 <= n < len(messages.flags) or not messages.flags[n]:
        verdict.strangers += 1
        verdict.example("strangers", [id, when])
        return False
    flags = messages.flags[n]
    first = not messages.counts[n]
    messages.counts[n] += 1
    verdict.forwarded += first
    if when < messages.floors[n]:
        verdict.early += 1
        verdict.example("early", [n, when, messages.floors[n]])
    if flags & CANCELLED:
        verdict.after_cancel += 1
        verdict.example("after_cancel", [n, when])
    if first:
        return False
    if general and flags & GENERAL:
        verdict.duplicates += 1
        return True
    verdict.doubled += 1
    verdict.example("doubled", [n, when])
    return False


def _queue_of(id: str) -> int:
    """The CRC-16 of an id, which selects its queue. It is written again here, so that the code under test is not used."""
    suffix = _SUFFIX.search(id)
    return int(suffix[1], 16) if suffix else crc_hqx(id.encode(), 0)
