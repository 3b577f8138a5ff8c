"""Every command in README.md and docs/ does what the page shows. ./dev check finds blocks that no test runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.embedded import EmbeddedServer
from delayq.store.keys import KEYS
from devtools.checks.links import RUNNABLE
from tests.docs.blocks import PAGES, ROOT, blocks_of, matches
from tests.docs.story import Service, Story
from tests.support import service as processes
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

BLOCKS = {page: [block for block in blocks_of(page) if not block.note.startswith("run by ")] for page in PAGES}
#: What a new user reads, in this order, with one delayq. Later pages show figures of all messages, which others would change.
READ_FIRST = (
    "README.md", "docs/tasks/schedule.md", "docs/tasks/cancel.md", "docs/tasks/watch.md", "docs/tasks/receive.md",
    "docs/http.md", "docs/python.md", "docs/hand-back.md", "docs/targets-streams.md",
)  # fmt: skip
STORIES = [page for page, blocks in BLOCKS.items() if any(block.language in RUNNABLE for block in blocks)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One delayq for all pages: an embedded Valkey, a worker and the API, as ./dev up starts them."""
    folder = tmp_path_factory.mktemp("delayq")
    with EmbeddedServer(data_dir=folder / "valkey") as server, processes.Service(folder, server.url) as started:
        yield Service(started.url, server.url)


@pytest.fixture
def service(running: Service) -> Service:
    """The running delayq, without messages and policies. It keeps its queues and its worker's last report, or it is not ready."""
    client: Any
    with redis.Redis.from_url(running.redis_url, protocol=2) as client:
        born = {key: client.hget(key, "born") for key in client.keys("delayq:{*}:state")}
        lines = eventually(lambda: client.hgetall(KEYS.nodes), "the worker has reported")
        had_policies = client.hget(KEYS.policies, "version") is not None
        client.flushall()
        client.hset(KEYS.nodes, mapping=lines)
        for key, moment in born.items():
            if moment is not None:
                client.hset(key, "born", moment)
        if had_policies:  # the worker sees that they are lost, and brings a later version of none to each queue
            eventually(lambda: client.hget(KEYS.policies, "version"), "the worker has set later policies")
            version = client.hget(KEYS.policies, "version")
            first_layout = [f"delayq:{{{number}}}:state" for number in range(16)]
            eventually(
                lambda: {client.hget(key, "policies") for key in first_layout} == {version}, "each queue has them"
            )
    return running


@pytest.mark.parametrize("page", STORIES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_is_a_story_that_works(page: Path, service: Service, tmp_path: Path) -> None:
    if any("curl " in block.text for block in BLOCKS[page]) and shutil.which("curl") is None:
        pytest.skip("no curl on PATH: install it (apt install curl)")
    story = Story(service, tmp_path)
    for block in BLOCKS[page]:
        story.run(block)


def test_a_reader_who_pastes_every_example_of_the_first_pages_gets_what_each_shows(
    service: Service, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on PATH: install it (apt install curl)")
    for page in (ROOT / name for name in READ_FIRST):
        assert page in BLOCKS
        story = Story(service, tmp_path)
        for block in BLOCKS[page]:
            story.run(block)


def test_printed_text_is_compared_with_what_the_page_shows() -> None:
    same = {
        '{"a": "2026-01-01T00:00:00.000Z"}': '{"a": "2027-12-31T01:02:03.004Z"}',
        '{"a": 1795231869443, "b": 1}': '{"b":1,"a":1895231869443}',
        '{"id": "….1f"}': '{"id": "0P.1f"}',
        "one …\n": "one two\n",
    }
    different = {
        '{"a": "2026-01-01T00:00:00.000Z"}': '{"a": "soon"}',
        '{"a": 1}': '{"a": 2}',
        '{"a": 1, "b": 2}': '{"a": 1}',
        '{"id": "….1f"}': '{"id": "0P.2f"}',
        "one …\n": "two\n",
        "a+b\n": "aab\n",
    }
    assert all(matches(*pair) for pair in same.items())
    assert not any(matches(*pair) for pair in different.items())
