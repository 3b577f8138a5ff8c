"""`python -m coordinator`: print which node owns which queues, and print it again whenever that changes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from delayq.base.stop_signals import Stopped, stop_signals

if TYPE_CHECKING:
    from coordinator.printing import Printer
    from coordinator.zookeeper.overview import Overview, Overviews
    from delayq.base.clock import Clock
    from delayq.config import Settings
    from delayq.store.connect.store import Store

#: ms until the next look if ZooKeeper reports no change.
REREAD: Final = 2_000


def main(argv: Sequence[str] | None = None) -> int:
    """Print until a signal, or once; return 0, or 2 if a setting is wrong or ZooKeeper is away."""
    options = _options(argv)
    stop_signals.listen()  # before the imports below, which take most of a second
    from coordinator.printing import Printer
    from delayq.base.clock import SystemClock
    from delayq.base.errors import ConfigError, DelayqError
    from delayq.base.terminal import visible
    from delayq.config import load_settings
    from delayq.store.connect.store import Store
    from delayq.store.keys import Keys
    from delayq.telemetry.ending import flush, say_last, write_last

    printer = Printer(SystemClock(), json=options.json)
    try:
        settings = load_settings()
        if not settings.zookeeper:
            raise ConfigError(
                "DELAYQ_ZOOKEEPER is not set: without one, a single worker owns all queues; `delayq nodes` shows it"
            )
        clock = SystemClock()
        with (
            stop_signals.interrupting(),
            closing(
                Store(settings.redis_url, keys=Keys(settings.namespace), timeout=settings.redis_timeout / 1000)
            ) as store,
            closing(_overviews(settings, _queues_of(store), clock)) as overviews,
        ):
            watch(overviews, printer, once=options.once)
    except Stopped:
        if not printer.has_printed:
            say_last("delayq coordinator: stopped before ZooKeeper and Redis answered")
        write_last(flush, 0)
    except BrokenPipeError:
        # The reader has closed the pipe, like `head`; without this, Python reports an error at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DelayqError as error:
        print(f"delayq coordinator: {visible(str(error))}", file=sys.stderr)
        return 2
    return 0


def watch(overviews: Overviews, printer: Printer, *, once: bool = False) -> None:
    """Print each new overview, and each time that ZooKeeper goes away, until interrupted.

    With `once`, print one overview, or raise CoordinatorError.
    """
    from coordinator.errors import CoordinatorError

    before: Overview | None = None
    reported = False
    while True:
        try:
            now = overviews.look()
        except CoordinatorError as error:
            if once:
                raise
            if not reported:
                printer.away(error)
            reported, before = True, None
        else:
            if now != before:
                printer.overview(now)
            reported, before = False, now
        if once:
            return
        overviews.wait(REREAD)


def _queues_of(store: Store) -> Callable[[], Collection[int] | None]:
    """Return a function that reads the numbers of all queues from Redis. While Redis is away, the last numbers stay."""
    from delayq.base.errors import StoreError
    from delayq.store import commands

    known: list[Collection[int] | None] = [None]

    def read() -> Collection[int] | None:
        try:
            layouts = store.run(commands.layouts(store.keys))
        except StoreError:
            return known[0]
        known[0] = [queue for layout in layouts for queue in layout.numbers]
        return known[0]

    return read


def _overviews(settings: Settings, queues: Callable[[], Collection[int] | None], clock: Clock) -> Overviews:
    from coordinator.zookeeper.access import access_of
    from coordinator.zookeeper.overview import Overviews

    return Overviews(
        settings.zookeeper_hosts, settings.zookeeper_path, settings.session_timeout, queues, clock, access_of(settings)
    )


def _options(argv: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m coordinator",
        description="Print the owner of each queue, and print again after each change. This command changes nothing.",
        epilog="DELAYQ_ZOOKEEPER is the address of ZooKeeper. DELAYQ_REDIS_URL is that of Redis, which has the list of queues.",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change")
    parser.add_argument("--once", action="store_true", help="print the current owners, then exit")
    return parser.parse_args(argv)


if __name__ == "__main__":
    stop_signals.listen()
    sys.exit(main())
