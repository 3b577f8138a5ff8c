"""The schemas of Kubernetes' releases, and of the custom resources beside this file."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes: pip install 'delayq[dev]'")

import jsonschema
from referencing import Registry, Resource

_OWN: Final = Path(__file__).parent / "schemas"
_DIALECT: Final = jsonschema.Draft202012Validator


def _package() -> Path:
    spec = importlib.util.find_spec("kubernetes_validate")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "kubernetes-json-schema"


def _releases() -> list[str]:
    found = [match[1] for path in _package().iterdir() if (match := re.fullmatch(r"v([\d.]+)-local-strict", path.name))]
    return sorted(found, key=lambda release: [int(part) for part in release.split(".")])


#: The newest three that there are schemas of.
RELEASES: Final = _releases()[-3:]
NEWEST: Final = RELEASES[-1]


def complaints(found: dict[str, Any], release: str) -> list[str]:
    """What this release of Kubernetes, or the custom resource's definition, does not take."""
    validator = _validator(found["apiVersion"], found["kind"], release)
    where = f"{found['kind']} {found['metadata']['name']}"
    return [f"{where}: {error.json_path}: {error.message}" for error in validator.iter_errors(found)]


@functools.cache
def _validator(version: str, kind: str, release: str) -> Any:
    own = _OWN / f"{kind}.json"
    if own.exists():
        return _DIALECT(json.loads(own.read_text()))
    group, _, rest = version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], rest)))
    schema = json.loads((_package() / f"v{release}-local-strict" / f"{name}.json").read_text())
    return _DIALECT(schema, registry=_definitions(release))


@functools.cache
def _definitions(release: str) -> Any:
    contents = json.loads((_package() / f"v{release}-local-strict" / "_definitions.json").read_text())
    return Registry().with_resource(contents["$id"], Resource.from_contents(contents))
