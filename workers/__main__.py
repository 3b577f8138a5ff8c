"""`python -m workers`: a node that runs until a signal asks it to stop."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Final

from delayq.base.stop_signals import Stopped, stop_signals

if TYPE_CHECKING:
    from delayq.config import Settings

#: New objects after which Python looks for cycles: about as many as full windows have.
COLLECT_EVERY: Final = 100_000
#: s between two looks whether a signal came.
LOOK_EVERY: Final = 0.5
#: s for the end of a node that has no queue yet: it may wait for a server that accepts connections and does not answer.
START_PATIENCE: Final = 3.0


def main(settings: Settings | None = None) -> int:
    """Run a node; return 0 after it was asked to stop, 2 if a setting is wrong."""
    stop_signals.listen()  # before the imports below, which take most of a second
    import structlog

    from delayq.base.errors import DelayqError
    from delayq.config import load_settings
    from delayq.store.connect.address import without_secrets
    from delayq.telemetry.ending import say_last
    from delayq.telemetry.logs import configure
    from workers.node.duties.follow_time import clock_for
    from workers.node.node import Node
    from workers.telemetry import health
    from workers.telemetry.metrics import Metrics

    log = structlog.get_logger(__name__)

    def stopped() -> int:
        log.info("worker_stopped", node=settings.node if settings is not None else None)
        return 0

    try:
        settings = settings if settings is not None else load_settings()
        configure(settings.log_level)
        metrics = Metrics()
        traces = None
        if settings.traces:
            from delayq.telemetry.tracing import provider_for

            traces = provider_for("delayq-worker")
        with stop_signals.interrupting():  # the clock is that of Redis, which may not answer
            clock = clock_for(settings)
        node = Node(settings, clock=clock, observer=metrics, tracer_provider=traces)
        if settings.worker_port:
            metrics.watch(node)
            health.serve(settings.api_host, settings.worker_port, node, metrics.registry)
    except Stopped:
        return stopped()
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

    worker = threading.Thread(target=work, name="node", daemon=True)
    with stop_signals.calling(node.stop):  # the main thread only handles signals
        worker.start()
        log.info("worker_started", node=settings.node, redis=without_secrets(settings.redis_url))
        while worker.is_alive() and stop_signals.asked is None:
            worker.join(LOOK_EVERY)
        worker.join(None if node.takes_part else START_PATIENCE)
    if traces is not None:
        traces.close()
    for reason in failed:
        say_last(f"delayq worker: {reason}")
        return 2 if isinstance(reason, DelayqError) else 1
    return stopped()


if __name__ == "__main__":
    stop_signals.listen()
    from delayq.telemetry.ending import run

    run(main)
