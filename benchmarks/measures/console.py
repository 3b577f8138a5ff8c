"""The console: the time until a page is usable, and the cost of open tabs for other callers.

A Chromium without a cache opens pages on loopback, with 100,000 pending messages and a running worker. A visible tab
requests the overview every 2 s. The requests of 50 tabs are sent without their browsers, and compared with the same time
without tabs.
"""

from __future__ import annotations

import gzip
import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, now, progress
from benchmarks.load.backlog import schedule_all
from benchmarks.load.messages import DAY, make, spread
from benchmarks.measures.footprint import count_requests
from benchmarks.results import LEFT_OUT, Figure, single
from benchmarks.running.processes import api, server, worker
from delayq import Client
from testbed import chromium
from testbed.errors import ServerMissing

FILES: Final = Path(__file__).resolve().parents[2] / "api" / "console"
MESSAGES: Final = 100_000
TABS: Final = 50
EVERY: Final = 2.0  # seconds
SECONDS: Final = 6.0
ROWS: Final = 1_000
#: Rows that fill the visible part of a page 900 px high, and some more.
SCREENFUL: Final = 30
GOALS_MS: Final = {"useful": 300, "rows": 100}
TABS_PERCENT: Final = 2
TABS_REQUESTS: Final = 20
SIZE_KB: Final = 60
#: Marks when these numbers of elements are on the screen for the first time, smaller numbers first.
_TELL: Final = """\
const counts = %s;
new MutationObserver((_, watching) => {
  const there = document.querySelectorAll("%s").length;
  while (there >= counts[0]) {
    const name = `shown ${counts.shift()}`;
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark(name)));
  }
  if (counts.length === 0) watching.disconnect();
}).observe(document, { subtree: true, childList: true });
"""
#: KB of the page's own files, without answers of the API.
_LOADED: Final = """\
["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
  .filter((one) => one.name.includes("/console/")).reduce((sum, one) => sum + one.encodedBodySize, 0) / 1024
"""
#: ms from entering the address, or from the arrival of the messages, until each mark.
_SINCE_ENTERED: Final = (
    "(names) => names.flatMap((name) => performance.getEntriesByName(name)).map((one) => one.startTime)"
)
_SINCE_ANSWERED: Final = """\
(names) => names.flatMap((name) => performance.getEntriesByName(name)).map((one) => one.startTime - Math.max(
  ...performance.getEntriesByType("resource")
    .filter((asked) => asked.name.includes("/v1/messages?") && asked.responseEnd < one.startTime)
    .map((asked) => asked.responseEnd)))
"""


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure pages in a browser, tabs without a browser, and the files."""
    details: dict[str, Any] = {}
    figures: list[Figure] = []
    with server() as running, worker(running.url), Client(running.url) as client, api(running.url) as (process, port):
        schedule_all(client, make(MESSAGES, spread(int(now()) + DAY, DAY)))
        try:
            with chromium.running() as browser:
                figures += _in_a_browser(browser, f"http://127.0.0.1:{port}/console/", scale)
        except ServerMissing as error:
            details[LEFT_OUT] = {"pages in a browser": str(error)}
        figures += _tabs(process.pid, port, running.url, scale)
    loaded = (path for path in FILES.rglob("*") if path.suffix in (".js", ".css", ".html"))
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded) / 1024
    return [*figures, single("all files, compressed", "KB", [size], goal=SIZE_KB)], details


def _in_a_browser(browser: Browser, url: str, scale: Scale) -> list[Figure]:
    runs = 3 * scale.runs
    useful = [_shown(browser, f"{url}#/overview", "main .value", [1], _SINCE_ENTERED) for _ in range(runs)]
    place = f"{url}#/messages?limit={ROWS}"
    rows = [_shown(browser, place, "main tbody tr", [SCREENFUL, ROWS], _SINCE_ANSWERED) for _ in range(runs)]
    come = f"{ROWS:,} messages that have come"
    return [
        single("the overview's first figure is seen", "ms", [first for (first,) in useful], goal=GOALS_MS["useful"]),
        single(f"{come}, a screenful is seen", "ms", [first for first, _ in rows], goal=GOALS_MS["rows"]),
        single(f"{come}, all are there", "ms", [last for _, last in rows]),
        single("files of the overview, compressed", "KB", [_loaded(browser, url)]),
    ]


def _shown(browser: Browser, url: str, selector: str, counts: list[int], told: str) -> list[float]:
    """The ms until each of these numbers of elements is on the screen."""
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        context.add_init_script(_TELL % (counts, selector))
        page = context.new_page()
        page.goto(url)
        deadline = time.monotonic() + 30
        while len(found := page.evaluate(told, [f"shown {count}" for count in counts])) < len(counts):
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{url} does not show {counts[-1]} elements {selector}")
            page.wait_for_timeout(10)
        return [float(one) for one in found]


def _loaded(browser: Browser, url: str) -> float:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        page.locator("main .value").first.wait_for()
        page.wait_for_load_state("networkidle")
        return float(page.evaluate(_LOADED))


def _tabs(pid: int, port: int, redis_url: str, scale: Scale) -> list[Figure]:
    shares, requests, answered = [], [], []
    for number in range(1, scale.runs + 1):
        found: dict[int, tuple[float, float]] = {}
        for tabs in (0, TABS):
            progress(f"console: {tabs} tabs for {SECONDS:.0f} s, run {number}")
            with ThreadPoolExecutor(1) as threads:
                meter = CpuMeter(api=pid)
                asking = threads.submit(_ask, port, tabs, SECONDS)
                asked = count_requests(redis_url, SECONDS)
                rate = asking.result() / SECONDS
                meter.end(1)
            found[tabs] = (100 * meter.seconds()["api"] / SECONDS, asked / SECONDS)
        shares.append(found[TABS][0] - found[0][0])
        requests.append(found[TABS][1] - found[0][1])
        answered.append({"answers/s": rate})
    return [
        single(f"{TABS} tabs, API's CPU", "% of a core", shares, goal=TABS_PERCENT, parts=answered),
        single(f"{TABS} tabs, requests to Redis", "/s", requests, goal=TABS_REQUESTS),
    ]


def _ask(port: int, tabs: int, seconds: float) -> int:
    """Send the requests of this many tabs, each on its own connection, evenly spread; return the number of answers."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(tabs)]
    began = time.monotonic()
    for turn in range(int(tabs * seconds / EVERY)):
        time.sleep(max(0.0, began + turn * EVERY / tabs - time.monotonic()))
        connection = connections[turn % tabs]
        connection.request("GET", "/v1/overview", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise BenchmarkError(f"the API answered {answer.status}")
    for connection in connections:
        connection.close()
    return int(tabs * seconds / EVERY)
