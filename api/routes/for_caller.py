"""Calls for a caller with a key for some topics: messages of other topics are answered as unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from api.auth.caller import Caller
from api.service import Service
from api.wire.problems import Problem
from delayq import Cancelled, StoreError
from delayq.client.audit import By
from delayq.client.changing import dead_letters, messages
from delayq.client.changing.by_key import by_key
from delayq.client.changing.messages import Rescheduled
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.explain import Explanation
from delayq.client.looking.explain import explain as explain_message
from delayq.client.looking.messages import look
from delayq.client.looking.search import SearchPage
from delayq.client.plan import Context, Plan
from delayq.domain.api_keys import Scope
from delayq.store.commands import Filter, Found

#: The topic of a message that the caller may change ('' if it has ended). Otherwise the reason why it may not.
#: None if the caller may not see the message.
Verdict = str | Problem | StoreError | None
Outcome = Cancelled | Problem | StoreError
Delivered = Rescheduled | Problem | StoreError
Mended = str | Problem | StoreError


def _verdict(caller: Caller, scope: Scope, found: Found | StoreError | None) -> Verdict:
    if found is None or isinstance(found, StoreError):
        return found
    if not caller.sees(found):
        return None
    if caller.lacks(scope, found):
        return Problem("forbidden", f"This key has no {scope!r} on the topic of this message.", id=found.id)
    return found.record.topic if found.record is not None else ""


def _look(caller: Caller, scope: Scope, context: Context, ids: Sequence[str]) -> Plan[dict[str, Verdict]]:
    found = yield from look(context, ids)
    return {id: _verdict(caller, scope, one) for id, one in found.items()}


async def _topic(service: Service, caller: Caller, scope: Scope, id: str) -> str | None:
    """Return the topic of a message that the caller may read or change. Raises Problem and StoreError otherwise."""
    verdict = (await service.client.read(lambda context: _look(caller, scope, context, [id])))[id]
    if isinstance(verdict, (Problem, StoreError)):
        raise verdict
    return verdict


def _allowed(verdicts: dict[str, Verdict]) -> dict[str, str]:
    return {id: topic for id, topic in verdicts.items() if isinstance(topic, str)}


async def get(service: Service, caller: Caller, id: str) -> Found | None:
    """Read the state of a message."""
    found = await service.client.get(id)
    if caller.everything("read"):
        return found
    verdict = _verdict(caller, "read", found)
    if isinstance(verdict, Problem):
        raise verdict
    return None if verdict is None else found


async def explain(service: Service, caller: Caller, found: Found) -> Explanation:
    """Explain why a message of the caller waits."""
    of_others = caller.everything("read")
    return await service.client.read(lambda context: explain_message(context, found, of_others=of_others))


async def search(service: Service, caller: Caller, wanted: Filter, limit: int, token: str | None) -> SearchPage:
    """Search for a page of messages that the caller may read."""
    caller.need_if_named("read", wanted.topic)
    among = caller.patterns("read")
    if among is not None:
        if not among:
            return SearchPage([], 0, None)
        token = None if token is None else service.door.unseal(token)
    async with service.searching:
        page = await service.client.search(_narrowed(caller, wanted), limit, token)
    if among is None:
        return page
    told = [one for one in page.messages if isinstance(_verdict(caller, "read", one), str)]
    return SearchPage(told, page.looked, None if page.next_token is None else service.door.seal(page.next_token))


def _narrowed(caller: Caller, wanted: Filter) -> Filter:
    """Return the filter for a caller that may read only some topics."""
    return replace(wanted, among=caller.patterns("read"))


async def count(service: Service, caller: Caller, wanted: Filter) -> Counted:
    """Count the matching messages that the caller may read."""
    caller.need_if_named("read", wanted.topic)
    async with service.searching:  # if there are few messages, all of them are read
        return await service.client.count(_narrowed(caller, wanted))


async def forecast(service: Service, caller: Caller, begin: int, end: int, step: int, wanted: Filter) -> Forecast:
    """Forecast the messages that the caller may read. Only a caller of all topics gets the rates."""
    caller.need_if_named("read", wanted.topic)
    async with service.searching:
        found = await service.client.forecast(begin, end, step, _narrowed(caller, wanted))
    return found if caller.everything("read") else replace(found, drain_rate=None, capacity=None)


#: Changes messages of these topics.
Do = Callable[[Context, Sequence[str], dict[str, str] | None], Plan[list[Any]]]


def _to_each(caller: Caller, scope: Scope, do: Do, context: Context, ids: Sequence[str]) -> Plan[dict[str, Any]]:
    """Return the outcome of each id; None for a message that the caller may not see."""
    if caller.everything(scope):
        return dict(zip(ids, (yield from do(context, ids, None)), strict=True))
    verdicts = yield from _look(caller, scope, context, ids)
    topics = _allowed(verdicts)
    done = yield from do(context, list(topics), topics)
    return {id: verdict for id, verdict in verdicts.items() if not isinstance(verdict, str)} | dict(
        zip(topics, done, strict=True)
    )


async def _to_all(service: Service, caller: Caller, scope: Scope, key: str, do: Do) -> Sequence[Any]:
    """Return the outcomes of the messages with a business key that the caller may see.

    The error of a later page comes last: the changes before it were done.
    """

    def each(context: Context, ids: list[str]) -> Plan[list[Any]]:
        outcomes = yield from _to_each(caller, scope, do, context, ids)
        return [outcome for outcome in outcomes.values() if outcome is not None]

    return await service.client.run(lambda context: by_key(context, key, each))


async def cancel(service: Service, caller: Caller, by: By, ids: Sequence[str]) -> Sequence[Outcome]:
    """Cancel messages and return the outcomes in order."""
    do = partial(messages.cancel, by=by)
    outcomes = await service.client.run(lambda context: _to_each(caller, "cancel", do, context, ids))
    return [outcome if (outcome := outcomes[id]) is not None else Cancelled(id, "notFound") for id in ids]


async def cancel_by_key(service: Service, caller: Caller, by: By, key: str) -> Sequence[Outcome]:
    """Cancel the messages with a business key that the caller may see, and return the outcomes."""
    return await _to_all(service, caller, "cancel", key, partial(messages.cancel, by=by))


async def deliver_now(
    service: Service, caller: Caller, by: By, force: bool, call: str, ids: Sequence[str]
) -> Sequence[Delivered]:
    """Deliver messages now and return the outcomes in order. `force` requires 'admin'."""
    scope: Scope = "admin" if force else "cancel"
    do = partial(messages.deliver_now, force=force, by=by, call=call)
    outcomes = await service.client.run(lambda context: _to_each(caller, scope, do, context, ids))
    return [outcome if (outcome := outcomes[id]) is not None else Rescheduled(id, "notFound") for id in ids]


async def deliver_now_by_key(
    service: Service, caller: Caller, by: By, force: bool, call: str, key: str
) -> Sequence[Delivered]:
    """Deliver the messages with a business key that the caller may see, and return the outcomes."""
    scope: Scope = "admin" if force else "cancel"
    return await _to_all(service, caller, scope, key, partial(messages.deliver_now, force=force, by=by, call=call))


async def reschedule(
    service: Service, caller: Caller, by: By, id: str, due: dict[str, int | None], call: str
) -> Rescheduled:
    """Change the due time of a message."""
    spec = messages.spec_of(service.limits, service.clock.now(), **due)
    topic = None
    if not caller.everything("cancel"):
        topic = await _topic(service, caller, "cancel", id)
        if topic is None:
            return Rescheduled(id, "notFound")
    return await service.client.run(lambda context: messages.reschedule(context, id, spec, topic, by, call))


async def redrive(service: Service, caller: Caller, by: By, call: str, ids: Sequence[str]) -> Sequence[Mended]:
    """Redrive dead letters and return the outcomes in order."""
    return await _to_dead(service, caller, partial(dead_letters.redrive, by=by, call=call), ids)


async def discard(service: Service, caller: Caller, by: By, ids: Sequence[str]) -> Sequence[Mended]:
    """Discard dead letters and return the outcomes in order."""
    return await _to_dead(service, caller, partial(dead_letters.discard, by=by), ids)


async def _to_dead(service: Service, caller: Caller, do: Do, ids: Sequence[str]) -> Sequence[Mended]:
    outcomes = await service.client.run(lambda context: _to_each(caller, "admin", do, context, ids))
    return ["notDead" if outcomes[id] is None else outcomes[id] for id in ids]
