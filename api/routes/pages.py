"""/docs, to which / leads, and /openapi.json.

The page loads nothing from elsewhere, and its Content-Security-Policy says so to browsers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import Any, Final

from fastapi.openapi.docs import get_swagger_ui_html

from api.asgi import JSON, Answer, Handler, Request

__all__ = ["Pages"]

_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_FILES: Final = {
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
}


class Pages:
    """Swagger UI, whose files come from a package, and the document that it shows."""

    def __init__(self, title: str, document: dict[str, Any]) -> None:
        page = get_swagger_ui_html(
            openapi_url="/openapi.json",
            title=title,
            swagger_favicon_url="data:,",
            swagger_js_url="/docs/swagger-ui-bundle.js",
            swagger_css_url="/docs/swagger-ui.css",
            swagger_ui_parameters={"validatorUrl": None},
        )
        html = bytes(page.body)
        hashes = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _SCRIPT.findall(html)]
        scripts = " ".join(f"'sha256-{one}'" for one in hashes)
        policy = (
            f"default-src 'none'; script-src 'self' {scripts}; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = ((b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", policy.encode()))
        self._docs = Answer(200, html, headers)
        self._openapi = Answer(200, json.dumps(document, ensure_ascii=False).encode(), JSON)
        folder = resources.files("fastapi_swagger") / "resources"
        self._files = {
            name: Answer(200, (folder / name).read_bytes(), ((b"content-type", kind),)) for name, kind in _FILES.items()
        }

    @property
    def handlers(self) -> dict[str, Handler]:
        """By their paths."""
        files = {f"/docs/{name}": self._file(answer) for name, answer in self._files.items()}
        return {"/": self.root, "/docs": self.docs, "/openapi.json": self.openapi, **files}

    def _file(self, answer: Answer) -> Handler:
        async def handle(_request: Request) -> Answer:
            return answer

        return handle

    async def root(self, _request: Request) -> Answer:
        """What is seen first when the address is typed into a browser: the way to the page."""
        return Answer(307, b"", ((b"location", b"/docs"),))

    async def docs(self, _request: Request) -> Answer:
        """The page."""
        return self._docs

    async def openapi(self, _request: Request) -> Answer:
        """The document."""
        return self._openapi
