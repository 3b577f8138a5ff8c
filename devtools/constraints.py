"""deploy/constraints.txt: the exact versions of what the image gets, which are those of this environment.

rm -rf .venv && PIP_CONSTRAINT= UV_CONSTRAINT= ./dev test && .venv/bin/python -m devtools.constraints
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "deploy" / "constraints.txt"
HEAD = """\
# The exact versions of all packages in the image: delayq, its extras there, and their dependencies. They come from the
# environment of the tests, written by: python -m devtools.constraints
"""


class NotInstalled(Exception):
    """A package of the image is missing in this environment; the message names it."""


def requirements() -> list[Requirement]:
    """The requirements of pyproject.toml: delayq itself, the extras of the image, and Spark."""
    return with_extras({*_argument("EXTRAS").split(","), "spark"})


def with_extras(extras: Iterable[str]) -> list[Requirement]:
    """The requirements of delayq with these extras, and with the extras that these include."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(text for one in extras for text in project["optional-dependencies"][one])]
    parts = [Requirement(text) for text in texts]
    included = {extra for part in parts if part.name == project["name"] for extra in part.extras}
    own = [part for part in parts if part.name != project["name"]]
    return own if included <= set(extras) else with_extras({*extras, *included})


def needed(wanted: Iterable[Requirement] | None = None) -> dict[str, str]:
    """The versions installed here, by name, of the wanted packages and all their requirements.

    Without an argument, of what the image needs. Raises NotInstalled.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    markers = image()
    waiting = [*(requirements() if wanted is None else wanted)]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise NotInstalled(f"{one} is not installed here: install delayq[dev], then say the same again") from None
        found[name] = package.version
        for extra in {"", *one.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            parts = map(Requirement, package.requires or ())
            waiting += [part for part in parts if not part.marker or part.marker.evaluate(markers | {"extra": extra})]
    return found


def pins() -> dict[str, str]:
    """The versions of the file, by name."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {name: version for name, _, version in (line.partition("==") for line in lines)}


def python() -> str:
    """The version of Python in the image."""
    return re.sub(r"^python:([\d.]+)-.*$", r"\1", _argument("PYTHON"))


def image() -> dict[str, str]:
    """The environment of the image, by the names that the markers of a requirement use."""
    version = python()
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": version,
        "python_version": version.rpartition(".")[0],
        "sys_platform": "linux",
    }


def _argument(name: str) -> str:
    """The default of an argument of the Dockerfile."""
    found = re.search(rf"^ARG {name}=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None, name
    return found[1]


def main() -> int:
    """Write the file again."""
    try:
        versions = needed()
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    FILE.write_text(HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
