"""The checker, on histories made by hand: what is well passes, and each thing that is wrong is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reliability.chaos.checker import Verdict, check
from reliability.chaos.history import History

DUE = 1_800_000_000_000
WINDOW = 3


class Story:
    """Writes a history, a line a call; message 0 goes into a stream of the same Redis, message 1 by the general path."""

    def __init__(self, folder: Path, *, fault: bool = True) -> None:
        self.folder = folder
        self.history = History(folder)
        if fault:
            self.history.fault("kill-worker", "w0", seconds=1.0, done=True)

    def say(self, what: str, *of: Any) -> Story:
        self.history.say(what, of)
        return self

    def accepted(self, n: int = 0, due: int | None = DUE) -> Story:
        return self.say("schedule", (n, n % 2, DUE)).say("scheduled", (n, due, 0))

    def forwarded(self, n: int = 0, at: int = DUE, id: str = "") -> Story:
        self.history.forwarded(("stream.0", "general.0")[n % 2], [(at, id or str(n), DUE, 1)])
        return self

    def ends(self) -> Verdict:
        self.history.close()
        return check(self.folder, window=WINDOW)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


GOOD: dict[str, Callable[[Story], Any]] = {
    "forwarded at its due": lambda story: story.accepted().forwarded(),
    "forwarded late": lambda story: story.accepted().forwarded(at=DUE + 60_000),
    "cancelled for certain, and never forwarded": lambda story: (
        story.accepted(1).forwarded(1).accepted().say("ended", (0, "cancelled"))
    ),
    "cancelled in flight, and not forwarded": lambda story: (
        story.accepted(1).forwarded(1).accepted().say("ended", (0, "inFlight"))
    ),
    "cancelled in flight, and forwarded": lambda story: story.accepted().say("ended", (0, "inFlight")).forwarded(),
    "a cancel without an answer, and not forwarded": lambda story: (
        story.accepted(1).forwarded(1).accepted().say("ended", (0, "unknown"))
    ),
    "a schedule without an answer, and not forwarded": lambda story: (
        story.accepted(1).forwarded(1).say("schedule", (0, 0, DUE))
    ),
    "a schedule without an answer, and forwarded": lambda story: story.say("schedule", (0, 0, DUE)).forwarded(),
    "delivered before the schedule was answered": lambda story: story.accepted(due=None).forwarded(),
    "moved back, and forwarded then": lambda story: (
        story.accepted().say("move", (0, DUE + 500)).say("moved", (0, DUE + 500)).forwarded(at=DUE + 500)
    ),
    "moved forward, and forwarded then": lambda story: (
        story.accepted().say("move", (0, DUE - 500)).say("moved", (0, DUE - 500)).forwarded(at=DUE - 500)
    ),
    "a move without an answer, which was made": lambda story: (
        story.accepted().say("move", (0, DUE - 500)).say("doubt", (0, DUE - 500)).forwarded(at=DUE - 500)
    ),
    "a move without an answer, which was made after a later one": lambda story: (
        story.accepted().say("doubt", (0, DUE - 500)).say("moved", (0, DUE + 500)).forwarded(at=DUE - 500)
    ),
    "a move that was refused": lambda story: story.accepted().say("unmoved", (0, DUE + 500)).forwarded(),
    "doubled by the general path": lambda story: story.accepted(1).forwarded(1).forwarded(1),
    "an id with the suffix of an ordering key": lambda story: story.accepted().forwarded(id="0.ab3f"),
}

WRONG: dict[str, tuple[str, Callable[[Story], Any]]] = {
    "never forwarded": ("lost", lambda story: story.accepted(1).forwarded(1).accepted()),
    "said to be delivered, and never forwarded": (
        "lost", lambda story: story.accepted(1).forwarded(1).accepted().say("ended", (0, "delivered")),
    ),
    "a cancel without an answer, and then 'delivered', and never forwarded": (
        "lost",
        lambda story: story.accepted(1).forwarded(1).accepted().say("ended", (0, "unknown")).say("ended", (0, "delivered")),
    ),
    "forwarded 1 ms before its due": ("early", lambda story: story.accepted().forwarded(at=DUE - 1)),
    "forwarded early after it was forwarded": (
        "early", lambda story: story.accepted(1).forwarded(1).forwarded(1, at=DUE - 1),
    ),
    "of an unknown schedule, forwarded before it could be due": (
        "early", lambda story: story.say("schedule", (0, 0, DUE)).forwarded(at=DUE - 1),
    ),
    "moved back, and forwarded at the old due": (
        "early", lambda story: story.accepted().say("move", (0, DUE + 500)).say("moved", (0, DUE + 500)).forwarded(),
    ),
    "refused to move forward, and forwarded before both dues": (
        "early", lambda story: story.accepted().say("unmoved", (0, DUE - 500)).forwarded(at=DUE - 501),
    ),
    "forwarded after a certain cancel": (
        "hard-cancel violations", lambda story: story.accepted().say("ended", (0, "cancelled")).forwarded(),
    ),
    "forwarded after a cancel that was repeated until it was certain": (
        "hard-cancel violations",
        lambda story: story.accepted().say("ended", (0, "unknown")).say("ended", (0, "cancelled")).forwarded(),
    ),
    "doubled by the one script": ("doubled by the one script", lambda story: story.accepted().forwarded().forwarded()),
    "never scheduled": ("never scheduled", lambda story: story.accepted().forwarded().forwarded(id="17")),
    "not even an id of ours": ("never scheduled", lambda story: story.accepted().forwarded().forwarded(id="strange")),
    "an answer that must not be": (
        "odd answers", lambda story: story.accepted().forwarded().say("odd", (0, {"status": 409})),
    ),
    "a request fails in the API": (
        "odd answers",
        lambda story: story.accepted().forwarded().say("odd", (-1, "PATCH /v1/messages/0", 500)),
    ),
    "a cancel of what was accepted finds nothing": (
        "odd answers", lambda story: story.accepted().forwarded().say("ended", (0, "notFound")),
    ),
    "nothing was delivered": ("nothing was delivered", lambda story: story.say("schedule", (0, 0, DUE))),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_is_well_passes(name: str, story: Story) -> None:
    GOOD[name](story)
    assert story.ends().wrong == {}


@pytest.mark.parametrize("name", WRONG)
def test_a_history_with_something_wrong_fails(name: str, story: Story) -> None:
    what, tell = WRONG[name]
    tell(story)
    verdict = story.ends()
    assert verdict.wrong.keys() == {what}


def test_as_many_duplicates_as_one_fault_explains_pass_and_one_more_does_not(story: Story) -> None:
    story.accepted(1)
    for _ in range(1 + WINDOW):
        story.forwarded(1)
    assert story.ends().wrong == {}
    again = Story(story.folder)
    again.accepted(1)
    for _ in range(2 + WINDOW):
        again.forwarded(1)
    assert again.ends().wrong == {"duplicates over the bound": 1}


def test_a_run_without_a_fault_fails(tmp_path: Path) -> None:
    story = Story(tmp_path, fault=False)
    story.history.fault("kill-worker", "", done=False)
    story.history.fault("pause-worker", "w1", done="healed")
    story.accepted().forwarded()
    assert story.ends().wrong == {"no fault was injected": True}


def test_a_schedule_without_an_outcome_is_counted_apart(story: Story) -> None:
    story.accepted().forwarded().say("schedule", (5, 1, DUE))
    verdict = story.ends()
    assert (verdict.messages, verdict.unknown) == (1, 1)


def test_the_last_line_counts(story: Story) -> None:
    story.accepted(0).accepted(1).accepted(2).accepted(3).accepted(4)
    story.say("ended", (0, "cancelled"), (2, "inFlight"))
    story.forwarded(0).forwarded(1, at=DUE - 1).forwarded(1)
    verdict = story.ends()
    assert verdict.line == ("messages 5, faults 1, lost 2, early 1, hard-cancel violations 1, duplicates 1 (20.000 %)")
    assert (verdict.forwarded, verdict.cancelled, verdict.unknown) == (2, 1, 0)
    assert verdict.examples["lost"] == [[3, "general", DUE], [4, "stream", DUE]]
