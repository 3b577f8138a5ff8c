"""The services' logs: JSON, and text for people at a terminal. Needs structlog, which the extra `server` installs."""

from __future__ import annotations

import logging
import sys

import structlog

from delayq.telemetry.nonblocking_log import NonblockingHandler


def configure(level: str) -> None:
    """Send events from `level` on, and other libraries' warnings, to standard error: one line each, without waiting."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Tracebacks without the values of variables, which include passwords and messages.
    last: list[structlog.typing.Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        last = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    handler = NonblockingHandler(sys.stderr.fileno())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    events = logging.getLogger("delayq.events")  # below the root's handler, and with its own level
    events.setLevel(level.upper())
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=lambda *_: events,
        wrapper_class=structlog.make_filtering_bound_logger(events.level),
        cache_logger_on_first_use=True,
    )
