"""docs/configuration.md: the settings, and routes in their three notations. docs/targets-kafka.md: the options."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from delayq.base.times import parse_duration
from delayq.config import SETTINGS
from delayq.domain.routes import Route, load_routes
from delayq.targets.kafka.settings import DEFAULTS, OPTIONS
from devtools import configuration
from devtools.checks.generated import differences
from devtools.pages import DOCS, ROOT, at, blocks_of, read

KAFKA: Final = DOCS / "targets-kafka.md"
CONFIG: Final = ROOT / "delayq" / "config.py"


def complaints() -> Iterator[str]:
    """The table of settings is what the code has, and so are the fields of routes and the options for Kafka."""
    page = configuration.PAGE
    text = read(page)
    yield from differences(page, configuration.page)
    for name, setting in SETTINGS.items():
        if not setting.description:
            line = read(CONFIG).partition(f"    {name}:")[0].count("\n") + 1
            yield at(CONFIG, line, f"the setting {name} has no description: write one")
        if setting.is_duration:
            written = configuration.duration(setting.default)
            if parse_duration(written) != setting.default:
                yield at(
                    page, 1, f"the default of {name} is not {written}: correct duration() in devtools/configuration.py"
                )
    for field in msgspec.structs.fields(Route):
        if f"| `{field.encode_name}` |" not in text:
            yield at(page, 1, f"the table of a route's fields has no `{field.encode_name}`: describe it")
    yield from _route_tables(page)
    yield from _kafka_options()


def _route_tables(page: Path) -> Iterator[str]:
    """The page shows one table of routes in three notations."""
    files = [block for block in blocks_of(page) if block.note.startswith("file ")]
    if len(files) != 3:
        yield at(page, 1, f"{len(files)} blocks are files of routes: there should be one for each of 3 notations")
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        for block in files:
            path = Path(folder, block.note.removeprefix("file "))
            path.write_text(block.text, encoding="utf-8")
            tables.append(load_routes(str(path)).table)
    for block, table in zip(files, tables, strict=True):
        if table != tables[0]:
            yield at(
                page, block.line, f"these routes are not those of line {files[0].line}: write the same in each notation"
            )


def _kafka_options() -> Iterator[str]:
    before, _, text = read(KAFKA).partition("## Options")
    line = before.count("\n") + 1
    named = set(re.findall(r"`([a-z.]+\.[a-z.]+|partitioner)`", text))
    for name in sorted(named ^ OPTIONS):
        yield at(KAFKA, line, f"the option {name} stands either here or in the code: it should be in both")
    for name in sorted(DEFAULTS.keys() & OPTIONS - {"message.max.bytes"}):
        if not re.search(rf"`{re.escape(name)}` \(`?{DEFAULTS[name]}`?\)", text):
            yield at(KAFKA, line, f"the default of `{name}` is {DEFAULTS[name]}: write it behind its name")
