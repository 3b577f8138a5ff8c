"""Programs that run in Node.js, fetched from the npm registry: a folder of the checkout pins each and what it needs.

Its package-lock.json has the version and the SHA-512 of each package; npm refuses what differs. No package's scripts
run.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

from testbed import jars, tools
from testbed.errors import ServerMissing
from testbed.fetch_lock import fetching, wait_for_fetch

__all__ = ["FOLDERS", "fetch", "find"]

_ROOT: Final = Path(__file__).resolve().parent.parent
#: The folders with the pins, by the program's name.
FOLDERS: Final = {
    "openapi-typescript": _ROOT / "clients" / "typescript",
    "http-clients": _ROOT / "tests" / "clients" / "http" / "node",
    "bullmq": _ROOT / "benchmarks" / "peers" / "bullmq",
}
_PINS: Final = ("package.json", "package-lock.json")
_SECONDS: Final = 180.0


def find(name: str) -> Path:
    """The folder with the program and what it needs, `node_modules/.bin` among it; raises ServerMissing."""
    _node(name)
    wait_for_fetch(jars.cache("tools"), name)
    if (folder := _folder(name)).is_dir():
        return folder
    raise ServerMissing(f"there is no {name}: ./dev brokers fetch {name} fetches it from the npm registry")


def fetch(name: str) -> Path:
    """Fetch the pinned versions, unless they are there; the folder. Raises ServerMissing."""
    npm = _node(name)
    with fetching(jars.cache("tools"), name):
        folder = _folder(name)
        if not folder.is_dir():
            _install(npm, name, folder)
    return folder


def _install(npm: str, name: str, folder: Path) -> None:
    # Fetched beside its place and renamed when it is whole, so that one that was cut off leaves no half folder.
    with tempfile.TemporaryDirectory(dir=folder.parent) as part:
        whole = Path(part) / name
        whole.mkdir()
        for pin in _PINS:
            shutil.copy(FOLDERS[name] / pin, whole)
        words = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=http"]
        tools.run(name, "fetched", words, whole, _SECONDS, _reason)
        whole.replace(folder)
    for stranger in set(folder.parent.glob(f"{name}-*")) - {folder}:
        shutil.rmtree(stranger)  # of pins before


def _node(name: str) -> str:
    """npm, which comes with Node.js."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise ServerMissing(f"{name} needs Node.js 20 or newer, with npm: install it (https://nodejs.org)")
    return npm


def _folder(name: str) -> Path:
    """Where it is kept: under another name for each set of pins."""
    digest = hashlib.sha256(b"".join((FOLDERS[name] / pin).read_bytes() for pin in _PINS)).hexdigest()
    return jars.cache("tools") / f"{name}-{digest[:12]}"


def _reason(said: str) -> str:
    """npm's own sentence: its first line that is more than a code."""
    lines = [line.removeprefix("npm error ").strip() for line in said.splitlines() if line.startswith("npm error ")]
    telling = [line for line in lines if not line.startswith(("code ", "errno ", "syscall "))]
    return telling[0] if telling else "npm ci said nothing"
