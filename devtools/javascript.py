"""The types of the console's JavaScript, which its comments tell (JSDoc), checked by the compiler of TypeScript."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from testbed import folders

CONSOLE: Final = Path(__file__).resolve().parent.parent / "api" / "console"
_STRICT: Final = (
    "--noEmit", "--allowJs", "--checkJs", "--strict", "--noUnusedLocals", "--noImplicitReturns", "--target", "es2022",
    "--module", "esnext", "--moduleResolution", "bundler", "--lib", "dom,dom.iterable,esnext", "--pretty", "false",
)  # fmt: skip


def wrong_types(folder: Path = CONSOLE) -> str:
    """The errors of the compiler; empty if there are none. Raises ServerMissing where there is none."""
    compiler = folders.find("openapi-typescript") / "node_modules" / ".bin" / "tsc"
    own = [path for pattern in ("*.d.ts", "*.js", "*/*.js") for path in folder.glob(pattern)]
    words: list[str | Path] = [compiler, *_STRICT, *sorted(path for path in own if path.parent.name != "vendor")]
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    return (ran.stdout + ran.stderr) or "it failed" if ran.returncode else ""
