"""The pages /docs and /openapi.json, and the redirect of /.

The page loads nothing from other origins, as its Content-Security-Policy declares.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import Any, Final

from fastapi.openapi.docs import get_swagger_ui_html

from api.asgi import Answer, Handler, Request
from api.routes.files import NO_CACHE, File, content_policy
from api.wire.problems import Headers

_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_FILES: Final = ("swagger-ui-bundle.js", "swagger-ui.css")


def page_handlers(title: str, document: dict[str, Any], start: str) -> dict[str, Handler]:
    """Return the answers by path: Swagger UI, whose files come from a package, its document, and the redirect to
    `start`.
    """
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=title,
        swagger_favicon_url="data:,",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_ui_parameters={"validatorUrl": None},
    )
    html = bytes(page.body)
    hashes = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _SCRIPT.findall(html)]
    policy = content_policy(scripts=" ".join(["'self'", *(f"'sha256-{one}'" for one in hashes)]))
    folder = resources.files("fastapi_swagger") / "resources"
    files = {f"/docs/{name}": _file(name, (folder / name).read_bytes()) for name in _FILES}
    openapi = _file("openapi.json", json.dumps(document, ensure_ascii=False).encode())
    return {"/": _way(start), "/docs": _file("docs.html", html, policy), "/openapi.json": openapi, **files}


def _file(name: str, content: bytes, headers: Headers = ()) -> Handler:
    return File(name, content, hashlib.sha256(content).hexdigest()[:12], NO_CACHE, headers).handle


def _way(start: str) -> Handler:
    """Return the redirect for a browser that opens the address."""

    async def handle(_request: Request) -> Answer:
        return Answer(307, b"", ((b"location", start.encode()),))

    return handle
