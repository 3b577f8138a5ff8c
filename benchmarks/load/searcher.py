"""Searches for a topic that no message has: `searcher URL SECONDS`. Prints at how many messages a second it looked."""

from __future__ import annotations

import sys
import time

from delayq import Client, Filter

__all__ = ["main"]


def main() -> None:
    """Search until the time is over."""
    url, seconds = sys.argv[1], float(sys.argv[2])
    wanted = Filter(topic="nothing.*.goes.there")
    looked, token = 0, None
    with Client(url) as client:
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            page = client.search(wanted, token=token)
            looked, token = looked + page.looked, page.next_token
    print(looked / took, flush=True)


if __name__ == "__main__":
    main()
