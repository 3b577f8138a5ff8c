"""The chart, rendered by the real Helm."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from testbed import tools
from testbed.errors import ServerMissing
from tests.deploy.kubernetes import NEWEST

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "delayq"
#: The sets of values that are tried, by name.
CASES: Final = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))}

Objects = list[dict[str, Any]]


def helm(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Helm; skips where there is none, and says how to get it."""
    try:
        program = tools.find("helm")
    except ServerMissing as error:
        pytest.skip(str(error))
    return subprocess.run(
        [str(program), *arguments],
        cwd=folder,
        env=os.environ | {"HELM_NO_PLUGINS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def template(given: Sequence[str], release: str) -> subprocess.CompletedProcess[str]:
    # Without a cluster, Helm takes the Kubernetes of its own client.
    return helm("template", release, str(CHART), "--namespace", "shop", "--kube-version", NEWEST, *given)


@functools.cache
def _rendered(given: tuple[str, ...], release: str) -> str:
    ran = template(given, release)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def render(*given: str, release: str = "dq") -> Objects:
    """The objects that Helm makes of these arguments; of a word of CASES, of those values."""
    words = [word for one in given for word in (("-f", str(CASES[one])) if one in CASES else (one,))]
    return [one for one in yaml.safe_load_all(_rendered(tuple(words), release)) if one]


def refused(*given: str, release: str = "dq") -> str:
    """What Helm says to arguments that it is not to take."""
    ran = template(given, release)
    assert ran.returncode != 0, "it was taken"
    return ran.stderr


def of_kind(objects: Objects, kind: str, end: str = "") -> dict[str, Any]:
    """The one object of that kind whose name ends so."""
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(end)]
    return found


def pod_specs(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and spec of every pod that the objects make."""
    for one in objects:
        if one["kind"] in ("Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]
        elif one["kind"] == "Pod":
            yield one["metadata"]["name"], one["spec"]


def empty(value: Any, path: str) -> Iterator[str]:
    """The paths of fields without a value."""
    if value is None:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from empty(inner, f"{path}.{key}")


def values() -> dict[str, Any]:
    """The chart's own values."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def schema() -> dict[str, Any]:
    """The chart's schema of values."""
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found
