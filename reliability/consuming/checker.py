"""Checks the records of a run: nothing lost, no two valid leases of a message, nothing received after its acknowledgement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reliability.consuming.records import Line

__all__ = ["Verdict", "check"]


class _Claim(NamedTuple):
    """A time in which a consumer held a valid lease (Unix ms)."""

    begin: int
    end: int
    lease: str


@dataclass
class Verdict:
    """The counts of a run; each example is a message with the times that break a promise."""

    messages: int = 0
    leases: int = 0
    handled: int = 0
    handed_back: int = 0
    dead: int = 0
    lost_leases: int = 0
    failed_calls: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)  # two valid leases at once
    again: list[str] = field(default_factory=list)  # received after an answered acknowledgement
    others: list[str] = field(default_factory=list)  # processes that ended by themselves, consumers that do not recover

    @property
    def is_good(self) -> bool:
        """Whether every promise is kept, and the run did something."""
        return not (self.lost or self.doubled or self.again or self.others) and self.handled > 0

    @property
    def line(self) -> str:
        """The result in one line."""
        return (
            f"messages {self.messages}, leases {self.leases}, handed back {self.handed_back}, dead letters {self.dead}, "
            f"lost {len(self.lost)}, two valid leases {len(self.doubled)}, received after acknowledgement {len(self.again)}"
        )


def check(accepted: Iterable[str], groups: Mapping[str, Iterable[Iterable[Line]]], dead: frozenset[str]) -> Verdict:
    """Check the lines of the consumers of each group; `dead` has the ids of all dead letters."""
    verdict = Verdict(dead=len(dead))
    wanted = list(accepted)
    verdict.messages = len(wanted)
    for group, consumers in groups.items():
        handled = _check_group(verdict, group, [line for lines in consumers for line in lines])
        verdict.handled += len(handled)
        verdict.lost += [f"{id} of {group}" for id in wanted if id not in handled and f"{id}:{group}" not in dead]
    return verdict


def _check_group(verdict: Verdict, group: str, lines: list[Line]) -> set[str]:
    """Add the findings of a group; the ids that were handled."""
    claims: dict[str, list[_Claim]] = defaultdict(list)
    acknowledged: dict[str, tuple[int, str]] = {}
    handled: set[str] = set()
    handing: set[str] = set()
    for at, what, id, lease, more in sorted(lines, key=lambda line: line[0]):
        if what == "leased":
            verdict.leases += 1
            if id in acknowledged and acknowledged[id][0] < at and acknowledged[id][1] != lease:
                verdict.again.append(f"{id} of {group}: acknowledged at {acknowledged[id][0]}, received at {at}")
        if what in ("leased", "extended"):
            claims[id].append(_Claim(at, more, lease))
        elif what in ("handled", "returns"):
            claims[id] = [one._replace(end=min(one.end, at)) if one.lease == lease else one for one in claims[id]]
            if what == "handled":
                handled.add(id)
            else:
                handing.add(lease)
        elif what == "settled":
            verdict.lost_leases += more == "lost"
            verdict.handed_back += more == "handedBack"
            if more == "acknowledged" and lease not in handing:
                acknowledged.setdefault(id, (at, lease))
        elif what == "failed":
            verdict.failed_calls += 1
    for id, held in claims.items():
        latest: _Claim | None = None
        for one in sorted(claim for claim in held if claim.end > claim.begin):
            if latest is not None and one.lease != latest.lease and one.begin < latest.end:
                verdict.doubled.append(f"{id} of {group}: until {latest.end}, and again from {one.begin}")
            if latest is None or one.end > latest.end:
                latest = one
    return handled
