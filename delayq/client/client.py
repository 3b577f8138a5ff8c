# Made from async_calls.py by ./dev check --fix; change that one.
"""The calls of a client: each agrees with Redis on layouts and limits, then runs a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakSet

from msgspec import UNSET, UnsetType

from delayq import received
from delayq.base.clock import Clock
from delayq.base.errors import DelayqError, InvalidMessage, StoreError, only
from delayq.base.times import Duration, Instant
from delayq.client import handshake
from delayq.client.audit import By, one_act
from delayq.client.consumer import Consumer
from delayq.client.consuming.renewal import Leases, log_lost
from delayq.client.known_routes import KnownRoutes
from delayq.client.plan import Context, Plan
from delayq.client.scheduling.encoding import Encoded, encode_all
from delayq.client.scheduling.schedule import Outcome, Scheduled, schedule_encoded
from delayq.client.session import Agreement, spans_by
from delayq.config import Settings
from delayq.domain.message import Message, given_duration, given_instant, given_wait, named
from delayq.domain.nodes import NodeLine
from delayq.domain.policies import Policies, Policy, check_policy_name
from delayq.domain.routes import Routes
from delayq.store import checks, commands
from delayq.store.commands import EVERYTHING, Filter, Found, QueueStats
from delayq.store.connect.arrivals import Arrivals
from delayq.store.connect.exchange import single
from delayq.store.connect.store import Store
from delayq.store.connect.threads import pause
from delayq.store.connect.threads import pause as wait_for

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from delayq.client.changing.advance import Advanced
    from delayq.client.changing.messages import Cancelled, Rescheduled
    from delayq.client.changing.policies import Paused, PolicyChanged, Resumed
    from delayq.client.consuming.entries import Leased
    from delayq.client.consuming.groups import GroupDeleted
    from delayq.client.consuming.leases import LeaseChange
    from delayq.client.consuming.settling import Settlement
    from delayq.client.findings import Facts, Finding
    from delayq.client.findings.overview import Overview
    from delayq.client.looking.audit import AuditPage
    from delayq.client.looking.counting import Counted, Forecast
    from delayq.client.looking.dead_groups import DeadGroups
    from delayq.client.looking.dead_letters import DeadLetterPage
    from delayq.client.looking.explain import Explanation
    from delayq.client.looking.groups import ConsumerGroup
    from delayq.client.looking.search import SearchPage
    from delayq.client.looking.service import RouteState
    from delayq.client.looking.topics import Arriving, TopicState

    P = TypeVar("P", AuditPage, DeadLetterPage)

T = TypeVar("T")
#: s between the first two checks whether the nodes have a pause. The wait doubles each time, up to LONGEST_LOOK.
LOOK: Final = 0.01
LONGEST_LOOK: Final = 0.25
#: s between the first two checks whether a development server has delivered everything that is due; it doubles too.
LOOK_FOR_DUE: Final = 0.002


class Client:
    """Schedules and cancels messages; safe to share between threads.

    `redis_url` and everything else default to the environment (`DELAYQ_REDIS_URL`, …). Raises StoreUnavailable
    when Redis is away; repeating the same call with the same id is then safe. With a `tracer_provider` of
    OpenTelemetry, each call that schedules is a span, and its context is sent with the messages. `routes` replace those
    of the settings. A topic is refused if no live worker has a route for it, by the tables that the workers publish.
    Without a live worker every topic is accepted, and one line of the log reports that. `check_routes=False` accepts every topic.
    Installations of different `namespace` share a Redis and see nothing of each other.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        tracer_provider: TracerProvider | None = None,
        routes: Routes | None = None,
        namespace: str | None = None,
        check_routes: bool = True,
    ) -> None:
        self._setup = Agreement(redis_url, settings, clock, routes, namespace=namespace, check_routes=check_routes)
        self.store = Store(self._setup.url, keys=self._setup.keys, timeout=self._setup.settings.redis_timeout / 1000)
        self._spans = spans_by(tracer_provider, self._setup.limits)
        self._context: Context | None = None
        self._reading: Context | None = None
        self._arrivals: list[Arrivals] = []  # without a caller
        self._is_closed = False
        self._leases = WeakSet[Leases]()  # of its consumers

    def context(self) -> Context:
        """Return the context for changes; the first call agrees with Redis on layouts and limits.

        Raises ConfigError for a Redis that would lose messages: nothing is written to it.
        """
        if self._context is None:
            durability = self._run(handshake.durability(self._setup.settings))
            meta, policies = self._run(handshake.agreement(self.store.keys, self._setup.queues, self._setup.routes))
            self.store.follow_time(development=meta.advanced is not None)
            context = self._setup.context(meta)
            context.policies.take(policies)
            self.store.durability = durability  # before the context, because whoever reads it schedules at once
            self._context = context
        else:
            self._keep_up(self._context)
        return self._context

    def reading(self) -> Context:
        """Return the context for reading: Redis is not checked and nothing is written, not even its first layout."""
        found = self._context or self._reading
        if found is None:
            meta = self.store.run(commands.meta(self.store.keys))
            if meta is None:  # nobody has used this Redis: a server that is too old is refused here
                checks.refuse_old(*self.store.run_many([checks.server()]))
                return self._setup.unused()
            self.store.follow_time(development=meta.advanced is not None)
            found = self._reading = self._setup.context(meta)
        self._keep_up(found)
        return found

    def _keep_up(self, context: Context) -> None:
        if context.layouts.outdated(self._setup.clock):
            (listed,) = self.store.run_many([commands.layouts(self.store.keys)])
            if not isinstance(listed, StoreError):  # after an error, the known layouts are sufficient
                context.layouts.take(listed)

    @property
    def known_routes(self) -> KnownRoutes:
        """The route tables of the live workers, as far as this client knows them."""
        return self._setup.routes

    def learn_routes(self) -> None:
        """Read the route tables of the live workers unless they were read in the last few seconds.

        Calls that schedule do it by themselves. Programs that run plans of their own call it first.
        """
        if self._setup.routes.outdated:
            self._learn()

    def warn_without_worker(self) -> None:
        """Log once that no worker is live, if none is."""
        self.learn_routes()
        self._setup.routes.warn()

    def _learn(self) -> None:
        self._run(handshake.learn_routes(self.store.keys, self._setup.routes))

    def _run(self, plan: Plan[T]) -> T:
        return self.store.follow(plan)

    def run(self, make: Callable[[Context], Plan[T]]) -> T:
        """Run a plan that has no method here, such as `delayq.client.scheduling.schedule.schedule_ready`."""
        return self._run(make(self.context()))

    def read(self, make: Callable[[Context], Plan[T]]) -> T:
        """Run a plan that only reads."""
        return self._run(make(self.reading()))

    def schedule(self, message: Message) -> Scheduled:
        """Schedule one message; raises InvalidMessage, Conflict or StoreError."""
        if self._spans is None:
            outcome = self._schedule_one(message)
        else:
            with self._spans.span() as span:
                (outcome,) = span.ended([self._schedule_one(span.mark(message))])
        if isinstance(outcome, DelayqError):
            raise outcome
        return outcome

    def _encoded(self, messages: Iterable[Message], *, refuse_past: bool = False) -> Iterator[Encoded | InvalidMessage]:
        setup = self._setup
        return encode_all(messages, setup.limits, setup.routes, setup.clock.now(), refuse_past=refuse_past)

    def _schedule_one(self, message: Message) -> Outcome:
        setup = self._setup
        if setup.routes.outdated:
            # A message that is invalid anyway costs no question about routes.
            (given,) = encode_all((message,), setup.limits, None, setup.clock.now())
            if isinstance(given, InvalidMessage):
                return given
            try:
                if self._context is None:
                    self.context()
                else:
                    self._learn()
            except StoreError as error:
                (outcome,) = setup.unreachable((given,), error)
                return outcome
        (given,) = self._encoded((message,))
        return given if isinstance(given, InvalidMessage) else self._send_one(given)

    def _send_one(self, given: Encoded) -> Outcome:
        (outcome,) = self._send((given,))
        return outcome

    def schedule_many(self, messages: Iterable[Message], *, refuse_past: bool = False) -> list[Outcome]:
        """Schedule any number of messages and return their outcomes in order. An invalid one never stops the others.

        With `refuse_past`, a message whose `expect_date` has passed is refused with PastDue, unless it was scheduled before.
        """
        if self._spans is None:
            return self._send(self._encoded(messages, refuse_past=refuse_past))
        with self._spans.span() as span:
            return span.ended(self._send(self._encoded(map(span.mark, messages), refuse_past=refuse_past)))

    def _send(self, given: Iterable[Encoded | InvalidMessage]) -> list[Outcome]:
        try:
            context = self.context()
        except StoreError as error:
            return self._setup.unreachable(given, error)
        self.learn_routes()
        return self._run(schedule_encoded(context, given))

    def cancel(self, id: str, *, by: By | None = None) -> Cancelled:
        """Cancel one message. `by`, here and elsewhere, is the caller that the audit names."""
        cancelled: Cancelled = single(self.cancel_many((id,), by=by))
        return cancelled

    def cancel_many(self, ids: Sequence[str], *, by: By | None = None) -> list[Cancelled | Any]:
        """Cancel messages and return the results in order (a StoreError where the result is unknown)."""
        from delayq.client.changing.messages import cancel

        return self._run(cancel(self.context(), ids, by=one_act(by)))

    def cancel_by_key(self, key: str, *, by: By | None = None) -> list[Cancelled | Any]:
        """Cancel all messages that carry a business key and return the results (a StoreError where one is unknown).

        Messages that have ended are included while their ids are remembered (15 minutes by default), at most 1,000 of each
        queue. So the same call again returns the same results.
        """
        from delayq.client.changing.by_key import by_key
        from delayq.client.changing.messages import cancel

        return self._run(by_key(self.context(), key, partial(cancel, by=one_act(by))))

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
        """Change the due time of a message: exactly one of a delay (ms), a date (Unix ms) and a level.

        Each call has a name of its own, so that the client may repeat it. If you repeat a call yourself after a
        StoreUnavailable, give both the same `call`. Then the second one gets the first answer, as in the methods below.
        Here and elsewhere, a duration may also be a `timedelta` or text such as '30m'. A time may also be an aware
        `datetime` or RFC 3339.
        """
        from delayq.client.changing.messages import reschedule, spec_of

        now = self._setup.clock.now()
        spec = spec_of(self._setup.limits, now, delay_time, expect_date, delay_level)
        return self._run(reschedule(self.context(), id, spec, by=by, call=named(call)))

    def deliver_now(
        self, id: str, *, force: bool = False, by: By | None = None, call: str | None = None
    ) -> Rescheduled:
        """Deliver a message now. With `force`, a held message is delivered too, in spite of pauses and limits."""
        delivered: Rescheduled = single(self.deliver_now_many((id,), force=force, by=by, call=call))
        return delivered

    def deliver_now_many(
        self, ids: Sequence[str], *, force: bool = False, by: By | None = None, call: str | None = None
    ) -> list[Rescheduled | Any]:
        """Deliver messages now and return the results in order (a StoreError where the result is unknown)."""
        from delayq.client.changing.messages import deliver_now

        each = partial(deliver_now, force=force, by=one_act(by), call=named(call))
        return self._run(each(self.context(), ids))

    def deliver_now_by_key(
        self, key: str, *, force: bool = False, by: By | None = None, call: str | None = None
    ) -> list[Rescheduled | Any]:
        """Deliver all messages that carry a business key now and return the results (a StoreError where one is
        unknown).

        Messages that have ended are included, as in `cancel_by_key`, and their results are how they ended.
        """
        from delayq.client.changing.by_key import by_key
        from delayq.client.changing.messages import deliver_now

        each = partial(deliver_now, force=force, by=one_act(by), call=named(call))
        return self._run(by_key(self.context(), key, each))

    def get(self, id: str) -> Found | None:
        """Return the state of one message, or None if its id is unknown."""
        return (self.get_many((id,)))[0]

    def get_many(self, ids: Sequence[str]) -> list[Found | None]:
        """Return the states of messages, in order; None for an unknown id."""
        from delayq.client.looking.messages import get

        return self._run(get(self.reading(), ids))

    def explain(self, found: Found) -> Explanation:
        """Explain why a message that `get` returned has not been delivered yet, or how it ended."""
        from delayq.client.looking.explain import explain

        return self._run(explain(self.reading(), found))

    def find(self, key: str) -> list[Found]:
        """Return the messages that carry a business key and have not ended, by due time; at most 1,000 of each queue.

        `search` returns all of them, page by page; with states such as 'cancelled' also those that have ended.
        """
        from delayq.client.looking.messages import find

        return self._run(find(self.reading(), key))

    def search(self, wanted: Filter = EVERYTHING, limit: int = 100, token: str | None = None) -> SearchPage:
        """Return a page of the messages that match a filter, by due time; dead letters by the time of their death.

        The search of a page is bounded: a page may have fewer messages than `limit` and not be the last one. An empty page
        is not the last one only if no message was found within a second. With a business key, pages continue by id, and
        each page is sorted by due time. Raises InvalidMessage for an invalid filter.
        """
        from delayq.client.looking.search import MOST_SECONDS, PAUSE, SECONDS
        from delayq.client.looking.search_by_key import search_of

        page = search_of(self.reading(), wanted, limit, token)
        clock = self._setup.clock
        began = clock.precise()
        self._run(page.begin())
        while page.goes_on(in_time=clock.precise() - began < (MOST_SECONDS if page.is_empty else SECONDS) * 1000):
            self._run(page.step())
            pause(PAUSE)
        return self._run(page.end())

    def count(self, wanted: Filter = EVERYTHING) -> Counted:
        """Count the messages that match a filter by topic, state and due time, exactly or by the last census.

        With 10,000 messages or fewer in all queues, the count is always exact.
        """
        from delayq.client.looking.counting import count_messages

        return self._run(count_messages(self.reading(), wanted))

    def forecast(self, due_from: Instant, due_to: Instant, step: Duration, wanted: Filter = EVERYTHING) -> Forecast:
        """Count the messages that fall due in each `step` (ms) from `due_from` to `due_to` (Unix ms), for a filter of topics."""
        from delayq.client.looking.counting import forecast

        first, last = given_instant("dueFrom", due_from) or 0, given_instant("dueTo", due_to) or 0
        each = given_duration("step", step) or 0
        return self._run(forecast(self.reading(), first, last, each, wanted))

    def redis_now(self) -> int:
        """Return the time of Redis (Unix ms), as its scripts see it."""
        self.reading()  # shows whether this is a development server, whose time is another one
        return self.store.run(commands.redis_now())

    def queues(self) -> list[QueueStats]:
        """Return the figures of every queue."""
        from delayq.client.looking.service import queues

        return self._run(queues(self.reading()))

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
        The letters died at or after `from_` and before `to` (Unix ms). With one of the first three, a page may have fewer
        letters than `limit` and not be the last one. An empty page is not the last one only if no letter was found within
        a second.
        """
        from delayq.client.looking.dead_letters import Wanted, dead_letters

        begin, end = given_instant("from", from_), given_instant("to", to)
        wanted = Wanted(newest=newest, topic=topic, reason=reason, group=group, from_=begin, to=end)
        return self._page(lambda context, behind: dead_letters(context, limit, behind, wanted), token)

    def redrive(self, ids: Sequence[str], *, by: By | None = None, call: str | None = None) -> list[Any]:
        """Redrive dead letters: put them back, due now. Return 'scheduled', 'notDead', 'noRoute' or 'corrupt' for each."""
        from delayq.client.changing.dead_letters import redrive

        return self._run(redrive(self.context(), ids, by=one_act(by), call=named(call)))

    def discard(self, id: str, *, by: By | None = None) -> bool:
        """Delete a dead letter permanently; False if no dead letter has this id."""
        return bool(single(self.discard_many((id,), by=by)) == "discarded")

    def discard_many(self, ids: Sequence[str], *, by: By | None = None) -> list[Any]:
        """Delete dead letters permanently and return 'discarded' or 'notDead' for each (a StoreError where it is
        unknown).
        """
        from delayq.client.changing.dead_letters import discard

        return self._run(discard(self.context(), ids, by=one_act(by)))

    def nodes(self) -> dict[str, NodeLine]:
        """Return the nodes by name, with what each last reported."""
        from delayq.client.looking.service import nodes

        return self._run(nodes(self.reading()))

    def routes(self) -> list[RouteState]:
        """Return the routes, their circuits as live workers report them, and how many messages are parked for each."""
        from delayq.client.looking.service import routes

        return self._run(routes(self.reading()))

    def status(self) -> list[Finding]:
        """Return the problems, worst finding first, with their remedies."""
        from delayq.client.findings import findings

        return findings(self.facts())

    def overview(self) -> Overview:
        """Return the numbers of messages by state, the deliveries of the last ten minutes, their lateness and the findings."""
        from delayq.client.findings.overview import overview

        return overview(self.facts())

    def audit(self, limit: int = 100, token: str | None = None, **wanted: Any) -> AuditPage:
        """Return a page of manual changes, the newest first; `wanted` are the fields of `WantedEntries`.

        A page may have fewer entries than `limit` and not be the last one. An empty page is not the last one only if no
        entry was found within a second.
        """
        from delayq.client.looking.audit import WantedEntries, audit

        entries = WantedEntries(**wanted)
        return self._page(lambda context, behind: audit(context, limit, behind, entries), token)

    def _page(self, read: Callable[[Context, str | None], Plan[P]], token: str | None) -> P:
        """Read pages until one is not empty or the last one, or until a second is over."""
        from delayq.client.looking.search import MOST_SECONDS

        context, clock = self.reading(), self._setup.clock
        began = clock.precise()
        page = self._run(read(context, token))
        while page.is_empty and page.next_token is not None and clock.precise() - began < MOST_SECONDS * 1000:
            page = self._run(read(context, page.next_token))
        return page

    def facts(self) -> Facts:
        """Read the facts that `status` and `overview` use."""
        from delayq.client.findings import read_facts

        setup = self._setup
        return self._run(read_facts(setup.settings, setup.url))

    def dead_groups(self) -> DeadGroups:
        """Group the newest dead letters, about 20,000, by topic and reason."""
        from delayq.client.looking.dead_groups import dead_groups

        return self._run(dead_groups(self.reading()))

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

        When the call returns, no worker takes messages of these topics any more. It waits up to `wait` ms until messages
        that were already being sent have arrived: then `state` is 'paused'. If the pattern is already paused, a `reason` or
        `until` that you omit keeps its value, and None removes it. Raises NotReady while a live worker is too old.
        """
        from delayq.client.changing.policies import check_wait, pause, paused

        longest = check_wait(given_duration("wait", wait))
        ends = until if isinstance(until, UnsetType) else given_instant("until", until)
        found = self._run(pause(self.context(), match, reason, ends, by))
        clock = self._setup.clock
        end, look = clock.monotonic() + longest, LOOK
        while True:
            found = self._run(paused(self.store.keys, found))
            if found.in_flight == 0 or clock.monotonic() >= end:
                return found
            wait_for(look)
            look = min(2 * look, LONGEST_LOOK)

    def resume(self, match: str, *, rate: float | None = None, by: By | None = None) -> Resumed:
        """End the pause with exactly this pattern; its held messages are delivered at most at `rate` messages a second.

        Without such a pause, the limit of an earlier resume gets the new rate, or ends if no rate is given.
        """
        from delayq.client.changing.policies import resume

        return self._run(resume(self.context(), match, rate, by))

    def topics(self, *, match: str = "*", paused: bool | None = None, live: bool = True) -> list[TopicState]:
        """Return the topics that have messages or held messages, or that a pause or a policy names, by name.

        `match` is a pattern with `*` and `?`, and `paused` selects paused topics or the others. Messages are counted now if all
        queues together have 10,000 or fewer. Otherwise, and without `live`, the counts are those of the last census.
        """
        from delayq.client.looking.topics import topics

        return self._run(topics(self.reading(), match, paused, live=live))

    def topic(self, name: str, *, live: bool = True) -> TopicState:
        """Return a topic's route, policy, pause, limit and numbers of messages; `live` as in `topics`."""
        from delayq.client.looking.topics import topic

        return self._run(topic(self.reading(), name, live=live))

    def arriving(self, match: str) -> list[Arriving] | None:
        """Return the nodes that may still deliver messages paused by exactly this pattern; None without such a pause."""
        from delayq.client.looking.topics import arriving

        return self._run(arriving(self.reading(), match))

    def policies(self) -> Policies:
        """Return all policies, pauses and limits set by `resume`, and their version."""
        from delayq.client.looking.topics import read_policies

        return self._run(read_policies(self.reading()))

    def policy(self, name: str) -> Policy | None:
        """Return the policy with this name, or None."""
        return (self.policies()).policies.get(check_policy_name(name))

    def put_policy(self, policy: Policy, *, if_version: int | None = None, by: By | None = None) -> PolicyChanged:
        """Create or replace a policy; with `if_version`, only if the policies still have that version.

        Raises InvalidMessage, and PoliciesChanged if the version is another one.
        """
        from delayq.client.changing.policies import put_policy

        context = self.context()
        return self._run(put_policy(context, policy, self._setup.url, if_version=if_version, by=by))

    def delete_policy(self, name: str, *, if_version: int | None = None, by: By | None = None) -> PolicyChanged:
        """Delete a policy; `changed` is False if there was none. Raises PoliciesChanged."""
        from delayq.client.changing.policies import delete_policy

        return self._run(delete_policy(self.context(), name, if_version=if_version, by=by))

    def advance(self, time: Duration, *, timeout: Duration = 60_000) -> Advanced:
        """Move the time of a development server forward by `time`, and return once everything that fell due was
        delivered.

        Time moves from one due time to the next, so retries, pauses that end and later messages come in their order.
        Raises NotDevelopment for every other server. Raises StillDue if due messages keep time from moving for
        `timeout` of real time.
        """
        from delayq.client.changing.advance import begin_advance, step_of_advance

        context, clock = self.context(), self._setup.clock
        way = self._run(begin_advance(context, given_duration("time", time) or 0))
        patience = given_duration("timeout", timeout) or 0
        end, look = clock.monotonic() + patience, LOOK_FOR_DUE
        while (found := self._run(step_of_advance(context, way))) is None:
            if way.moved:
                end, look = clock.monotonic() + patience, LOOK_FOR_DUE
            elif clock.monotonic() >= end:
                raise way.late()
            else:
                wait_for(look)
                look = min(2 * look, LONGEST_LOOK / 10)
        return found

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
        """Lease at most `max` messages of a topic whose route is a stream of delayq's own Redis.

        A call for several topics receives the first one with messages. Each message is received by one consumer of the group at a
        time. Acknowledge it with `ack`. If its lease ends before, it is received again. Without messages the call waits up to
        `wait` for some. A new group begins at `start`: 'beginning', 'end' or a time. Only messages with one of the `tags` are
        received; 'paid || void' is a way to write two.
        The messages of `ack` are acknowledged before, in the same packet for one topic; the group receives those with a lost
        lease again.
        """
        from delayq.client.consuming.groups import given_consumer
        from delayq.client.consuming.receiving import receive

        topics, clock = [topic] if isinstance(topic, str) else topic, self._setup.clock
        consumers = [given_consumer(one, group, start, tags) for one in topics]
        life, end = given_duration("lease", lease) or 0, clock.monotonic() + given_wait(wait)
        leases: list[str] = []
        if len(consumers) == 1:
            leases = consumers[0].leases_of(ack)
        else:
            self.ack(*ack)
        while True:
            streams, soonest, since, failure = list[str](), list[int](), 0, None
            for consumer in consumers:
                try:
                    page = self._run(receive(self.context(), consumer, max, life, ack=leases))
                except StoreError as error:
                    failure = failure or error  # the other topics are received all the same
                    continue
                log_lost(one for one in ack if one.lease in page.lost)
                leases = []
                if page.messages:
                    return page.messages
                streams += page.streams
                since = since or page.now
                if page.next is not None:
                    soonest.append(page.next - page.now)
            if failure is not None:
                raise failure
            left = end - clock.monotonic()
            if left <= 0 or not streams:
                return []
            self._arrival(streams, since, min([left, *soonest]))

    def _arrival(self, streams: Sequence[str], since: int, longest: int) -> None:
        """Wait for an entry of these streams; the connection is kept for the next wait."""
        try:
            arrivals = self._arrivals.pop()
        except IndexError:
            arrivals = Arrivals(self.store)
        try:
            arrivals.wait(streams, since, longest)
        finally:
            if self._is_closed:
                arrivals.close()
            else:
                self._arrivals.append(arrivals)

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
        """Return a consumer that iterates over the messages of topics. Use it in a `with` block.

        The next step of the loop acknowledges the message before. If the block raises, the message is handed back. `prefetch`
        messages are received at a time. `lease`, `start` and `tags` are those of `receive`. `topic` is a topic, a pattern with
        `*` and `?`, or a list of both. Every 5 s the consumer adds the topics of `topics` that fit a pattern. Every minute it
        adds the topics from which the group has received. The leases of the messages that it holds are renewed until
        `max_lease` after each was received. That is 1 h unless you choose another time, at most 12 h.
        """
        options = {"group": group, "start": start, "tags": tags, "max": prefetch}
        made = Consumer(self, self._setup.clock, self._topics_to_consume, topic, lease, max_lease, options)
        self._leases.add(made.leases)
        return made

    def _topics_to_consume(self, match: str, group: str | None) -> list[str]:
        """The topics of `topics` that fit a pattern, and the topics from which a group has received, if one is given."""
        from delayq.client.looking.groups import known_groups

        found = [one.topic for one in self.topics(match=match)]
        if group is not None:
            groups = self._run(known_groups(self.reading(), match))
            found += [one.topic for one in groups if one.group == group]
        return list(dict.fromkeys(found))

    def ack(self, *messages: Leased) -> list[Settlement | Any]:
        """Acknowledge messages: the group receives them no more.

        Returns 'acknowledged', 'lost', or 'notFound' without such a group, for each.
        """
        from delayq.client.consuming.leases import ACK

        return self._settle(messages, ACK)

    def extend(self, message: Leased, lease: Duration = 30_000) -> Settlement | Any:
        """Let the lease of a message end so long from now. Returns 'extended', or 'lost' if this consumer does not hold it.

        With 0 the message was not handled: other consumers receive it now, this delivery does not count, and the result is
        'released'.
        """
        return only(self.extend_many([message], lease))

    def extend_many(self, messages: Sequence[Leased], lease: Duration = 30_000) -> list[Settlement | Any]:
        """Let the leases of messages end so long from now, as `extend` does for one. Returns a result for each."""
        from delayq.client.consuming.leases import extension

        return self._settle(messages, extension(given_duration("lease", lease) or 0))

    def hand_back(
        self, message: Leased | received.Received, *, reason: str = "", delay_time: Duration | None = None
    ) -> Settlement | Any:
        """Hand a message back: it is received again later, each time later than before, or after `delay_time`.

        A leased message stays in its group. A message that a reader of `delayq.received` or `delayq.webhooks` returned is
        delivered again, by the route of its topic. Repeating the call is safe. Returns 'handedBack', 'dead' if it has been
        handed back too often, or 'lost' if this consumer does not hold the lease.
        """
        from delayq.client.consuming.handing_back import hand_back, hand_back_of, settlement_of
        from delayq.client.consuming.leases import LeaseChange

        delay = given_duration("delayTime", delay_time)
        if isinstance(message, received.Received):
            given, now = hand_back_of(message, reason, delay), self._setup.clock.now()
            return settlement_of(only(self._run(hand_back(self.context(), [given], now))))
        return only(self._settle([message], LeaseChange("back", delay, reason)))

    def consumers(self, *, match: str = "*") -> list[ConsumerGroup]:
        """Return the consumer groups of the topics that match a pattern with `*` and `?`, by topic and name.

        Each has the numbers of messages that it has not acknowledged, and the oldest of them.
        """
        from delayq.client.looking.groups import consumers

        return self._run(consumers(self.reading(), match))

    def delete_group(self, topic: str, group: str, *, by: By | None = None) -> GroupDeleted:
        """Delete a consumer group with its leases; its messages stay for other groups. Stop its consumers first.

        `changed` is False if there was no such group.
        """
        from delayq.client.consuming.groups import delete_group

        return self._run(delete_group(self.context(), topic, group, by))

    def _settle(self, messages: Sequence[Leased], change: LeaseChange) -> list[Settlement | Any]:
        from delayq.client.consuming.groups import given_consumer
        from delayq.client.consuming.settling import settle

        context, results = self.context(), dict[int, Any]()
        groups: dict[tuple[str, str], list[int]] = {}
        for at, message in enumerate(messages):
            groups.setdefault((message.topic, message.group), []).append(at)
        for (topic, group), places in groups.items():
            consumer = given_consumer(topic, group, "beginning", ())
            wanted = [(messages[at].lease, messages[at].id, change) for at in places]
            found = self._run(settle(context, consumer, wanted))
            results.update(zip(places, found, strict=True))
        return [results[at] for at in range(len(messages))]

    def close(self) -> None:
        """Close the connections to Redis."""
        for leases in list(self._leases):
            leases.wait_if_abandoned()
        self._is_closed = True
        while self._arrivals:
            self._arrivals.pop().close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
