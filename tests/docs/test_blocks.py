from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks_of, matches
from tests.docs.story import RUNNABLE, Story

#: Languages of blocks that are only to be read.
READ_ONLY = ("text", "http")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run_here(block: Block) -> bool:
    return block.language in RUNNABLE and not block.note.startswith("run by ")


def with_blocks() -> list[Path]:
    return [page for page in PAGES if any(map(is_run_here, blocks_of(page)))]


@pytest.mark.parametrize("page", with_blocks(), ids=name_of)
def test_the_page_is_a_story_that_works(page: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    if any("curl " in block.text for block in blocks if is_run_here(block)) and shutil.which("curl") is None:
        pytest.skip("no curl on PATH: install it (apt install curl)")
    story = Story(request.getfixturevalue("service"), tmp_path)
    for block in blocks:
        if not block.note.startswith("run by "):
            story.run(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_says_where_it_is(page: Path) -> None:
    for block in blocks_of(page):
        verb, _, rest = block.note.partition(" by ")
        if verb == "run":
            named = ROOT / rest
            assert rest.startswith("tests/"), f"{block}: {rest} is no test"
            assert named.is_file() or any(named.glob("test_*.py")), f"{block}: there is no {rest}"
        elif not block.note:
            known = block.language in (*RUNNABLE, *READ_ONLY)
            assert known, f"{block}: say above it what is done with it (tests/docs/blocks.py)"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ('{"a": "2026-01-01T00:00:00.000Z"}', '{"a": "2027-12-31T01:02:03.004Z"}', True),
        ('{"a": "2026-01-01T00:00:00.000Z"}', '{"a": "soon"}', False),
        ('{"a": 1795231869443, "b": 1}', '{"b":1,"a":1895231869443}', True),
        ('{"a": 1}', '{"a": 2}', False),
        ('{"a": 1}', '{"a": 1, "b": 2}', False),
        ('{"id": "….1f"}', '{"id": "0P.1f"}', True),
        ('{"id": "….1f"}', '{"id": "0P.2f"}', False),
        ("one …\n", "one two\n", True),
        ("one …\n", "two\n", False),
        ("a+b\n", "aab\n", False),
    ],
)
def test_what_is_printed_is_compared_with_what_is_shown(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
