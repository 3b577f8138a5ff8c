"""Modules for threads, made from those for asyncio: what is the same for both is written once, as `async`.

    from                                    is made
    async def, async with, async for, await   def, with, for, nothing
    AsyncStore, async_store                   Store, store: every name that begins so
    __aenter__, __aexit__, aclose             __enter__, __exit__, close
    event_loop                                threads
    AsyncCalls, async_calls                   Client, client

`./dev check` reports a module that differs from its source; `./dev check --fix` writes it again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: From these modules those are made that have the name which the words give.
SOURCES: Final = (
    ROOT / "delayq" / "client" / "async_calls.py",
    ROOT / "delayq" / "client" / "async_consumer.py",
    ROOT / "delayq" / "client" / "consuming" / "async_renewal.py",
    *(ROOT / "delayq" / "http" / f"async_{name}.py" for name in ("api", "client")),
    *(
        ROOT / "delayq" / "store" / "connect" / f"async_{name}.py"
        for name in ("arrivals", "cluster", "sentinel", "store")
    ),
)
_WORDS: Final = (
    (r"\bAsyncCalls\b", "Client"),
    (r"\basync_calls\b", "client"),
    (r"\bto be awaited on one event loop\b", "safe to share between threads"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\b(_?)(Async(?=[A-Z])|async_(?=\w))", r"\1"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"\bevent_loop\b", "threads"),
)


def made_from(source: Path) -> Path:
    """The module that is made from another one."""
    return source.with_name(f"{replaced(source.stem)}.py")


def replaced(text: str) -> str:
    """The text with the words for threads in it."""
    for word, instead in _WORDS:
        text = re.sub(word, instead, text)
    return text


def threaded(source: Path) -> str:
    """The text of the module that is made from `source`."""
    text = replaced(source.read_text(encoding="utf-8"))
    head = f"# Made from {source.name} by ./dev check --fix; change that one.\n"
    name = str(made_from(source).relative_to(ROOT))
    ruff = [sys.executable, "-m", "ruff"]
    for step in ([*ruff, "check", "--fix-only", "--quiet", "--select", "I,F401"], [*ruff, "format", "--quiet"]):
        command = [*step, "--stdin-filename", name, "-"]
        text = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout
    return head + text


def outdated() -> list[Path]:
    """The modules that are not what their sources make."""
    made = {made_from(source): threaded(source) for source in SOURCES}
    return [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def write() -> None:
    """Generate all modules again."""
    for source in SOURCES:
        made_from(source).write_text(threaded(source), encoding="utf-8")


if __name__ == "__main__":
    write()
