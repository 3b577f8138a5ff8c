"""`python -m reliability.mutants`: run every planted mutant, and print which test finds it as a table of Markdown.

The exit status is 0 only if a test fails because of each mutant.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reliability.mutants.kinds import KINDS, ROOT, Kind, name_of, place_of
from reliability.mutants.planted import PLANTED, Planted
from reliability.mutants.running import LAYERS, Ran, collect_layers, run_tests

#: A run with a mutant may take so many times as long as without, and at least so many seconds: then it hangs.
SLOWER, AT_LEAST = 5, 120.0


class Row(NamedTuple):
    """A line of the table; `killed_by` is empty if no test failed."""

    mutant: str
    kind: str
    place: str
    layer: str
    killed_by: str
    seconds: float


def main() -> int:
    """Run what the command line asks for; the exit status."""
    options = _parse()
    kinds = options.kinds or [kind.name for kind in KINDS] + ["source"]
    layers = list(LAYERS)[: 3 if options.all or options.only else 2 if options.long else 1]
    rows: list[Row] = []
    for kind in KINDS:
        if kind.name in kinds:
            rows += _run_tests_that_plant(options.checkout, kind, layers, options.only)
    chosen = [one for one in PLANTED if _is_wanted(one.name, options.only)]
    if "source" in kinds and chosen:
        rows += _plant_in_source(options.checkout, chosen, before=options.before)
    print(_table(rows, options.checkout))
    return 0 if rows and all(row.killed_by for row in rows) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reliability.mutants", description=__doc__)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the checkout whose tests run (this one)")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="mutants with such a part in their name")
    parser.add_argument("--kinds", nargs="+", choices=[*(kind.name for kind in KINDS), "source"], help="these alone")
    parser.add_argument("--long", action="store_true", help="also mutants that the long layer finds")
    parser.add_argument("--all", action="store_true", help="also mutants that only ./dev test --all finds")
    parser.add_argument(
        "--before", action="store_true", help="run the tests that found the mutants of the source in the larger suite"
    )
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    return options


def _is_wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(part.lower() in name.lower() for part in only)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run_tests_that_plant(checkout: Path, kind: Kind, layers: Sequence[str], only: Sequence[str]) -> Iterator[Row]:
    files = sorted({path.relative_to(checkout).as_posix() for one in kind.files for path in checkout.glob(one)})
    found = collect_layers(checkout, files) if files else {}
    tests = {
        test: layer
        for test, layer in found.items()
        if layer in layers and kind.tests.search(test.partition("[")[0]) and _is_wanted(name_of(test), only)
    }
    if not tests:
        return
    _say(f"{kind.name}: {len(tests)} mutants")
    ran = run_tests(checkout, list(tests), patient=True)
    for test, layer in tests.items():
        seconds = ran.passed.get(test, ran.failed.get(test, 0.0))
        yield Row(name_of(test), kind.name, place_of(kind, test), layer, test if test in ran.passed else "", seconds)


def _plant_in_source(checkout: Path, chosen: Sequence[Planted], *, before: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="delayq-mutants-") as folder:
        copy = Path(folder) / "checkout"
        _copy(checkout, copy)
        planting = _Planting(copy)
        for one in chosen:
            _say(f"source: {one.name}")
            yield planting.run(one, one.before if before else one.tests)


class _Planting:
    """Plants mutants in a copy of a checkout, and remembers how its tests run without any."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._without: dict[tuple[str, ...], Ran] = {}
        self._layers: dict[str, str] = {}

    def run(self, one: Planted, tests: Sequence[str]) -> Row:
        """Run the tests without the mutant, when all must pass, and then with it."""
        nothing = Row(one.name, "source", f"`{one.file}`", "", "", 0.0)
        path = self._copy / one.file
        text = path.read_text(encoding="utf-8")
        if text.count(one.there) != 1:
            _say(f"  not planted: {one.file} has changed: {one.there!r}")
            return nothing
        without = self._run_without(tuple(tests))
        if without.failed or not without.passed:
            _say(f"  no verdict: without the mutant these fail: {', '.join(without.failed) or without.output[-500:]}")
            return nothing
        path.write_text(text.replace(one.there, one.instead), encoding="utf-8")
        try:
            ran = run_tests(self._copy, tests, max(AT_LEAST, SLOWER * without.seconds), exit_first=True)
        finally:
            path.write_text(text, encoding="utf-8")
        killer = ran.hung or next(iter(ran.failed), "")
        return nothing._replace(layer=self._layer(killer), killed_by=killer, seconds=ran.seconds)

    def _run_without(self, tests: tuple[str, ...]) -> Ran:
        if tests not in self._without:
            self._without[tests] = run_tests(self._copy, tests)
        return self._without[tests]

    def _layer(self, test: str) -> str:
        if test and test not in self._layers:
            self._layers |= collect_layers(self._copy, [test.partition("::")[0]])
        return self._layers.get(test, "")


def _copy(checkout: Path, copy: Path) -> None:
    """The files that git knows or would add, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = checkout / name, copy / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _table(rows: Sequence[Row], checkout: Path) -> str:
    lines = ["| mutant | kind | planted in | layer | killed by | seconds |", "| --- | --- | --- | --- | --- | ---: |"]
    for row in rows:
        cells = (row.mutant, row.kind, row.place, row.layer, _killer(row.killed_by, checkout))
        lines.append(f"| {' | '.join(cells)} | {row.seconds:.1f} |")
    killed = sum(bool(row.killed_by) for row in rows)
    return "\n".join([*lines, "", f"{killed} of {len(rows)} mutants are killed."])


def _killer(test: str, checkout: Path) -> str:
    """A test without its parameter. `./dev check` looks for the files that pages name as code, so a former test is none."""
    if not test:
        return "**no test**"
    name = test.partition("[")[0]
    return f"`{name}`" if checkout == ROOT else name


if __name__ == "__main__":
    sys.exit(main())
