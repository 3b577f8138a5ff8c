"""The commands consumers and delete-group."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.answers.consumers import GroupOut, GroupsOut, group_deleted_out, group_out
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say
from delayq.cli.options import ApiUrl, AsJson, Reason, RedisUrl, by_me, connect_any


def consumers(
    match: Annotated[
        str, typer.Argument(metavar="MATCH", help="Pattern of topics, with * and ?.", show_default=False)
    ] = "*",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the consumer groups, and the messages that each has not acknowledged.

    The last two columns are the oldest of them: its due time and its id. A number that is missing is unknown.
    """
    with connect_any(redis_url, api) as client:
        found = [group_out(one) for one in client.consumers(match=match)]
    if json:
        Output().json(GroupsOut(found, None, len(found)))
    elif found:
        columns = ("topic", "group", "lag", "leased", "back", "oldest due", "oldest")
        Output().table(columns, map(_row, found))
    else:
        say("there are no consumer groups of such topics.")
    return 0


def _row(one: GroupOut) -> tuple[object, ...]:
    due, id = (shown(one.oldest.due_time), one.oldest.id) if one.oldest is not None else (None, None)
    return one.topic, one.group, one.lag, one.leased, one.handed_back, due, id


def delete(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the group.", show_default=False)],
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)],
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Delete a consumer group with its leases.

    Its messages stay for other groups. Stop its consumers first: the next call that receives makes a new group. Exit 1 if
    there is no such group.
    """
    with connect_any(redis_url, api) as client:
        answer = group_deleted_out(client.delete_group(topic, group, by=by_me(reason)))
    Output().answer(json, answer, [("topic", topic), ("group", group), ("changed", "yes" if answer.changed else "no")])
    return 0 if answer.changed else 1
