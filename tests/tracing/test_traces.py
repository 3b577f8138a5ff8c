"""From a call to its delivery: spans of the API, of the client and of the worker, and how they belong together."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
import pytest
import structlog
from opentelemetry import trace

from api.app import create_app
from delayq import AsyncClient, Client, Conflict, Message
from delayq.config import Settings, load_settings
from delayq.domain.routes import Route
from delayq.embedded.processes import LOCALHOST
from delayq.spark.rows.records import same_message
from delayq.store.commands import Traced
from delayq.targets import Result
from delayq.targets.webhook.target import WebhookTarget
from delayq.telemetry.tracing import provider_for
from delayq.testing import MemoryTarget
from tests.support.deliveries import delivery
from tests.support.nodes import settings_for
from tests.support.receiver import Receiver
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT
from tests.support.spans import SAMPLED, UNSAMPLED, Recorded, traceparent_of
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually
from workers.node.node import Node
from workers.sending.spans import Spans

from delayq.base.clock import SystemClock  # isort: skip

PATIENT = Settings(redis_timeout=REDIS_TIMEOUT)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("DELAYQ_", "OTEL_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def target() -> Iterator[MemoryTarget]:
    made = MemoryTarget()
    yield made
    made.close()


@contextmanager
def working(settings: Settings, spans: Recorded) -> Iterator[None]:
    """A node that makes spans."""
    node = Node(settings, tracer_provider=spans.provider)
    thread = threading.Thread(target=node.run, name="node")
    thread.start()
    try:
        eventually(lambda: node.ready, "the node is ready")
        yield
    finally:
        node.stop()
        thread.join()


async def post(settings: Settings, spans: Recorded, path: str, body: Any, **headers: str) -> httpx2.Response:
    """A request to an API that makes spans."""
    app = create_app(settings.replace(redis_timeout=PATIENT.redis_timeout), spans.provider)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as api,
    ):
        answer: httpx2.Response = await api.request("POST" if body else "GET", path, json=body or None, headers=headers)
        return answer


def links_of(span: Any) -> list[str]:
    return [f"00-{one.context.trace_id:032x}-{one.context.span_id:016x}-01" for one in span.links]


async def test_from_the_callers_span_to_the_delivery(
    valkey: ServerUnderTest, spans: Recorded, target: MemoryTarget
) -> None:
    settings = settings_for(valkey.url, target)
    for topic in ("m.orders", "s.orders"):  # by the general path; into a stream of the same Redis
        message = {"topic": topic, "delayTime": 0, "id": topic, "body": "x"}
        answer = await post(settings, spans, "/v1/messages", message, traceparent=SAMPLED)
        assert answer.status_code == 201
    with working(settings, spans):
        for topic in ("m.orders", "s.orders"):
            eventually(lambda topic=topic: spans.named(f"send {topic}"), "it was delivered")  # type: ignore[misc]
    (carried,) = [one.properties["traceparent"] for one in target.deliveries]
    for topic in ("m.orders", "s.orders"):
        (scheduling,) = spans.named(f"schedule {topic}")
        (delivered,) = spans.named(f"send {topic}")
        # The caller's trace goes on in the API …
        assert traceparent_of(scheduling)[:35] == SAMPLED[:35]
        assert scheduling.parent is not None
        within = f"{scheduling.parent.span_id:016x}"
        (server,) = [one for one in spans.named("POST /v1/messages") if traceparent_of(one)[36:52] == within]
        assert server.parent is not None and f"{server.parent.span_id:016x}" == SAMPLED[36:52]
        # … and the delivery, a trace of its own, is linked to it.
        assert delivered.parent is None
        assert traceparent_of(delivered)[3:35] != SAMPLED[3:35]
        assert links_of(delivered) == [traceparent_of(scheduling)]
        assert delivered.kind is scheduling.kind is trace.SpanKind.PRODUCER
        attributes = dict(delivered.attributes or {})
        assert attributes["messaging.message.id"] == topic
        assert attributes["messaging.destination.name"] == topic
        assert (attributes["messaging.system"], attributes["messaging.operation.name"]) == ("delayq", "send")
        assert (scheduling.attributes or {})["messaging.message.id"] == topic
    assert carried == traceparent_of(spans.named("schedule m.orders")[0])
    ((_, entry),) = valkey.admin.xrange("s.orders")
    assert entry[b"p:traceparent"].decode() == traceparent_of(spans.named("schedule s.orders")[0])


async def test_a_batch_is_one_span_and_a_context_that_a_message_brings_stays(
    valkey: ServerUnderTest, spans: Recorded
) -> None:
    settings = load_settings(redis_url=valkey.url)
    messages: list[dict[str, Any]] = [{"topic": "orders", "delayTime": 60_000, "id": f"m{i}"} for i in range(3)]
    messages[1]["properties"] = {"traceparent": SAMPLED, "name": "value"}
    messages[2]["properties"] = {f"n{i}": "v" for i in range(64)}  # there is no room for another one
    answer = await post(settings, spans, "/v1/messages:batch", {"messages": messages})
    assert [one["status"] for one in answer.json()["results"]] == [201] * 3
    (span,) = spans.named("schedule orders")
    assert (span.attributes or {})["messaging.batch.message_count"] == 3
    with Client(settings=settings.replace(redis_timeout=PATIENT.redis_timeout)) as client:
        found = [one.record.properties for one in client.get_many(["m0", "m1", "m2"]) if one and one.record]
    assert found == [{"traceparent": traceparent_of(span)}, messages[1]["properties"], messages[2]["properties"]]
    # The same call is the same whatever trace it comes from.
    again = {"topic": "orders", "delayTime": 60_000, "id": "m0"}
    assert (await post(settings, spans, "/v1/messages", again)).status_code == 200
    assert (await post(settings, spans, "/v1/messages", again | {"body": "other"})).status_code == 409
    assert spans.named("schedule orders")[-1].status.status_code is trace.StatusCode.ERROR


async def test_a_trace_that_is_not_recorded_leaves_nothing(
    valkey: ServerUnderTest, spans: Recorded, target: MemoryTarget
) -> None:
    settings = settings_for(valkey.url, target)
    message: dict[str, Any] = {"topic": "m.orders", "delayTime": 0, "id": "m"}
    await post(settings, spans, "/v1/messages", message, traceparent=UNSAMPLED)
    brought = {"id": "n", "properties": {"traceparent": UNSAMPLED}}
    await post(settings, spans, "/v1/messages", message | brought, traceparent=UNSAMPLED)
    broken = {"id": "o", "topic": "s.orders", "properties": {"traceparent": "nonsense"}}
    await post(settings, spans, "/v1/messages", message | broken, traceparent=UNSAMPLED)
    with working(settings, spans):
        target.wait_for(2)
        eventually(lambda: valkey.admin.xlen("s.orders") == 1, "it is in its stream")
    assert spans.names == []
    assert sorted((one.id, one.properties.get("traceparent")) for one in target.deliveries) == [
        ("m", None),
        ("n", UNSAMPLED),
    ]


async def test_probes_make_no_spans_and_other_requests_do(valkey: ServerUnderTest, spans: Recorded) -> None:
    settings = load_settings(redis_url=valkey.url)
    for path in ("/livez", "/readyz", "/metrics"):
        await post(settings, spans, path, None)
    assert spans.names == []
    for path in ("/", "/docs", "/docs/swagger-ui.css", "/openapi.json"):
        assert (await post(settings, spans, path, None)).status_code == (307 if path == "/" else 200)
    await post(settings, spans, "/v1/messages/unheard-of", None)
    assert spans.names[-1] == "GET /v1/messages/{id}"


async def test_the_clients_make_spans_when_they_are_given_a_provider(valkey: ServerUnderTest, spans: Recorded) -> None:
    message = Message(topic="orders", delay_time=60_000, id="a", properties={"name": "value"})
    with (
        spans.provider.get_tracer("test").start_as_current_span("the caller") as caller,
        Client(valkey.url, settings=PATIENT, tracer_provider=spans.provider) as client,
    ):
        assert client.schedule(message).created
        assert not client.schedule(message).created
    with pytest.raises(Conflict), Client(valkey.url, settings=PATIENT, tracer_provider=spans.provider) as client:
        client.schedule(Message(topic="orders", delay_time=60_000, id="a"))
    async with AsyncClient(valkey.url, settings=PATIENT, tracer_provider=spans.provider) as other:
        outcomes = await other.schedule_many(
            [Message(topic="x", delay_time=1, id="b c"), Message(topic="y", delay_time=1)]
        )
    assert len(outcomes) == 2
    first, second, refused = spans.named("schedule orders")
    for span in (first, second):
        assert span.parent is not None and span.parent.span_id == caller.get_span_context().span_id
    assert (refused.attributes or {})["error.type"] == "Conflict"
    assert spans.named("schedule")[0].attributes is not None
    with Client(valkey.url, settings=PATIENT) as client:
        found = client.get("a")
    assert found is not None and found.record is not None
    assert found.record.properties == {"name": "value", "traceparent": traceparent_of(first)}


def test_a_row_is_the_message_that_was_scheduled_from_it_in_a_trace() -> None:
    row = Message(topic="orders", expect_date=20_000, body="x", properties={"name": "value"})
    for properties in ({"name": "value"}, {"name": "value", "traceparent": SAMPLED}):
        there = delivery("a", "x", expect_date=20_000, delay_time=None, properties=properties).record
        assert same_message(there, row)
        assert not same_message(there, msgspec.structs.replace(row, properties={"name": "other"}))


def test_a_span_that_cannot_be_made_holds_up_nothing(spans: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Spans(spans.provider, SystemClock())

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no span today")

    monkeypatch.setattr(made, "_record", broken)
    with structlog.testing.capture_logs() as logs:
        made.sent("route", [delivery("a", properties={"traceparent": SAMPLED})], [Result("ok")], 1)
        made.appended([Traced("a", "orders", 1, SAMPLED)], 20_000)
    assert [one["event"] for one in logs] == ["spans_failed", "appended_spans_failed"]


def test_a_send_that_fails_says_why(spans: Recorded) -> None:
    batch = [delivery(id, attempts=1, properties={"traceparent": SAMPLED}) for id in ("a", "b")]
    plain = [delivery("c"), delivery("d", properties={"name": "traceparent"})]
    results = [Result("ok"), Result.unavailable("no leader"), Result("ok"), Result("ok")]
    Spans(spans.provider, SystemClock()).sent("route-1", [*batch, *plain], results, 250)
    good, bad = spans.named("send orders")
    assert (good.status.is_ok, bad.status.status_code, bad.status.description) == (
        True,
        trace.StatusCode.ERROR,
        "no leader",
    )
    assert (bad.attributes or {})["error.type"] == "unavailable"
    assert ((bad.attributes or {})["delayq.route"], (bad.attributes or {})["delayq.attempt"]) == ("route-1", 2)
    assert (bad.end_time or 0) - (bad.start_time or 0) == 250 * 1_000_000


def test_a_webhook_gets_the_context_as_a_header() -> None:
    hook = WebhookTarget("https://hooks.example/in", Route(name="hook", target="https://hooks.example/in"), "")
    for given in (SAMPLED, UNSAMPLED, "x\r\ny: z", SAMPLED + "-more", ""):
        headers = dict(hook.headers(delivery("a", properties={"traceparent": given} if given else {})))
        assert headers.get(b"traceparent", b"").decode() == (given if given in (SAMPLED, UNSAMPLED) else "")


def test_where_traces_are_off_nothing_of_them_is_loaded() -> None:
    loaded = "{'delayq.telemetry.tracing', 'workers.sending.spans', 'opentelemetry.sdk.trace'} & set(sys.modules)"
    code = f"import sys, workers.__main__, delayq.client.client; print({loaded})"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_spans_go_where_the_variables_of_opentelemetry_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{LOCALHOST}:{collector.port}")
        for name in ("delayq-worker", "mine"):
            if name == "mine":
                monkeypatch.setenv("OTEL_SERVICE_NAME", name)
            provider = provider_for("delayq-worker")
            Spans(provider, SystemClock()).appended([Traced("unpaid-42", "orders.unpaid", 1, SAMPLED)], 20_000)
            provider.close()
            request = collector.requests[-1]
            assert (request.method, request.path) == ("POST", "/v1/traces")
            for text in (b"send orders.unpaid", b"unpaid-42", name.encode(), bytes.fromhex(SAMPLED[3:35])):
                assert text in request.body
    assert len(collector.requests) == 2
