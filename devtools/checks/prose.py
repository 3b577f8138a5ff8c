"""The prose of pages and of texts in code, by Vale and the rules in devtools/prose (.vale.ini).

`.venv/bin/python -m devtools.checks.prose docs api/routes` lists the findings in files and folders.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from devtools.pages import ROOT, read
from devtools.texts import files_of
from testbed import tools
from testbed.errors import ServerMissing

CONFIGURATION: Final = ROOT / ".vale.ini"
#: Two columns, as in the help of a command.
COLUMNS: Final = re.compile(r"\S {3,}\S")
#: A name in backticks that begins a sentence, behind the end of another.
BEGINNING: Final = re.compile(r"(?<=[.!?])(\s+)`[^`\n]+`")


def complaints(root: Path = ROOT) -> Iterator[str]:
    """Raises ServerMissing where there is no Vale, except in CI, which has to have it."""
    try:
        found = findings(root)
    except ServerMissing as error:
        if os.environ.get("CI") != "true":
            raise
        yield str(error)
        return
    for lines in found.values():
        yield from lines


def findings(root: Path) -> Mapping[str, list[str]]:
    """The findings of Vale in each file, as lines "file:line: what is wrong". Raises ServerMissing where there is no Vale."""
    vale = tools.find("vale")
    found: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        lines: dict[Path, list[tuple[str, int]]] = {}
        for path, texts in files_of(root):
            name = path.relative_to(root).as_posix()
            # Each text is a paragraph of a page of its own. The line of a finding leads back to that of its file.
            page = Path(folder, name if name.endswith(".md") else f"{name}.md")
            page.parent.mkdir(parents=True, exist_ok=True)
            written: list[str] = []
            lines[page] = []
            for begin, text in texts(read(path)):
                for number, line in enumerate([*text.splitlines(), ""], start=begin):
                    # A line of two columns in a help or a docstring is a text of its own.
                    apart = COLUMNS.search(line) and not name.endswith(".md")
                    for one in ("", line, "") if apart else (line,):
                        written.append(one)
                        lines[page].append((name, number))
            # Vale sees no new sentence in a name in backticks, so a plain word stands for it.
            page.write_text(BEGINNING.sub(r"\1Name", "\n".join(written)), encoding="utf-8")
        ran = subprocess.run(
            [vale, "--config", CONFIGURATION, "--no-global", "--output=JSON", "--no-exit", folder],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(ran.stdout + ran.stderr)
        for page, alerts in json.loads(ran.stdout).items():
            for alert in alerts:
                name, number = lines[Path(page)][alert["Line"] - 1]
                found[name].append(f"{name}:{number}: {alert['Message']} ({alert['Check']})")
    return found


if __name__ == "__main__":
    for where in sys.argv[1:] or ["."]:
        wanted = Path(where).resolve().relative_to(ROOT)
        for found_in, lines in findings(ROOT).items():
            if Path(found_in).is_relative_to(wanted):
                print("\n".join(lines))
