"""The console behind a web server that serves it under a path of its own."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

import pytest
from playwright.sync_api import expect

from delayq.embedded.processes import LOCALHOST
from tests.console.test_rights import log_in
from tests.console.world import AnotherApi, World
from tests.support.browser import Pages, load

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

PREFIX: Final = "/ops/delayq/"


#: What is between two hops and no further.
_HOPS: Final = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length"}


class ReverseProxy:
    """`with ReverseProxy(port, "/ops/") as proxy:` hands on what comes under /ops/, without it; all else is 404."""

    def __init__(self, port: int, prefix: str) -> None:
        self.server = _Server((LOCALHOST, 0), _Handler)
        self.server.upstream, self.server.prefix = port, prefix
        self._thread = threading.Thread(
            target=self.server.serve_forever, args=(0.05,), name="reverse-proxy", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it hands on from."""
        return f"http://{LOCALHOST}:{self.server.server_address[1]}{self.server.prefix}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    upstream = 0
    prefix = "/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser leaves pages when it likes to."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.path.startswith(self.server.prefix):
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        behind = http.client.HTTPConnection(LOCALHOST, self.server.upstream, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
        behind.request(self.command, "/" + self.path.removeprefix(self.server.prefix), body or None, headers)
        answer = behind.getresponse()
        content = answer.read()
        behind.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOPS:
                self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _hand_on

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def test_pages_are_the_same_under_a_path(pages: Pages, world: World) -> None:
    with ReverseProxy(world.service.port, PREFIX) as proxy:
        page = pages.open(f"{proxy.url}console")
        for place in ("overview", "messages/unpaid-0", "timeline", "queues", "dead-letters"):
            load(page, f"{proxy.url}console/#/{place}")
            expect(page.get_by_role("contentinfo")).to_contain_text("As of")
            expect(page.get_by_role("main").get_by_role("alert")).to_have_count(0)
        page.get_by_role("link", name="HTTP API").click()
        expect(page.locator("#swagger-ui")).to_contain_text("/v1/messages")
        page.close()  # before the proxy stops


def test_a_session_is_of_that_path_alone(pages: Pages, keyed: AnotherApi) -> None:
    with ReverseProxy(keyed.service.port, PREFIX) as proxy:
        page = pages.open(f"{proxy.url}console/", accepts=["status of 401"])
        log_in(page, keyed.keys.texts["boss"])
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        assert [one["path"] for one in page.context.cookies()] == [PREFIX]
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        assert page.context.cookies() == []
        page.close()  # before the proxy stops
