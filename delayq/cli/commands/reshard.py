"""The command reshard."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from delayq.base.clock import SystemClock
from delayq.base.terminal import Output, say
from delayq.care.resharding import ReshardStep
from delayq.care.resharding import reshard as steps_of
from delayq.cli.options import AsJson, Reason, RedisUrl, by_me, connect, option
from delayq.client.audit import entry_of
from delayq.store import commands

MOST: Final = 16_384
#: Wider than the longest name of a step.
STEP: Final = 10
NEXT: Final = (
    "a worker drops old queues once they are empty and their ended ids are forgotten; before that, unset "
    "DELAYQ_QUEUES or set it to {queues}"
)


def reshard(
    queues: Annotated[int, typer.Option("--queues", metavar="N", min=1, max=MOST, help="Number of queues.")],
    dry_run: Annotated[bool, option("--dry-run", help="Only print the steps.")] = False,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Change the number of queues while delayq runs.

    No message moves: old queues are closed, and dropped when they are empty. If the command is interrupted, run it
    again.
    """
    output = Output()
    steps: list[ReshardStep] = []
    entry = ""
    with connect(redis_url) as client:
        if not dry_run and client.store.run(commands.layouts(client.store.keys)):
            # The promises of a client hold here too.
            entry = entry_of(by_me(reason), "reshard", client.context().retention)
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
