"""Plans that redrive and discard dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from delayq.base.errors import StoreError
from delayq.client.audit import By, name_of
from delayq.client.changing.messages import Topics, asks_by_id, is_elsewhere
from delayq.client.handshake import learn_routes
from delayq.client.looking.messages import look_in_steps, topic_of
from delayq.client.plan import Context, Plan, by_asked_id
from delayq.domain.message import State, check_id
from delayq.store import commands
from delayq.store.commands import Found


def redrive(
    context: Context, ids: Sequence[str], topics: Topics | None = None, by: By | None = None, call: str = ""
) -> Plan[list[str | StoreError]]:
    """Redrive dead letters, due now. Return 'scheduled', 'notDead', 'noRoute' or 'corrupt' for each, in order.

    A dead letter stays one if no route matches its topic any longer.
    """
    ask = asks_by_id(context, partial(commands.redrive, call=call), "redrive", topics, by)
    for id in ids:
        check_id(id)
    refused: set[str] = set()
    if context.routes.outdated:
        yield from learn_routes(context.keys, context.routes)
    if context.routes.refuses_some:
        refused = yield from _without_route(context, ids, topics)
    wanted = [id for id in ids if id not in refused]
    results = yield from by_asked_id(context, wanted, ask, is_elsewhere, lambda answer: answer == "notDead")
    return ["noRoute" if id in refused else results[id] for id in ids]


def _without_route(context: Context, ids: Sequence[str], topics: Topics | None) -> Plan[set[str]]:
    """Return the dead letters whose topic no route matches."""
    refused: set[str] = set()
    for id, one in (yield from look_in_steps(context, ids)).items():
        topic = topic_of(one)  # None: the script returns why
        if topic is None or not isinstance(one, Found) or one.state != State.DEAD:
            continue
        if context.routes.refuses(topic) and (topics is None or topics[id] == topic):
            refused.add(id)
    return refused


def discard(
    context: Context, ids: Sequence[str], topics: Topics | None = None, by: By | None = None
) -> Plan[list[str | StoreError]]:
    """Delete dead letters permanently and return 'discarded' (now or before) or 'notDead' for each, in order."""
    ask = asks_by_id(context, partial(commands.discard, by=name_of(by)), "discard", topics, by)
    for id in ids:
        check_id(id)
    results = yield from by_asked_id(context, ids, ask, lambda removed: removed is None, lambda removed: not removed)
    return [
        result if isinstance(result := results[id], StoreError) else "discarded" if result else "notDead" for id in ids
    ]
