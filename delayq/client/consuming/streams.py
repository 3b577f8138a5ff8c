"""The streams of a topic in delayq's own Redis."""

from __future__ import annotations

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.handshake import learn_routes
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_in_namespace
from delayq.store.commands import GroupRecord
from delayq.store.keys import Keys, slot_tag


class TopicStreams(msgspec.Struct, frozen=True):
    """The streams of a topic by place: the number of a queue, or '' for a single stream.

    `name` is that of the streams without the part that names a queue.
    """

    keys: Keys
    topic: str
    name: str
    by_place: dict[str, str]

    def record(self, group: str) -> GroupRecord:
        """The record of a group of these streams."""
        numbers = [int(place) for place in self.by_place if place]
        queues = (min(numbers), max(numbers)) if numbers else None
        return GroupRecord(topic=self.topic, group=group, stream=self.name, queues=queues)

    def and_older(self, first: int, last: int) -> TopicStreams:
        """These streams, then those of other queues, of former layouts: they may have entries that a group has not received."""
        places = map(str, range(first, last + 1))
        older = {place: self.keys.queue(int(place)).stream(self.name) for place in places if place not in self.by_place}
        return TopicStreams(self.keys, self.topic, self.name, self.by_place | older)

    def of_place(self, place: str) -> str | None:
        """The stream of a place, also of a queue of a former layout, whose number is lower; None if there is no such queue."""
        if not place or place in self.by_place:
            return self.by_place.get(place)
        is_older = int(place) < max((int(one) for one in self.by_place if one), default=-1)
        return self.keys.queue(int(place)).stream(self.name) if is_older else None


def streams_of_topic(context: Context, topic: str) -> Plan[TopicStreams]:
    """The streams of a topic. Raises InvalidMessage if its route is not a stream of delayq's own Redis."""
    check_in_namespace(topic, context.limits.namespace)
    if context.routes.outdated:
        yield from learn_routes(context.keys, context.routes)
    route = context.routes.route_of(topic)
    if route is None:
        raise InvalidMessage("topic", f"no live worker has a route for {topic!r}")
    if route.stream is None:
        target = f"its route {route.name!r} sends to {route.target}"
        raise InvalidMessage("topic", f"{target}, not to a stream of delayq's own Redis; receive it from there")
    name = route.stream.replace("{topic}", topic)
    if route.per_queue:
        numbers = [number for layout in context.layouts.known for number in layout.numbers]
        return TopicStreams(
            context.keys, topic, name, {str(number): context.keys.queue(number).stream(name) for number in numbers}
        )
    try:
        slot_tag(name)
    except ValueError as error:
        raise InvalidMessage("topic", f"the stream of its route {route.name!r} cannot be received: {error}") from None
    return TopicStreams(context.keys, topic, name, {"": name})


def topics_beside(context: Context, topic: str) -> Plan[frozenset[str]]:
    """The topics, and patterns of topics, whose messages are in the streams of a topic. Raises InvalidMessage."""
    streams = yield from streams_of_topic(context, topic)
    return context.routes.topics_in(streams.name, per_queue="" not in streams.by_place)
