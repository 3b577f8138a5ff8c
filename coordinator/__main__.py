"""`python -m coordinator`: print which node owns which queues, and print it again whenever that changes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from types import FrameType
from typing import Any, Final

from coordinator.errors import CoordinatorError
from coordinator.printing import Printer
from coordinator.zookeeper.access import access_of
from coordinator.zookeeper.overview import Overview, Overviews
from delayq.clock import Clock, SystemClock
from delayq.config import Settings, load_settings
from delayq.errors import ConfigError, DelayqError, StoreError
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.telemetry.ending import flush, write_last
from delayq.terminal import visible

__all__ = ["main", "watch"]

#: How often to look although nothing was told (ms).
REREAD: Final = 2_000


class _Stop(BaseException):
    """SIGINT or SIGTERM."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print until a signal, or once; 0, or 2 when something is set wrongly or ZooKeeper is away."""
    options = _options(argv)
    try:
        # Set explicitly: a parent may have had SIGINT ignored, and a process 1 ignores SIGTERM by itself.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        settings = load_settings()
        if not settings.zookeeper:
            raise ConfigError(
                "DELAYQ_ZOOKEEPER is not set: without one, a single worker owns all queues; `delayq nodes` shows it"
            )
        clock = SystemClock()
        with (
            closing(Store(settings.redis_url, timeout=settings.redis_timeout / 1000)) as store,
            closing(_overviews(settings, _Queues(store), clock)) as overviews,
        ):
            watch(overviews, Printer(clock, json=options.json), once=options.once)
    except _Stop:
        write_last(flush, 0)
    except BrokenPipeError:  # the reader has seen enough, as `head` does; else Python would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DelayqError as error:
        print(f"delayq coordinator: {visible(str(error))}", file=sys.stderr)
        return 2
    return 0


def watch(overviews: Overviews, printer: Printer, *, once: bool = False) -> None:
    """Print each overview that differs from the one before, and once whenever ZooKeeper goes away; until interrupted.

    With `once`, the first one; raises CoordinatorError then.
    """
    before: Overview | None = None
    told = False
    while True:
        try:
            now = overviews.look()
        except CoordinatorError as error:
            if once:
                raise
            if not told:
                printer.away(error)
            told, before = True, None
        else:
            if now != before:
                printer.overview(now)
            told, before = False, now
        if once:
            return
        overviews.wait(REREAD)


class _Queues:
    """Which queues there are, by Redis; what it said last while it is away."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: Collection[int] | None = None

    def __call__(self) -> Collection[int] | None:
        try:
            layouts = self._store.run(commands.layouts())
        except StoreError:
            return self._known
        self._known = [queue for layout in layouts for queue in layout.numbers]
        return self._known


def _overviews(settings: Settings, queues: Callable[[], Collection[int] | None], clock: Clock) -> Overviews:
    return Overviews(
        settings.zookeeper_hosts, settings.zookeeper_path, settings.session_timeout, queues, clock, access_of(settings)
    )


def _options(argv: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m coordinator",
        description="Print which node owns which queues, and again whenever that changes. Nothing is claimed or changed.",
        epilog="DELAYQ_ZOOKEEPER says where ZooKeeper is, DELAYQ_REDIS_URL where Redis is, which knows all queues.",
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each change")
    parser.add_argument("--once", action="store_true", help="print how things stand now, and end")
    return parser.parse_args(argv)


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends already: closing is not to be interrupted
        signal.signal(number, signal.SIG_IGN)
    raise _Stop


if __name__ == "__main__":
    sys.exit(main())
