"""/docs and /openapi.json: what the documentation's page may load is said by its Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any, Final

from fastapi.openapi.docs import get_swagger_ui_html

from .http import Request
from .problems import JSON, Answer

__all__ = ["Pages"]

_CDN: Final = "https://cdn.jsdelivr.net"
_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class Pages:
    """Swagger UI, which comes from its CDN, and the document that it shows."""

    def __init__(self, title: str, document: dict[str, Any]) -> None:
        page = get_swagger_ui_html(openapi_url="/openapi.json", title=title, swagger_favicon_url="data:,")
        html = bytes(page.body)
        hashes = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _SCRIPT.findall(html)]
        scripts = " ".join(f"'sha256-{one}'" for one in hashes)
        policy = (
            f"default-src 'none'; script-src {_CDN} {scripts}; style-src {_CDN} 'unsafe-inline'; img-src 'self' data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = ((b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", policy.encode()))
        self._docs = Answer(200, html, headers)
        self._openapi = Answer(200, json.dumps(document, ensure_ascii=False).encode(), JSON)

    async def docs(self, _request: Request) -> Answer:
        """The page."""
        return self._docs

    async def openapi(self, _request: Request) -> Answer:
        """The document."""
        return self._openapi
