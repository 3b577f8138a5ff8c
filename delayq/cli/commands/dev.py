"""The command dev advance."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.answers.development import advanced_out
from delayq.base.local_time import shown
from delayq.base.terminal import Output
from delayq.cli.options import ApiUrl, AsJson, RedisUrl, connect_any, duration


def advance(
    time: Annotated[str, typer.Argument(metavar="DURATION", help="How far: 30m, 1h30m, 2d.", show_default=False)],
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Move the time of a development server forward.

    Waits until all messages that fell due are delivered. Only a server started by ./dev up --dev accepts the command.
    """
    ms = duration("DURATION", time) or 0
    with connect_any(redis_url, api) as client:
        answer = advanced_out(client.advance(ms))
    Output().answer(json, answer, {"now": shown(answer.now)}.items())
    return 0
