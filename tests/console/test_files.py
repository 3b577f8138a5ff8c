"""The files of the console: what others wrote is as they gave it, what is ours is whole, and all of it is small."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import Final

import pytest

from devtools.javascript import CONSOLE, wrong_types
from testbed.errors import ServerMissing

#: As npm has them: htm 3.1.1 (htm/preact/standalone.module.js) and uPlot 1.6.32 (dist).
VENDORED: Final = {
    "standalone.module.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
#: Of all that a browser may load, in bytes as they are sent. `./dev bench console` tells how far the goal is: this is the
#: bound that a library would break which nobody has weighed.
BOUND: Final = 144 * 1024
#: A text's line: its name, and one text, or one by number.
_WORDS: Final = r'"(?:[^"\\\n]|\\.)*"'
TEXT: Final = re.compile(
    rf'^  "([^"]+)":\s+({_WORDS}|\{{\s*one:\s+{_WORDS},\s+other:\s+{_WORDS},?\s*\}}),$', re.MULTILINE
)


def texts(language: str) -> dict[str, str]:
    """By their names."""
    source = (CONSOLE / "strings" / f"{language}.js").read_text(encoding="utf-8")
    found = TEXT.findall(source)
    assert len(found) == len(dict(found)), "a name stands there twice"
    assert len(found) == len(re.findall(r'^  "', source, re.MULTILINE)), "each text is one, or one by number"
    return dict(found)


def own_sources() -> dict[str, str]:
    """By their names; the texts are not among them."""
    folders = [CONSOLE, CONSOLE / "pages", CONSOLE / "parts"]
    return {path.name: path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.js")}


def test_what_others_wrote_is_as_they_published_it() -> None:
    files = [path for path in (CONSOLE / "vendor").iterdir() if not path.name.endswith((".txt", ".d.ts"))]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == VENDORED
    assert {path.name for path in (CONSOLE / "vendor").glob("*.txt")} >= {"htm.LICENSE.txt", "uPlot.LICENSE.txt"}


def test_all_that_a_browser_loads_is_small() -> None:
    loaded = [path for path in CONSOLE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    sizes = {path.relative_to(CONSOLE).as_posix(): len(gzip.compress(path.read_bytes(), 9)) for path in loaded}
    assert sum(sizes.values()) <= BOUND, sizes


def test_the_types_are_right() -> None:
    try:
        assert wrong_types() == ""
    except ServerMissing as error:
        pytest.skip(str(error))


def test_wrong_types_are_told(tmp_path: Path) -> None:
    (tmp_path / "one.js").write_text('/** @type {number} */\nexport const one = "two";\n')
    try:
        assert "one.js(2,14): error TS2322" in wrong_types(tmp_path)
    except ServerMissing as error:
        pytest.skip(str(error))


def test_no_file_holds_what_the_policy_forbids() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)"
    )
    own = own_sources() | {"index.html": (CONSOLE / "index.html").read_text()}
    found = {name: forbidden.findall(source) for name, source in own.items()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def imported(path: Path) -> set[Path]:
    """A module and what it imports, and what that does; not what is loaded when somebody goes there."""
    found = {path}
    for name in re.findall(
        r'^(?:import|export)\b[^;]*?\bfrom "(\.[^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE
    ):
        found |= imported((path.parent / name).resolve())
    return found


def test_the_page_loads_at_once_what_its_first_view_needs() -> None:
    page = (CONSOLE / "index.html").read_text(encoding="utf-8")
    begun = imported(CONSOLE / "app.js") | imported(CONSOLE / "pages" / "overview.js")
    wanted = sorted(path.relative_to(CONSOLE).as_posix() for path in begun - {CONSOLE / "app.js"})
    assert re.findall('<link rel="modulepreload" href="assets/([^"]+)">', page) == wanted


def test_every_text_that_is_asked_for_is_there_and_no_other() -> None:
    source = "\n".join(own_sources().values())
    asked = set(re.findall(r'\bt\(\s*"([^"]+)"', source))
    made = set(re.findall(r"`((?:\w|[.-])+\.)\$\{", source))  # of a family by the rest of its name
    known = texts("en")
    assert asked - set(known) == set()
    quoted = set(re.findall(r'"([a-z_-]+\.[\w.-]+)"', source))
    assert [name for name in known if name not in asked | quoted and not name.startswith(tuple(made))] == []


@pytest.mark.parametrize(
    "language", sorted(path.stem for path in (CONSOLE / "strings").glob("*.js") if path.stem != "en")
)
def test_another_language_has_every_text_with_what_is_filled_in(language: str) -> None:
    def filled(text: str) -> set[str]:
        return set(re.findall(r"\{(\w+)\}", text))

    known, other = texts("en"), texts(language)
    assert other.keys() == known.keys()
    assert {name: other[name] for name in known if filled(other[name]) != filled(known[name])} == {}
