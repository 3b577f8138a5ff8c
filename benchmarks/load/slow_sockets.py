"""`python -m benchmarks.load.slow_sockets PORT COUNT`: so many clients that send a byte now and then, and never a request.

A third of them drips a head, a third a body that nobody waits for, a third says nothing; whoever is cut off comes again.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from contextlib import suppress

HEADS = (
    b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ",
    b"GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n",
    b"",
)


async def _drip(port: int, number: int) -> None:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(HEADS[number % len(HEADS)])
                while True:
                    await asyncio.sleep(random.uniform(0.5, 1.5))
                    if reader.at_eof() or reader.exception() is not None:
                        break
                    if number % len(HEADS) < 2:
                        writer.write(b"a")
                        await writer.drain()
            finally:
                writer.close()
        await asyncio.sleep(random.uniform(0, 0.1))


async def _all(port: int, count: int) -> None:
    await asyncio.gather(*(_drip(port, number) for number in range(count)))


def main() -> None:
    """Drip until killed."""
    port, count = map(int, sys.argv[1:])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_all(port, count))


if __name__ == "__main__":
    main()
