"""A Chromium of this machine, driven by Playwright, which reaches nothing but this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from testbed.errors import ServerMissing

#: Its names on different systems; the first that exists counts.
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: A name that is not this machine's own and leads to it all the same.
REBOUND: Final = "rebound.test"
_ARGUMENTS: Final = (
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-proxy-server",
)


def find() -> str:
    """The program; raises ServerMissing."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise ServerMissing("there is no Chromium on PATH: install it (apt install chromium)")
    return found


@contextmanager
def running() -> Iterator[Browser]:
    """A running Chromium. Meanwhile this thread can run no event loop of its own. Raises ServerMissing."""
    program = find()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
