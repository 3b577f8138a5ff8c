"""What the audit has had for long enough goes."""

from __future__ import annotations

from delayq.client.client import Client
from delayq.store.commands import plain
from delayq.store.keys import AUDIT, queue_keys
from delayq.testing import ManualClock
from tests.support.servers import ServerUnderTest
from workers.node.janitor import TRIM_EVERY, Janitor


def test_the_audit_is_kept_for_as_long_as_it_is_to_be(valkey: ServerUnderTest) -> None:
    clock = ManualClock(10**12)
    with Client(valkey.url) as client:
        janitor = Janitor(client.store, range(16), clock, 3 * TRIM_EVERY)
        for stream in (AUDIT, queue_keys(3).audit):
            for number in range(300):  # whole nodes of a stream go
                client.store.run(plain("XADD", stream, f"{clock.now()}-{number + 1}", "by", "{}", read=str))
        for expected in (300, 300, 0):
            clock.advance(TRIM_EVERY + 1)
            janitor.tick()
            assert client.store.run(plain("XLEN", AUDIT, read=int)) == expected
        assert client.store.run(plain("XLEN", queue_keys(3).audit, read=int)) == 0
