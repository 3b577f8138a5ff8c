"""Spans that a test looks at."""

from __future__ import annotations

from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SAMPLED: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED: Final = SAMPLED[:-1] + "0"


class Recorded:
    """A provider, and the spans that it has recorded."""

    def __init__(self, provider: TracerProvider, kept: InMemorySpanExporter) -> None:
        self.provider = provider
        self._kept = kept

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of this name, in the order in which they ended."""
        return [span for span in self._kept.get_finished_spans() if span.name == name]

    @property
    def names(self) -> list[str]:
        """The names of all, sorted."""
        return sorted(span.name for span in self._kept.get_finished_spans())


def traceparent_of(span: ReadableSpan) -> str:
    """Its context as W3C writes it."""
    context = span.context
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
