"""Layouts as `delayq:meta` lists them, and what a process knows of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delayq.store.keys import KEYS, Layout, Layouts, following, read_layouts, write_layouts

counts = st.lists(st.integers(1, 64), min_size=1, max_size=5)
ids = st.from_regex(r"[a-z0-9]{1,8}(\.[0-9a-f]{4})?", fullmatch=True)


def chain(counts: list[int]) -> tuple[Layout, ...]:
    """Layouts of so many queues, one resharded into the next."""
    layouts = [Layout(counts[0])]
    for count in counts[1:]:
        layouts.append(following(layouts, count))
    return tuple(layouts)


@given(counts, st.data())
def test_layouts_are_read_as_they_were_written_also_when_some_are_gone(counts: list[int], data: st.DataObject) -> None:
    layouts = chain(counts)
    kept = tuple(one for one in layouts if one == layouts[-1] or data.draw(st.booleans()))
    assert read_layouts(write_layouts(kept)) == kept
    numbers = [number for layout in layouts for number in layout.numbers]  # they share no key, and go up
    assert numbers == sorted(set(numbers)) == Layouts(layouts).queues


def test_the_first_layout_is_a_plain_number_as_it_ever_was() -> None:
    assert write_layouts([Layout(16)]) == "16"
    assert KEYS.queue(Layout(16).queue_of("x")).pool.startswith("delayq:{")
    assert write_layouts(chain([16, 64, 16])) == "16 64@16 16@80"
    assert read_layouts("") == ()
    assert following([Layout(16)], 64) == Layout(64, 16)


@given(counts, ids)
def test_an_id_is_asked_for_from_the_oldest_layout_to_the_newest(counts: list[int], id: str) -> None:
    layouts = Layouts(chain(counts))
    places: list[int] = []
    behind = -1
    while (place := layouts.place(id, behind)) is not None:
        places.append(place)
        behind = place
    assert places == [layout.queue_of(id) for layout in layouts.known]


@given(counts, ids, st.data())
def test_a_new_id_passes_over_queues_that_are_shut_and_over_no_other(
    counts: list[int], id: str, data: st.DataObject
) -> None:
    layouts = Layouts(chain(counts))
    places = [layout.queue_of(id) for layout in layouts.known]
    layouts.shut = {place for place in places if data.draw(st.booleans())}
    first_open = [place for place in places if place not in layouts.shut]
    assert layouts.place_new(id) == (first_open or places[-1:])[0]


def test_older_news_is_no_news() -> None:
    layouts = Layouts([Layout(16), Layout(64, 16)])
    layouts.take([Layout(16)])
    layouts.take([])
    assert write_layouts(layouts.known) == "16 64@16"
    layouts.take([Layout(64, 16)])
    assert write_layouts(layouts.known) == "64@16"
