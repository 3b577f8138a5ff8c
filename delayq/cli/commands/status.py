"""status, overview, me."""

from __future__ import annotations

from importlib.metadata import version

from delayq.answers.service import overview_out, status_out
from delayq.api_keys import SCOPES
from delayq.cli.options import AsJson, RedisUrl, connect, who
from delayq.client.findings.check import CRITICAL
from delayq.local_time import in_sentence, shown
from delayq.nodes import LATENESS
from delayq.terminal import Output, say

__all__ = ["me", "overview", "status"]


def status(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print what is wrong, the worst first, and what to do.

    Exit 1 if a finding is critical, 0 with warnings, information or nothing, 2 if Redis does not answer.
    """
    with connect(redis_url) as client:
        answer = status_out(client.status())
    if json:
        Output().json(answer)
    elif answer.findings:
        rows = (
            (one.severity, one.code, shown(one.since or None), in_sentence(one.text or "")) for one in answer.findings
        )
        Output().table(("severity", "code", "since", "finding"), rows)
    else:
        say("nothing is wrong.")
    return int(any(one.severity == CRITICAL for one in answer.findings))


def overview(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print everything at a glance.

    How much there is of what, how much went out in the last ten minutes and how late, how many findings there are.
    """
    with connect(redis_url) as client:
        answer = overview_out(client.overview())
    whole = answer.traffic.whole if answer.traffic is not None else None
    figures = {name: getattr(answer, name).count for name in ("scheduled", "due", "held", "parked", "dead")} | {
        "late ms": answer.head_lateness,
        "forwarded a second": None if whole is None else whole.forwarded,
        "lateness p50 ms": None if whole is None else _lateness(whole.p50_ms, whole.forwarded),
        "lateness p99 ms": None if whole is None else _lateness(whole.p99_ms, whole.forwarded),
        "live nodes": answer.live_nodes,
        "stale nodes": answer.stale_nodes,
        "findings": len(answer.findings),
        "now": shown(answer.now),
    }
    Output().answer(json, answer, figures.items())
    return 0


def _lateness(ms: float | None, forwarded: float) -> float | str | None:
    """A percentile, which is null if nothing was forwarded, and if it lies above the last bucket."""
    return f"more than {LATENESS[-1] / 60:.0f} min" if ms is None and forwarded else ms


def me(json: AsJson = False) -> int:
    """Print who the command line is: what its changes are written down under."""
    answer = {
        "name": who(), "scopes": {"*": list(SCOPES)}, "version": version("delayq"), "console": "no", "session": False,
    }  # fmt: skip
    Output().answer(json, answer, [("name", answer["name"]), ("version", answer["version"])])
    return 0
