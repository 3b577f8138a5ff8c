"""reshard."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from delayq.care.resharding import ReshardStep
from delayq.care.resharding import reshard as steps_of
from delayq.cli.options import AsJson, Reason, RedisUrl, by_me, connect, option
from delayq.client.audit import entry_of
from delayq.clock import SystemClock
from delayq.store import commands
from delayq.terminal import Output, say

__all__ = ["reshard"]

MOST: Final = 16_384
#: Wider than the longest name of a step.
STEP: Final = 10
NEXT: Final = (
    "a worker drops old queues once they hold nothing and the ids that ended in them are forgotten; unset DELAYQ_QUEUES, "
    "or set it to {queues}, before that"
)


def reshard(
    queues: Annotated[int, typer.Option("--queues", metavar="N", min=1, max=MOST, help="How many queues.")],
    dry_run: Annotated[bool, option("--dry-run", help="Only print the steps.")] = False,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Let new messages go to so many queues, while everything runs.

    No message is moved: the old queues are closed, and go when they are empty. If it is broken off, run it again.
    """
    output = Output()
    steps: list[ReshardStep] = []
    entry = ""
    with connect(redis_url) as client:
        if not dry_run and client.store.run(commands.layouts()):
            entry = entry_of(by_me(reason), "reshard", client.context().retention)  # whose promises hold here, too
        for step in steps_of(client.store, queues, SystemClock(), dry_run=dry_run, entry=entry):
            steps.append(step)
            if not json:
                output.remark(((step.step, STEP, "bold"),), ((step.text, ""),))
    if json:
        output.json({"dryRun": dry_run, "steps": [msgspec.to_builtins(step) for step in steps]})
    elif dry_run:
        say("nothing was changed.")
    else:
        say(f"{NEXT.format(queues=queues)}.")
    return 0
