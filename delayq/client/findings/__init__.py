"""The findings, worst first, with their remedies: one list for `GET /v1/status`, `/readyz` and `delayq doctor`.

A check reads only `Facts`. To add one, write a function in this folder and add it to `SERVER` or `QUEUES`. Each alert
of Prometheus has a finding (`alerts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from delayq.base.errors import StoreRefused
from delayq.client.findings.api import check_api_keys
from delayq.client.findings.check import FAIL, INFO, OK, SEVERITIES, WARN, Check, Finding
from delayq.client.findings.consumers import check_consumers
from delayq.client.findings.durability import check_durability
from delayq.client.findings.facts import Facts, read_facts
from delayq.client.findings.owners import check_owners
from delayq.client.findings.policies import check_pauses, check_unused_policies, check_versions
from delayq.client.findings.queues import (
    check_accounts,
    check_dead_letters,
    check_full_queue,
    check_late,
    check_layout,
    check_parked_routes,
    check_parked_streams,
    check_reshard,
)
from delayq.client.findings.server import check_server
from delayq.client.findings.workers import (
    check_circuits,
    check_claims,
    check_complaints,
    check_coordinators,
    check_failures,
    check_lateness,
    check_silent,
    check_skew,
    check_unused_routes,
    check_went_back,
)

__all__ = [
    "FAIL", "INFO", "OK", "QUEUES", "SERVER", "WARN", "Check", "Facts", "Finding", "away", "findings", "read_facts",
    "worst_first",
]  # fmt: skip

Look = Callable[[Facts], Iterator[Check]]

#: Checks of the server, and checks of the queues, which run only if this version of delayq knows the layout.
SERVER: Final[tuple[Look, ...]] = (check_server, check_durability, check_layout, check_api_keys)
QUEUES: Final[tuple[Look, ...]] = (
    check_reshard, check_owners, check_parked_routes, check_parked_streams, check_circuits, check_complaints,
    check_silent, check_skew, check_coordinators, check_failures, check_went_back, check_claims, check_pauses,
    check_versions, check_late, check_lateness, check_dead_letters, check_consumers, check_accounts,
    check_unused_routes, check_unused_policies, check_full_queue,
)  # fmt: skip


def findings(facts: Facts) -> list[Finding]:
    """Return the findings, the worst first, and the oldest first within a severity."""
    looks = SERVER + (QUEUES if facts.layouts else ())
    return worst_first(check for look in looks for check in look(facts))


def worst_first(checks: Iterable[Check]) -> list[Finding]:
    """Return the checks that have not passed as findings, in order."""
    found = [Finding.of(check) for check in checks if check.result != OK]
    rank = list(SEVERITIES.values()).index
    return sorted(found, key=lambda one: (rank(one.severity), one.since is None, one.since or 0))


def away(error: Exception, since: int) -> list[Finding]:
    """The finding if Redis cannot be read."""
    mend = "check that it runs, and that this machine can reach it"
    if isinstance(error, StoreRefused):
        mend = "check the password and the rights of its user: docs/operations.md lists all rights"
    return [
        Finding.of(
            Check("redis", FAIL, f"Redis returns no figures: {error}", mend, since=since, runbook="delayqredisdown")
        )
    ]
