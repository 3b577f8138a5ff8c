"""URLs that name several hosts, separated by commas."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

_AFTER_HOSTS: Final = "/?#"


def split_url(url: str) -> SplitResult:
    """Split a URL like `urlsplit`, which would refuse a bracket after the first host. `netloc` is the unchecked text."""
    scheme, separator, rest = url.partition("://")
    if not separator or ":" in scheme:
        return urlsplit(url)
    end = min((place for mark in _AFTER_HOSTS if (place := rest.find(mark)) >= 0), default=len(rest))
    return urlsplit(f"{scheme}://{rest[end:]}")._replace(netloc=rest[:end])
