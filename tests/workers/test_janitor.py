"""What the audit has had for long enough goes."""

from __future__ import annotations

from delayq.client.client import Client
from delayq.config import load_settings
from delayq.store.commands import plain, redis_now
from delayq.store.keys import KEYS
from tests.support.servers import ServerUnderTest
from workers.node.duties.janitor import Janitor

DAY = 86_400_000


def test_the_audit_is_kept_for_90_days_by_the_clock_of_redis(valkey: ServerUnderTest) -> None:
    window = load_settings().audit_window
    assert window == 90 * DAY
    with Client(valkey.url) as client:
        now = client.store.run(redis_now())
        janitor = Janitor(client.store, range(16), window)
        for stream in (KEYS.audit, KEYS.queue(3).audit):
            for at in (now - window - DAY, now - window + DAY):
                for number in range(300):  # whole nodes of a stream go
                    client.store.run(plain("XADD", stream, f"{at}-{number + 1}", "by", "{}", read=str))
        janitor.trim()
        for stream in (KEYS.audit, KEYS.queue(3).audit):
            assert 300 <= client.store.run(plain("XLEN", stream, read=int)) < 400
            ((oldest, _),) = client.store.run(plain("XRANGE", stream, now - window, "+", "COUNT", 1, read=list))
            assert oldest.decode() == f"{now - window + DAY}-1"
