"""The command bridge: take messages over from other systems."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from delayq.base.clock import SystemClock
from delayq.base.stop_signals import Stopped, stop_signals
from delayq.base.terminal import Output, visible
from delayq.cli.options import AsJson, BadUse, NoRouteCheck, RedisUrl, option, settings_of
from delayq.client.client import Client
from delayq.telemetry.ending import write_last
from delayq.telemetry.nonblocking_log import NonblockingHandler

if TYPE_CHECKING:
    from delayq.bridges.rabbitmq import Bridge

#: ms; longer than the calls of Redis take between two heartbeats.
HEARTBEAT = 60_000
URL = "amqp://guest:guest@127.0.0.1:5672/%2F"


def rabbitmq(
    queue: Annotated[str, option("--queue", metavar="NAME", help="Queue to consume.")],
    url: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            help="amqp[s]://… of the broker, env:NAME or file:PATH.",
        ),
    ] = URL,
    topic: Annotated[
        str, typer.Option("--topic", metavar="TEMPLATE", help="Topic; may contain {routing_key} and {exchange}.")
    ] = "{routing_key}",
    prefetch: Annotated[
        int,
        typer.Option("--prefetch", metavar="N", min=1, max=65_535, help="Maximum number of unacknowledged messages."),
    ] = 1_000,
    by_timestamp: Annotated[
        bool, option("--by-timestamp", help="Count the delay from the message's timestamp.")
    ] = False,
    no_route_check: NoRouteCheck = False,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Schedule the messages of a RabbitMQ queue by their x-delay headers (ms).

    A message is acknowledged once delayq has accepted it. An invalid message is rejected and goes to the queue's
    dead-letter exchange. Ctrl-C or SIGTERM ends the bridge; it then prints how many messages were scheduled, repeated
    and refused.
    """
    from delayq.targets.rabbitmq.address import parameters_of  # isort: skip  # its error names the extra
    from delayq.base.secrets import revealed
    from delayq.bridges.amqp_messages import Reader
    from delayq.bridges.rabbitmq import Bridge

    settings = settings_of(redis_url)
    # A reader that stops reading must not delay the messages or the end.
    lines = NonblockingHandler(sys.stderr.fileno())
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
        with suppress(Stopped), _stopped_by_signals(bridge):
            bridge.run()
        counts = bridge.counts
    lines.flush()
    write_last(lambda: Output().answer(json, counts, msgspec.structs.asdict(counts).items()), 0)
    return 0


@contextmanager
def _stopped_by_signals(bridge: Bridge) -> Iterator[None]:
    """Let a signal end the bridge after its current messages, or at once if it only waits for the broker."""

    def stop() -> None:
        bridge.stop()
        if bridge.connects:
            bridge.connects = False
            raise Stopped

    stop_signals.listen()
    with stop_signals.calling(stop):
        yield
