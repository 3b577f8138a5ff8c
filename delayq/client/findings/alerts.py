"""The finding of each alert of Prometheus, so that the status is never fine while an alert fires.

observability/alerts.yaml has the rules. A test compares both lists and produces each finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The code of the finding that names the alert's section of docs/runbook.md.
ALERTS: Final[Mapping[str, str]] = {
    "DelayqNoWorker": "owners",
    "DelayqQueueWithoutOwner": "owners",
    "DelayqHeadOverdue": "late",
    "DelayqLate": "lateness",
    "DelayqStuckQueue": "worker",
    "DelayqQueueNotPulled": "worker",
    "DelayqDeadLettersGrowing": "deadLetters",
    "DelayqCircuitOpen": "circuit",
    "DelayqStreamRefuses": "streams",
    "DelayqPullJobFailures": "pullJobs",
    "DelayqOwnersChange": "ownersChange",
    "DelayqRedisDown": "redis",
    "DelayqRedisFull": "memory",
    "DelayqRedisDiskFailing": "aof",
    "DelayqRedisRewriteNeeded": "aof",
    "DelayqRedisWentBack": "wentBack",
    "DelayqAlarm": "accounts",
    "DelayqZooKeeperLost": "zookeeper",
    "DelayqClockSkew": "clockSkew",
    "DelayqPausedLong": "paused",
    "DelayqPoliciesLag": "policies",
    "DelayqApiKeysStale": "apiKeys",
    "DelayqConsumerLag": "consumers",
}

#: The alerts without a finding, and the reason.
ONLY_PROMETHEUS: Final[Mapping[str, str]] = {
    "DelayqNoApi": "API processes write nothing to Redis, so only Prometheus, which scrapes them, knows that none runs",
    "DelayqApiErrors": "each API process counts its own answers, and only Prometheus scrapes all of them",
    "DelayqDueBacklogGrowing": "a trend of 15 minutes, but Redis has no history; later the finding is `late`",
    "DelayqHeldGrows": "a trend of 10 minutes, but Redis has no history; held messages are a figure of the overview",
}
