"""clients/go/types.gen.go: the types of docs/openapi.json, as oapi-codegen writes them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devtools.checks.generated import differences
from testbed.errors import ServerMissing

_FOLDER: Final = Path(__file__).resolve().parent.parent / "clients" / "go"
PAGE: Final = _FOLDER / "types.gen.go"


def complaints() -> Iterator[str]:
    """Yield a complaint for each place where the committed types are not those of the document."""
    return differences(PAGE, generate)


def generate(_: str) -> str:
    """Return the types as the generator writes them now. Raises ServerMissing without Go or its module proxy."""
    go = shutil.which("go")
    if go is None:
        raise ServerMissing("there is no go on PATH: install Go 1.23 or newer (https://go.dev/dl)")
    found = re.search(r"go run (\S+)", (_FOLDER / "generate.go").read_text(encoding="utf-8"))
    assert found is not None, "clients/go/generate.go has no line go:generate"
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / PAGE.name
        words = [go, "run", found[1], "-config", "oapi-codegen.yaml", "-o", str(written), "../../docs/openapi.json"]
        ran = subprocess.run(words, cwd=_FOLDER, capture_output=True, text=True, encoding="utf-8", check=False)
        if not written.exists():
            raise ServerMissing(f"oapi-codegen wrote nothing: {ran.stderr.strip().splitlines()[-1]}")
        return written.read_text(encoding="utf-8")
