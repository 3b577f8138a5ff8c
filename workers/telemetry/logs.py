"""Logs: for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from delayq.telemetry.nonblocking_log import LogLines

__all__ = ["configure"]


def configure(level: str) -> None:
    """Set structlog up; writes to standard error, and never waits for it."""
    terminal = sys.stderr.isatty()
    # Tracebacks without the values of variables: there are passwords and messages among them.
    exceptions = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    lines = LogLines(sys.stderr.fileno())
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        console if terminal else exceptions,
        *([] if terminal else [structlog.processors.JSONRenderer()]),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=structlog.WriteLoggerFactory(file=lines),  # type: ignore[arg-type]  # writes and flushes,
        cache_logger_on_first_use=True,
    )
    # What other libraries warn of goes the same way: a line of its own, whatever is in it.
    handler = logging.StreamHandler(lines)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[remove, *processors]))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
