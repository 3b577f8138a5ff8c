"""A web application that consumes messages beside its requests, and hands back those that it cannot handle now."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from delayq import AsyncClient, Leased

calls: list[dict[str, str | int]] = []


async def send_mail(message: Leased) -> None:
    """Your work: here the mail server is busy when `order 43` arrives for the first time."""
    calls.append({"id": message.id, "handBacks": message.hand_backs})
    if message.body == b"order 43" and message.hand_backs == 0:
        raise ConnectionError("the mail server is busy")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Consume while the application runs, 8 messages at once. At the end, the handlers that run may finish."""
    async with AsyncClient(os.environ["DELAYQ_REDIS_URL"]) as client:
        consumer = client.consume("orders.paid", group="mail", lease="30s")
        running = asyncio.create_task(consumer.run(send_mail))
        yield
        consumer.stop()
        await running


app = FastAPI(lifespan=lifespan)


@app.get("/calls")
async def get_calls() -> list[dict[str, str | int]]:
    """Return the calls of the handler: the id of each message, and how often it was handed back before."""
    return calls
