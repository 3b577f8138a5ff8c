"""`python -m api`: serve until SIGINT or SIGTERM, then finish the current requests and exit."""

from __future__ import annotations

import gc
import signal
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api.server import Server
    from delayq import Settings


class _Signals:
    """Stop on both signals from the first moment on, even if SIGINT was inherited as ignored."""

    def __init__(self) -> None:
        self.stopping = False
        self.server: Server | None = None
        signal.signal(signal.SIGINT, self._caught)
        signal.signal(signal.SIGTERM, self._caught)

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
        if self.server is not None:
            self.server.stop()


def main() -> int:
    """Serve, and return the exit status."""
    signals = _Signals()  # before the imports below, which take most of a second
    import uvloop

    from delayq import ConfigError
    from delayq.config import load_settings
    from delayq.telemetry.ending import say_last
    from delayq.telemetry.logs import configure

    try:
        settings = load_settings()
        configure(settings.log_level)
        return uvloop.run(_serve(settings, signals))
    except (ConfigError, ValueError) as error:
        say_last(f"delayq api: {error}")  # the log may not exist yet
        return 2


async def _serve(settings: Settings, signals: _Signals) -> int:
    import structlog

    from api.app import create_app
    from api.server import make_server
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
        return 2
    except StoreError:
        pass  # reported below; the API starts anyway, and works as soon as Redis does
    for reason in await app.service.readiness.missing():
        log.warning("not_ready", reason=reason)
    gc.collect()
    gc.freeze()  # the modules stay forever, and searching them for garbage would delay requests
    signals.server = server = make_server(app, settings, app.service.receivers.stop)
    if signals.stopping:
        return 0
    await server.serve()
    if provider is not None:
        provider.close()
    return 0


if __name__ == "__main__":
    from delayq.telemetry.ending import run

    run(main)
