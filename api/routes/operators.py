"""For operators: queues, nodes, routes, an overview, whether it lives and is ready, metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Final

from msgspec import UNSET
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from api.asgi import Answer, Request, encode
from api.service import Operations, Service
from api.wire.problems import Problem
from api.wire.responses import HealthOut, MeOut
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
from delayq.api_keys import SCOPES

__all__ = ["OPERATIONS"]

OPERATIONS = Operations("service")

_METRICS: Final = ((b"content-type", CONTENT_TYPE_LATEST.encode()),)


@OPERATIONS.add("GET", "/v1/queues", "listQueues", gives={200: QueuesOut}, problems=(400, 503))
async def queues(service: Service, request: Request) -> Answer:
    """Look at the queues and their total"""
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(queues_out(await service.client.queues(), await service.client.nodes())))


@OPERATIONS.add("GET", "/v1/stats", "getStats", gives={200: TotalOut}, problems=(400, 503))
async def stats(service: Service, request: Request) -> Answer:
    """Look at all queues together

    The `total` of `/v1/queues`.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(total_of(await service.client.queues())))


@OPERATIONS.add("GET", "/v1/nodes", "listNodes", gives={200: NodesOut}, problems=(400, 503))
async def nodes(service: Service, request: Request) -> Answer:
    """Look at the nodes

    By what they say of themselves every 5 s. One that stops in order takes its line away; one that died is `stale`.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(nodes_out(await service.client.nodes())))


@OPERATIONS.add("GET", "/v1/routes", "listRoutes", gives={200: RoutesOut}, problems=(400, 503))
async def routes(service: Service, request: Request) -> Answer:
    """Look at the routes and their circuits

    By what live workers say of them every 5 s, and how much is parked for each.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, encode(routes_out(await service.client.routes())))


@OPERATIONS.add("GET", "/v1/status", "getStatus", gives={200: StatusOut}, problems=(400, 503))
async def status(service: Service, request: Request) -> Answer:
    """What is wrong, the worst first, and what to do

    The list that `delayq doctor` prints, too: Redis, owners, circuits, what workers say of themselves, lateness, accounts.
    It is looked at once a second at most, however many ask.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, service.status.of(await service.findings()))


@OPERATIONS.add("GET", "/v1/overview", "getOverview", gives={200: OverviewOut}, problems=(400, 503))
async def overview(service: Service, request: Request) -> Answer:
    """Everything at a glance

    How much there is of what, how much went out in the last ten minutes and how late, and what is wrong. Null is what
    nobody tells, which is not zero. It is looked at once a second at most, however many ask.
    """
    request.caller.need_everywhere("read")
    request.query()
    return Answer(200, service.overview.of(await service.facts.get()))


@OPERATIONS.add("GET", "/v1/me", "getMe", gives={200: MeOut}, problems=(400, 503))
async def me(service: Service, request: Request) -> Answer:
    """Who asks, and what it may do"""
    request.query()
    caller, console = request.caller, service.settings.console
    name, scopes = (None, {"*": list(SCOPES)}) if caller.key is None else (caller.key.name, caller.key.scopes)
    return Answer(200, encode(MeOut(name, scopes, version("delayq"), console, caller.session)))


@OPERATIONS.add("GET", "/livez", "getLivez", gives={200: HealthOut}, open=True)
async def livez(_service: Service, _request: Request) -> Answer:
    """Whether the process answers"""
    return Answer(200, encode(HealthOut("alive")))


@OPERATIONS.add("GET", "/readyz", "getReadyz", gives={200: HealthOut}, problems=(503,), open=True)
async def readyz(service: Service, _request: Request) -> Answer:
    """Whether messages can be taken and kept

    503 says in `missing` what there is to do: Redis answers, keeps an append-only file, never evicts, has the
    layout that this process expects, and every message that was scheduled is accounted for. `findings` is what
    /v1/status has; where the API takes keys, without its words.
    """
    lacking, found = await asyncio.gather(service.readiness.missing(), service.findings())
    findings = [_shown(one, service.door.open) for one in status_out(found).findings] or UNSET
    if lacking:
        raise Problem("not-ready", "; ".join(lacking), missing=lacking, findings=findings)
    return Answer(200, encode(HealthOut("ready", findings)))


def _shown(finding: FindingOut, open: bool) -> FindingOut:
    """To whoever asks: the words may name targets and topics."""
    return finding if open else FindingOut(finding.severity, finding.code, finding.runbook)


@OPERATIONS.add("GET", "/metrics", "getMetrics", gives={200: None})
async def metrics(service: Service, request: Request) -> Answer:
    """Numbers for Prometheus"""
    request.caller.need_everywhere("read")
    return Answer(200, service.metrics.render(), _METRICS)
