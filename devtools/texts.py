"""The texts that stand in files of code, for the linter of prose: docstrings, comments, and strings of several words.

The strings are helps of commands, errors, events of logs, descriptions of the API, and what the console shows. A name
that is filled in later stands as code, so that the linter counts it as one word.
"""

from __future__ import annotations

import ast
import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

#: Stands for a value that is filled in later, as code.
FILLED: Final = "`x`"
#: A string is prose from so many plain words on: less is a name, a label or a part of a query.
FEWEST: Final = 3
#: Sources of other languages in a string of Python or in an annotation: Lua, JavaScript, PromQL, SQL.
CODE: Final = re.compile(
    r"\b(?:local|return|function|import|const|redis\.call)\b.*[=(;]|[=!]~|\bby \(|\bcase when\b|^\s*[<{]"
)


class Text(NamedTuple):
    """A text and the line of its file where it begins."""

    line: int
    text: str


def _is_prose(text: str) -> bool:
    words = text.split()
    plain = [word for word in words if re.fullmatch(r"[(\"'‘“]?[A-Za-z][a-z]*[.,:;?!)\"'’”]*", word)]
    return len(plain) >= FEWEST and 2 * len(plain) > len(words) and not CODE.search(text)


def _of_python(source: str) -> Iterator[Text]:
    module = ast.parse(source)
    documented = set()
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                documented.add(id(node.body[0].value))  # type: ignore[attr-defined]
                yield Text(node.body[0].lineno, text)
    yield from _strings(module, documented)
    yield from _lines_of(source, re.compile(r"\s*#:?(?: |$)(?!type: |noqa|fmt: |ruff: |pragma)(.*)"))
    for number, line in enumerate(source.splitlines(), start=1):
        if found := re.search(r"\S  # (?!type: |noqa|fmt: |ruff: |pragma)(.*)", line):
            yield Text(number, found[1])


def _strings(node: ast.AST, documented: set[int]) -> Iterator[Text]:
    """The strings of several words. An f-string is a single text."""
    for child in ast.iter_child_nodes(node):
        if id(child) in documented:
            continue
        if isinstance(child, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else FILLED for one in child.values]
            text = "".join(parts)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            text = child.value
        else:
            yield from _strings(child, documented)
            continue
        if _is_prose(text):
            yield Text(child.lineno, re.sub(r"\{\w*\}", FILLED, text))


def _lines_of(source: str, comment: re.Pattern[str]) -> Iterator[Text]:
    """The comments that have lines of their own, and on other lines nothing. Lines that follow each other are one text."""
    begin, lines = 0, [""]
    for number, line in enumerate(source.splitlines(), start=1):
        if (found := comment.match(line)) and begin:
            lines.append(found[1])
        elif found or begin:
            yield Text(begin, "\n".join(lines))
            begin, lines = (number, [found[1]]) if found else (0, [""])
    yield Text(begin, "\n".join(lines))


def _of_javascript(source: str) -> Iterator[Text]:
    """The comments without the types that they declare (JSDoc)."""
    for line, text in _lines_of(source, re.compile(r"\s*(?://|/\*\*?|\*)(?: |$)(.*?)(?:\*/)?$")):
        yield Text(line, re.split(r"(?:^|\s)@(?:param|returns|template|type|typedef)\b", text)[0])


def _of_lua(source: str) -> Iterator[Text]:
    return _lines_of(source, re.compile(r"\s*--(?: |$)(.*)"))


def _of_shell(source: str) -> Iterator[Text]:
    """A Dockerfile, a script or a list of pins."""
    return _lines_of(source, re.compile(r"\s*#+(?: |$)(.*)"))


def _of_console(source: str) -> Iterator[Text]:
    """The values of the console's table of strings, too."""
    yield from _of_javascript(source)
    for number, line in enumerate(source.splitlines(), start=1):
        for quoted in re.findall(r': ("(?:[^"\\]|\\.)*")', line):
            yield Text(number, re.sub(r"\{[^}]*\}", FILLED, json.loads(quoted)))


def _of_json(source: str) -> Iterator[Text]:
    """The sentences of an OpenAPI document, a JSON schema or a dashboard."""
    for number, line in enumerate(source.splitlines(), start=1):
        if found := re.match(r'\s*"(?:description|summary|title)": ("(?:[^"\\]|\\.)*")', line):
            yield Text(number, json.loads(found[1]))


def _of_yaml(source: str) -> Iterator[Text]:
    """The comments, the sentences of alerts, and the errors of a chart's templates."""
    yield from _lines_of(source, re.compile(r"\s*(?:#+|\{\{-? ?/\*)(?: |$)(.*?)(?:\*/.*)?$"))
    for number, line in enumerate(source.splitlines(), start=1):
        if sentence := re.match(r"\s*(?:- )?(?:summary|description): (.*)", line):
            texts = [sentence[1].strip("'\"")]
        else:
            texts = [*re.findall(r'"((?:[^"\\]|\\.)*)"', line), *re.findall(r"\S # (.*)", line)]
        yield from (Text(number, re.sub(r"\{\{.*?\}\}|%[sdqv]", FILLED, text)) for text in texts if _is_prose(text))


def _of_notes(source: str) -> Iterator[Text]:
    """The notes that a chart prints after its installation."""
    yield Text(1, re.sub(r"\{\{.*?\}\}", FILLED, re.sub(r"^\{\{-.*\}\}$", "", source, flags=re.MULTILINE)))


def _of_page(source: str) -> Iterator[Text]:
    yield Text(1, source)


#: The reader of each file, by its path. The first matching pattern counts.
READERS: Final[Mapping[str, Callable[[str], Iterator[Text]]]] = {
    "*.md": _of_page,
    "reliability/mutants/*.py": _of_shell,  # its strings are pieces of code
    "*.py": _of_python,
    "dev": _of_python,
    "*.lua": _of_lua,
    "api/console/strings/zh-CN.js": _of_javascript,
    "api/console/strings/*.js": _of_console,
    "*.js": _of_javascript,
    "docs/openapi.json": _of_json,
    "observability/*.json": _of_json,
    "charts/*.json": _of_json,
    "*.yaml": _of_yaml,
    "*.yml": _of_yaml,
    "*.tpl": _of_yaml,
    "charts/*/NOTES.txt": _of_notes,
    "deploy/constraints.txt": _of_shell,
    "Dockerfile": _of_shell,
    ".ci/run": _of_shell,
}
#: Folders that have no texts of ours.
FOREIGN: Final = frozenset(
    {"build", "data", "dist", "node_modules", "tests", "vendor", "spark-warehouse", "metastore_db"}
)


def files_of(root: Path) -> Iterator[tuple[Path, Callable[[str], Iterator[Text]]]]:
    """The files of a checkout that have texts, and how each is read. Pages and modules yet to come are among them."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name == ".ci" or not (name in FOREIGN or name.startswith(".")))
        for name in sorted(names):
            path = Path(folder, name)
            where = path.relative_to(root).as_posix()
            if reader := next((READERS[one] for one in READERS if fnmatch.fnmatchcase(where, one)), None):
                yield path, reader
