"""A span for each delivery of a message that carries a trace: the root of a new trace, linked to the one in which the
message was scheduled. Between the two may lie months.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider

from delayq.clock import Clock
from delayq.store.commands import Traced
from delayq.targets import Result
from delayq.telemetry.tracing import linked, tracer_of
from workers.sending.message import InFlightMessage

__all__ = ["Spans"]

_NS = 1_000_000  # of a ms
log = structlog.get_logger()


class Spans:
    """Safe for threads; raises nothing. Exists only if traces are exported. A message without a trace costs one lookup."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self._tracer = tracer_of(provider)
        self._clock = clock

    def sent(self, route: str, batch: Iterable[InFlightMessage], results: Sequence[Result], took: int) -> None:
        """A send of these messages ended after `took` ms, with one result for all or one for each."""
        now = self._clock.now()
        try:
            self._sent(route, batch, results, now - took, now)
        except Exception:  # the messages have been sent all the same
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
        """A script that has ended now appended these to streams in the same Redis."""
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
