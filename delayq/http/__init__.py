"""The client of the HTTP API: the methods, types and errors of the client of Redis, with a URL and an API key."""

from delayq.http.async_client import AsyncClient
from delayq.http.client import Client

__all__ = ["AsyncClient", "Client"]
