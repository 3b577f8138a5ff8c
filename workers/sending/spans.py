"""Writes a span for each delivery of a message that carries a trace.

The span is the root of a new trace, because the message may have been scheduled months ago. It has a link to the old trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider

from delayq.base.clock import Clock
from delayq.store.commands import Traced
from delayq.targets import Result
from delayq.telemetry.tracing import linked, tracer_of
from workers.sending.message import InFlightMessage

_NS = 1_000_000  # of a ms
log = structlog.get_logger()


class Spans:
    """Thread-safe; raises nothing. It exists only if traces are exported. A message without a trace costs one lookup."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self._tracer = tracer_of(provider)
        self._clock = clock

    def sent(self, route: str, batch: Iterable[InFlightMessage], results: Sequence[Result], took: int) -> None:
        """Record a send that ended after `took` ms, with one result for all messages or one for each."""
        now = self._clock.now()
        try:
            self._sent(route, batch, results, now - took, now)
        except Exception:  # the messages have been sent in any case
            log.exception("spans_failed")

    def _sent(
        self, route: str, batch: Iterable[InFlightMessage], results: Sequence[Result], began: int, ended: int
    ) -> None:
        for place, message in enumerate(batch):
            if not (traceparent := message.record.traceparent):
                continue
            result = results[place] if place < len(results) else results[0]
            more = {"delayq.route": route, "messaging.message.body.size": len(message.payload)}
            span = (message.id, message.topic, message.attempt, traceparent)
            self._record(*span, more, began, ended, None if result.outcome == "ok" else result)

    def appended(self, traces: Iterable[Traced], now: int) -> None:
        """Record messages that a script appended to streams in the same Redis at `now`."""
        try:
            for one in traces:
                self._record(one.id, one.topic, one.attempt, one.traceparent, {}, now, now, None)
        except Exception:
            log.exception("appended_spans_failed")

    def _record(
        self,
        id: str,
        topic: str,
        attempt: int,
        traceparent: str,
        more: Mapping[str, Any],
        began: int,
        ended: int,
        failed: Result | None,
    ) -> None:
        context = linked(traceparent)
        if context is None:
            return
        span = self._tracer.start_span(
            f"send {topic}",
            context=Context(),
            kind=SpanKind.PRODUCER,
            links=[Link(context)],
            start_time=began * _NS,
            attributes={
                "messaging.system": "delayq",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": topic,
                "messaging.message.id": id,
                "delayq.attempt": attempt,
                **more,
            },
        )
        if failed is not None:
            span.set_attribute("error.type", failed.outcome)
            span.set_status(StatusCode.ERROR, failed.reason)
        span.end(ended * _NS)
