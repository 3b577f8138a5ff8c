"""A process that sends: `python -m tests.targets.sender <route> <topic> <seconds> <how>`; the route is JSON.

'connecting' is one message over a new connection, 'writing' a batch of more bytes than a system keeps for who does not read,
over one that stood before: it says 'ready', and begins when it reads a line. It says 'sending' when it begins, and the outcomes
when they are known.
"""

from __future__ import annotations

import sys

import msgspec

from delayq.domain.routes import Route
from delayq.targets import open_target
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS

MANY, BYTES = 60, 200_000

if __name__ == "__main__":
    route, topic, seconds, how = sys.argv[1:]
    target = open_target(msgspec.json.decode(route, type=Route), "")
    batch = [delivery("late", topic=topic)]
    if how == "writing":
        target.send([delivery("early", topic=topic)], SEND_SECONDS)
        batch = [delivery(f"late-{number}", "x" * BYTES, topic=topic) for number in range(MANY)]
    print("ready", flush=True)
    sys.stdin.readline()
    print("sending", flush=True)
    print(*sorted({*outcomes(target.send(batch, float(seconds)))}), flush=True)
    target.close()
