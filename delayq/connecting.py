"""A client for a URL: of Redis, or of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.base.errors import ConfigError

if TYPE_CHECKING:
    from delayq import http
    from delayq.client.async_client import AsyncClient
    from delayq.client.client import Client

__all__ = ["connect", "connect_async", "is_api"]


def is_api(url: str) -> bool:
    """Whether the URL is that of an HTTP API."""
    return url.partition("://")[0].lower() in ("http", "https")


def connect(url: str, **options: Any) -> Client | http.Client:
    """Return a client for redis://, rediss://, redis+sentinel://, redis+cluster:// or unix://, or for http:// or https://.

    Both kinds have the same methods, types and errors. `options` are those of `delayq.Client` or of `delayq.http.Client`.
    """
    if is_api(url):
        from delayq.http.client import Client as ApiClient

        return ApiClient(url, **options)
    from delayq.client.client import Client

    _check(url)
    return Client(url, **options)


def connect_async(url: str, **options: Any) -> AsyncClient | http.AsyncClient:
    """Return a client for asyncio, as `connect` does for threads."""
    if is_api(url):
        from delayq.http.async_client import AsyncClient as AsyncApiClient

        return AsyncApiClient(url, **options)
    from delayq.client.async_client import AsyncClient

    _check(url)
    return AsyncClient(url, **options)


def _check(url: str) -> None:
    if "://" not in url:
        raise ConfigError("the URL has no scheme: write redis://, rediss://, http:// or https:// before the host")
