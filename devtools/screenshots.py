"""`python -m devtools.screenshots`: the pictures of the console in docs/images, of a `./dev up --demo` that runs for
them.

It takes as many minutes as the charts show, and a Chromium (apt install chromium).
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, Literal

from PIL import Image
from playwright.sync_api import Browser

from delayq.embedded.processes import LOCALHOST, free_port
from devtools.calls import get_status
from testbed import chromium
from testbed.errors import ServerMissing

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs" / "images"
SIZE: Final = (1440, 900)
COLOURS: Final = 128
#: The largest picture that the page of a repository loads quickly.
MOST_BYTES: Final = 150_000
#: The charts of the overview show this time. At its end the demo's bank has been closed again for a while.
MINUTES: Final = 10.4
START_SECONDS: Final = 90.0


@contextmanager
def demo(minutes: float) -> Iterator[str]:
    """The address of a demo that has run for so long."""
    port = free_port()
    command = [sys.executable, "-m", "devtools.up", "--demo", "--api-port", str(port), "--redis-port", str(free_port())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        api = f"http://{LOCALHOST}:{port}"
        ends = time.monotonic() + START_SECONDS
        try:
            while get_status(f"{api}/readyz")[0] != 200:
                if time.monotonic() > ends or running.poll() is not None:
                    sys.exit("screenshots: the demo did not start; ./dev up --demo shows the reason")
                time.sleep(0.2)
            print(f"the demo runs for {minutes} minutes", flush=True)
            time.sleep(minutes * 60)
            yield api
        finally:
            running.terminate()


def picture(browser: Browser, url: str, scheme: Literal["light", "dark"]) -> bytes:
    """A page as a small PNG."""
    width, height = SIZE
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        locale="en-US",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(url)
        page.get_by_role("heading", level=1).wait_for()
        page.get_by_text(re.compile("^As of")).first.wait_for()
        page.wait_for_timeout(3_000)  # what else comes has come
        image = Image.open(io.BytesIO(page.screenshot()))
    finally:
        context.close()
    small = io.BytesIO()
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def main() -> None:
    """Take them, and say how large they are."""
    parser = argparse.ArgumentParser(prog="python -m devtools.screenshots", description=__doc__)
    parser.add_argument("--api", metavar="URL", help="of a demo that runs, instead of one that is started")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long the demo runs before ({MINUTES})")
    parser.add_argument("--page", default="overview", help="what is behind #/ in the address (overview)")
    parser.add_argument("--name", default="console", help="how the files begin (console)")
    options = parser.parse_args()
    try:
        chromium.find()
    except ServerMissing as error:
        sys.exit(f"screenshots: {error}")
    with nullcontext(options.api) if options.api else demo(options.minutes) as api:
        take(api, options.page, options.name)


def take(api: str, page: str, name: str) -> None:
    """One light, one dark."""
    IMAGES.mkdir(exist_ok=True)
    with chromium.running() as browser:
        for scheme in ("light", "dark"):
            file = IMAGES / f"{name}-{scheme}.png"
            file.write_bytes(made := picture(browser, f"{api}/console/#/{page}", scheme))
            print(f"{file.relative_to(ROOT)}: {len(made):,} bytes", flush=True)
            if len(made) > MOST_BYTES:
                sys.exit(f"screenshots: that is more than {MOST_BYTES:,}")


if __name__ == "__main__":
    main()
