# Made from async_client.py by ./dev check --fix; change that one.
"""The calls of a client of the HTTP API."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote
from weakref import WeakSet

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.json import decode, encode

from delayq import received
from delayq.answers import Readable, read
from delayq.answers.consumers import GroupsOut
from delayq.answers.consuming import HandedBackManyOut, HandedBackOut, LeasesOut, ReceivedOut
from delayq.answers.development import AdvancedOut
from delayq.answers.messages import (
    CountOut,
    DeadGroupsOut,
    DeadLettersOut,
    ForecastOut,
    FoundOut,
    ScheduledOut,
    StateOut,
)
from delayq.answers.problems import ProblemOut
from delayq.answers.results import BatchOut, ItemOut, MeOut, ResultOut, ResultsOut
from delayq.answers.service import AuditOut, NodesOut, OverviewOut, QueuesOut, RoutesOut, StatusOut
from delayq.answers.times import given
from delayq.answers.topics import PausedOut, PoliciesOut, PolicyOut, TopicOut, TopicsOut
from delayq.base.clock import Clock, SystemClock
from delayq.base.errors import ConfigError, DelayqError, InvalidMessage, PastDue, StoreError, only
from delayq.base.secrets import revealed
from delayq.base.times import Duration, Instant, format_instant
from delayq.client.audit import By
from delayq.client.changing.advance import Advanced
from delayq.client.changing.messages import Cancelled, Rescheduled
from delayq.client.changing.policies import Paused, PolicyChanged, Resumed
from delayq.client.consumer import Consumer
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.groups import GroupDeleted, given_consumer
from delayq.client.consuming.handing_back import hand_back_of
from delayq.client.consuming.leases import MOST_REASON
from delayq.client.consuming.renewal import Leases, log_lost
from delayq.client.consuming.settling import Settlement
from delayq.client.findings import Finding
from delayq.client.findings.overview import Overview
from delayq.client.looking.audit import AuditPage, WantedEntries
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.dead_groups import DeadGroups
from delayq.client.looking.dead_letters import DeadLetterPage
from delayq.client.looking.explain import Explanation
from delayq.client.looking.groups import ConsumerGroup
from delayq.client.looking.search import SearchPage, check_filter, order_of
from delayq.client.looking.service import RouteState
from delayq.client.looking.topics import Arriving, TopicState
from delayq.client.scheduling.schedule import Outcome, Scheduled
from delayq.config import Settings, load_settings
from delayq.domain.message import Message, check_id, check_topic, given_duration, given_instant, given_wait, named
from delayq.domain.nodes import NodeLine
from delayq.domain.policies import Policies, Policy, check_policy_name
from delayq.http.api import Api
from delayq.http.calls import (
    MOST_IDS,
    MOST_KEYS,
    REPEATED,
    Answer,
    Attempts,
    Base,
    Call,
    Sized,
    hand_back_json,
    message_json,
    split,
)
from delayq.http.problems import problem_in, read_answer
from delayq.store.commands import EVERYTHING, Filter, Found, QueueStats

T = TypeVar("T")
#: The address of an API that ./dev up starts.
LOCAL: Final = "http://127.0.0.1:8080"
#: Messages of a page, at most.
PAGE: Final = 1_000
#: The most ms that the server waits while a pause takes effect.
LONGEST_WAIT: Final = 60_000
#: ms that a receive of several topics waits for the last of them before it asks the others again.
TURN: Final = 500


class Client:
    """Schedules and cancels messages by the HTTP API; safe to share between threads.

    It has the methods, types and errors of the client of Redis, and needs an API key in place of Redis's password. `url` and
    `api_key` default to the environment (`DELAYQ_API_URL`, `DELAYQ_API_KEY`). A message gets its id before the call. Each call
    is repeated after a lost answer, 429 and 503 for up to `give_up_after`; each attempt takes up to `timeout`. Raises
    NotAllowed if the API refuses the key.

    A key whose ids have to begin with a certain text needs it as `id_prefix`, if messages have no ids of their own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: Duration = 10_000,
        give_up_after: Duration = 30_000,
        id_prefix: str = "",
        ssl_context: ssl.SSLContext | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or load_settings()
        try:
            key = revealed(settings.api_key if api_key is None else api_key, "DELAYQ_API_KEY")
        except ValueError as error:
            raise ConfigError(str(error)) from None
        base = Base(url or settings.api_url or LOCAL, key)
        longest = given_duration("give_up_after", give_up_after) or 0
        self._api = Api(base, ssl_context, given_duration("timeout", timeout) or 1, longest)
        self._id_prefix = id_prefix
        self._clock = clock or SystemClock()
        self._leases = WeakSet[Leases]()  # of its consumers

    @property
    def url(self) -> str:
        """The address of the API."""
        return self._api.base.url

    def _problem(self, answer: Answer) -> ProblemOut:
        return problem_in(answer, self.url)

    def _read(self, answer: Answer, make: Callable[[bytes], T]) -> T:
        """Return the body of an answer, read by `make`; raises the error for a problem, and for another service."""
        if not answer.is_good:
            raise self._problem(answer).error()
        return read_answer(answer, self.url, make)

    def _ask(
        self,
        method: str,
        path: str,
        make: Callable[[bytes], T],
        body: Any = None,
        attempts: Attempts | None = None,
        **more: Any,
    ) -> T:
        """Send a call and return the value in the answer, read by `make`; raises the error for a problem."""
        content = None if body is None else encode(body)
        answer = self._api.send(Call(method=method, path=path, body=content, **more), attempts)
        return self._read(answer, make)

    def _get(self, path: str, make: Callable[[bytes], T], **query: Any) -> T:
        """Return the value that the API answers at a path, read by `make`."""
        return self._ask("GET", path, make, query=_query(query))

    def _pages(self, path: str, kind: type[Readable[tuple[list[T], str | None]]], **query: Any) -> list[T]:
        """Return what all pages of a list have."""
        found: list[T] = []
        token: str | None = None
        while True:
            page, token = self._get(path, read(kind), **query, limit=PAGE, pageToken=token)
            found += page
            if token is None:
                return found

    def schedule(self, message: Message) -> Scheduled:
        """Schedule one message; raises InvalidMessage, Conflict, NotAllowed or StoreError."""
        sized = message_json(message, 0, self._id_prefix)
        call = Call(method="POST", path="/v1/messages", body=bytes(sized.json), id=sized.id)
        answer = self._api.send(call)
        if not answer.is_good:
            raise self._problem(answer).error(topic=message.topic, id=sized.id)
        is_new, id = answer.status == 201, message.id or ""
        return self._read(answer, lambda body: decode(body, type=ScheduledOut).domain(id, created=is_new))

    def schedule_many(self, messages: Iterable[Message], *, refuse_past: bool = False) -> list[Outcome]:
        """Schedule any number of messages and return their outcomes in order. An invalid one never stops the others.

        With `refuse_past`, a message whose `expect_date` has passed is refused with PastDue, unless it was scheduled before.
        """
        outcomes: list[Any] = []
        waiting: list[Sized] = []
        topics: list[str] = []
        for place, message in enumerate(messages):
            outcomes.append(None)
            topics.append(getattr(message, "topic", ""))
            try:
                sized = message_json(message, place, self._id_prefix)
                if refuse_past and self._is_past(message):
                    raise PastDue(sized.id)
                waiting.append(sized)
            except DelayqError as error:
                outcomes[place] = error
        for batch in split(waiting):
            self._schedule_batch(batch, outcomes, topics)
        return outcomes

    def _is_past(self, message: Message) -> bool:
        if not isinstance(message.expect_date, int) or message.expect_date >= self._clock.now():
            return False
        return message.id is None or self.get(message.id) is None

    def _schedule_batch(self, batch: Sequence[Sized], outcomes: list[Any], topics: Sequence[str]) -> None:
        """Schedule a batch, again those of its messages that the API could not take yet, and put the outcomes in place."""
        attempts = self._api.attempts()
        left = list(batch)
        while left:
            content = b'{"messages":[%b]}' % b",".join(bytes(one.json) for one in left)
            try:
                call = Call(method="POST", path="/v1/messages:batch", body=content)
                found = self._results(self._api.send(call, attempts), len(left), BatchOut, ItemOut.domain)
            except StoreError as error:
                for one in left:
                    outcomes[one.place] = error.about(one.id)
                return
            again: list[Sized] = []
            for one, (problem, scheduled) in zip(left, found, strict=True):
                if problem is None:
                    outcomes[one.place] = scheduled
                    continue
                outcomes[one.place] = problem.error(topic=topics[one.place], id=one.id)
                if problem.status in REPEATED:
                    again.append(one)
            if not again or not self._api.wait(attempts):
                return
            left = again

    def _results(
        self, answer: Answer, count: int, kind: Any, make: Callable[[Any], T]
    ) -> list[tuple[ProblemOut | None, T]]:
        """Return the problem of each part of a request, and its result, read by `make`; also if every part failed.

        Raises the error for a problem of the request itself.
        """
        if not answer.is_good:
            refused = self._problem(answer)
            if not refused.results:
                raise refused.error()

        def results(body: bytes) -> list[tuple[ProblemOut | None, T]]:
            found = decode(body, type=kind).results
            if len(found) != count:
                raise ValueError("each part has a result")
            return [(one.problem or None, make(one)) for one in found]

        return read_answer(answer, self.url, results)

    def _each(
        self,
        path: str,
        field: str,
        values: Sequence[str],
        make: Callable[[ResultOut], T],
        more: Mapping[str, Any],
        by: By | None,
    ) -> list[T]:
        """Return the results of ids or keys, in order. Parts that the API could not do yet are sent again."""
        results = list[Any]([None] * len(values))
        most = MOST_IDS if field == "ids" else MOST_KEYS
        for begin in range(0, len(values), most):
            attempts = self._api.attempts()
            left = list(range(begin, min(begin + most, len(values))))
            while left:
                body: dict[str, Any] = {field: [values[place] for place in left], **_reason(by), **more}
                call = Call(method="POST", path=path, body=encode(body), headers=_act(by))
                found = self._results(self._api.send(call, attempts), len(left), ResultsOut, make)
                again: list[int] = []
                for place, (problem, result) in zip(left, found, strict=True):
                    results[place] = result
                    if problem is not None and problem.status in REPEATED:
                        again.append(place)
                if not again or not self._api.wait(attempts):
                    break
                left = again
        return results

    def _each_id(
        self, path: str, ids: Sequence[str], make: Callable[[str, str], T], by: By | None, **more: Any
    ) -> list[T | Any]:
        for id in ids:
            check_id(id)
        return self._each(path, "ids", ids, lambda one: one.outcome(make), more, by)

    def _of_key(self, path: str, key: str, make: Callable[[str, str], T], by: By | None, **more: Any) -> list[T | Any]:
        """The outcomes of all messages that carry a key, and the error if those of others are unknown."""

        def of_key(one: ResultOut) -> tuple[list[T | Any], ProblemOut | UnsetType]:
            messages = one.messages or () if one.problem else given(one.messages)
            return [message.outcome(make) for message in messages], one.problem

        ((outcomes, problem),) = self._each(path, "keys", (key,), of_key, more, by)
        if problem:
            error = problem.error()
            if not isinstance(error, StoreError):
                raise error
            outcomes.append(error)
        return outcomes

    def cancel(self, id: str, *, by: By | None = None) -> Cancelled:
        """Cancel one message. The audit names the API key, with the reason in `by`."""
        cancelled: Cancelled = only(self.cancel_many((id,), by=by))
        return cancelled

    def cancel_many(self, ids: Sequence[str], *, by: By | None = None) -> list[Cancelled | Any]:
        """Cancel messages and return the results in order (an error where the result is unknown or the key has no right)."""
        return self._each_id("/v1/messages:cancel", ids, Cancelled, by)

    def cancel_by_key(self, key: str, *, by: By | None = None) -> list[Cancelled | Any]:
        """Cancel all messages that carry a business key and return the results (a StoreError where one is unknown).

        Messages that have ended are included while their ids are remembered (15 minutes by default).
        """
        return self._of_key("/v1/messages:cancel", key, Cancelled, by)

    def reschedule(
        self,
        id: str,
        *,
        delay_time: Duration | None = None,
        expect_date: Instant | None = None,
        delay_level: int | None = None,
        by: By | None = None,
        call: str | None = None,
    ) -> Rescheduled:
        """Give a message another due time: exactly one of a delay (ms), a date (Unix ms) and a level.

        A repeated `call` gets the first answer, here and in the methods below. Without one, each call has a name of its own.
        """
        body = {
            "delayTime": given_duration("delayTime", delay_time),
            "expectDate": given_instant("expectDate", expect_date),
            "delayLevel": delay_level,
            "call": named(call),
        }
        return self._move("PATCH", f"/v1/messages/{_part(check_id(id))}", id, body | _reason(by), by)

    def _move(self, method: str, path: str, id: str, body: Mapping[str, Any], by: By | None) -> Rescheduled:
        content = encode(body)
        answer = self._api.send(Call(method=method, path=path, body=content, headers=_act(by), id=id))
        if answer.is_good:
            moved = self._read(answer, read(ScheduledOut))
            return Rescheduled(id, "scheduled", moved.due, moved.queue)
        problem = self._problem(answer)
        if answer.status == 404 and problem.kind == "not-found":
            return Rescheduled(id, "notFound")
        if problem.kind == "conflict" and problem.state:
            _, held, reason = problem.detail.rstrip(".").partition("is held: ")
            return Rescheduled(id, problem.state, reason=reason if held else None)
        raise problem.error(id=id)

    def deliver_now(
        self, id: str, *, force: bool = False, by: By | None = None, call: str | None = None
    ) -> Rescheduled:
        """Deliver a message now. With `force`, a held message is delivered too, in spite of pauses and limits."""
        path = f"/v1/messages/{_part(check_id(id))}:deliverNow"
        return self._move("POST", path, id, {"force": force, "call": named(call)} | _reason(by), by)

    def deliver_now_many(
        self, ids: Sequence[str], *, force: bool = False, by: By | None = None, call: str | None = None
    ) -> list[Rescheduled | Any]:
        """Deliver messages now and return the results in order (an error where the result is unknown)."""
        return self._each_id("/v1/messages:deliverNow", ids, Rescheduled, by, force=force, call=named(call))

    def deliver_now_by_key(
        self, key: str, *, force: bool = False, by: By | None = None, call: str | None = None
    ) -> list[Rescheduled | Any]:
        """Deliver all messages that carry a business key now and return the results (a StoreError where one is unknown)."""
        return self._of_key("/v1/messages:deliverNow", key, Rescheduled, by, force=force, call=named(call))

    def get(self, id: str) -> Found | None:
        """Return the state of one message, or None if its id is unknown."""
        return self._look(id, lambda body: decode(body, type=StateOut).domain(id))

    def _look(self, id: str, make: Callable[[bytes], T], **query: Any) -> T | None:
        return self._find(f"/v1/messages/{_part(check_id(id))}", make, id, **query)

    def _find(self, path: str, make: Callable[[bytes], T], id: str | None = None, **query: Any) -> T | None:
        """Return what an answer has, or None if the API has nothing at this path."""
        answer = self._api.send(Call(method="GET", path=path, query=query))
        if not answer.is_good:
            problem = self._problem(answer)
            if problem.kind == "not-found":
                return None
            raise problem.error(id=id)
        return self._read(answer, make)

    def get_many(self, ids: Sequence[str]) -> list[Found | None]:
        """Return the states of messages, in order; None for an unknown id."""
        return [self.get(id) for id in ids]

    def explain(self, found: Found) -> Explanation:
        """Explain why a message that `get` returned has not been delivered yet, or how it ended."""
        explanation = self._look(
            found.id, lambda body: given(decode(body, type=StateOut).explain).domain(), explain="true"
        )
        text = "It has ended, and its id is no longer remembered."
        return explanation or Explanation(waits_for=None, text=text, since=None, until=None, owner=None)

    def find(self, key: str) -> list[Found]:
        """Return the messages that carry a business key and have not ended, by due time.

        `search` with states such as 'cancelled' returns those that have ended.
        """
        found: list[Found] = []
        token: str | None = None
        while True:
            page = self.search(Filter(key=key), PAGE, token)
            found += page.messages
            token = page.next_token
            if token is None:
                return sorted(found, key=order_of)

    def search(self, wanted: Filter = EVERYTHING, limit: int = 100, token: str | None = None) -> SearchPage:
        """Return a page of the messages that match a filter, by due time; dead letters by the time of their death.

        A page may have fewer messages than `limit` and not be the last one.
        """
        return self._get("/v1/messages", read(FoundOut), **_filter(wanted), limit=limit, pageToken=token)

    def count(self, wanted: Filter = EVERYTHING) -> Counted:
        """Count the messages that match a filter by topic, state and due time, exactly or by the last census."""
        return self._get("/v1/messages:count", read(CountOut), **_filter(wanted))

    def forecast(self, due_from: Instant, due_to: Instant, step: Duration, wanted: Filter = EVERYTHING) -> Forecast:
        """Count the messages that fall due in each `step` (ms) from `due_from` to `due_to` (Unix ms), for a filter of topics."""
        first, last = given_instant("dueFrom", due_from) or 0, given_instant("dueTo", due_to) or 0
        each = given_duration("step", step) or 0
        given = {"dueFrom": first, "dueTo": last, "step": each, "topic": wanted.topic or None}
        edges = [*range(first, last, each), last]
        return self._get("/v1/forecast", lambda body: decode(body, type=ForecastOut).domain(edges), **given)

    def redis_now(self) -> int:
        """Return the time (Unix ms) of this machine's clock: the API has no call for the time of Redis."""
        return self._clock.now()

    def queues(self) -> list[QueueStats]:
        """Return the figures of every queue. The API counts what happened for all queues together: the first one has it."""
        return self._get("/v1/queues", read(QueuesOut))

    def stats(self) -> list[QueueStats]:
        """Return the figures of every queue, as `queues` does; the older name."""
        return self.queues()

    def dead_letters(
        self,
        limit: int = 100,
        token: str | None = None,
        *,
        newest: bool = False,
        topic: str = "",
        reason: str = "",
        group: str | None = None,
        from_: Instant | None = None,
        to: Instant | None = None,
    ) -> DeadLetterPage:
        """Return a page of dead letters by the time of their death, the oldest first unless `newest`.

        `topic` is a pattern with `*` and `?`, `reason` a part of the reason, and `group` the reason of one of `dead_groups`.
        """
        given = {
            "limit": limit,
            "pageToken": token,
            "order": "newest" if newest else "oldest",
            "topic": topic or None,
            "reason": reason or None,
            "group": group,
            "from": given_instant("from", from_),
            "to": given_instant("to", to),
        }
        return self._get("/v1/dead-letters", read(DeadLettersOut), **given)

    def dead_groups(self) -> DeadGroups:
        """Group the newest dead letters, about 20,000, by topic and reason."""
        return self._get("/v1/dead-letters:groups", read(DeadGroupsOut), limit=PAGE)

    def redrive(self, ids: Sequence[str], *, by: By | None = None, call: str | None = None) -> list[Any]:
        """Put dead letters back, due now, and return 'scheduled', 'notDead', 'noRoute' or 'corrupt' for each."""
        return self._each_id("/v1/dead-letters:redrive", ids, _word, by, call=named(call))

    def discard(self, id: str, *, by: By | None = None) -> bool:
        """Delete a dead letter permanently; False if no dead letter has this id."""
        return bool(only(self.discard_many((id,), by=by)) == "discarded")

    def discard_many(self, ids: Sequence[str], *, by: By | None = None) -> list[Any]:
        """Delete dead letters permanently and return 'discarded' or 'notDead' for each (an error where it is unknown)."""
        return self._each_id("/v1/dead-letters:discard", ids, _word, by)

    def nodes(self) -> dict[str, NodeLine]:
        """Return the nodes by name, with what each last reported."""
        return self._get("/v1/nodes", read(NodesOut))

    def routes(self) -> list[RouteState]:
        """Return the routes, their circuits as live workers report them, and how many messages are parked for each."""
        return self._get("/v1/routes", read(RoutesOut))

    def status(self) -> list[Finding]:
        """Return what is wrong, the worst finding first, and what to do."""
        return self._get("/v1/status", read(StatusOut))

    def overview(self) -> Overview:
        """Return the numbers of messages by state, the deliveries of the last ten minutes, their lateness and the findings."""
        return self._get("/v1/overview", read(OverviewOut))

    def me(self) -> dict[str, Any]:
        """Return the name and the rights of the API key, and the version of the API."""
        return self._get("/v1/me", read(MeOut))

    def audit(self, limit: int = 100, token: str | None = None, **wanted: Any) -> AuditPage:
        """Return a page of manual changes, the newest first; `wanted` are the fields of `WantedEntries` except `may`."""
        entries = WantedEntries(**wanted)
        given = {name: getattr(entries, name) for name in ("id", "key", "topic", "actor", "action", "to")}
        given |= {"limit": limit, "pageToken": token, "from": entries.from_}
        return self._get("/v1/audit", read(AuditOut), **given)

    def pause(
        self,
        match: str,
        *,
        reason: str | UnsetType | None = UNSET,
        until: Instant | UnsetType | None = UNSET,
        wait: Duration = 1_000,
        by: By | None = None,
    ) -> Paused:
        """Pause the topics that match a pattern with `*` and `?`, until they are resumed or until `until` (Unix ms).

        The call waits up to `wait` ms until messages that were already being sent have arrived: then `state` is 'paused'. If the
        pattern is already paused, a `reason` or `until` that you omit keeps its value, and None removes it.
        """
        longest = given_duration("wait", wait) or 0
        body: dict[str, Any] = {"match": match, "reason": reason}
        body["until"] = until if isinstance(until, UnsetType) else given_instant("until", until)
        body = {name: value for name, value in body.items() if value is not UNSET}
        extra = min(max(longest, 0), LONGEST_WAIT)
        query = {"wait": str(longest)}
        more: dict[str, Any] = {"query": query, "headers": _act(by), "extra": extra}
        return self._ask("POST", "/v1/topics:pause", read(PausedOut), body, **more)

    def resume(self, match: str, *, rate: float | None = None, by: By | None = None) -> Resumed:
        """End the pause with exactly this pattern; its held messages are delivered at most at `rate` messages a second."""
        body = {"match": match, "rate": rate} | _reason(by)
        return self._ask("POST", "/v1/topics:resume", _as(Resumed), body, headers=_act(by))

    def topics(self, *, match: str = "*", paused: bool | None = None, live: bool = True) -> list[TopicState]:
        """Return the topics that have messages or held messages, or that a pause or a policy names, by name.

        The API decides by itself whether it counts now or by the last census, whatever `live` is.
        """
        wanted = None if paused is None else "yes" if paused else "no"
        return self._pages("/v1/topics", TopicsOut, match=match, paused=wanted)

    def topic(self, name: str, *, live: bool = True) -> TopicState:
        """Return a topic's route, policy, pause, limit and numbers of messages; `live` as in `topics`."""
        return self._get(f"/v1/topics/{_part(check_topic(name))}", read(TopicOut))

    def arriving(self, match: str) -> list[Arriving] | None:
        """Return the nodes that may still deliver messages paused by exactly this pattern; None without such a pause."""

        def arriving(body: bytes) -> list[Arriving] | None:
            found = decode(body, type=TopicsOut).arriving
            return None if isinstance(found, UnsetType) else [one.domain() for one in found]

        return self._get("/v1/topics", arriving, match=match, limit=1)

    def policies(self) -> Policies:
        """Return all policies, pauses and limits set by `resume`, and their version."""
        return self._get("/v1/policies", read(PoliciesOut))

    def policy(self, name: str) -> Policy | None:
        """Return the policy with this name, or None."""
        path = f"/v1/policies/{_part(check_policy_name(name))}"
        return self._find(path, read(PolicyOut))

    def put_policy(self, policy: Policy, *, if_version: int | None = None, by: By | None = None) -> PolicyChanged:
        """Create or replace a policy; with `if_version`, only if the policies still have that version.

        Raises InvalidMessage, and PoliciesChanged if the version is another one.
        """
        path = f"/v1/policies/{_part(check_policy_name(policy.name))}"
        fields = msgspec.to_builtins(policy)
        body = {name: value for name, value in fields.items() if name not in ("name", "since", "stored")}
        headers = _act(by) | _if_match(if_version) | _reason_header(by)
        return self._ask("PUT", path, _as(PolicyChanged), body, headers=headers)

    def delete_policy(self, name: str, *, if_version: int | None = None, by: By | None = None) -> PolicyChanged:
        """Delete a policy; `changed` is False if there was none. Raises PoliciesChanged."""
        path = f"/v1/policies/{_part(check_policy_name(name))}"
        headers = _act(by) | _if_match(if_version) | _reason_header(by)
        return self._ask("DELETE", path, _as(PolicyChanged), headers=headers)

    def advance(self, time: Duration, *, timeout: Duration = 60_000) -> Advanced:
        """Move the time of a development server forward by `time`, and return once everything that fell due was delivered.

        Raises NotDevelopment for every other server, and StillDue if something is due and not delivered.
        """
        body = {"time": given_duration("time", time) or 0}
        extra = given_duration("timeout", timeout) or 0
        more: dict[str, Any] = {"extra": extra, "may_repeat": False}
        return self._ask("POST", "/v1/dev:advance", read(AdvancedOut), body, **more)

    def receive(
        self,
        topic: str | Sequence[str],
        *,
        group: str,
        max: int = 10,
        wait: Duration = 0,
        lease: Duration = 30_000,
        start: str | Instant = "beginning",
        tags: str | Sequence[str] = (),
        ack: Sequence[Leased] = (),
    ) -> list[Leased]:
        """Lease at most `max` messages of a topic, as the client of Redis does. The server waits up to 30 s.

        A call for several topics receives the first one with messages. They are asked one after another, again and again.
        """
        topics = [topic] if isinstance(topic, str) else topic
        end = self._clock.monotonic() + given_wait(wait)
        if len(topics) != 1:
            self.ack(*ack)
            ack = ()
        while True:
            failure: StoreError | None = None
            for at, one in enumerate(topics):
                left = end - self._clock.monotonic() if at == len(topics) - 1 else 0
                waits = int(min(left, TURN if len(topics) > 1 else left)) if left > 0 else 0
                # A topic that fails is not repeated for so long that the others wait.
                attempts = self._api.attempts(TURN) if len(topics) > 1 else None
                try:
                    found = self._receive(one, group, max, waits, lease, start, tags, ack, attempts)
                except StoreError as error:
                    failure = failure or error
                    continue
                if found:
                    return found
            if failure is not None:
                raise failure
            if not topics or self._clock.monotonic() >= end or len(topics) == 1:
                return []

    def _receive(
        self,
        topic: str,
        group: str,
        max: int,
        wait: int,
        lease: Duration,
        start: str | Instant,
        tags: str | Sequence[str],
        ack: Sequence[Leased],
        attempts: Attempts | None,
    ) -> list[Leased]:
        consumer = given_consumer(topic, group, start, tags)
        body = {
            "group": group,
            "max": max,
            "wait": f"{wait}ms",
            "lease": f"{given_duration('lease', lease) or 0}ms",
            "start": start if consumer.start == start else format_instant(int(consumer.start)),
            "tags": list(consumer.tags) or None,
            "ack": consumer.leases_of(ack) or None,
            "call": uuid.uuid4().hex,  # before the call, so that a repeated one leases nothing else
        }
        path = f"/v1/topics/{_part(topic)}:receive"
        messages, lost = self._ask(
            "POST", path, lambda body: decode(body, type=ReceivedOut).domain(group), body, attempts, extra=wait
        )
        log_lost(one for one in ack if one.lease in lost)
        return messages

    def ack(self, *messages: Leased) -> list[Settlement | Any]:
        """Acknowledge messages: the group receives them no more.

        Returns 'acknowledged', 'lost', or 'notFound' without such a group, for each.
        """
        return self._settle(messages, "ack")

    def extend(self, message: Leased, lease: Duration = 30_000) -> Settlement:
        """Let the lease of a message end so long from now; 0 releases it unhandled. Returns 'extended', 'released' or 'lost'."""
        extended: Settlement = only(self.extend_many([message], lease))
        return extended

    def extend_many(self, messages: Sequence[Leased], lease: Duration = 30_000) -> list[Settlement | Any]:
        """Let the leases of messages end so long from now, as `extend` does for one. Returns a result for each."""
        return self._settle(messages, "extend", {"lease": f"{given_duration('lease', lease) or 0}ms"})

    def hand_back(
        self, message: Leased | received.Received, *, reason: str = "", delay_time: Duration | None = None
    ) -> Settlement | Any:
        """Hand a message back: it is received again later, as by the client of Redis. Returns 'handedBack', 'dead' or 'lost'."""
        delay = given_duration("delayTime", delay_time)
        more = {"reason": reason[:MOST_REASON] or None, "delayTime": None if delay is None else f"{delay}ms"}
        if isinstance(message, received.Received):
            given = hand_back_of(message, reason, delay)
            body = {"messages": [hand_back_json(given.message, {"handBacks": given.hand_backs, **more})]}
            call = Call(method="POST", path="/v1/messages:handBack", body=encode(body))
            found = self._results(self._api.send(call), 1, HandedBackManyOut, HandedBackOut.domain)
            ((problem, done),) = found
            if problem is not None:
                raise problem.error(topic=message.topic, id=message.id)
            return done
        return only(self._settle((message,), "handBack", {}, more))

    def consumers(self, *, match: str = "*") -> list[ConsumerGroup]:
        """Return the consumer groups of the topics that match a pattern with `*` and `?`, by topic and name."""
        return self._pages("/v1/consumers", GroupsOut, match=match)

    def delete_group(self, topic: str, group: str, *, by: By | None = None) -> GroupDeleted:
        """Delete a consumer group with its leases; its messages stay for other groups. Stop its consumers first.

        `changed` is False if there was no such group.
        """
        path = f"/v1/topics/{_part(check_topic(topic))}/groups/{_part(group)}"
        headers = _act(by) | _reason_header(by)
        return self._ask("DELETE", path, _as(GroupDeleted), headers=headers)

    def consume(
        self,
        topic: str | Sequence[str],
        *,
        group: str,
        lease: Duration = 30_000,
        start: str | Instant = "beginning",
        tags: str | Sequence[str] = (),
        prefetch: int = 10,
        max_lease: Duration | None = None,
    ) -> Consumer:
        """Return a consumer that iterates over the messages of topics, as the client of Redis does.

        While nothing arrives, each topic of several takes a request every half a second.
        """
        options = {"group": group, "start": start, "tags": tags, "max": prefetch}
        made = Consumer(self, self._clock, self._topics_to_consume, topic, lease, max_lease, options)
        self._leases.add(made.leases)
        return made

    def _topics_to_consume(self, match: str, group: str | None) -> list[str]:
        found = [one.topic for one in self.topics(match=match)]
        if group is not None:
            found += [one.topic for one in self.consumers(match=match) if one.group == group]
        return list(dict.fromkeys(found))

    def _settle(
        self, messages: Sequence[Leased], verb: str, fields: Mapping[str, Any] = {}, more: Mapping[str, Any] = {}
    ) -> list[Settlement | Any]:
        results = dict[int, Any]()
        groups: dict[tuple[str, str], list[int]] = {}
        for at, message in enumerate(messages):
            groups.setdefault((message.topic, message.group), []).append(at)
        for (topic, group), places in groups.items():
            for part in (places[n : n + MOST_IDS] for n in range(0, len(places), MOST_IDS)):
                leases = [{"id": messages[at].id, "lease": messages[at].lease, **more} for at in part]
                body = {"group": group, "messages": leases, **fields}
                found = self._ask("POST", f"/v1/topics/{_part(topic)}:{verb}", _settlements(len(part)), body)
                results.update(zip(part, found, strict=True))
        return [results[at] for at in range(len(messages))]

    def close(self) -> None:
        """Close the connections to the API."""
        for leases in list(self._leases):
            leases.wait_if_abandoned()
        self._api.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def _query(given: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value is not None}


