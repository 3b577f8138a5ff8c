"""The virtual environment .venv. It is created once, and updated when pyproject.toml or the constraints change."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from delayq.base.progress import Progress
from testbed.steps import Ran, run

# Variables of other environments, and those that would make pip or Python look elsewhere.
FOREIGN = (
    "PIP_PREFIX",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONDONTWRITEBYTECODE",  # otherwise each process of the tests or of up would compile delayq again
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSAFEPATH",  # services run by `python -m` from the checkout, which this variable forbids
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
)


#: The versions of the image. Without them, pip searches for a consistent set for minutes. A caller who sets the
#: variable, even to an empty text, keeps that setting.
CONSTRAINTS = "deploy/constraints.txt"  # relative to the root, because pip would split a path at its blanks
CONSTRAINED = {"PIP_CONSTRAINT": CONSTRAINTS, "UV_CONSTRAINT": CONSTRAINTS}

#: The size and duration of the first install of the large extras, largest first.
SIZES = {"dev": "1.6 GB in about 3 minutes", "test": "560 MB in about 90 seconds"}
#: Installs in a third of pip's time. It is a package, so pip can download it.
UV = "uv==0.13.8"
#: Settings of pip that uv does not read. If one is set, pip installs everything.
SETTINGS_OF_PIP = ("index-url", "extra-index-url", "no-index", "proxy", "trusted-host")
PIP = ("install", "--progress-bar=off")


class CannotInstall(Exception):
    """.venv cannot be created or updated. The message is a sentence with the remedy."""


def prepare(root: str, extras: set[str]) -> str:
    """Return the Python of .venv, with delayq and these extras installed.

    `dev` includes `test`, and `test` includes most others.
    """
    for name in FOREIGN:
        os.environ.pop(name, None)
    venv = Path(root, ".venv")
    if not _is_ready(venv, extras):
        with Path(root, "dev").open("rb") as lock:  # of two ./dev at the same time, one installs and the other waits
            with Progress("waiting for the installation by another ./dev", name="dev"):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_ready(venv, extras):
                _install(venv, extras)
    return str(_python(venv))


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


def _wanted(venv: Path) -> str:
    # The root is part of the state, because the folder may have been moved or copied together with .venv.
    files = (venv.parent / "pyproject.toml", venv.parent / CONSTRAINTS)
    return hashlib.sha256(b"\0".join([str(venv).encode(), *(file.read_bytes() for file in files)])).hexdigest()


def _installed(venv: Path) -> dict[str, list[str]]:
    """Return the installed extras by the state of the files that they were installed from."""
    try:
        installed: dict[str, list[str]] = json.loads((venv / "delayq-installed.json").read_text())
    except (OSError, ValueError):
        return {}
    return installed


def _is_ready(venv: Path, extras: set[str]) -> bool:
    installed = _installed(venv).get(_wanted(venv))
    if installed is None or not _python(venv).exists():
        return False
    return extras <= set(installed) or "dev" in installed or ("test" in installed and "dev" not in extras)


def _install(venv: Path, extras: set[str]) -> None:
    uv = shutil.which("uv")
    if not _works(venv):
        shutil.rmtree(venv, ignore_errors=True)
        _make(venv, uv)
    extras = extras.union(*_installed(venv).values())  # extras that were installed earlier stay installed
    wanted = _wanted(venv)
    target = f".[{','.join(sorted(extras))}]" if extras else "."
    largest = next((one for one in SIZES if one in extras), "")
    _say(f"installing delayq{target[1:]} into .venv" + (f", {SIZES[largest]}" if largest else ""))
    # Remove what an install into the checkout left there: it would hide the entry points of this one.
    shutil.rmtree(venv.parent / "delayq.egg-info", ignore_errors=True)
    ran = _call([*_installer(venv, uv), "--editable", target], f"installing delayq{target[1:]}", venv)
    if ran.status and not uv:  # the downloaded uv, because the machine may be configured for pip alone
        ran = _call([*_pip(venv, *PIP), "--editable", target], f"installing delayq{target[1:]} with pip", venv)
    if ran.status:
        sys.stderr.write(ran.output)
        raise CannotInstall("cannot install delayq; fix the error above and repeat the command")
    (venv / "delayq-installed.json").write_text(json.dumps({wanted: sorted(extras)}))


def _installer(venv: Path, uv: str | None) -> list[str]:
    """Return the command that installs: uv on PATH, or uv downloaded into .venv, or pip."""
    if uv is None:
        own = venv / "bin" / "uv"
        settings = _call(_pip(venv, "config", "list"), "reading pip's settings", venv, show=False).output
        if any(f".{name}=" in settings for name in SETTINGS_OF_PIP):
            return _pip(venv, *PIP)
        if (
            not own.exists()
            and _call(_pip(venv, *PIP, "--no-deps", UV), f"downloading {UV}, the installer", venv).status
        ):
            return _pip(venv, *PIP)
        uv = str(own)
    return [uv, "pip", "install", "--python", str(_python(venv))]


def _pip(venv: Path, *words: str) -> list[str]:
    return [str(_python(venv)), "-m", "pip", "--disable-pip-version-check", *words]


def _call(command: Sequence[str], what: str, venv: Path, *, show: bool = True) -> Ran:
    """Run a command. Without `show`, hide its output, which may contain a password."""
    # setuptools warns that a folder is named like the package, which is the case in a checkout.
    env = {**CONSTRAINED, **os.environ, "PYTHONWARNINGS": "ignore"}
    with Progress(what, name="dev") as progress:
        return run(command, progress if show else None, cwd=venv.parent, env=env)


def _works(venv: Path) -> bool:
    """Return whether .venv is complete. An interrupted first start or a removed Python leaves an incomplete one."""
    probe = [str(_python(venv)), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]
    try:
        return subprocess.call(probe, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def _make(venv: Path, uv: str | None) -> None:
    if uv:
        command = [uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(venv)]
    elif importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise CannotInstall(
            f"this Python ({sys.executable}) cannot create virtual environments, because ensurepip is missing; "
            "install uv or ensurepip (Debian, Ubuntu: apt install python3-venv) and repeat the command."
        )
    else:
        command = [sys.executable, "-m", "venv", str(venv)]
    ran = _call(command, "making .venv", venv)
    if ran.status:
        raise CannotInstall(f"{' '.join(command)} failed: {ran.output.strip()}")


def _say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)
