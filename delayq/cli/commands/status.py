"""The commands status, overview and me."""

from __future__ import annotations

from importlib.metadata import version

from delayq.answers.service import overview_out, status_out
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, say
from delayq.cli.options import ApiUrl, AsJson, RedisUrl, api_url_of, connect_any, who
from delayq.client.findings.check import CRITICAL
from delayq.domain.api_keys import SCOPES
from delayq.domain.nodes import LATENESS


def status(redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print findings, worst first, with their remedies.

    Exit 1 if a finding is critical. Exit 0 for warnings, information or nothing. Exit 2 if Redis does not answer.
    """
    with connect_any(redis_url, api) as client:
        answer = status_out(client.status())
    if json:
        Output().json(answer)
    elif answer.findings:
        rows = (
            (one.severity, one.code, shown(one.since or None), in_sentence(one.text or "")) for one in answer.findings
        )
        Output().table(("severity", "code", "since", "finding"), rows)
    else:
        say("no problems found.")
    return int(any(one.severity == CRITICAL for one in answer.findings))


def overview(redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print the figures of the service.

    Messages by state, deliveries of the last ten minutes and their lateness, nodes, findings, and all counters.
    """
    with connect_any(redis_url, api) as client:
        answer = overview_out(client.overview())
    total = answer.traffic.total if answer.traffic is not None else None
    figures = {name: getattr(answer, name).count for name in ("scheduled", "due", "held", "parked", "dead")} | {
        "remembered": answer.remembered,
        "late ms": answer.head_lateness,
        "delivered a second": None if total is None else total.delivered,
        "lateness p50 ms": None if total is None else _lateness(total.p50_ms, total.delivered),
        "lateness p99 ms": None if total is None else _lateness(total.p99_ms, total.delivered),
        "queues": answer.queues,
        "live nodes": answer.live_nodes,
        "stale nodes": answer.stale_nodes,
        "redis bytes": answer.memory.bytes,
        "redis maxmemory": answer.memory.max_bytes,
        "findings": len(answer.findings),
        "now": shown(answer.now),
    }
    counters = {f"{name} in all": count for name, count in answer.counters.items()}
    Output().answer(json, answer, (figures | counters).items())
    return 0


def _lateness(ms: float | None, delivered: float) -> float | str | None:
    """Format a percentile, which is null if nothing was delivered, or if it lies above the last bucket."""
    return f"more than {LATENESS[-1] / 60:.0f} min" if ms is None and delivered else ms


def me(api: ApiUrl = None, json: AsJson = False) -> int:
    """Print the name under which the audit records your changes."""
    answer = {
        "name": who(), "scopes": {"*": list(SCOPES)}, "version": version("delayq"), "console": "no", "session": False,
    }  # fmt: skip
    if (url := api_url_of(None, api)) is not None:
        from delayq.http.client import Client

        with Client(url) as client:
            answer = client.me()
    Output().answer(json, answer, [("name", answer["name"]), ("version", answer["version"])])
    return 0
