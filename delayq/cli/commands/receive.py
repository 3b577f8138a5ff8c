"""The command receive: lease messages of a topic, print them, and acknowledge them."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from delayq.answers.times import instant
from delayq.cli.options import ApiUrl, AsJson, RedisUrl, connect_any, option
from delayq.client.consuming.receiving import Received
from delayq.terminal import Output

__all__ = ["receive"]


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
                output.json(_shape(one), indent=False)
            else:
                body = one.body.decode(errors="replace")
                output.row(("id", "deliveries", "hand-backs", "body"), (one.id, one.deliveries, one.hand_backs, body))
        if ack:
            client.ack(*messages)
    return 0


def _shape(one: Received) -> dict[str, Any]:
    """The message as the API shows it."""
    try:
        body = {"body": one.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(one.body).decode()}
    return {
        "id": one.id, "topic": one.topic, "lease": one.lease, "dueTime": instant(one.due), "dueMs": one.due,
        "attempt": one.attempt, "deliveries": one.deliveries, "handBacks": one.hand_backs, **body, "tags": one.tags,
        "keys": list(one.keys), "properties": one.properties,
    }  # fmt: skip
