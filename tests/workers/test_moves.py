"""The life of a message is the table `MOVES`: each move is in it, and what is counted follows."""

from __future__ import annotations

import random
import re

import pytest

import workers.queue.in_flight
from delayq.targets import OK, Result
from tests.workers.one_queue import OneQueue
from workers.queue.in_flight import MOVES
from workers.sending.message import Stage


def test_every_stage_is_drawn_and_can_be_reached() -> None:
    drawing = (workers.queue.in_flight.__doc__ or "").partition("```text")[2].partition("```")[0]
    assert set(re.findall(r"[A-Z_]{4,}", drawing)) == {stage.name for stage in Stage}
    assert set(MOVES) == set(Stage)
    reached, found = {Stage.PULLED}, {Stage.PULLED}
    while found:
        found = {after for stage in found for after in MOVES[stage]} - reached
        reached |= found
    assert reached == set(Stage)
    ends = {stage for stage in Stage if not MOVES[stage]}
    assert ends == {Stage.GONE}


@pytest.mark.parametrize("seed", range(20))
def test_on_any_walk_through_the_table_the_weight_being_sent_is_counted_and_no_other_move_is_made(
    world: OneQueue, seed: int
) -> None:
    dice = random.Random(seed)
    world.add_many((f"m{number}" for number in range(8)), topic="g.t")
    hand = world.take_over()
    hand.tick()
    hand.tick()
    work = hand.job.in_flight
    share = work.shares["general"]
    messages = list(work.messages.values())
    assert len(messages) == 8
    assert {message.stage for message in messages} == {Stage.SENDING}
    for message in messages:
        message.weight = dice.randint(1, 9)
    share.sending = sum(message.weight for message in messages)
    walked = [message for message in messages if message.stage is not Stage.GONE]
    while walked:
        message = dice.choice(walked)
        before, after = message.stage, dice.choice(list(Stage))
        if after in MOVES[before]:
            work._move([message], after)
            assert message.stage is after
        else:
            with pytest.raises(AssertionError, match=f"from {before.value} to {after.value}"):
                work._move([message], after)
            assert message.stage is before
        assert share.sending == sum(one.weight for one in messages if one.stage is Stage.SENDING)
        walked = [message for message in messages if message.stage is not Stage.GONE]
    assert share.sending == 0


def test_messages_of_all_outcomes_make_moves_that_are_in_the_table(world: OneQueue) -> None:
    made: set[tuple[Stage, Stage]] = set()
    hand = world.take_over()
    move = hand.job.in_flight._move

    def watched(batch: list[object], to: Stage) -> None:
        made.update((message.stage, to) for message in batch)  # type: ignore[attr-defined]  # they are messages
        move(batch, to)  # type: ignore[arg-type]  # they are messages

    hand.job.in_flight._move = watched  # type: ignore[method-assign,assignment]  # it only looks
    answers = [OK, Result.rejected("no"), Result.unknown("?"), Result.unavailable("away")]
    for number in range(60):
        world.add(f"m{number:02}", at=number * 10, ordering_key="k" if number % 2 else "")
    dice = random.Random(1)
    hand.run(3_000, lambda held: dice.choice(answers))
    hand.run(120_000, lambda held: OK)
    assert world.records() == {} or world.dead()
    assert all(after in MOVES[before] for before, after in made)
    assert {
        (Stage.PULLED, Stage.WAITING), (Stage.WAITING, Stage.SENDING), (Stage.SENDING, Stage.RETURNED),
        (Stage.RETURNED, Stage.ACKING), (Stage.RETURNED, Stage.SETTLING), (Stage.SETTLING, Stage.BACKING_OFF),
        (Stage.ACKING, Stage.GONE), (Stage.SETTLING, Stage.GONE), (Stage.BACKING_OFF, Stage.GONE),
    } <= made  # fmt: skip
