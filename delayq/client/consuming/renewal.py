# Made from async_renewal.py by ./dev check --fix; change that one.
"""The leases that a consumer holds, and their renewal while handlers work."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from delayq.base.clock import Clock
from delayq.base.errors import StoreError, StoreRefused
from delayq.client.consuming.threads import LATE, Repeats
from delayq.client.known_routes import LOGGER

if TYPE_CHECKING:
    from delayq.base.times import Duration
    from delayq.client.consuming.entries import Leased

#: The shortest lease that delayq gives (ms).
SHORTEST: Final = 1_000
#: ms before the next attempt, if leases could not be renewed.
AGAIN: Final = 500


class Settling(Protocol):
    """The calls of a client that change leases."""

    def ack(self, *messages: Leased) -> list[Any]: ...
    def extend_many(self, messages: Sequence[Leased], lease: Duration) -> list[Any]: ...


class _Call:
    """When the leases of a call end that received messages, and until when they can be renewed (ms of the monotonic clock)."""

    __slots__ = ("end", "is_final", "limit")

    def __init__(self, end: int, limit: int) -> None:
        self.end = end
        self.limit = limit
        self.is_final = False


#: A message, and the call that received it.
_Held = tuple["Leased", _Call]


class Leases:
    """The leases of one consumer.

    All of them are renewed together, three times in each lease, up to `longest` ms from when their messages were received.
    If the server is away, the renewal is tried again and again. A consumer that the program has forgotten is ended here, too.
    """

    def __init__(self, client: Settling, clock: Clock, lease: int, longest: int) -> None:
        self.done: deque[Leased] = deque()  # handled, and to be acknowledged
        self._client = client
        self._clock = clock
        self._lease = lease
        self._longest = longest
        self._held: dict[str, _Held] = {}
        self._is_away = False
        self._next = clock.monotonic()
        self._repeats = Repeats(clock, self.renew, self.end)

    def add(self, messages: Iterable[Leased], since: int) -> None:
        """Hold the leases of messages that a call received which began at `since` (ms of the monotonic clock)."""
        call = _Call(since + self._lease, since + self._longest)
        self._held.update({one.lease: (one, call) for one in messages})
        if self._held and self._longest > self._lease and not self._repeats.is_running:
            self._next = self._clock.monotonic() + self._lease // 3
            self._repeats.start(self._lease // 3)

    def take(self, messages: Iterable[Leased]) -> list[_Held]:
        """Hold these leases no longer: they are being settled."""
        found = [self._held.pop(one.lease, None) for one in messages]
        return [one for one in found if one is not None]

    def keep(self, held: Iterable[_Held]) -> list[Leased]:
        """Hold leases again that could not be settled, and return their messages, without those that were held for too long."""
        now = self._clock.monotonic()
        kept = [(message, call) for message, call in held if call.limit > now]
        self._held.update({message.lease: (message, call) for message, call in kept})
        return [message for message, _ in kept]

    def is_fresh(self, message: Leased, now: int) -> bool:
        """Return whether more than half of the lease of a message is left."""
        held = self._held.get(message.lease)
        return held is not None and held[1].end - now > self._lease / 2

    def lasts(self, message: Leased) -> bool:
        """Return whether the lease of a message lasts. If half of it is over, it is renewed before."""
        held = self._held.get(message.lease)
        if held is not None and held[1].end < held[1].limit and not self.is_fresh(message, self._clock.monotonic()):
            self.renew()
        held = self._held.get(message.lease)
        return held is not None and held[1].end > self._clock.monotonic()

    def renew(self) -> int:
        """Renew all leases, and return after how many ms that is to be done again."""
        now, failure = self._clock.monotonic(), None
        if self._held and now - self._next > self._lease / 3:
            logging.getLogger(LOGGER).warning("leases are renewed %d ms late: %s", now - self._next, LATE)
        for life, some in self._by_life(now).items():
            try:
                results = self._client.extend_many([message for message, _ in some], life)
            except Exception as error:  # noqa: BLE001  # whatever it is, the next attempt may succeed
                failure = error
                continue
            failed = set[_Call]()
            for (message, call), result in zip(some, results, strict=True):
                if isinstance(result, Exception) and passes(result):
                    failure = result
                    failed.add(call)
                elif isinstance(result, Exception):
                    self.take([message])
                    log_unsettled([message], result)
                elif is_lost(result) and self.take([message]):  # else it was settled during the call
                    log_lost([message])
            for call in {call for _, call in some} - failed:
                call.end = now + life
        if failure is not None and not self._is_away:
            logging.getLogger(LOGGER).warning("cannot renew leases, trying again: %s", failure)
        self._is_away = failure is not None
        wait = self._lease // 3 if failure is None else min(AGAIN, self._lease // 3)
        self._next = self._clock.monotonic() + wait
        return wait

    def _by_life(self, now: int) -> dict[int, list[_Held]]:
        """The leases by how long they are to last from now; without those that may last no longer."""
        found: dict[int, list[_Held]] = {}
        for message, call in list(self._held.values()):
            life = min(self._lease, call.limit - now)
            if call.end < call.limit and life >= SHORTEST:
                found.setdefault(life, []).append((message, call))
            elif not call.is_final:
                text = "the lease of message %s is no longer renewed: it ends %d s after its receipt, the maximum (max_lease)"
                logging.getLogger(LOGGER).warning(text, message.id, self._longest // 1000)
        for _, call in list(self._held.values()):
            call.is_final = call.end >= call.limit or call.limit - now < SHORTEST
        return found

    def abandon(self) -> None:
        """End without a consumer, in the background: from a finalizer, on any thread."""
        self._repeats.abandon()

    def wait_if_abandoned(self) -> None:
        """Wait for the end in the background, if it has begun."""
        self._repeats.wait_if_abandoned()

    def end(self) -> None:
        """Acknowledge what is done, and give back the rest."""
        self.close([message for message, _ in list(self._held.values())])

    def close(self, left: Sequence[Leased]) -> None:
        """End the renewal, acknowledge what is done, and give back the messages that are left. Failures are logged."""
        self._repeats.stop()
        done = [self.done.popleft() for _ in range(len(self.done))]
        handled = {one.lease for one in done}
        left = [one for one in left if one.lease not in handled]
        self.take(done)
        self.take(left)
        if done:
            try:
                log_lost(one for one, result in zip(done, self._client.ack(*done), strict=True) if is_lost(result))
            except Exception as error:  # noqa: BLE001  # the others are given back all the same
                log_unsettled(done, error)
        if left:
            try:
                self._client.extend_many(left, 0)
            except Exception as error:  # noqa: BLE001  # the consumer ends all the same
                log_unsettled(left, error)
        self._repeats.close()


def is_lost(result: Any) -> bool:
    """Return whether a change of a lease came too late, or found no such group. An error is no answer."""
    return not isinstance(result, Exception) and result.result in ("lost", "notFound")


def passes(error: Exception) -> bool:
    """Return whether an error may pass, so that the same call may succeed later."""
    return isinstance(error, StoreError) and not isinstance(error, StoreRefused)


def log_lost(messages: Iterable[Leased]) -> None:
    """Log messages whose lease is lost."""
    text = "the lease of message %s of topic %s was lost: it or its group had ended, and another consumer may have the message"
    for one in messages:
        logging.getLogger(LOGGER).warning(text, one.id, one.topic)


def log_unsettled(messages: Iterable[Leased], error: BaseException) -> None:
    """Log messages that could not be acknowledged or handed back."""
    text = "message %s could not be settled, and is received again: %s"
    for one in messages:
        logging.getLogger(LOGGER).warning(text, one.id, error)
