"""Checks the records of a run.

Nothing is lost, no message has two valid leases, nothing is received after its acknowledgement, and no message overtakes
another one of its ordering key.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from delayq.store.keys import dead_id
from reliability.consuming.records import Line

#: The first id of a message in the id of each of its hand-backs and dead letters.
_ORIGIN: Final = re.compile(r"m-\d+")


class Turn(NamedTuple):
    """The place of a message in the order of its key: messages of a lane are received by their due times (Unix ms)."""

    lane: str
    due: int


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
    overtaken: list[str] = field(default_factory=list)  # received after a later message of its ordering key
    others: list[str] = field(default_factory=list)  # processes that ended by themselves, consumers that do not recover

    @property
    def is_good(self) -> bool:
        """Whether every promise is kept, and the run did something."""
        wrong = self.lost or self.doubled or self.again or self.overtaken or self.others
        return not wrong and self.handled > 0

    @property
    def line(self) -> str:
        """The result in one line."""
        return (
            f"messages {self.messages}, leases {self.leases}, handed back {self.handed_back}, dead letters {self.dead}, "
            f"lost {len(self.lost)}, two valid leases {len(self.doubled)}, received after acknowledgement {len(self.again)}, "
            f"overtaken {len(self.overtaken)}"
        )


def check(
    accepted: Iterable[str],
    groups: Mapping[str, Iterable[Iterable[Line]]],
    dead: frozenset[str],
    turns: Mapping[str, Turn] | None = None,
) -> Verdict:
    """Check the lines of the consumers of each group.

    `dead` has the ids of all dead letters, and `turns` the places of the messages with an ordering key.
    """
    verdict = Verdict(dead=len(dead))
    wanted = list(accepted)
    verdict.messages = len(wanted)
    for group, consumers in groups.items():
        lines = sorted((line for lines in consumers for line in lines), key=lambda line: line[0])
        handled = _check_group(verdict, group, lines)
        verdict.handled += len(handled)
        verdict.lost += [f"{id} of {group}" for id in wanted if id not in handled and dead_id(id, group) not in dead]
        verdict.lost += [
            f"{id} of {group}, handed back to its own topic" for id in _lost_on_the_way(group, lines, dead)
        ]
        _check_order(verdict, group, lines, turns or {})
    return verdict


def _lost_on_the_way(group: str, lines: list[Line], dead: frozenset[str]) -> set[str]:
    """The first ids of messages that a group handed back to its own topic, and that never arrived there."""
    moved = {_origin(id) for _, what, id, _, _ in lines if what == "moved"}
    arrived = {_origin(id) for _, what, id, _, more in lines if what == "handled" and more == "moved"}
    buried = {_origin(id) for id in dead if ".b" in id and f":{group}" in id}
    return moved - arrived - buried


def _origin(id: str) -> str:
    found = _ORIGIN.match(id)
    return found[0] if found else id


def _check_order(verdict: Verdict, group: str, lines: list[Line], turns: Mapping[str, Turn]) -> None:
    """Add the messages that a group first received after a later one of their ordering key."""
    latest: dict[str, tuple[int, int, str]] = {}
    seen: set[str] = set()
    for at, what, id, _, _ in lines:
        turn = turns.get(id)
        if what != "leased" or turn is None or id in seen:
            continue
        seen.add(id)
        due, since, other = latest.get(turn.lane, (0, 0, ""))
        if turn.due >= due:
            latest[turn.lane] = (turn.due, at, id)
        elif at > since:
            verdict.overtaken.append(f"{id} of {group}: received at {at}, after {other} of the same key")


def _check_group(verdict: Verdict, group: str, lines: list[Line]) -> set[str]:
    """Add the findings of a group, whose lines are in order; the ids that were handled."""
    claims: dict[str, list[_Claim]] = defaultdict(list)
    acknowledged: dict[str, tuple[int, str]] = {}
    handled: set[str] = set()
    handing: set[str] = set()
    for at, what, id, lease, more in lines:
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
