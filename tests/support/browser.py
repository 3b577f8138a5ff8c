"""A real Chromium, of whose pages all that goes wrong is known."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    WebError,
    expect,
)

from tests.support.timeouts import PATIENCE

expect.set_options(timeout=PATIENCE * 1_000)

#: A time zone in which it is about noon, so that a time of this test is one of today.
MIDDAY: Final = f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"

_HEIGHTS: Final = {1440: 900, 1280: 900, 390: 844, 320: 800}
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


#: The context of a browser that tests share one after the other: a context of its own costs a second of CPU.
_shared: WeakKeyDictionary[Browser, BrowserContext] = WeakKeyDictionary()


class Pages:
    """Opens pages, and keeps what is wrong in them as `complaints`.

    Complaints are: a page logs an error, throws an exception that nothing catches, shows an alert, violates its content
    policy, or requests another origin. Chromium logs each answer that is an error as one, though the console may handle it:
    tests that provoke such answers pass `accepts`, patterns of complaints. Pages of one test share their cookies; the next
    test finds none.
    """

    def __init__(self, browser: Browser) -> None:
        self.complaints: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._accepts: list[str] = []
        self._origins: tuple[str, ...] = ("data:", "blob:")

    def open(
        self,
        url: str,
        *,
        width: int = 1440,
        locale: str = "en-US",
        zone: str = "UTC",
        clock: int = 0,
        fresh: bool = False,
        accepts: Sequence[str] = (),
        **options: Any,
    ) -> Page:
        """A page at this address. The browser's clock is off by `clock` ms.

        A test that replaces the clock (`page.clock`) needs a `fresh` context.
        """
        own = fresh or bool(clock or options) or (locale, zone) != ("en-US", "UTC")
        context = None if own else _shared.get(self._browser)
        if context is None:
            context = self._browser.new_context(locale=locale, timezone_id=zone, reduced_motion="reduce", **options)
            context.set_default_timeout(PATIENCE * 1_000)
            context.add_init_script(_TELL_VIOLATIONS)
            if clock:
                context.add_init_script(_SHIFT_CLOCK % clock)
            if not own:
                _shared[self._browser] = context
        if context not in self._contexts:
            self._contexts.append(context)
            for event, listener in self._listeners.items():
                context.on(event, listener)
        self._accepts += accepts
        self._origins += ("{0.scheme}://{0.netloc}/".format(urlsplit(url)),)
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": _HEIGHTS[width]})
        page.goto(url)
        return page

    @property
    def _listeners(self) -> dict[str, Callable[[Any], None]]:
        return {"console": self._logged, "weberror": self._failed, "request": self._requested, "dialog": self._asked}

    def _complain(self, text: str) -> None:
        if not any(re.search(pattern, text) for pattern in self._accepts):
            self.complaints.append(text)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complain(f"{message.text} ({message.location.get('url', '')})")

    def _failed(self, error: WebError) -> None:
        self._complain(f"uncaught: {error.error}")

    def _asked(self, dialog: Dialog) -> None:
        self._complain(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(self._origins):
            self._complain(f"another origin: {request.url}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for context in self._contexts:
            if context is _shared.get(self._browser):
                self._forget(context)
            else:
                context.close()
        assert error[0] is not None or not self.complaints, self.complaints

    def _forget(self, context: BrowserContext) -> None:
        """Close the pages of the shared context, and remove what they have stored."""
        for event, listener in self._listeners.items():
            context.remove_listener(event, listener)
        for page in context.pages:
            with suppress(Error):  # a page without an origin has no storage
                page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.close()
        context.clear_cookies()


def settle(page: Page) -> None:
    """Wait until the page shows all that it asks for at first, also after a login."""
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_load_state("networkidle")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def load(page: Page, url: str) -> None:
    """Load the address again in the same browser, and wait until it is shown."""
    page.goto("about:blank")
    page.goto(url)
    settle(page)


def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds wrong with a page by these rules, or by all, a line each."""
    options: dict[str, Any] = {"resultTypes": ["violations"], "elementRef": False, "selectors": False}
    if rules:
        options["runOnly"] = list(rules)
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE_SCRIPT)
    lines = "(all) => all.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html}`))"
    found: list[str] = page.evaluate(f"(options) => axe.run(options).then({lines})", options)
    return found


def resize(page: Page, width: int, height: int) -> None:
    """Give the page another size, and wait for its charts, which follow a frame or more later."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function(
        """() => [...document.querySelectorAll(".u-wrap")].every((one) => one.getBoundingClientRect().right <= innerWidth)"""
    )


def too_wide(page: Page) -> list[str]:
    """What is outside of the page on the left or right, though no part of the page scrolls to it; and what makes it scroll."""
    found: list[str] = page.evaluate(
        """() => {
          const hides = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
          const scrolls = (one) => one && (hides(one) || scrolls(one.parentElement));
          const wide = document.documentElement.clientWidth;
          const all = [...document.querySelectorAll("body *")].filter((one) => {
            const { left, right, width } = one.getBoundingClientRect();
            return width > 1 && (right > wide + 0.5 || left < -0.5) && !one.matches(".skip") && !scrolls(one.parentElement);
          });
          const outside = all.map((one) => one.outerHTML.slice(0, 200));
          return document.documentElement.scrollWidth <= wide ? outside : ["the page scrolls sideways", ...outside];
        }"""
    )
    return found


def small_targets(page: Page) -> list[str]:
    """What a finger of 44 px would miss, each with its size. A link within a sentence may be as small as its words."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].flatMap((one) => {
          const target = one.matches("[type=checkbox], [type=radio]") ? (one.closest("label") ?? one) : one;
          const { width, height } = target.getBoundingClientRect();
          const words = [...one.parentElement.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
          const free = !one.checkVisibility() || one.matches(".skip") || (words && one.matches("a, button.link"));
          return free || (width > 43.5 && height > 43.5) ? [] : [`${width} × ${height}: ${one.outerHTML.slice(0, 200)}`];
        })"""
    )
    return found
