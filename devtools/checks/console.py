"""The files of the console: libraries are unchanged, texts are complete, and all of it is small."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devtools.checks.generated import differences
from devtools.javascript import CONSOLE
from devtools.pages import at, read

PAGE: Final = CONSOLE / "index.html"
#: As npm has them: htm 3.1.1 (htm/preact/standalone.module.js) and uPlot 1.6.32 (dist).
VENDORED: Final = {
    "standalone.module.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
LICENSES: Final = ("htm.LICENSE.txt", "uPlot.LICENSE.txt")
#: Compressed bytes of all that a browser may load. A library that nobody has weighed would exceed it; `./dev bench
#: console` measures how far the goal is.
BOUND: Final = 144 * 1024
#: The code that the content security policy forbids.
FORBIDDEN: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)"
)
_PRELOAD: Final = '<link rel="modulepreload" href="assets/{}">'
_PRELOADS: Final = re.compile(r'(?:^([ \t]*)<link rel="modulepreload" href="assets/[^"]+">\n)+', re.MULTILINE)
#: A line of texts: the name, and one text, or one for each number.
_WORDS: Final = r'"(?:[^"\\\n]|\\.)*"'
_TEXT: Final = re.compile(
    rf'^  "([^"]+)":\s+({_WORDS}|\{{\s*one:\s+{_WORDS},\s+other:\s+{_WORDS},?\s*\}}),$', re.MULTILINE
)


def complaints() -> Iterator[str]:
    """Every check of the console's files that needs no browser."""
    yield from _vendored()
    loaded = [path for path in CONSOLE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded)
    if size > BOUND:
        yield at(PAGE, 1, f"a browser loads {size} compressed bytes, {BOUND} at most: take something out")
    for path in [*_sources(), PAGE]:
        for number, line in enumerate(read(path).splitlines(), start=1):
            if found := FORBIDDEN.search(line):
                yield at(path, number, f"the content security policy forbids {found[0]}: do without it")
    yield from differences(PAGE, with_preloads)
    yield from _texts()


def _vendored() -> Iterator[str]:
    folder = CONSOLE / "vendor"
    files = {path.name: path for path in folder.iterdir() if not path.name.endswith((".txt", ".d.ts"))}
    for name in sorted(VENDORED.keys() | files.keys()):
        path = folder / name
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != VENDORED.get(name):
            yield at(path, 1, "it is not the file that was published: fetch it again, or pin its hash in this check")
    for name in LICENSES:
        if not (folder / name).exists():
            yield at(folder / name, 1, "the license of a library is missing: add it")


def _sources() -> list[Path]:
    """Our own modules; the texts are not among them."""
    folders = [CONSOLE, CONSOLE / "pages", CONSOLE / "parts"]
    return [path for folder in folders for path in sorted(folder.glob("*.js"))]


def with_preloads(text: str) -> str:
    """index.html with a link for each module that the first view needs."""
    first = CONSOLE / "app.js"
    needed = _imported(first) | _imported(CONSOLE / "pages" / "overview.js")
    names = sorted(path.relative_to(CONSOLE).as_posix() for path in needed - {first})
    links = _PRELOADS.search(text)
    if links is None:
        raise ValueError("api/console/index.html:1: it needs a line for each module that the first view loads")
    lines = (f"{links[1]}{_PRELOAD.format(name)}\n" for name in names)
    return text[: links.start()] + "".join(lines) + text[links.end() :]


def _imported(path: Path) -> set[Path]:
    """A module and all that it imports at once, not what is loaded when somebody opens a page."""
    found = {path}
    for name in re.findall(r'^(?:import|export)\b[^;]*?\bfrom "(\.[^"]+)"', read(path), re.MULTILINE):
        found |= _imported((path.parent / name).resolve())
    return found


def _texts() -> Iterator[str]:
    """Every language has each text that is asked for, with the same parts to fill in, and no other."""
    by_language = {}
    for path in sorted((CONSOLE / "strings").glob("*.js")):
        source = read(path)
        found = _TEXT.findall(source)
        if len(found) != len(dict(found)) or len(found) != len(re.findall(r'^  "', source, re.MULTILINE)):
            yield at(path, 1, "a name stands there twice, or a line is neither one text nor one for each number")
        by_language[path] = dict(found)
    english = CONSOLE / "strings" / "en.js"
    known = by_language.pop(english)
    source = "\n".join(map(read, _sources()))
    asked = set(re.findall(r'\bt\(\s*"([^"]+)"', source))
    prefixes = tuple(re.findall(r"`((?:\w|[.-])+\.)\$\{", source))  # the rest of the name is calculated
    quoted = set(re.findall(r'"([a-z_-]+\.[\w.-]+)"', source))
    for name in sorted(asked - known.keys()):
        yield at(english, 1, f"the console asks for {name}: write it")
    for name in known:
        if name not in asked | quoted and not name.startswith(prefixes):
            yield at(english, _line(english, name), f"nothing asks for {name}: remove it")
    for path, other in by_language.items():
        for name in sorted(known.keys() ^ other.keys()):
            yield at(path, 1, f"{name} stands either here or in {english.name}: it should be in both")
        for name in sorted(known.keys() & other.keys()):
            if _filled(known[name]) != _filled(other[name]):
                yield at(
                    path, _line(path, name), f"{name} should fill in what {english.name} does: {_filled(known[name])}"
                )


def _filled(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{(\w+)\}", text)))


def _line(path: Path, name: str) -> int:
    return read(path).partition(f'  "{name}":')[0].count("\n") + 1
