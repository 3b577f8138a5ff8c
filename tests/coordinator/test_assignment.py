"""Queues are spread evenly, by every node alike, and a join or a leave moves as few as can be."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignment import preferred

NAMES = st.text("abcdefghij-0123456789", min_size=1, max_size=12)
NODES = st.sets(NAMES, min_size=1, max_size=12)
QUEUES = st.integers(0, 40).map(range)


@st.composite
def settled(draw: st.DrawFn) -> tuple[range, set[str], dict[int, str]]:
    """Queues, nodes, and who owns what after some of them joined and others left, in whatever order."""
    queues, nodes = draw(QUEUES), draw(NODES)
    owners: dict[int, str] = {}
    for others in draw(st.lists(NODES, max_size=4)):
        owners = preferred(queues, others, owners)
    return queues, nodes, preferred(queues, nodes, owners)


def loads(chosen: Mapping[int, str], nodes: set[str]) -> list[int]:
    counted = Counter(chosen.values())
    return sorted(counted[node] for node in nodes)


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> set[int]:
    return {queue for queue in before if before[queue] != after[queue]}


def least_moves(owners: Mapping[int, str], nodes: set[str]) -> int:
    """How many queues have to move so that loads differ by at most one: by trying every way to share the remainder."""
    share, over = divmod(len(owners), len(nodes))
    has = Counter(owners.values())
    gains = sorted((min(has[node], share + 1) - min(has[node], share) for node in nodes), reverse=True)
    return len(owners) - sum(min(has[node], share) for node in nodes) - sum(gains[:over])


@given(QUEUES, NODES, st.dictionaries(st.integers(0, 60), NAMES), st.randoms())
def test_every_queue_has_one_of_the_nodes_and_loads_differ_by_at_most_one_whoever_owns_what_in_whatever_order(
    queues: range, nodes: set[str], owners: dict[int, str], random: Random
) -> None:
    for chosen in (preferred(queues, nodes), preferred(queues, nodes, owners)):
        assert list(chosen) == list(queues)
        assert set(chosen.values()) <= nodes
        assert loads(chosen, nodes)[-1] - loads(chosen, nodes)[0] <= 1
    shuffled_queues, shuffled_nodes = list(queues), list(nodes)
    random.shuffle(shuffled_queues)
    random.shuffle(shuffled_nodes)
    assert preferred(shuffled_queues, shuffled_nodes, owners) == chosen
    assert preferred(queues, [], owners) == {}


@given(settled(), st.data())
def test_any_change_of_nodes_moves_the_least_that_balance_forces_and_then_nothing_more(
    world: tuple[range, set[str], dict[int, str]], data: st.DataObject
) -> None:
    """For a join the least is the share of the newcomer, for a leave what the node had that left."""
    queues, nodes, owners = world
    assert preferred(queues, nodes, owners) == owners
    left = data.draw(st.sets(st.sampled_from(sorted(nodes)), max_size=2))
    changed = nodes - left | data.draw(st.sets(NAMES, min_size=left >= nodes, max_size=2))
    after = preferred(queues, changed, owners)
    assert len(moved(owners, after)) == least_moves(owners, changed)
    assert preferred(queues, changed, after) == after


@given(settled(), NODES, st.randoms())
def test_a_hand_over_that_is_half_done_goes_on_to_where_it_was_going(
    world: tuple[range, set[str], dict[int, str]], nodes: set[str], random: Random
) -> None:
    """Nodes release one by one, and look at who owns what in between: the plan must not turn round meanwhile."""
    queues, _, owners = world
    plan = preferred(queues, nodes, owners)
    released = {queue for queue in moved(owners, plan) if random.random() < 0.5}
    midway = {queue: owner for queue, owner in owners.items() if queue not in released}
    after = preferred(queues, nodes, midway)
    kept = {queue for queue in queues if plan[queue] == owners.get(queue)}
    assert all(after[queue] == plan[queue] for queue in kept)


def test_another_process_gives_the_same_answer() -> None:
    code = "from coordinator.assignment import preferred; print(preferred(range(16), ['a', 'b', 'c']))"
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{preferred(range(16), ['a', 'b', 'c'])}\n"
