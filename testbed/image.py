"""The image built by buildah and run in namespaces, where there is no Docker: by root, on Linux.

    .venv/bin/python -m testbed.image delayq        # or: spark

The build needs no registry for the base image. Its stand-in is built from Debian's packages, with an older Python 3.11 of the
same Debian. Like the real base, it has a `python`, and a `pip` that installs below /usr/local.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from delayq.base.progress import Progress
from testbed import jars, steps

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAMS: Final = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "unshare": "util-linux", "setpriv": "util-linux"}
SUITE: Final = "bookworm"
PACKAGES: Final = (
    "ca-certificates", "python3", "python3-distutils", "python3-pip-whl", "python3-setuptools-whl", "python3-wheel-whl"
)  # fmt: skip
#: Turns Debian's Python into that of the official image: its name, its pip without a block, no manuals and no folder for
#: them. Files that are mounted later get an empty file here, so that the image gets none.
FINISH: Final = r"""
chroot "$1" sh -ec '
ln -s /usr/bin/python3 /usr/local/bin/python
rm -rf /usr/share/man
echo "path-exclude /usr/share/man/*" >/etc/dpkg/dpkg.cfg.d/slim
touch /etc/hosts /etc/pip.conf /etc/ssl/certs/authorities.pem
rm -f /usr/lib/python3.11/EXTERNALLY-MANAGED
export PYTHONPATH=$(ls /usr/share/python-wheels/pip-*.whl)
python -m pip install --quiet --no-index --find-links /usr/share/python-wheels --root-user-action=ignore \
    pip setuptools wheel
'"""
BASE: Final = "localhost/delayq-base:" + hashlib.sha256(f"{SUITE} {PACKAGES} {FINISH}".encode()).hexdigest()[:16]
_SECONDS: Final = 1_500.0  # on a busy machine


class CannotBuild(Exception):
    """A step failed; the message is the end of its output."""


def why_not() -> str:
    """Why no image can be built here, and what would help; nothing if one can."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "building the image without Docker takes root on Linux"
    if absent := [package for program, package in PROGRAMS.items() if shutil.which(program) is None]:
        return f"the image is built with what is not here: apt install --no-install-recommends {' '.join(absent)}"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "namespaces cannot be made here: a container would have to be --privileged"


def make_base() -> None:
    """Make the stand-in of the base image, unless it is there. Raises CannotBuild."""
    with _alone():
        if _is_there(BASE):
            return
        (container,) = _buildah("from", "scratch").split()
        try:
            folder = _buildah("mount", container).strip()
            words = ["--mode=root", "--variant=minbase", "--format=directory", "--dpkgopt=force-unsafe-io"]
            given = (f"--include={','.join(PACKAGES)}", f"--customize-hook={FINISH}")
            _follow("making the base of the image", "mmdebstrap", *words, *given, SUITE, folder)
            _buildah("commit", "--quiet", container, BASE)
        finally:
            _buildah("rm", container)
        _forget_others(BASE)


def build(target: str, context: Path = ROOT) -> str:
    """The name of the image of a target of the Dockerfile, built unless nothing of it has changed. Raises CannotBuild."""
    make_base()
    with _alone():
        image = f"localhost/delayq-test-{target}:{_digest(context)}"
        if not _is_there(image):
            with tempfile.TemporaryDirectory() as folder:
                words = f"--isolation chroot --network host --format docker --target {target} --tag {image}".split()
                given = ("--build-arg", f"PYTHON={BASE}", *_downloads(Path(folder)))
                _follow(f"building the image {target}", *_command("build", *words, *given, str(context)))
            _forget_others(image)
        return image


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """The files of an image."""
    (container,) = _buildah("from", "--pull-never", image).split()
    try:
        yield Path(_buildah("mount", container).strip())
    finally:
        _buildah("rm", container)


def config_of(image: str) -> dict[str, Any]:
    """The image's configuration for running it, as in `docker inspect`."""
    found: dict[str, Any] = json.loads(_buildah("inspect", "--type", "image", image))["Docker"]["config"]
    return found


def _digest(context: Path) -> str:
    """A word for all that goes into the image."""
    text = (context / "Dockerfile").read_text()
    sources = [path for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for path in line.split()]
    digest = hashlib.sha256(f"{BASE}\n{text}".encode())
    for path in sources:
        for file in sorted([context / path] if (context / path).is_file() else (context / path).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(f"{file.relative_to(context)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _downloads(folder: Path) -> Iterator[str]:
    """The options that let pip in the container download as it does here, and leave nothing of that in the image."""
    ran = _run(sys.executable, "-m", "pip", "config", "list")
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)=(.*)$", ran, re.MULTILINE))
    given = {key: ast.literal_eval(value) for key, value in found.items()}
    kept = {key: given[key] for key in ("index-url", "extra-index-url", "trusted-host", "proxy") if key in given}
    if authorities := given.get("cert") or os.environ.get("SSL_CERT_FILE"):
        kept["cert"] = "/etc/ssl/certs/authorities.pem"
        yield f"--volume={Path(authorities).resolve()}:{kept['cert']}:ro"
    (folder / "pip.conf").write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in kept.items()))
    yield f"--volume={folder / 'pip.conf'}:/etc/pip.conf:ro"


def _forget_others(image: str) -> None:
    """Remove the older images of this name. An image that a container uses stays."""
    for older in {*_images(image.rpartition(":")[0])} - {image}:
        _run(*_command("rmi", older), check=False)


def _is_there(image: str) -> bool:
    return image in _images(image.rpartition(":")[0])


def _images(name: str) -> list[str]:
    lines = _buildah("images", "--all", "--format", "{{.Name}}:{{.Tag}}").split()
    return [line for line in lines if line.rpartition(":")[0] == name]


def _buildah(*words: str) -> str:
    return _run(*_command(*words))


def _command(*words: str) -> list[str]:
    folder = jars.cache("images")
    return ["buildah", f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", *words]


def _follow(step: str, *command: str) -> None:
    """Run a command that takes minutes."""
    with Progress(step, name="dev") as progress:
        ran = steps.run(command, progress, seconds=_SECONDS)
    if ran.late:
        raise CannotBuild(f"{command[0]} did not end within {_SECONDS:.0f} s")
    if ran.status:
        raise CannotBuild(f"{command[0]} ended with {ran.status}:\n{ran.output[-4_000:]}")


def _run(*command: str, check: bool = True) -> str:
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{command[0]} did not end within {_SECONDS:.0f} s") from None
    if check and ran.returncode:
        raise CannotBuild(f"{command[0]} ended with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-4_000:]}")
    return ran.stdout


@contextmanager
def _alone() -> Iterator[None]:
    """Nobody else builds at the same time."""
    folder = jars.cache("images")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        with Progress("waiting for another build of an image", name="dev"):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(targets: Sequence[str]) -> int:
    """Build these targets and print their names."""
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 2
    try:
        for target in targets:
            print(build(target), flush=True)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
