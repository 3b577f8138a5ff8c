"""Traces by OpenTelemetry: spans of calls that schedule, and their context in the messages.

A message has the context of its span as the property `traceparent`. If traces are off, nothing here is imported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from delayq.base.errors import MissingExtra
from delayq.domain.message import TRACEPARENT, Limits, Message

try:
    from opentelemetry import trace
    from opentelemetry.propagators.textmap import default_getter
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    raise MissingExtra("DELAYQ_TRACES", "tracing") from None

T = TypeVar("T")
SYSTEM: Final = "delayq"
#: The time for sending the last spans.
CLOSE_SECONDS: Final = 3.0
_W3C: Final = TraceContextTextMapPropagator()


def provider_for(service: str) -> Provider:
    """The sender of a process's spans by OTLP over HTTP, as the OTEL_… variables set it. Raises MissingExtra.

    `service` is its name, unless OTEL_SERVICE_NAME gives another.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        raise MissingExtra("DELAYQ_TRACES", "tracing") from None
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    # The variables also set the sampler.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Provider(provider)


class Provider(trace.TracerProvider):
    """A provider of OpenTelemetry's SDK, and its shutdown."""

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk

    def get_tracer(self, *names: Any, **more: Any) -> trace.Tracer:
        """A tracer of the SDK's."""
        tracer: trace.Tracer = self._sdk.get_tracer(*names, **more)
        return tracer

    def close(self) -> None:
        """Send the remaining spans. A collector that does not answer delays the end by at most CLOSE_SECONDS."""
        thread = threading.Thread(target=self._sdk.shutdown, name="last-spans", daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)


def tracer_of(provider: trace.TracerProvider) -> trace.Tracer:
    """Return the tracer of delayq's own spans."""
    return provider.get_tracer("delayq")


def linked(traceparent: str) -> trace.SpanContext | None:
    """The context that a message carries; None if it is invalid, or its trace is not recorded."""
    context = _W3C.extract({TRACEPARENT: [traceparent]}, getter=default_getter)
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid and found.trace_flags.sampled else None


class Scheduling:
    """Makes a span for each call that schedules messages."""

    def __init__(self, provider: trace.TracerProvider, limits: Limits) -> None:
        self._tracer = tracer_of(provider)
        self._limits = limits

    @contextmanager
    def span(self) -> Iterator[SchedulingSpan]:
        """Return the span of a call, within the trace of the caller, if there is one."""
        attributes = {
            "messaging.system": SYSTEM, "messaging.operation.name": "schedule", "messaging.operation.type": "create",
        }  # fmt: skip
        with self._tracer.start_as_current_span(
            "schedule", kind=trace.SpanKind.PRODUCER, attributes=attributes, record_exception=False
        ) as span:
            yield SchedulingSpan(span, self._limits)


class SchedulingSpan:
    """The span of one call: `mark` its messages, then record their outcomes."""

    def __init__(self, span: trace.Span, limits: Limits) -> None:
        self._span = span
        self._limits = limits
        self._topics: set[str] = set()
        self._traceparent = ""
        context = span.get_span_context()
        if span.is_recording() and context.is_valid and context.trace_flags.sampled:
            carrier: dict[str, str] = {}
            _W3C.inject(carrier, trace.set_span_in_context(span))
            self._traceparent = carrier[TRACEPARENT]

    def mark(self, message: Message) -> Message:
        """Return the message with the context of this span; unchanged if it has its own, or no room for one.

        The context of a trace that is not recorded is omitted, because it is useless and would cost memory.
        """
        properties = getattr(message, "properties", None)  # an invalid message is refused where it is encoded
        if not self._traceparent or not isinstance(properties, Mapping):
            return message
        if len(self._topics) < 2 and type(message.topic) is str:
            self._topics.add(message.topic)
        if TRACEPARENT in properties or not self._has_room(properties):
            return message
        return msgspec.structs.replace(message, properties={**properties, TRACEPARENT: self._traceparent})

    def _has_room(self, properties: Mapping[Any, Any]) -> bool:
        if not properties:
            return True
        size = sum(
            len(str(name).encode(errors="replace")) + len(str(value).encode(errors="replace"))
            for name, value in properties.items()
        )
        room = self._limits.all_properties - len(TRACEPARENT) - len(self._traceparent)
        return len(properties) < self._limits.properties and size <= room

    def ended(self, outcomes: list[T]) -> list[T]:
        """Record the outcomes of the messages, and return them."""
        if not self._span.is_recording():
            return outcomes
        if len(self._topics) == 1:
            (topic,) = self._topics
            self._span.update_name(f"schedule {topic}")
            self._span.set_attribute("messaging.destination.name", topic)
        failed = [one for one in outcomes if isinstance(one, Exception)]
        if len(outcomes) != 1:
            self._span.set_attribute("messaging.batch.message_count", len(outcomes))
            self._span.set_attribute("delayq.refused", len(failed))
        else:
            (outcome,) = outcomes
            id = getattr(outcome, "id", None)
            if isinstance(id, str):
                self._span.set_attribute("messaging.message.id", id)
        if failed and len(failed) == len(outcomes):
            first = failed[0]
            self._span.set_attribute("error.type", type(first).__name__)
            self._span.set_status(trace.StatusCode.ERROR, str(first))
        return outcomes
