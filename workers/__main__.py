"""`python -m workers`: a node that runs until SIGINT or SIGTERM."""

from __future__ import annotations

import gc
import signal
import threading
from typing import Final

import structlog

from delayq.config import Settings, load_settings
from delayq.errors import DelayqError
from delayq.store.connect.address import without_secrets
from delayq.telemetry.ending import run, say_last
from delayq.telemetry.logs import configure
from workers.node.duties.follow_time import clock_for
from workers.node.node import Node
from workers.telemetry import health
from workers.telemetry.metrics import Metrics

__all__ = ["main"]

#: New objects after which Python looks for cycles: about as many as full windows have.
COLLECT_EVERY: Final = 100_000
log = structlog.get_logger()


def main(settings: Settings | None = None) -> int:
    """Run a node; return 0 after it was asked to stop, 2 if a setting is wrong."""
    try:
        settings = settings if settings is not None else load_settings()
        configure(settings.log_level)
        metrics = Metrics()
        traces = None
        if settings.traces:
            from delayq.telemetry.tracing import provider_for

            traces = provider_for("delayq-worker")
        node = Node(settings, clock=clock_for(settings), observer=metrics, tracer_provider=traces)
        if settings.worker_port:
            metrics.watch(node)
            health.serve(settings.api_host, settings.worker_port, node, metrics.registry)
    except DelayqError as error:
        say_last(f"delayq worker: {error}")
        return 2
    # Modules stay and messages have no cycles. Without this, Python searches both for cycles, which took an eighth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, 10, 10)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            node.run()
        except BaseException as error:
            failed.append(error)

    # The main thread only handles signals. The handlers are set explicitly, because a parent process may ignore SIGINT.
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    worker = threading.Thread(target=work, name="node")
    worker.start()
    log.info("worker_started", node=settings.node, redis=without_secrets(settings.redis_url))
    while worker.is_alive() and not asked.wait(0.5):
        pass
    node.stop()
    worker.join()
    if traces is not None:
        traces.close()
    for reason in failed:
        say_last(f"delayq worker: {reason}")
        return 2 if isinstance(reason, DelayqError) else 1
    log.info("worker_stopped", node=settings.node)
    return 0


if __name__ == "__main__":
    run(main)
