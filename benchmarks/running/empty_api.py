"""An empty endpoint of FastAPI and Pydantic with the fields of a message, to compare the API with."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Message(BaseModel):
    """The fields of a message; only their types are checked."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    topic: str
    tags: str = ""
    keys: list[str] = []
    body: Any = ""
    body_base64: str | None = None
    properties: dict[str, str] = {}
    delay_time: int | str | None = None
    expect_date: int | str | None = None
    delay_level: int | None = None
    id: str | None = None
    ordering_key: str = ""
    max_attempts: int | None = None
    expire_after: int | None = None


class Scheduled(BaseModel):
    """An answer with as many fields as the API's."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    id: str
    queue: int
    due_time: int


app = FastAPI()


@app.get("/readyz")
async def ready() -> dict[str, str]:
    """Report that the service is ready."""
    return {"status": "ok"}


@app.post("/v1/messages", status_code=201)
async def schedule(message: Message) -> Scheduled:
    """Schedule nothing."""
    return Scheduled(id="0123456789abcdefghijkl.0000", queue=0, due_time=1_700_000_000_000)


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
    )
