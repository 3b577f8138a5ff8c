from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from delayq.store.keys import KEYS, Layout, new_id
from tests.support.messages import ids, texts

layouts = st.integers(1, 16_384).map(Layout)


def test_placement_is_redis_own_crc_16_of_the_id() -> None:
    """These values never change: messages in Redis are found by them."""
    for text, crc in {"123456789": 0x31C3, "a": 0x7C87, "foo": 0xAF96, "order-1": 0x62C2, "ü": 0x2550}.items():
        assert crc16(text.encode()) == crc
        assert Layout(65_536).queue_of(text) == crc
        assert Layout(16).queue_of(text) == crc % 16
        assert Layout(16).keyed_id("x", text) == f"x.{crc:04x}"


def crc16(data: bytes) -> int:
    """CRC-16/XMODEM, bit by bit."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc


@given(layouts, texts, ids, ids)
def test_all_messages_of_an_ordering_key_have_one_queue_by_one_suffix(
    layout: Layout, key: str, id: str, other: str
) -> None:
    once = layout.keyed_id(id, key)
    assert layout.queue_of(once) == layout.queue_of(layout.keyed_id(other, key)) < layout.queues
    assert re.fullmatch(rf"{re.escape(id)}(\.[0-9a-f]{{4}})?", once)
    assert layout.keyed_id(once, key) == once


def test_another_suffix_than_the_keys_own_is_kept_and_the_keys_is_put_behind_it() -> None:
    layout = Layout(16)
    suffix = layout.keyed_id("", "key")
    assert layout.keyed_id("id.0000", "key") == f"id.0000{suffix}"
    assert layout.queue_of(f"id.0000{suffix}") == int(suffix[1:], 16) % 16


def test_only_four_lower_case_hex_digits_behind_a_dot_say_the_queue() -> None:
    assert [Layout(65_536).queue_of(id) for id in ("x.00ff", ".00ff")] == [0x00FF] * 2
    for id in ("x.00FF", "x.0ff", "x.000ff", "x.00fg", "x:00ff", "00ff", "x.00ff."):
        assert Layout(65_536).queue_of(id) == crc16(id.encode()), id


@given(layouts)
def test_a_random_suffix_is_one_that_says_a_queue(layout: Layout) -> None:
    suffix = layout.random_suffix()
    assert re.fullmatch(r"\.[0-9a-f]{4}", suffix)
    made = new_id()
    assert "." not in made  # it ends in no suffix by chance
    assert layout.queue_of(made + suffix) == int(suffix[1:], 16) % layout.queues
    assert 0 <= layout.queue_of(made) == Layout(layout.queues).queue_of(made) < layout.queues


def test_ids_spread_evenly_over_the_queues() -> None:
    layout = Layout(16)
    counts = [0] * 16
    for number in range(16_000):
        counts[layout.queue_of(f"order-{number}")] += 1
    assert min(counts) > 800
    assert max(counts) < 1_200


def test_all_keys_of_a_queue_share_its_hash_tag_and_no_two_are_the_same() -> None:
    keys = KEYS.queue(7)
    names = [getattr(keys, name) for name in keys.__slots__ if name != "tag"]
    names += [keys.parked("t:kafka"), keys.parked("k:{9}"), keys.stream("orders")]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.startswith("delayq:{7}:")
        assert name[name.index("{") + 1 : name.index("}")] == "7"
