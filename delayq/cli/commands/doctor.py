"""The command doctor: report problems, and repair lost tickets."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

from delayq.answers.service import status_out
from delayq.base.clock import SystemClock
from delayq.base.local_time import in_sentence
from delayq.base.progress import Progress
from delayq.base.terminal import Output
from delayq.cli.options import AsJson, Reason, RedisUrl, by_me, option, settings_of
from delayq.client.findings import worst_first
from delayq.doctor import FAIL, Check, examine
from delayq.store.connect.store import Store
from delayq.store.keys import Keys

#: The length of the longest name of a check.
NAME = 12
_STYLES = {"ok": "green", "info": "cyan", "warn": "yellow", "fail": "red"}


def doctor(
    repair: Annotated[
        bool, option("--repair", help="Restore lost tickets, so that their messages are delivered.")
    ] = False,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Check Redis, clocks, layout, workers and queues deeply.

    Exit 1 if a check fails. Only --repair writes to Redis.
    """
    output = Output()
    checks: list[Check] = []
    settings = settings_of(redis_url)
    settings.route_table()  # refuses a table that a worker with these settings would refuse
    with (
        closing(
            Store(settings.redis_url, keys=Keys(settings.namespace), timeout=settings.redis_timeout / 1000)
        ) as store,
        Progress("repairing" if repair else "checking") as progress,
    ):

        def show(queue: int, looked: int, total: int) -> None:
            progress.show(f"queue {queue}: {looked:,} of {total:,} messages")

        for check in examine(store, settings, SystemClock(), show if repair else None, by_me(reason)):
            checks.append(check)
            if not json:
                with progress.hidden():
                    _print(output, check)
    failed = any(check.result == FAIL for check in checks)
    if json:
        told = [{name: getattr(check, name) for name in ("name", "result", "text", "mend")} for check in checks]
        findings = status_out(worst_first(checks)).findings
        output.json({"healthy": not failed, "checks": told, "findings": findings})
    return 1 if failed else 0


def _print(output: Output, check: Check) -> None:
    heads = ((check.result, 5, _STYLES[check.result]), (check.name, NAME + 1, "bold"))
    output.remark(heads, ((in_sentence(check.text), ""), (in_sentence(check.mend), "italic")))
