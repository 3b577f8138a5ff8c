"""The console's files: served under any prefix, kept by browsers, and allowed to load nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import httpx2

from api.routes.console import FOLDER, console_handlers
from api.routes.files import KINDS
from delayq.config import Settings
from tests.api.conftest import Serving, assert_refused


def loaded(page: httpx2.Response) -> list[str]:
    """What the page loads, by paths."""
    found = re.findall(r'(?:src|href)="((?!data:)[^"]+)"', page.text)
    return [urljoin("/console/", one) for one in found]


async def test_the_page_loads_files_that_a_browser_keeps(api: httpx2.AsyncClient) -> None:
    page = await api.get("/console/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert page.headers["x-frame-options"] == "DENY"
    sources = loaded(page)
    assert sources
    for source in sources:
        assert re.fullmatch(r"/console/[0-9a-f]{12}/[^?]+", source)
        there = await api.get(source)
        assert there.status_code == 200
        assert there.headers["content-type"] in ("text/javascript; charset=utf-8", "text/css; charset=utf-8")
        assert there.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert there.headers["x-content-type-options"] == "nosniff"
        other = re.sub("/[0-9a-f]{12}/", "/000000000000/", source)
        assert_refused(await api.get(other), 404)


async def test_the_page_runs_its_own_files_and_speaks_to_its_own_host(api: httpx2.AsyncClient) -> None:
    """H14: The console's scripts run under Trusted Types."""
    policy = (await api.get("/console/")).headers["content-security-policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )


async def test_the_runbook_to_which_findings_lead_is_served_beside_the_page(api: httpx2.AsyncClient) -> None:
    here = loaded(await api.get("/console/"))[0].split("/")[2]
    answer = await api.get(f"/console/{here}/docs/runbook.md")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    assert "## DelayqLate\n" in answer.text


async def test_what_a_browser_has_is_not_sent_again(api: httpx2.AsyncClient) -> None:
    page = await api.get("/console/")
    for path in ("/console/", loaded(page)[0], "/docs", "/openapi.json"):
        tag = (await api.get(path)).headers["etag"]
        for known in (tag, f'"other", {tag}', "*"):
            again = await api.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
            assert again.headers["cache-control"]
            assert "content-length" not in again.headers
        assert (await api.get(path, headers={"If-None-Match": 'W/"other"'})).status_code == 200


async def test_files_are_compressed_for_clients_that_accept_it(api: httpx2.AsyncClient) -> None:
    plain = await api.get("/console/", headers={"Accept-Encoding": "identity"})
    for accepted, zipped in (
        ("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("gzip;q=0", False), ("gzip; q=0.0, br", False), ("br", False),
    ):  # fmt: skip
        answer = await api.get("/console/", headers={"Accept-Encoding": accepted})
        assert (answer.headers.get("content-encoding") == "gzip") is zipped, accepted
        assert answer.headers["vary"] == plain.headers["vary"] == "accept-encoding"
        assert answer.content == plain.content


async def test_the_address_alone_leads_to_the_console_under_any_prefix(api: httpx2.AsyncClient) -> None:
    for path in ("/", "/console"):
        answer = await api.get(path)
        assert answer.status_code == 307
        for prefix in ("", "/ops/delayq"):
            assert urljoin(prefix + path, answer.headers["location"]) == f"{prefix}/console/"


async def test_no_path_leads_out_of_where_the_console_lies(api: httpx2.AsyncClient) -> None:
    here = loaded(await api.get("/console/"))[0].rpartition("/")[0]
    for path in (f"{here}/%2e%2e/app.py", f"{here}/..%2f..%2fapp.py", f"{here}/", f"{here}/index.html", "/console//"):
        assert_refused(await api.get(path), 404)


async def test_without_a_console_there_are_no_files_of_it(settings: Settings, asgi: Serving) -> None:
    async with asgi(settings.replace(console="no")) as api:
        for path in ("/console/", "/console"):
            assert_refused(await api.get(path), 404)
        assert (await api.get("/")).headers["location"] == "docs"


async def test_a_head_has_no_body_on_a_socket(settings: Settings, socket: Serving) -> None:
    async with socket(settings) as api:
        whole = await api.get("/console/", headers={"Accept-Encoding": "identity"})
        head = await api.head("/console/", headers={"Accept-Encoding": "identity"})
        assert head.content == b""
        assert head.headers == whole.headers | {"date": head.headers["date"]}
        # The same connection answers what comes next: nobody waits for a body that is none.
        again = await api.get("/console/", headers={"If-None-Match": whole.headers["etag"]})
        assert again.status_code == 304
        assert (await api.post("/console/", json={})).status_code == 405


async def test_a_browser_gets_no_comments_and_every_line_in_its_place(asgi: Serving, settings: Settings) -> None:
    async with asgi(settings) as api:
        base = loaded(await api.get("/console/"))[0].split("/")[2]
        for name in ("app.js", "console.css", "vendor/uPlot.iife.min.js"):
            sent, kept = (await api.get(f"/console/{base}/{name}")).text, (FOLDER / name).read_text()
            if name.startswith("vendor/"):
                assert sent == kept
                continue
            both = list(zip(sent.split("\n"), kept.split("\n"), strict=True))
            assert all(one in (line, "") for one, line in both), name
            assert not re.search(r"^\s*(//|/\*\*)", sent, re.MULTILINE), name
            assert sum(one != "" for one, _ in both) > len(both) / 2, name


def test_another_file_is_another_path(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="assets/parts/a.js"></script>')
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.js").write_text("1")
    (tmp_path / "parts" / "a.js.swp").write_text("not one of them")
    before = list(console_handlers(tmp_path, tmp_path / "none"))
    (tmp_path / "parts" / "a.js").write_text("2")
    after = list(console_handlers(tmp_path, tmp_path / "none"))
    assert [path.replace(before[-1].split("/")[2], "") for path in before][-1] == "/console//parts/a.js"
    assert before[-1] != after[-1]
    assert before[:-1] == after[:-1]


def test_every_file_of_the_console_is_served_but_declarations_of_types() -> None:
    assert {path.suffix for path in FOLDER.rglob("*") if path.is_file()} <= {*KINDS, ".ts"}
