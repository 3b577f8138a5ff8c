"""Logs: for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog

from delayq.log_lines import LogLines

__all__ = ["configure"]


def configure(level: str) -> None:
    """Set structlog up; writes to standard error, and never waits for it."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.dict_tracebacks,
            *([] if terminal else [structlog.processors.JSONRenderer()]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=structlog.WriteLoggerFactory(file=LogLines(sys.stderr.fileno())),  # type: ignore[arg-type]  # writes and flushes,
        cache_logger_on_first_use=True,
    )
