"""The checks of ownership: whether a live node owns each queue under the epoch in Redis, and the reason if not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from delayq.client.findings.check import FAIL, OK, WARN, Check, name_queues
from delayq.client.findings.facts import Facts
from delayq.domain.nodes import LINE_AGE, SAME_NAME, NodeLine, era_of, owners_of
from delayq.domain.words import counted
from delayq.store.commands import QueueStats

_BUMP: Final = "delayq era bump"
_LATER: Final = "of a later era than the current one, {era}, as when the era in Redis was restored or edited"


class _Seen(msgspec.Struct, frozen=True):
    """The facts of the check: live nodes, queues, their owners, the era of new epochs and the time."""

    live: list[NodeLine]
    stats: Mapping[int, QueueStats]
    owners: dict[int, str]
    era: int
    now: int

    def later(self) -> list[int]:
        """The queues whose epoch has a later era: no epoch of the current era can be higher."""
        return [queue for queue, one in self.stats.items() if era_of(one.epoch) > self.era]

    def below(self, queue: int) -> list[NodeLine]:
        """The live nodes that claim a queue under an epoch lower than that of Redis."""
        stored = self.stats[queue].epoch or ""
        return [line for line in self.live if queue in line.queues and line.queues[queue].epoch < stored]

    def long_owned(self, queue: int) -> bool:
        """Return whether the owner has had it for so long that every node has read that."""
        (owned,) = (line.queues[queue] for line in self.live if line.node == self.owners[queue])
        return owned.since is not None and self.now - owned.since > LINE_AGE


def check_owners(facts: Facts) -> Iterator[Check]:
    """Return a check for each problem of ownership, or one passed check."""
    live, stats = facts.live, {one.queue: one for one in facts.stats}
    owners = owners_of(live, {one.queue: one.epoch for one in facts.stats})
    seen = _Seen(live, stats, owners, facts.era, facts.now)
    found = [*_lacking(seen), *_owned_beyond_the_era(seen), *_not_let_go(seen)]
    yield from found or [Check("owners", OK, f"every queue has an owner: {', '.join(sorted(set(owners.values())))}")]


def _lacking(seen: _Seen) -> Iterator[Check]:
    """Check for queues without a live owner, which matter if messages wait in them."""
    lacking = [queue for queue in seen.stats if queue not in seen.owners]
    if not lacking:
        return
    waiting = sum(seen.stats[queue].scheduled + seen.stats[queue].parked for queue in lacking)
    holding = f", with {counted(waiting, 'message', 'messages')} that no node delivers" if waiting else ""
    text = f"{name_queues(lacking)} without an owner{holding}"
    if seen.live:
        cause, mend = _cause(seen, lacking)
        fenced = sorted({line.node for queue in lacking for line in seen.below(queue)})
        off = f" ({_names(fenced)} fenced)" if fenced else ""
        text += f", though {_names([line.node for line in seen.live])} live{off}: {cause}"
    else:
        mend = "start a worker (python -m workers), or find out why the running one does not claim them"
    single = lacking[0] if len(lacking) == 1 else None
    section = "delayqqueuewithoutowner" if seen.live else "delayqnoworker"
    yield Check("owners", FAIL if waiting else WARN, text, mend, queue=single, runbook=section)


def _cause(seen: _Seen, lacking: Sequence[int]) -> tuple[str, str]:
    """The reason why live nodes cannot own queues, and the remedy."""
    if twins := [line.node for line in seen.live if any(one.code == SAME_NAME for one in line.complaints)]:
        return f"several workers have the name {', '.join(twins)}", "give each worker a DELAYQ_NODE of its own"
    kinds = sorted({line.coordinator for line in seen.live} - {""})
    if len(kinds) > 1:
        mend = f"start all workers with the same coordinator, then {_BUMP}"
        return f"they use different coordinators ({', '.join(kinds)}), which fence each other", mend
    if set(lacking) & set(seen.later()):
        return f"Redis has an epoch {_LATER.format(era=seen.era)}", _BUMP
    if any(seen.now - (moment or 0) <= LINE_AGE for line in seen.live for moment in (line.since, line.handed_over)):
        return "nodes were started, or handed queues over, within the last 15 s", "check again in 15 s"
    if kinds == ["zookeeper"] and any(seen.stats[queue].epoch for queue in lacking):
        cause = (
            "most likely ZooKeeper's data was deleted, or the coordinator was changed, so that new epochs are too low"
        )
        return cause, f"{_BUMP}; if that does not help, see the logs of the workers"
    if any(seen.stats[queue].epoch for queue in lacking):
        cause = "they were fenced by a node that is gone, or cannot claim"
        return cause, "check again in 15 s, when they claim the queues again; then see the logs of the workers"
    return "no node has ever claimed them", "see the logs of the workers for the reason"


def _owned_beyond_the_era(seen: _Seen) -> Iterator[Check]:
    """Check for queues that have an owner but that no other node could take over."""
    if later := [queue for queue in seen.later() if queue in seen.owners]:
        text = f"{name_queues(later)} owned under an epoch {_LATER.format(era=seen.era)}: ZooKeeper gives none above it"
        yield Check("owners", WARN, text, _BUMP, runbook="delayqqueuewithoutowner")


def _not_let_go(seen: _Seen) -> Iterator[Check]:
    """Check for queues that their former owner still claims although another node has owned them for a while."""
    old: dict[str, list[int]] = {}
    for queue in sorted(seen.owners):
        for line in seen.below(queue):
            if seen.long_owned(queue):
                old.setdefault(line.node, []).append(queue)
    for node, queues in old.items():
        text = f"{node} was fenced from {name_queues(queues)} more than 15 s ago and has not released them"
        mend = f"see the log of {node}, and restart it: its successor delivers the same messages"
        yield Check("owners", WARN, text, mend, node=node, runbook="delayqownerschange")


def _names(nodes: Sequence[str]) -> str:
    named = ", ".join(nodes[:8]) + (", …" if len(nodes) > 8 else "")
    return f"{named} {'is' if len(nodes) == 1 else 'are'}"
