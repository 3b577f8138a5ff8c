"""The command backfill undo."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.base.errors import InvalidMessage, StoreError
from delayq.base.progress import Progress
from delayq.base.terminal import Output, say
from delayq.care.undo_run import Undone
from delayq.care.undo_run import undo as steps_of
from delayq.cli.options import AsJson, BadUse, Reason, RedisUrl, by_me, connect
from delayq.domain.message import RUN_PROPERTY, Message
from delayq.domain.words import counted


def undo(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run, as backfill names it.")],
    reason: Reason = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Cancel the pending messages of a backfill run.

    Needs no Spark. Exit 1 if some messages were too late, or none was found.
    """
    if not run:
        raise BadUse("RUN: is empty")
    undone = Undone()
    with connect(redis_url) as client:
        context = client.context()
        try:
            Message(topic="t", delay_time=0, properties={RUN_PROPERTY: run}).validate(context.limits, 0)
        except InvalidMessage as error:
            raise BadUse(f"RUN: {error.reason}") from None
        try:
            with Progress(f"undoing the run {run}") as progress:
                for step in steps_of(client.store, context, run, by_me(reason)):
                    undone = step.undone
                    of = f"{step.looked:,} of {step.total:,} messages"
                    progress.show(f"queue {step.queue}: {of}, {undone.cancelled:,} cancelled")
        except StoreError as error:
            if undone == Undone():
                raise
            _print(run, undone, json)
            raise BadUse(f"{error}; the run is only partly undone: run the same command again") from None
    _print(run, undone, json)
    if undone == Undone():
        say(f"no message of the run {run} is pending.")
    elif undone.dead:
        say(
            f"{counted(undone.dead, 'dead letter', 'dead letters')} of the run left; delayq dead-letters lists and discards them."
        )
    return 0 if undone.cancelled and not undone.too_late else 1


def _print(run: str, undone: Undone, json: bool) -> None:
    counts = {"cancelled": undone.cancelled, "tooLate": undone.too_late, "dead": undone.dead}
    Output().answer(json, {"run": run, **counts}, counts.items())
