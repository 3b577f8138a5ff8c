"""The plans by which a client agrees with Redis on layouts, routes, policies and durability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delayq.base.errors import StoreError
from delayq.client.known_routes import KnownRoutes
from delayq.client.plan import Context, Plan
from delayq.config import Settings
from delayq.domain.nodes import read_nodes
from delayq.store import checks, commands
from delayq.store.commands import Meta
from delayq.store.connect.durability import Durability
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys


def agreement(keys: Keys, queues: int, routes: KnownRoutes) -> Plan[tuple[Meta, Mapping[str, str]]]:
    """Read the layouts and the policies; the first process writes a layout with this many queues. Raises StoreError.

    `routes` gets the tables of the live workers in the same round trip.
    """
    meta, policies, *lines = yield [
        commands.layout(keys, queues),
        commands.policies(keys),
        commands.nodes(keys),
        commands.redis_now(),
    ]
    all_good([meta, policies])
    _take_routes(routes, lines)
    return meta, policies


def learn_routes(keys: Keys, routes: KnownRoutes) -> Plan[None]:
    """Read the route tables of the live workers. If that fails, no topic is refused, and the caller continues."""
    _take_routes(routes, (yield [commands.nodes(keys), commands.redis_now()]))


def learn_policies(context: Context) -> Plan[None]:
    """Read the policies, unless they were read in the last few seconds. If that fails, the known ones apply."""
    if context.policies.outdated:
        (found,) = yield [commands.policies(context.keys)]
        if not isinstance(found, StoreError):
            context.policies.take(found)


def _take_routes(routes: KnownRoutes, answers: list[Any]) -> None:
    lines, now = answers
    if isinstance(lines, StoreError) or isinstance(now, StoreError):
        routes.forget()
    else:
        routes.take(read_nodes(lines, now).values())


def durability(settings: Settings) -> Plan[Durability | None]:
    """Check the server and return where a change must be stored before it is answered; None if there is nothing to wait for.

    Raises ConfigError for a server that would lose messages, or that cannot keep DELAYQ_FSYNC=always.
    """
    keys = Keys(settings.namespace)
    server = checks.told((yield checks.questions(keys, settings.fsync, min_replicas=settings.min_replicas)))
    checks.refuse(server, settings.accept)
    fsync = settings.fsync == "always"
    if fsync:
        checks.refuse_fsync(server)
    if not settings.min_replicas and not fsync:
        return None
    return Durability(replicas=settings.min_replicas, fsync=fsync, timeout=settings.redis_timeout)
