"""A web application that consumes messages beside its requests, and hands back those that it cannot handle now."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from delayq import AsyncClient

log = logging.getLogger("uvicorn.error")
calls: list[dict[str, str | int]] = []


async def send_mail(id: str, body: bytes, hand_backs: int) -> None:
    """Your work: here the mail server is busy when `order 43` arrives for the first time."""
    calls.append({"id": id, "handBacks": hand_backs})
    if body == b"order 43" and hand_backs == 0:
        raise ConnectionError("the mail server is busy")


async def consume(client: AsyncClient) -> None:
    """Handle messages until this task is cancelled. An exception hands the current message back, so begin again after it."""
    while True:
        try:
            async with client.consume("orders.paid", group="mail", lease="30s") as consumer:
                async for message in consumer:
                    await send_mail(message.id, message.body, message.hand_backs)
        except Exception as error:
            log.warning("trying again in 1 s: %s", error)
            await asyncio.sleep(1)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Consume while the application runs. At the end, other consumers receive the messages that are left."""
    async with AsyncClient(os.environ["DELAYQ_REDIS_URL"]) as client:
        consuming = asyncio.create_task(consume(client))
        yield
        consuming.cancel()
        await asyncio.wait([consuming])


app = FastAPI(lifespan=lifespan)


@app.get("/calls")
async def get_calls() -> list[dict[str, str | int]]:
    """Return the calls of the handler: the id of each message, and how often it was handed back before."""
    return calls
