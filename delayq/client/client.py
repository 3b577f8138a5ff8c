"""`Client`: the calls for threads."""

from __future__ import annotations

from delayq.client.calls import Calls

__all__ = ["Client"]


class Client(Calls):
    """Schedules and cancels messages; safe to share between threads.

    `redis_url` and everything else default to the environment (`DELAYQ_REDIS_URL`, …). Raises StoreUnavailable
    when Redis is away; repeating the same call with the same id is then safe. With a `tracer_provider` of
    OpenTelemetry each call that schedules is a span, whose context goes with the messages. `routes` stand in place of
    those of the settings.
    """
