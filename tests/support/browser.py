"""A real Chromium, of whose pages all that goes wrong is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    WebError,
    expect,
)

from tests.support.timeouts import PATIENCE

__all__ = ["Pages", "load", "settle", "too_wide", "violations"]

expect.set_options(timeout=PATIENCE * 1_000)

_HEIGHTS: Final = {1440: 900, 320: 800}
_TELL_VIOLATIONS: Final = """\
addEventListener("securitypolicyviolation", (e) =>
  console.error(`securitypolicyviolation: ${e.effectiveDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber} ${e.sample}`));
"""
#: A browser whose clock is off; how fast it goes is right.
_SHIFT_CLOCK: Final = """\
globalThis.Date = class extends Date {
  constructor(...given) { if (given.length) super(...given); else super(new.target.now()); }
  static now() { return super.now() + %d; }
};
"""


class Pages:
    """Opens pages, each in a browser without any memory, and keeps what is wrong in them as `complaints`.

    Those are: what a page logs as an error, exceptions that nobody catches, alerts, what its policy forbids, requests to another
    origin. Chromium logs each answer that is an error as one, though a page may well live with it: tests that provoke such
    answers say so by `accepts`, patterns of complaints.
    """

    def __init__(self, browser: Browser) -> None:
        self.complaints: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    def open(
        self,
        url: str,
        *,
        width: int = 1440,
        scheme: Literal["light", "dark"] = "light",
        locale: str = "en-US",
        zone: str = "UTC",
        clock: int = 0,
        accepts: Sequence[str] = (),
        **options: Any,
    ) -> Page:
        """A page at this address; `clock` is by how many ms the browser's is off."""
        context = self._browser.new_context(
            viewport={"width": width, "height": _HEIGHTS[width]},
            color_scheme=scheme,
            locale=locale,
            timezone_id=zone,
            reduced_motion="reduce",
            **options,
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE * 1_000)
        context.add_init_script(_TELL_VIOLATIONS)
        if clock:
            context.add_init_script(_SHIFT_CLOCK % clock)
        origin = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
        accepted = re.compile("|".join(accepts) or r"(?!)")

        def complain(text: str) -> None:
            if not accepted.search(text):
                self.complaints.append(text)

        def logged(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                complain(f"{message.text} ({message.location.get('url', '')})")

        def failed(error: WebError) -> None:
            complain(f"uncaught: {error.error}")

        def asked(dialog: Dialog) -> None:
            complain(f"{dialog.type}: {dialog.message}")
            dialog.dismiss()

        def requested(request: Request) -> None:
            if not request.url.startswith((origin, "data:", "blob:")):
                complain(f"another origin: {request.url}")

        context.on("console", logged)
        context.on("weberror", failed)
        context.on("request", requested)
        context.on("dialog", asked)
        page = context.new_page()
        page.goto(url)
        return page

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for context in self._contexts:
            context.close()
        assert error[0] is not None or not self.complaints, self.complaints


def settle(page: Page) -> None:
    """Wait until the page shows all that it asks for at first, also after a login."""
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_load_state("networkidle")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def load(page: Page, url: str) -> None:
    """Load the address anew in the same browser, and wait until it is shown."""
    page.goto("about:blank")
    page.goto(url)
    settle(page)


def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds wrong with a page by these rules, or by all, a line each."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


def too_wide(page: Page) -> list[str]:
    """What makes a page scroll sideways; nothing if it does not."""
    found: list[str] = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
          .filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 200))"""
    )
    return found
