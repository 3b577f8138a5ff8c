"""docs/configuration.md, compared with the code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from delayq.config import Settings
from delayq.routes import Route, load_routes
from delayq.times import parse_duration
from devtools import configuration
from tests.docs.blocks import Block, blocks_of

TEXT = configuration.PAGE.read_text(encoding="utf-8")


def test_the_table_of_settings_is_up_to_date() -> None:
    assert configuration.page(TEXT) == TEXT, "python -m devtools.configuration writes it anew"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_it_is(name: str) -> None:
    assert Settings.model_fields[name].description
    assert f"| `DELAYQ_{name.upper()}` |" in TEXT


@pytest.mark.parametrize("ms", [1, 999, 1_000, 90_000, 1_800_000, 5_400_000, 172_800_000, 315_360_000_000])
def test_a_duration_is_written_as_it_can_be_read(ms: int) -> None:
    assert parse_duration(configuration.duration(ms)) == ms


def test_a_page_without_its_marks_is_told() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        configuration.page("# Configuration\n")


def files() -> list[Block]:
    return [block for block in blocks_of(configuration.PAGE) if block.note.startswith("file ")]


def test_the_three_route_tables_say_the_same(tmp_path: Path) -> None:
    tables = []
    for block in files():
        path = tmp_path / block.note.removeprefix("file ")
        path.write_text(block.text, encoding="utf-8")
        tables.append(load_routes(str(path)).table)
    assert len(tables) == 3
    assert tables[0] == tables[1] == tables[2]
    assert [route.name for route in tables[0]] == ["orders", "audit", "mail"]
    assert tables[0][0].stream_of("orders.unpaid") == "shop:orders.unpaid"


def test_every_field_of_a_route_is_described() -> None:
    for field in msgspec.structs.fields(Route):
        assert f"| `{field.encode_name}` |" in TEXT
