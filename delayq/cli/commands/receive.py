"""The command receive: lease messages of a topic, print them, and acknowledge them."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.answers.consuming import received_out
from delayq.base.terminal import Output
from delayq.cli.options import ApiUrl, AsJson, RedisUrl, connect_any, option


def receive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the messages.")],
    group: Annotated[str, option("--group", metavar="G", help="Consumer group.")],
    max: Annotated[int, typer.Option("--max", min=1, max=1_000, metavar="N", help="Most messages.")] = 10,
    wait: Annotated[str, option("--wait", metavar="TIME", help="How long to wait for a message.")] = "0s",
    lease: Annotated[
        str, option("--lease", metavar="TIME", help="How long the group does not receive them again.")
    ] = "30s",
    start: Annotated[
        str, option("--start", metavar="WHERE", help="Where a new group begins: beginning, end or a time.")
    ] = "beginning",
    tags: Annotated[str, option("--tags", metavar="FILTER", help="Filter of the group, such as 'paid || void'.")] = "",
    ack: Annotated[bool, option("--ack", help="Acknowledge the messages after printing them.")] = False,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Receive messages of a topic as a consumer of a group, and print them.

    Each line has the id, how often the group received it and handed it back, and the body. Without --ack the group receives the
    messages again after the lease.
    """
    output = Output()
    with connect_any(redis_url, api) as client:
        messages = client.receive(topic, group=group, max=max, wait=wait, lease=lease, start=start, tags=tags)
        for one in messages:
            if json:
                output.json(received_out(one), indent=False)
            else:
                body = one.body.decode(errors="replace")
                output.row(("id", "deliveries", "hand-backs", "body"), (one.id, one.deliveries, one.hand_backs, body))
        if ack:
            client.ack(*messages)
    return 0
