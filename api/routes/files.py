"""Files that are served from memory: compressed once, and not sent again to callers that have them."""

from __future__ import annotations

import gzip
from functools import lru_cache  # noqa: TID251  # the keys are names of our own files
from pathlib import PurePath
from typing import Final

from api.asgi import Answer, Request
from api.wire.problems import Headers

#: The media type by the ending of the file's name.
KINDS: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".md": b"text/markdown; charset=utf-8",
    ".txt": b"text/plain; charset=utf-8",
}
#: A browser checks each time whether its copy is current.
NO_CACHE: Final = b"no-cache"
#: Another content has another path.
FOR_EVER: Final = b"public, max-age=31536000, immutable"


def content_policy(*more: str, scripts: str = "'self'") -> Headers:
    """Return the content policy of a page: nothing from other origins, and no script except these."""
    directives = (
        "default-src 'none'", f"script-src {scripts}", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", *more,
    )  # fmt: skip
    return ((b"content-security-policy", "; ".join(directives).encode()),)


@lru_cache(maxsize=128)
def _compressed(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)


class File:
    """A file, sent plain, compressed, or not at all. `tag` changes with the content."""

    def __init__(self, name: str, content: bytes, tag: str, caching: bytes, headers: Headers = ()) -> None:
        # Weak, because the compressed file has other bytes.
        self._tag = f'W/"{tag}"'.encode()
        headers += ((b"etag", self._tag), (b"vary", b"accept-encoding"))
        kind = (b"content-type", KINDS[PurePath(name).suffix])
        self._plain = Answer(200, content, (kind, *headers), caching)
        zipped = (kind, (b"content-encoding", b"gzip"), *headers)
        self._zipped = Answer(200, _compressed(content), zipped, caching)
        self._unchanged = Answer(304, None, headers, caching)

    async def handle(self, request: Request) -> Answer:
        """Return the file, or the answer that it is unchanged."""
        given: dict[bytes, bytes] = dict(request.scope["headers"])
        known = [one.strip() for one in given.get(b"if-none-match", b"").split(b",")]
        if self._tag in known or known == [b"*"]:
            return self._unchanged
        return self._zipped if _takes_gzip(given.get(b"accept-encoding", b"")) else self._plain


def _takes_gzip(accepted: bytes) -> bool:
    for one in accepted.lower().split(b","):
        coding, _, quality = one.replace(b" ", b"").partition(b";")
        if coding in (b"gzip", b"*"):
            return quality.removeprefix(b"q=").rstrip(b"0.") != b"" if quality else True
    return False
