"""A connection to RabbitMQ with a thread of its own, for batches from several threads: one round trip a batch.

Each batch has its own channels, one for each exchange. So a channel that the broker closes affects no other batch.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import pika
from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError, StreamLostError

from delayq.base.clock import Clock
from delayq.base.socket_writes import RECORD
from delayq.targets import Result
from delayq.targets.rabbitmq.batch import Batch
from delayq.targets.rabbitmq.errors import words_of
from delayq.targets.rabbitmq.publisher import Learned, Publisher
from delayq.targets.rabbitmq.stream import BrokerStream

#: Channels that are kept open while nothing is sent over them.
MOST_IDLE: Final = 64
CLOSE_SECONDS: Final = 5.0
FLUSH_STEP: Final = 0.02  # s
CLOSED: Final = "the target is closed"


class BrokerConnection:
    """The connection: opened when it is needed, kept by heartbeats while it is idle, and opened again when it is lost."""

    def __init__(self, parameters: Sequence[pika.ConnectionParameters], name: str, clock: Clock) -> None:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # its log lines are in the results
        self.learned = Learned()
        self._parameters = parameters
        self._clock = clock
        self._loop: Any = None  # there is none before the first send
        self._connection: Any = None
        self._workflow: Any = None
        self._opening: Any = None
        self._blocked = ""
        self._waiting: list[Batch] = []
        #: The deadline (monotonic ms) of the connection's bytes up to each position, for bytes that may wait.
        self._writing: deque[tuple[int, int]] = deque()
        self._publishers: set[Publisher] = set()
        self._idle: list[Publisher] = []  # the one that was used last is the last
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq-{name}", daemon=True)
        self._starting = threading.Lock()

    # -- for senders ---------------------------------------------------------------------------------------------------

    def send(self, batch: Batch) -> None:
        """Send it. Returns when all is settled or its deadline has passed, with a result for each."""
        if batch.over:
            return
        with self._starting:
            if not self._stopping and self._loop is None:
                self._loop = IOLoop()
                self._thread.start()
        if self._stopping or not self._call(lambda: self._begin(batch)):
            batch.settle_rest(batch.places, CLOSED)
            return
        heard = self.learned.heard
        if not batch.wait():
            reason = "no answer in time" if any(batch.published) else "no connection in time"
            reason = f"blocked: {self._blocked}" if self._blocked else reason
            batch.settle_rest(batch.places, reason)
            silent = heard == self.learned.heard and not self._blocked
            self._call(lambda: self._abandon(batch, silent))

    def close(self) -> None:
        """Close the connection in order and end the thread. The outcome of messages in progress is unknown."""
        with self._starting:
            self._stopping = True
        if self._loop is not None:
            self._call(self._close)
            self._thread.join(CLOSE_SECONDS)

    def _call(self, function: Callable[[], None]) -> bool:
        try:
            self._loop.add_callback_threadsafe(function)
        except Exception:  # the loop is closed
            return False
        return True

    # -- in its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                self._loop.start()
                break
            except Exception as error:  # of a callback; the loop itself still works
                self._lost(f"{type(error).__name__}: {error}")
        self._loop.close()

    def _begin(self, batch: Batch) -> None:
        if batch.over:
            return
        connection = self._connection
        if connection is None or not connection.is_open:
            self._waiting.append(batch)
            self._connect()
        elif self._blocked:
            batch.settle_rest_as(batch.places, Result.unavailable(f"blocked: {self._blocked}"))
        else:
            try:
                for group in batch.groups:
                    self._publisher(group[0][1].exchange).begin(batch, group)
            except AMQPError as error:  # as many channels as the broker allows are open
                batch.settle_rest(batch.places, words_of(error))

    def _publisher(self, exchange: str) -> Publisher:
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].exchange == exchange:
                return self._idle.pop(place)
        publisher: Publisher
        channel = self._connection.channel(on_open_callback=lambda _: publisher.confirm())
        publisher = Publisher(
            exchange, channel, self.learned, written=self._write, free=self._give_back, gone=self._forget
        )
        self._publishers.add(publisher)
        return publisher

    def _write(self, last: int, deadline: int) -> None:
        """Record that a group's bytes are written, and the position of its last byte."""
        self._writing.append((last, deadline))

    def _send_in_time(self, sock: socket.socket, data: bytes) -> int:
        """Write some of it, as pika does; raises TimeoutError, by which the connection is lost, if a group's time is
        over.

        The broker has not read the waiting bytes in time, also after a stall of this process. They must not arrive
        later.
        """
        if writing := self._writing:
            connection = self._connection
            gone = connection.bytes_sent - connection._transport.get_write_buffer_size()
            while writing and writing[0][0] <= gone:
                writing.popleft()
            now = self._clock.monotonic()
            if any(deadline <= now for _, deadline in writing):
                raise TimeoutError("the broker read too slowly")
        return sock.send(memoryview(data)[:RECORD] if isinstance(sock, ssl.SSLSocket) else data)

    def _give_back(self, publisher: Publisher) -> None:
        """End its group: keep the channel, or close it if confirms of given-up messages may still come."""
        if publisher.usable:
            self._idle.append(publisher)
            if len(self._idle) <= MOST_IDLE:
                return
            publisher = self._idle.pop(0)
        if publisher.channel.is_open:
            publisher.channel.close()

    def _forget(self, publisher: Publisher) -> None:
        """Its channel is closed."""
        self._publishers.discard(publisher)
        if publisher in self._idle:
            self._idle.remove(publisher)

    def _abandon(self, batch: Batch, silent: bool) -> None:
        """The caller has given it up. If the broker sent nothing meanwhile, the connection is opened again."""
        if batch in self._waiting:
            self._waiting.remove(batch)
        if silent:
            self._lost("the broker sent nothing")
            return
        for publisher in [publisher for publisher in self._publishers if publisher.batch is batch]:
            if publisher.channel.is_open:
                publisher.channel.close()

    def _connect(self) -> None:
        if self._workflow is not None or self._stopping:
            return

        class Opening(BrokerStream):
            """Registered before it is open: a workflow that talks to the broker cannot be aborted."""

            def __init__(connection, *given: Any, **named: Any) -> None:
                super().__init__(*given, **named)
                self._opening = connection

        self._workflow = Opening.create_connection(self._parameters, on_done=self._connected, custom_ioloop=self._loop)

    def _connected(self, outcome: Any) -> None:
        self._workflow = self._opening = None
        waiting, self._waiting = self._waiting, []
        if isinstance(outcome, BaseException):
            reason = f"no connection: {words_of(outcome)}"
            for batch in waiting:
                batch.settle_rest(batch.places, reason)
            if self._stopping:
                self._loop.stop()
            return
        self._connection, self._blocked = outcome, ""
        # pika writes everything it has, and has no public way to check the clock before each piece.
        outcome._transport._sigint_safe_send = self._send_in_time
        self.learned.most, self.learned.frame = None, outcome.params.frame_max
        outcome.add_on_close_callback(self._on_close)
        outcome.add_on_connection_blocked_callback(self._on_blocked)
        outcome.add_on_connection_unblocked_callback(self._on_unblocked)
        for batch in waiting:
            self._begin(batch)
        if self._stopping:
            self._disconnect()

    def _on_close(self, connection: Any, error: BaseException) -> None:
        if connection is self._connection:
            self._lost(words_of(error))

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self._blocked = frame.method.reason or "the broker accepts nothing"
        for publisher in self._publishers:
            if publisher.batch is not None:
                publisher.batch.blocked()

    def _on_unblocked(self, _: Any, __: Any) -> None:
        self._blocked = ""

    def _lost(self, reason: str) -> None:
        """Close the connection, if it is not closed yet, and report that to everybody who waits on it."""
        connection, self._connection, self._blocked = self._connection, None, ""
        publishers, self._publishers = self._publishers, set()
        self._idle.clear()
        self._writing.clear()
        for batch in {publisher.batch for publisher in publishers if publisher.batch is not None}:
            batch.settle_rest(batch.places, f"the connection was lost: {reason}")
        if connection is not None and not connection.is_closed:
            # pika has no public method that drops a broker without an answer.
            connection._terminate_stream(StreamLostError(reason))

    def _close(self) -> None:
        self._loop.call_later(CLOSE_SECONDS * 0.8, self._loop.stop)
        for batch in self._waiting:
            batch.settle_rest(batch.places, CLOSED)
        if self._opening is not None:
            self._opening.close()
        elif self._workflow is not None:
            self._workflow.abort()
        else:
            self._flush(self._clock.monotonic() + int(CLOSE_SECONDS * 400))

    def _flush(self, deadline: int) -> None:
        """Wait for confirms of published messages, until the deadline (monotonic ms); then disconnect."""
        busy = any(publisher.batch is not None for publisher in self._publishers)
        if busy and not self._blocked and self._clock.monotonic() < deadline:
            self._loop.call_later(FLUSH_STEP, lambda: self._flush(deadline))
        else:
            self._disconnect()

    def _disconnect(self) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            self._loop.stop()
            return
        connection.add_on_close_callback(lambda *_: self._loop.stop())
        connection.close()
        self._loop.call_later(CLOSE_SECONDS / 5, lambda: self._lost(CLOSED))
