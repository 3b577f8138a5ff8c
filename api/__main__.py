"""`python -m api`: serve until a signal asks to stop, then finish the current requests and exit."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

from delayq.base.stop_signals import stop_signals

if TYPE_CHECKING:
    from delayq import Settings


def main() -> int:
    """Serve, and return the exit status."""
    stop_signals.listen()  # before the imports below, which take most of a second
    import uvloop

    from delayq import ConfigError
    from delayq.config import load_settings
    from delayq.telemetry.ending import say_last
    from delayq.telemetry.logs import configure

    try:
        settings = load_settings()
        configure(settings.log_level)
        return uvloop.run(_run(settings))
    except (ConfigError, ValueError) as error:
        say_last(f"delayq api: {error}")  # the log may not exist yet
        return 2


async def _run(settings: Settings) -> int:
    """Start, and serve. A signal during the start ends it at once, also while Redis does not answer."""
    import structlog

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    starting = asyncio.create_task(_start(settings))
    with stop_signals.calling(lambda: loop.call_soon_threadsafe(stopped.set)):
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    if stop_signals.asked is not None:
        starting.cancel()
        structlog.get_logger("api").info("api_stopped")
        return 0
    app, provider = await starting
    if app is None:
        return 2
    from api.server import make_server

    gc.collect()
    gc.freeze()  # the modules stay forever, and searching them for garbage would delay requests
    server = make_server(app, settings, app.service.receivers.stop)
    with stop_signals.calling(server.stop):
        await server.serve()
    if provider is not None:
        provider.close()
    return 0


async def _start(settings: Settings) -> tuple[Any, Any]:
    """Return the application and the provider of its traces. The application is None if it must not start."""
    import structlog

    from api.app import create_app
    from delayq import ConfigError, LayoutMismatch, StoreError

    log = structlog.get_logger("api")
    provider = None
    if settings.traces:
        from delayq.telemetry.tracing import provider_for

        provider = provider_for("delayq-api")
    app = create_app(settings, provider)
    try:
        await app.service.client.context()
    except (ConfigError, LayoutMismatch) as error:
        log.error("refusing_to_start", reason=str(error))
        return None, provider
    except StoreError:
        pass  # reported below; the API starts anyway, and works as soon as Redis does
    for reason in await app.service.readiness.missing():
        log.warning("not_ready", reason=reason)
    return app, provider


if __name__ == "__main__":
    stop_signals.listen()
    from delayq.telemetry.ending import run

    run(main)
