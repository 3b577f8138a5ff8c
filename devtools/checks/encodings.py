"""Shipped code names the encoding of each text file: under uWSGI or systemd without LANG the default is ASCII."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from devtools.pages import ROOT, at, tree

SHIPPED: Final = ("api", "coordinator", "delayq", "workers")
#: Functions that read or write text in the encoding of the locale unless the call names one.
TEXT: Final = {"open", "read_text", "write_text", "fdopen", "TextIOWrapper"}
#: Options by which `subprocess` reads and writes text.
PROCESS: Final = {"text", "universal_newlines"}


def complaints() -> Iterator[str]:
    """Every call that opens a text file has `encoding=`."""
    for package in SHIPPED:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Call) and _opens_text(node):
                    yield at(path, node.lineno, f'{ast.unparse(node)[:60]}: add encoding="utf-8"')


def _opens_text(call: ast.Call) -> bool:
    function = call.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    if any(keyword.arg in PROCESS and ast.unparse(keyword.value) == "True" for keyword in call.keywords):
        return True
    if name not in TEXT:
        return False
    if name in ("read_text", "write_text", "TextIOWrapper"):
        return True
    if isinstance(function, ast.Attribute) and name == "open" and ast.unparse(function.value) != "io":
        # Methods called `open` of other things: files are opened by `Path.open("r")` or `Path.open()`.
        return any(isinstance(one, ast.Constant) and one.value in ("r", "w", "a", "x", "rt", "wt") for one in call.args)
    modes = [one for one in call.args[1:] if isinstance(one, ast.Constant)]
    modes += [
        keyword.value for keyword in call.keywords if keyword.arg == "mode" and isinstance(keyword.value, ast.Constant)
    ]
    return not any("b" in str(one.value) for one in modes)
