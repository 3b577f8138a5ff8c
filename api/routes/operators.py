"""The operations for operators: queues, nodes, routes, overview, health, metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Final

from msgspec import UNSET
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from api.asgi import Answer, Request, encode
from api.service import Operations, Service
from api.wire.problems import Problem
from delayq.answers.results import HealthOut, MeOut
from delayq.answers.service import (
    FindingOut,
    NodesOut,
    OverviewOut,
    QueuesOut,
    RoutesOut,
    StatusOut,
    TotalOut,
    nodes_out,
    queues_out,
    routes_out,
    status_out,
    total_of,
)
from delayq.domain.api_keys import SCOPES

OPERATIONS = Operations("service")

_METRICS: Final = ((b"content-type", CONTENT_TYPE_LATEST.encode()),)


@OPERATIONS.add("GET", "/v1/queues", "listQueues", gives={200: QueuesOut}, problems=(400, 503))
async def queues(service: Service, request: Request) -> Answer:
    """List the queues and their total"""
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(queues_out(await service.client.queues(), await service.client.nodes())))


@OPERATIONS.add("GET", "/v1/stats", "getStats", gives={200: TotalOut}, problems=(400, 503))
async def stats(service: Service, request: Request) -> Answer:
    """Get all queues together

    The `total` of `/v1/queues`.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(total_of(await service.client.queues())))


@OPERATIONS.add("GET", "/v1/nodes", "listNodes", gives={200: NodesOut}, problems=(400, 503))
async def nodes(service: Service, request: Request) -> Answer:
    """List the nodes

    From the lines that nodes write every 5 s. A node that stops in order removes its line; a node that died is `stale`.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(nodes_out(await service.client.nodes())))


@OPERATIONS.add("GET", "/v1/routes", "listRoutes", gives={200: RoutesOut}, problems=(400, 503))
async def routes(service: Service, request: Request) -> Answer:
    """List the routes and their circuits

    From the reports that live workers write every 5 s, with the number of parked messages for each route.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(routes_out(await service.client.routes())))


@OPERATIONS.add("GET", "/v1/status", "getStatus", gives={200: StatusOut}, problems=(400, 503))
async def status(service: Service, request: Request) -> Answer:
    """List problems of the service

    The findings of Redis, owners, circuits, workers, lateness and accounts, worst first, each with its remedy. They are
    checked at most once per second for all callers.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, service.status.of(await service.findings()))


@OPERATIONS.add("GET", "/v1/overview", "getOverview", gives={200: OverviewOut}, problems=(400, 503))
async def overview(service: Service, request: Request) -> Answer:
    """Get an overview of the service

    Counts by state, the deliveries of the last ten minutes and their lateness, and the problems. Null means unknown,
    not zero. It is computed at most once per second for all callers.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, service.overview.of(await service.facts.get()))


@OPERATIONS.add("GET", "/v1/me", "getMe", gives={200: MeOut}, problems=(400, 503))
async def me(service: Service, request: Request) -> Answer:
    """Get the caller and its permissions"""
    request.query()
    caller, console = request.caller, service.settings.console
    name, scopes = (None, {"*": list(SCOPES)}) if caller.key is None else (caller.key.name, caller.key.scopes)
    return Answer(200, encode(MeOut(name, scopes, version("delayq"), console, caller.session)))


@OPERATIONS.add("GET", "/livez", "getLivez", gives={200: HealthOut}, open=True)
async def livez(_service: Service, _request: Request) -> Answer:
    """Check that the process answers"""
    return Answer(200, encode(HealthOut("alive")))


@OPERATIONS.add("GET", "/readyz", "getReadyz", gives={200: HealthOut}, problems=(503,), open=True)
async def readyz(service: Service, _request: Request) -> Answer:
    """Check that messages can be accepted and kept

    503 lists in `missing` what must change. Redis must answer, keep an append-only file, never evict, have the expected
    layout, and account for every scheduled message. `findings` are those of /v1/status; if the API needs keys, without
    their texts.
    """
    lacking, found = await asyncio.gather(service.readiness.missing(), service.findings())
    findings = [_shown(one, service.door.open) for one in status_out(found).findings] or UNSET
    if lacking:
        raise Problem("not-ready", "; ".join(lacking), missing=lacking, findings=findings)
    return Answer(200, encode(HealthOut("ready", findings)))


def _shown(finding: FindingOut, open: bool) -> FindingOut:
    """Return the findings for an anonymous caller: the texts may name targets and topics."""
    return finding if open else FindingOut(finding.severity, finding.code, finding.runbook)


@OPERATIONS.add("GET", "/metrics", "getMetrics", gives={200: None})
async def metrics(service: Service, request: Request) -> Answer:
    """Get metrics for Prometheus"""
    request.caller.need_everywhere("read")
    await service.read_lags()
    return Answer(200, service.metrics.render(), _METRICS)