def _filter(wanted: Filter) -> dict[str, Any]:
    """The query of a filter; raises InvalidMessage."""
    check_filter(wanted)
    if wanted.among is not None:
        raise InvalidMessage("among", "is for the API itself; use topic")
    name, value = wanted.property or ("", "")
    return {
        "topic": wanted.topic or None,
        "tags": wanted.tags or None,
        "state": ",".join(wanted.states) or None,
        "property": f"{quote(name, safe='')}:{value}" if wanted.property else None,
        "idPrefix": wanted.id_prefix or None,
        "dueFrom": wanted.due_from,
        "dueTo": wanted.due_to,
        "key": wanted.key,
    }


def _reason(by: By | None) -> dict[str, str]:
    return {"reason": by.reason} if by is not None and by.reason else {}


def _reason_header(by: By | None) -> dict[str, str]:
    return {"delayq-reason": by.reason} if by is not None and by.reason else {}


def _act(by: By | None) -> dict[str, str]:
    """The header that makes the requests of one act one entry of the audit."""
    if by is None:
        return {}
    by.check()
    return {"delayq-act": by.act} if by.act else {}


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"if-match": str(version)}


def _word(_id: str, result: str) -> str:
    return result


def _settlements(count: int) -> Callable[[bytes], list[Settlement | DelayqError]]:
    """Read the results of so many leases."""

    def settlements(body: bytes) -> list[Settlement | DelayqError]:
        results = [one.domain() for one in decode(body, type=LeasesOut).results]
        if len(results) != count:
            raise ValueError("each lease has a result")
        return results

    return settlements


def _as(kind: type[T]) -> Callable[[bytes], T]:
    return lambda body: decode(body, type=kind)
