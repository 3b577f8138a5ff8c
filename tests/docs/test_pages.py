"""What the pages have to name, so that they are not left behind by the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from delayq.message import State
from delayq.store import scripts
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
WORDS = {
    "ack", "bury", "cancel", "circuit", "due", "epoch", "exposed", "forward", "fresh", "generation", "lane",
    "message", "node", "offset", "owner", "park", "pool", "pull", "queue", "record", "redrive", "reschedule",
    "retry", "route", "schedule", "score", "target", "ticket", "topic", "wake", "watermark", "window",
}  # fmt: skip


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    names = re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(names) == 2
    for name in names:
        picture = (ROOT / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and int.from_bytes(picture[16:20]) == 1440
        assert len(picture) <= 150_000


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_says_what_why_and_what_it_costs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    assert re.findall(r"^\*\*(\w+)[^*]*\*\*", text, re.MULTILINE)[:3] == ["Decided", "Why", "Costs"]


def test_decisions_are_numbered_without_gaps() -> None:
    for number, page in enumerate(DECISIONS, start=1):
        assert page.name.startswith(f"{number:04d}-")
        assert page.read_text(encoding="utf-8").startswith(f"# {number}. ")


def test_the_glossary_is_in_order_and_has_every_word() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- \*\*(.+?)\*\* — ", text, re.MULTILINE)
    assert entries == sorted(entries)
    assert WORDS - set(re.findall(r"\*\*(.+?)\*\*", text)) == set()


@pytest.mark.parametrize("name", scripts.NAMES)
def test_the_protocol_says_what_each_script_is_for(name: str) -> None:
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert name in {word for heading in headings for word in re.split(r", | and ", heading)}


def test_the_protocol_names_the_scripts_whose_answers_are_promises() -> None:
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    section = text.split("\n### barrier, and waiting for replicas or the disk\n")[1].split("\n### ")[0]
    among = re.search(r"`@promise` \(([^)]*)\)", section)
    assert among is not None
    assert set(re.findall(r"`(\w+)`", among[1])) == {name for name in scripts.NAMES if scripts.load(name).promise}


def test_the_protocol_says_what_each_state_is() -> None:
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    states = [value for name, value in vars(State).items() if name.isupper()]
    assert len(states) == 11
    assert [state for state in states if f"`{state}`" not in text] == []
