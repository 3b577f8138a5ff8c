"""The console: its page under /console/, the page's files under /console/<hash of all>/, and its sessions.

All paths in it are relative, so it works behind a proxy that adds a prefix.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from api.asgi import Answer, Handler, Request
from api.auth.keys_file import names_loopback
from api.auth.sessions import LASTS, Cookie, header
from api.routes.files import FOR_EVER, KINDS, NO_CACHE, File, content_policy
from api.service import Operations, Service
from api.wire.problems import Problem
from api.wire.requests import SessionIn, decode
from delayq import InvalidMessage

#: Only the page uses them, so the document omits them.
SESSION = Operations("console")

FOLDER: Final = Path(__file__).parent.parent / "console"
#: The page of the docs to which findings lead. The console shows its sections.
_RUNBOOK: Final = Path(__file__).parents[2] / "docs" / "runbook.md"
_PAGE: Final = "index.html"
#: Comments on lines of their own. They are an eighth of all that a browser would load, so it gets empty lines instead.
_COMMENTS: Final = re.compile(rb"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/)[ \t]*$", re.MULTILINE)
#: The form in which the page in FOLDER refers to its files.
_IN_THE_TREE: Final = b'"assets/'


def route_of(path: str) -> str:
    """Return the path for the metrics: all files of the console are one."""
    return "/console/{file}" if path.startswith("/console/") else path


async def _to_the_page(_request: Request) -> Answer:
    return Answer(307, b"", ((b"location", b"console/"),))


def console_handlers(folder: Path = FOLDER, runbook: Path = _RUNBOOK) -> dict[str, Handler]:
    """Return the files by path, with the page of the docs to which findings lead."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in KINDS)
    contents = {path.relative_to(folder).as_posix(): _without_comments(path) for path in paths}
    if runbook.exists():
        contents["docs/runbook.md"] = runbook.read_bytes()
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(b"%s %d " % (name.encode(), len(content)) + content)
    tag = digest.hexdigest()[:12]
    page = contents.pop(_PAGE).replace(_IN_THE_TREE, f'"{tag}/'.encode())
    policy = content_policy("require-trusted-types-for 'script'", "trusted-types 'none'")
    files = {f"/console/{tag}/{name}": File(name, content, tag, FOR_EVER).handle for name, content in contents.items()}
    return {"/console": _to_the_page, "/console/": File(_PAGE, page, tag, NO_CACHE, policy).handle, **files}


def _without_comments(path: Path) -> bytes:
    """Return a script or style without its comments, each line in its place. Libraries stay as they were published."""
    content = path.read_bytes()
    if path.suffix not in (".css", ".js") or path.parent.name == "vendor":
        return content
    return _COMMENTS.sub(lambda found: b"\n" * found[0].count(b"\n"), content)


_session = msgspec.json.Decoder(SessionIn)
#: The maximum size of a request for a session, in bytes.
_LARGEST: Final = 4_096
_PATH: Final = re.compile(r"/(?:[!-:<-~]{0,198}/)?", re.ASCII)


@SESSION.add("POST", "/console/session", "logIn", open=True)
async def log_in(service: Service, request: Request) -> Answer:
    """Begin a session"""
    _same_origin(request)
    request.query()
    given = decode(_session, await request.json_text(_LARGEST))
    path = _checked(given.path)
    if service.door.open:
        raise Problem("invalid", "This API needs no keys. Nobody has to log in.")
    cookie = service.door.begin_session(given.key, request.scope, "/console/session")
    # A browser has one session here: a session of another key ends.
    others = [name for name in _names(service, request) if name != cookie.name]
    return _with_cookies(request, [cookie, *(Cookie(name, b"") for name in others)], path)


@SESSION.add("DELETE", "/console/session", "logOut", open=True)
async def log_out(service: Service, request: Request) -> Answer:
    """Delete the cookie"""
    _same_origin(request)
    path = _checked(request.query("path").get("path", "/"))
    return _with_cookies(request, [Cookie(name, b"") for name in _names(service, request)], path)


def _names(service: Service, request: Request) -> list[bytes]:
    """Delete the cookies of this installation in the browser."""
    return sorted({cookie.name for cookie in service.door.sessions_begun(request.scope)})


def _same_origin(request: Request) -> None:
    """Raise Problem for a browser's request from another page."""
    if header(request.scope["headers"], b"sec-fetch-site") not in (b"", b"same-origin"):
        raise Problem("forbidden", "Only the console's own page begins and ends sessions.")


def _checked(path: str) -> str:
    if not _PATH.fullmatch(path) or ".." in path:
        raise InvalidMessage(
            "path", "must begin and end with '/', and have at most 200 characters, only those of a URL"
        )
    return path


def _with_cookies(request: Request, cookies: Iterable[Cookie], path: str) -> Answer:
    headers = request.scope["headers"]
    # Without TLS, a browser keeps a secure cookie of its own machine only, and not every browser does.
    plain = names_loopback(header(headers, b"host")) and not header(headers, b"origin").startswith(b"https:")
    about = b"Path=%s; Max-Age=%d; HttpOnly; SameSite=Strict" + (b"" if plain else b"; Secure")
    kept = [(name, value, LASTS // 1_000 if value else 0) for name, value in cookies]
    lines = (b"%s=%s; " % (name, value) + about % (path.encode(), seconds) for name, value, seconds in kept)
    return Answer(204, None, tuple((b"set-cookie", line) for line in lines))
