"""The settings, limits and routes of a client, and the context of its plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from delayq.base.clock import Clock, SystemClock
from delayq.base.errors import ConfigError, InvalidMessage, LayoutMismatch, StoreError
from delayq.client.known_policies import KnownPolicies
from delayq.client.known_routes import KnownRoutes
from delayq.client.plan import Context
from delayq.client.scheduling.encoding import Encoded
from delayq.client.scheduling.schedule import Outcome, schedule_encoded
from delayq.config import SURROGATE, Settings, load_settings
from delayq.domain.message import Limits
from delayq.domain.routes import Routes
from delayq.store.commands import LAYOUT_VERSION, Meta, Retention
from delayq.store.keys import Keys, Layout, Layouts

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from delayq.telemetry.tracing import Scheduling

DEFAULT_QUEUES: Final = 16


def check_layouts(meta: Meta, wanted: int | None) -> None:
    """Raise LayoutMismatch if this version of delayq or DELAYQ_QUEUES does not match the layouts in Redis."""
    if meta.version != LAYOUT_VERSION:
        raise LayoutMismatch(f"this Redis has layout version {meta.version}, but this delayq needs {LAYOUT_VERSION}")
    if wanted is not None and wanted not in [layout.queues for layout in meta.layouts]:
        raise LayoutMismatch(f"this Redis has {meta.queues} queues, but DELAYQ_QUEUES is {wanted}; unset it")


def retention_of(settings: Settings) -> Retention:
    """How long ended messages and manual changes are remembered."""
    return Retention(
        window=settings.final_window,
        most=settings.final_most,
        audit_window=settings.audit_window,
        audit_most=settings.audit_most,
    )


def spans_by(provider: TracerProvider | None, limits: Limits) -> Scheduling | None:
    """Return the factory of spans for calls that schedule; None without a provider."""
    if provider is None:
        return None
    from delayq.telemetry.tracing import Scheduling  # its extra is needed only with a provider

    return Scheduling(provider, limits)


class Agreement:
    """The settings that a client has before it connects to Redis."""

    def __init__(
        self,
        url: str | None,
        settings: Settings | None,
        clock: Clock | None,
        routes: Routes | None = None,
        *,
        namespace: str | None = None,
        check_routes: bool = True,
    ) -> None:
        self.settings = settings if settings is not None else load_settings()
        if namespace is not None:
            self.settings = self.settings.replace(namespace=namespace)
        self.keys = Keys(self.settings.namespace)
        self.clock = clock if clock is not None else SystemClock()
        self.url = url if url is not None else self.settings.redis_url
        if SURROGATE.search(self.url):
            raise ConfigError("redis_url: the value is not UTF-8")
        self.limits = self.settings.limits()
        own = routes.within(self.settings.namespace) if routes is not None else self.settings.route_table()
        self.routes = KnownRoutes(own, self.clock, checks=check_routes)
        self.queues = self.settings.queues or DEFAULT_QUEUES

    def context(self, meta: Meta) -> Context:
        """Check the layouts and return the context of plans; raises LayoutMismatch."""
        check_layouts(meta, self.settings.queues)
        return Context(
            layouts=Layouts(meta.layouts),
            keys=self.keys,
            limits=self.limits,
            retention=retention_of(self.settings),
            routes=self.routes,
            policies=KnownPolicies(self.clock),
        )

    def unused(self) -> Context:
        """The context for reading an unused Redis: the layout that the first message would create."""
        return self.context(Meta((Layout(self.queues),), LAYOUT_VERSION, 0))

    def unreachable(self, given: Iterable[Encoded | InvalidMessage], error: StoreError) -> list[Outcome]:
        """Return the outcomes if not even the layout can be read. Each message still gets an id.

        An id does not depend on the number of queues.
        """
        context = Context(
            layouts=Layouts((Layout(DEFAULT_QUEUES),)), keys=self.keys, limits=self.limits, routes=self.routes
        )
        plan = schedule_encoded(context, given)
        commands = list(next(plan))
        try:
            plan.send([error] * len(commands))
        except StopIteration as end:
            outcomes: list[Outcome] = end.value
            return outcomes
        raise AssertionError("scheduling asks once")
