"""Programs written in Go, built from Go's module proxy: pinned by version, checked by Go's checksum database."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from testbed import jars
from testbed.errors import ServerMissing
from testbed.fetch_lock import fetching, wait_for_fetch

__all__ = ["PACKAGES", "fetch", "find", "run"]

#: What `go install` takes, by the program's name.
PACKAGES: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool@v0.315.0",
}
#: The module and the build tags of those whose go.mod has what `go install` refuses: they are built as a dependency.
MODULES: Final = {"promtool": ("github.com/prometheus/prometheus", "remove_all_sd,enable_dns_sd")}
#: The Kubernetes that helm takes a cluster for which it does not ask: its own Makefile tells it that of the client that
#: it has, client-go 0.37. Without that it is 1.20, for which no chart of today is.
_KUBERNETES: Final = "1.37"
_KNOWS: Final = [
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("chartutil", "lint/rules")
    for part, number in zip(("Major", "Minor"), _KUBERNETES.split("."), strict=True)
]
#: What the linker is told, by the program's name, and what the program's file is called for that.
LINKED: Final = {"helm": (" ".join(_KNOWS), f"kubernetes-{_KUBERNETES}")}
_SECONDS: Final = 1_400.0


def find(name: str) -> Path:
    """The program: the one that was fetched, else that of the PATH; raises ServerMissing."""
    wait_for_fetch(jars.cache("tools"), name)
    if (fetched := _program(name)).is_file():
        return fetched
    if found := shutil.which(name):
        return Path(found)
    raise ServerMissing(f"there is no {name}: ./dev brokers fetch {name} builds it (with Go), or install it")


def fetch(name: str) -> Path:
    """Build the pinned version, unless it is there; the program. Raises ServerMissing."""
    with fetching(jars.cache("tools"), name):
        program = _program(name)
        if not program.is_file():
            _build(name, program)
    return program


def _build(name: str, program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ServerMissing(f"{name} is built with Go, and there is none: install it (https://go.dev/dl)")
    # Built beside its place and renamed, so that one that was cut off leaves no half program.
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        environment = os.environ | {"GOBIN": folder, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
        run(name, "built", [go, *_words(name, Path(folder))], Path(folder), _SECONDS, _reason, environment)
        (Path(folder) / name).replace(program)
    for stranger in set(program.parent.glob(f"{name}-v*")) - {program}:
        stranger.unlink()  # of a version before


def run(
    name: str,
    done: str,
    words: Sequence[str],
    folder: Path,
    seconds: float,
    reason: Callable[[str], str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run what gets a program, in this folder; raises ServerMissing, with the `reason` out of what it said."""
    try:
        ran = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ServerMissing(f"{name} was not {done} within {seconds:.0f} s") from None
    if ran.returncode:
        raise ServerMissing(f"{name} could not be {done}: {reason(ran.stderr)}")


def _words(name: str, folder: Path) -> list[str]:
    if name not in MODULES:
        told = ["-ldflags", LINKED[name][0]] if name in LINKED else []
        return ["install", *told, PACKAGES[name]]
    module, tags = MODULES[name]
    package, _, version = PACKAGES[name].rpartition("@")
    (folder / "go.mod").write_text(f"module tool\n\ngo 1.26\n\nrequire {module} {version}\n")
    return ["build", "-mod=mod", "-tags", tags, "-o", str(folder / name), package]


def _program(name: str) -> Path:
    told = f"-{LINKED[name][1]}" if name in LINKED else ""
    return jars.cache("tools") / f"{name}-{PACKAGES[name].rpartition('@')[2]}{told}"


def _reason(said: str) -> str:
    """The last line that is no download: Go's own sentence, such as 'requires go >= 1.26.0 (running go 1.19)'."""
    lines = [line for line in said.splitlines() if line.strip() and not re.match(r"go: downloading ", line)]
    return lines[-1].strip() if lines else "go install said nothing"
