"""The commands era show and era bump."""

from __future__ import annotations

import sys
from typing import Annotated, Final

from delayq.base.terminal import Output, say
from delayq.cli.options import AsJson, BadUse, Reason, RedisUrl, by_me, connect, option
from delayq.client.audit import entry_of
from delayq.client.client import Client
from delayq.domain.nodes import era_of
from delayq.store import commands

NEXT: Final = (
    "fenced nodes claim their queues again within 15 seconds; messages in flight of a queue that changes its owner "
    "may be delivered twice"
)


def show(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print the era, and the highest epoch of all queues."""
    with connect(redis_url) as client:
        highest = _highest_epoch(client)
        era = client.store.run(commands.era(client.store.keys))
    answer = {"era": era, "highestEpoch": highest}
    Output().answer(json, answer, answer.items())
    return 0


def _highest_epoch(client: Client) -> str | None:
    return max((one.epoch for one in client.queues() if one.epoch is not None), default=None)


def bump(
    yes: Annotated[bool, option("--yes", help="Do not ask for confirmation.")] = False,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Begin a new era, above all epochs.

    Needed when numbers begin again below those in Redis; delayq doctor reports that. Exit 1 if you do not confirm.
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadUse("a new era may move queues to other nodes; confirm with --yes")
    with connect(redis_url) as client:
        context = client.context()  # a change, for which not every Redis account has the right
        latest = era_of(_highest_epoch(client))
        if not yes and not _agreed():
            say("nothing was changed.")
            return 1
        before, now = client.store.run(
            commands.bump_era(client.store.keys, latest, entry=entry_of(by_me(reason), "bumpEra", context.retention))
        )
    answer = {"before": before, "era": now}
    Output().answer(json, answer, answer.items())
    if not json:
        say(f"{NEXT}.")
    return 0


def _agreed() -> bool:
    sys.stderr.write(f"In a new era, {NEXT}.\nBegin one? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
