"""bridge: ways into delayq from other systems."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer

from delayq.cli.options import AsJson, BadUse, NoRouteCheck, RedisUrl, option, settings_of
from delayq.client.client import Client
from delayq.clock import SystemClock
from delayq.telemetry.ending import write_last
from delayq.telemetry.nonblocking_log import NonblockingHandler
from delayq.terminal import Output, visible

__all__ = ["rabbitmq"]

#: ms; more than the calls of Redis take between two heartbeats.
HEARTBEAT = 60_000
URL = "amqp://guest:guest@127.0.0.1:5672/%2F"


def rabbitmq(
    queue: Annotated[str, option("--queue", metavar="NAME", help="The queue to take messages from.")],
    url: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            help="amqp[s]://user:password@host:port[,host:port…]/virtual-host, or env:NAME or file:PATH that has it.",
        ),
    ] = URL,
    topic: Annotated[
        str, typer.Option("--topic", metavar="TEMPLATE", help="The topic, of {routing_key} and {exchange}.")
    ] = "{routing_key}",
    prefetch: Annotated[
        int, typer.Option("--prefetch", metavar="N", min=1, max=65_535, help="At most so many unanswered at a time.")
    ] = 1_000,
    by_timestamp: Annotated[
        bool, option("--by-timestamp", help="Count the delay from the message's timestamp, not from its arrival.")
    ] = False,
    no_route_check: NoRouteCheck = False,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Schedule the messages of a RabbitMQ queue, each by its x-delay header (ms), until Ctrl-C or SIGTERM.

    A message is acknowledged once delayq has accepted it. What can never be scheduled is rejected: the queue's
    dead-letter exchange gets it. At the end it prints how many were scheduled, repeated and refused.
    """
    from delayq.targets.rabbitmq.address import parameters_of  # isort: skip  # it says which extra it takes
    from delayq.bridges.amqp_messages import Reader
    from delayq.bridges.rabbitmq import Bridge
    from delayq.secrets import revealed

    settings = settings_of(redis_url)
    lines = NonblockingHandler(sys.stderr.fileno())  # nobody who stops reading it holds up the messages, or the end
    lines.setFormatter(logging.Formatter("delayq: %(message)s"))
    logging.getLogger("delayq.client").handlers = [lines]

    def tell(text: str) -> None:
        lines.handle(logging.makeLogRecord({"msg": visible(text)}))

    try:
        brokers = parameters_of(
            revealed(url, "--url"), heartbeat=HEARTBEAT, name=f"delayq bridge {queue}", schemes=("amqp", "amqps")
        )
        reader = Reader(topic, settings.limits(), tell, by_timestamp=by_timestamp)
    except (ValueError, OSError) as error:
        raise BadUse(str(error)) from None
    with Client(settings=settings, check_routes=not no_route_check) as client:
        bridge = Bridge(client, brokers, queue, reader, tell, clock=SystemClock(), prefetch=prefetch)
        with _stopped_by_signals(bridge.stop):
            counts = bridge.run()
    lines.flush()
    write_last(lambda: Output().answer(json, counts, msgspec.structs.asdict(counts).items()), 0)
    return 0


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Both Ctrl-C and SIGTERM let it finish what it is at."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    for number, _ in before:
        signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
