"""Every timeout of the product in tests: long enough that a busy machine never reaches one.

A test whose subject is a timeout sets its own value and moves a manual clock, or ends the session explicitly
(`tests.support.zookeeper.end_session`).
"""

from __future__ import annotations

from typing import Final

#: Seconds that a test's own client waits for one reply.
PATIENCE: Final = 30.0
#: Seconds that a test's HTTP client waits for one answer.
HTTP_TIMEOUT: Final = 60.0
#: `redisTimeout` (ms): how long a service waits for one reply of Redis.
REDIS_TIMEOUT: Final = 30_000
#: `sendTimeout` (ms): how long a worker waits for a target.
SEND_TIMEOUT: Final = 30_000
#: Seconds that a test gives a target for one send.
SEND_SECONDS: Final = SEND_TIMEOUT / 1_000
#: `drainTimeout` (ms): how long a worker that stops waits for its sends.
DRAIN_TIMEOUT: Final = 60_000
#: `sessionTimeout` (ms) of ZooKeeper.
SESSION_TIMEOUT: Final = 60_000
#: `cluster-node-timeout` (ms) of a Redis Cluster. Tests that need another primary ask for a fail-over.
NODE_TIMEOUT: Final = 15_000
#: `down-after-milliseconds` of Sentinel. Tests that need another primary ask for a fail-over.
SENTINEL_DOWN_AFTER: Final = 15_000
