"""The operations on consumer groups: list, delete."""

from __future__ import annotations

from bisect import bisect_right

from api.asgi import Answer, Request, encode
from api.auth.caller import Caller
from api.routes.by import by_hand, tell
from api.service import Operations, Service
from api.wire.requests import LIMIT, MOST, limit_of
from delayq import InvalidMessage
from delayq.answers.consumers import GroupDeletedOut, GroupsOut, group_deleted_out, group_out
from delayq.client.consuming import groups as plans
from delayq.client.handshake import learn_routes
from delayq.client.looking.groups import KnownGroup, known_groups, lags
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_topic
from delayq.store.connect.exchange import all_good

OPERATIONS = Operations("consumers")


@OPERATIONS.add(
    "GET",
    "/v1/consumers",
    "listConsumers",
    gives={200: GroupsOut},
    problems=(400, 503),
    query={
        "match": {"schema": {"type": "string"}, "description": "Only topics that match this pattern, with * and ?."},
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "The nextPageToken of the previous page."},
    },
)
async def consumers(service: Service, request: Request) -> Answer:
    """List the consumer groups

    Groups stand in the order of their topics and names. Each has the number of messages that it has not acknowledged, and
    the oldest of them. A group is listed once it has received from delayq.
    """
    given = request.query("match", "limit", "pageToken")
    limit, token = limit_of(given.get("limit")), given.get("pageToken")
    found = await service.client.read(lambda context: _readable(context, request.caller, given.get("match", "*")))
    begin = 0
    if token is not None:
        topic, slash, group = token.partition("/")
        if not (slash and group):
            raise InvalidMessage("pageToken", "is not the nextPageToken of a page; start without a token")
        begin = bisect_right(found, (check_topic(topic, "pageToken"), group), key=lambda one: (one.topic, one.group))
    page = found[begin : begin + limit]
    async with service.searching:
        read = all_good(await service.client.read(lambda context: lags(context.keys, page)))
    last = f"{page[-1].topic}/{page[-1].group}" if len(found) > begin + len(page) else None
    return Answer(200, encode(GroupsOut([group_out(one) for one in read], last, len(found))))


@OPERATIONS.add(
    "DELETE",
    "/v1/topics/{topic}/groups/{group}",
    "deleteGroup",
    gives={200: GroupDeletedOut},
    problems=(400, 503),
)
async def delete_group(service: Service, request: Request) -> Answer:
    """Delete a consumer group

    The group forgets what it has received, and its leases are lost. Its messages stay in their stream for other groups.
    Stop its consumers first: the next `:receive` makes a new group, which begins at its `start`. Repeating the call is safe.
    """
    request.query()
    topic, group = check_topic(request.path_params["topic"]), request.path_params["group"]
    request.caller.need("admin", topic)
    records = await service.client.read(lambda context: _records(context, topic, group))
    for _, beside in records:
        request.caller.need_in_stream("admin", topic, beside)
    by = by_hand(request)
    deleted = await service.client.run(lambda context: plans.delete_group(context, topic, group, by=by))
    for streams, _ in records:
        service.receivers.changed(streams, group)  # the next call makes a new group
    tell(service, by, "deleteGroup", [f"{topic} {group}"] * deleted.changed)
    return Answer(200, encode(group_deleted_out(deleted)))


def _beside(context: Context, known: KnownGroup) -> frozenset[str]:
    """The topics, and patterns of topics, whose messages are in the streams of a group."""
    found = (context.routes.topics_in(one.stream, per_queue=one.queues is not None) for one in known.records)
    return frozenset().union(*found)


def _readable(context: Context, caller: Caller, match: str) -> Plan[list[KnownGroup]]:
    """The groups whose numbers come from messages that the caller may read: several topics may share a stream."""
    if context.routes.outdated and not caller.everything("read"):
        yield from learn_routes(context.keys, context.routes)
    known = yield from known_groups(context, match)
    return [
        one
        for one in known
        if "read" in caller.on(one.topic)
        and (caller.everything("read") or all(caller.has("read", beside) for beside in _beside(context, one)))
    ]


def _records(context: Context, topic: str, group: str) -> Plan[list[tuple[list[str], frozenset[str]]]]:
    """The streams of a group, and the topics whose messages are in them; nothing if there is no such group."""
    if context.routes.outdated:
        yield from learn_routes(context.keys, context.routes)
    known = yield from known_groups(context)
    return [(one.streams, _beside(context, one)) for one in known if (one.topic, one.group) == (topic, group)]
