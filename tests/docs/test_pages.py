"""The checks of pages in ./dev check find what they are for."""

from __future__ import annotations

import pytest

from devtools.checks import links, words
from devtools.pages import DOCS, PAGES


def test_a_page_that_the_index_does_not_list_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(links.index_is_complete()) == []
    monkeypatch.setattr(links, "PAGES", [*PAGES, DOCS / "tasks" / "new.md"])
    (complaint,) = links.index_is_complete()
    assert complaint.startswith("docs/README.md:1: it does not list tasks/new.md: ")


def test_a_page_that_is_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(words.PAGE_WORDS, "docs/keys.md", 100)
    (complaint,) = words.complaints()
    assert complaint.startswith("docs/keys.md:1: it has ") and "100 at most" in complaint
