"""docs/spark.md, and what docs/cli.md has of Spark: the blocks run in order and print what is shown."""

from __future__ import annotations

import contextlib
import io
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, Given
from tests.docs.blocks import ROOT, blocks_of, matches
from tests.docs.story import REDIS

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

FILES = ("orders.csv", "rejected", "differences", "pending")
NOTE = "run by tests/backfill/test_page.py"


@pytest.fixture
def utc(spark: Any) -> Iterator[None]:
    """The page's times are in UTC, and the machine of Spark's tests is somewhere else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_the_page_is_a_story_that_works(cli: Cli, given: Given, spark: Any, tmp_path: Path) -> None:
    printed, ran = "", 0
    for block in blocks_of(ROOT / "docs" / "spark.md"):
        verb, _, rest = block.note.partition(" ")
        if verb == "file":
            (tmp_path / rest).write_text(block.text, encoding="utf-8")
        elif verb == "prints":
            assert matches(block.text, printed), f"{block}: this was printed instead:\n{printed}"
        elif block.note == NOTE and block.language == "bash":
            done = cli(*_words(block.text, tmp_path))
            assert done.code in (0, 1), f"{block}: {done.err}"
            printed, ran = done.out.replace(f"{tmp_path}/", ""), ran + 1
        elif block.note == NOTE:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(REDIS.sub(given.url, block.text), {"spark": spark})
            assert out.getvalue() == "[Row(id='unpaid-1', topic='a', body='')]\n"
            ran += 1
    assert ran == 7
    (block,) = (block for block in blocks_of(ROOT / "docs" / "cli.md") if block.note == NOTE)
    assert cli(*_words(block.text, tmp_path)).code == 1


def _words(text: str, folder: Path) -> list[str]:
    """The words of a command; files are where the test has them, for Spark runs somewhere else."""
    return [str(folder / word) if word in FILES else word for word in shlex.split(text.replace("\\\n", " "))[1:]]
