"""An HTTP/1.1 proxy that passes each request on, and closes the connection in place of a part of the answers."""

from __future__ import annotations

import asyncio
import random
import threading
from types import TracebackType
from typing import Final, Self

from delayq.embedded.processes import LOCALHOST

_LENGTH: Final = b"content-length:"


class DroppingProxy:
    """Listens at `url` and passes requests on to the API at `port`. It drops a `share` of the answers after the API gave them."""

    def __init__(self, port: int, share: float = 0.2, seed: int = 1) -> None:
        self.dropped = self.passed = 0
        self._port = port
        self._share = share
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, LOCALHOST, 0), self._loop
        ).result()
        self.url = f"http://{LOCALHOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            upstream, upstream_writer = await asyncio.open_connection(LOCALHOST, self._port)
            writers.append(upstream_writer)
            while request := await _message(reader):
                upstream_writer.write(request)
                answer = await _message(upstream)
                if not answer or self._random.random() < self._share:
                    self.dropped += 1
                    break
                self.passed += 1
                writer.write(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in writers:
                one.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, whole; empty at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    lengths = [int(line[len(_LENGTH) :]) for line in head.split(b"\r\n") if line.lower().startswith(_LENGTH)]
    assert b"transfer-encoding" not in head.lower(), "only messages with a length"
    return head + await reader.readexactly(lengths[0] if lengths else 0)
