"""State shared by the handlers, the readiness check, and the registry of operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from api.asgi import Answer, Request, encode
from api.auth.keys_file import Door
from api.auth.quotas import Quotas
from api.metrics import Metrics
from api.receivers import Receivers
from delayq import AsyncClient, ConfigError, LayoutMismatch, Settings, StoreError, StoreRefused
from delayq.answers.service import overview_out, status_out
from delayq.base.clock import Clock, SystemClock
from delayq.care.accounts import Accounts
from delayq.client.findings import Facts, Finding, away, findings
from delayq.client.findings.overview import overview
from delayq.client.looking.groups import largest_lags
from delayq.client.looking.messages import count
from delayq.domain.words import counted
from delayq.store import checks, commands
from delayq.store.commands import LAYOUT_VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

#: Searches at the same time.
SEARCHES: Final = 2
#: The shortest interval between two checks of the accounts, in ms, however many callers there are.
COUNT_EVERY: Final = 2_000
#: The lags of consumer groups in metrics are at most so old (ms).
LAGS_EVERY: Final = 15_000
#: The time in ms for which an expensive answer is shared by all callers. The overview takes about 23 requests to Redis.
SHARED: Final = 1_250
T = TypeVar("T")
U = TypeVar("U")


class Readiness:
    """The readiness check: the conditions that Redis must meet before delayq may promise anything."""

    def __init__(self, client: AsyncClient, settings: Settings, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._accounts = Accounts()
        self._counted_at: int | None = None
        self._lost: list[str] = []

    async def missing(self) -> list[str]:
        """Return what this Redis is missing, in sentences; nothing if it is ready."""
        store, settings = self._client.store, self._settings
        lacking: list[str] = []
        try:
            # First: if the user is missing a right, the calls after it may be refused.
            asked = checks.questions(store.keys, settings.fsync, min_replicas=settings.min_replicas)
            server = checks.told(await store.run_many(asked))
            lacking = checks.complaints(server, settings.min_replicas, settings.fsync, settings.accept)
            context = await self._client.reading()
            known = context.layouts.known
            meta = await store.run(commands.meta(store.keys))
            lacking += await self._unaccounted()
        except StoreRefused as error:
            return lacking or [str(error)]
        except (ConfigError, LayoutMismatch, StoreError) as error:
            return [str(error)]
        if meta is None:  # a new store, or one whose data were deleted, which the audit records
            return lacking
        another = not set(known) & set(meta.layouts) and meta.layouts[-1].first <= known[-1].first
        if another or meta.version != LAYOUT_VERSION:
            lacking.append(
                f"Redis now has {counted(meta.queues, 'queue', 'queues')} (layout version {meta.version}), but this process "
                f"began with {known[-1].queues} (version {LAYOUT_VERSION}); restart the process"
            )
        else:
            context.layouts.take(meta.layouts)
        return lacking

    async def _unaccounted(self) -> list[str]:
        now = self._clock.monotonic()
        if self._counted_at is None or now - self._counted_at >= COUNT_EVERY:
            self._lost = list(self._accounts.look(await self._client.queues()).lost.values())
            self._counted_at = now
        return self._lost


class Shared(Generic[T]):
    """A value that is computed once for all callers within `every` ms."""

    def __init__(self, find: Callable[[], Coroutine[Any, Any, T]], clock: Clock, every: int = SHARED) -> None:
        self._find = find
        self._clock = clock
        self._every = every
        self._found: asyncio.Task[T] | None = None
        self._began = 0

    async def get(self) -> T:
        """Return the value, at most `every` ms old, or the one that is being computed."""
        now = self._clock.monotonic()
        if self._found is None or (self._found.done() and now - self._began >= self._every):
            self._found, self._began = asyncio.create_task(self._find()), now
        return await asyncio.shield(self._found)


class Once(Generic[T, U]):
    """A value that is derived once as long as its source is the same, for all callers within a second."""

    def __init__(self, make: Callable[[T], U]) -> None:
        self._make = make
        self._made: tuple[T, U] | None = None

    def of(self, one: T) -> U:
        """Return the derived value, new or cached."""
        if self._made is None or self._made[0] is not one:
            self._made = one, self._make(one)
        return self._made[1]


class Service:
    """One API process: its client of the store, and its metrics."""

    def __init__(self, settings: Settings, tracer_provider: TracerProvider | None = None) -> None:
        self.settings = settings
        self.limits = settings.limits()
        self.tracer_provider = tracer_provider
        self.client = AsyncClient(settings=settings, tracer_provider=tracer_provider)
        self.metrics = Metrics()
        self.client.group.taken = self.metrics.flushes.add
        self.metrics.waiting = lambda: self.client.group.waiting
        self.clock = SystemClock()
        #: Limits searches: each of them uses a third of Redis' time.
        self.searching = asyncio.Semaphore(SEARCHES)
        self.receivers = Receivers(self.client.store)
        self.readiness = Readiness(self.client, settings, self.clock)
        self.facts = Shared(self._facts, self.clock)
        self.dead_groups = Shared(self.client.dead_groups, self.clock)
        self.policies = Shared(self.client.policies, self.clock)
        self._lags = Shared(lambda: self.client.read(largest_lags), self.clock, LAGS_EVERY)
        self._findings = Once(findings)
        #: As they are answered, because many pages of the console may be open.
        self.status = Once[list[Finding], bytes](lambda found: encode(status_out(found)))
        self.overview = Once[Facts, bytes](lambda facts: encode(overview_out(overview(facts))))
        self._away_since: int | None = None
        self.door = Door(settings, self.clock)
        self.metrics.keys_stale = lambda: bool(self.door.stale)
        self.quotas = Quotas(self._carrying, self.clock)

    async def _facts(self) -> Facts:
        """Return the findings of Redis and of this process."""
        return msgspec.structs.replace(await self.client.facts(), stale_keys=self.door.stale)

    async def _carrying(self, key: str) -> int:
        """Count the messages with a business key."""
        return await self.client.read(lambda context: count(context, key))

    async def findings(self) -> list[Finding]:
        """Return the problems, worst first, even if Redis does not answer."""
        try:
            facts = await self.facts.get()
        except StoreError as error:
            self._away_since = self._away_since or self.clock.now()
            return away(error, self._away_since)
        self._away_since = None
        return self._findings.of(facts)

    async def read_lags(self) -> None:
        """Give the lags of consumer groups to the metrics; none if they take longer than one reply of Redis may."""
        try:
            async with asyncio.timeout(self.settings.redis_timeout / 1000):
                self.metrics.lags = await self._lags.get()
        except (TimeoutError, StoreError, ConfigError, LayoutMismatch):
            self.metrics.lags = (None, None)

    async def close(self) -> None:
        """Wait for the current calls, then close the connections."""
        await self.receivers.close()
        await self.client.close()


Handle = Callable[[Service, Request], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation:
    """A handler and its documentation.

    `id` is a method of a generated client, and `tag` its class.
    `takes` is the type of the body, with an `example`. `gives` has the type of each successful answer's body (None:
    text), `problems` the statuses of the others. `query` and `headers` are the parameters with their schemas.
    `open`: it needs no key.
    """

    method: str
    path: str
    id: str
    tag: str
    handle: Handle
    takes: type | None = None
    example: Any = None
    gives: dict[int, type | None] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    query: dict[str, dict[str, Any]] = field(default_factory=dict)
    headers: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: bool = False


class Operations(list[Operation]):
    """The operations of one file under one tag, in the order of the documentation."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag

    def add(self, method: str, path: str, id: str, **documentation: Any) -> Callable[[Handle], Handle]:
        """Decorate a handler."""

        def decorate(handle: Handle) -> Handle:
            self.append(Operation(method, path, id, self._tag, handle, **documentation))
            return handle

        return decorate
