"""status."""

from __future__ import annotations

from delayq.cli.options import AsJson, RedisUrl, connect
from delayq.client.findings.check import CRITICAL
from delayq.text.answers import status_out
from delayq.text.output import Output, say

__all__ = ["status"]


def status(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print what is wrong, the worst first, and what to do.

    Exit 1 if something of it is critical.
    """
    with connect(redis_url) as client:
        answer = status_out(client.status())
    if json:
        Output().json(answer)
    elif answer.findings:
        rows = ((one.severity, one.code, one.since or None, one.text) for one in answer.findings)
        Output().table(("severity", "code", "since", "what, and what to do"), rows)
    else:
        say("nothing is wrong.")
    return int(any(one.severity == CRITICAL for one in answer.findings))
