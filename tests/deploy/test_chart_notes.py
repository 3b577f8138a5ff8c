"""What Helm says after an install."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.deploy.kubernetes import NEWEST
from tests.deploy.rendering import CASES, CHART, helm, render

pytestmark = pytest.mark.long

#: `helm template` prints no notes, and `helm install` wants a cluster: here they are a value of an object.
AS_OBJECT = '{{{{ define "notes" }}}}{notes}{{{{ end }}}}notes: |{{{{ include "notes" . | nindent 2 }}}}'


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chart whose notes are printed."""
    copy = tmp_path_factory.mktemp("notes") / "delayq"
    shutil.copytree(CHART, copy)
    notes = (copy / "templates" / "NOTES.txt").read_text()
    (copy / "templates" / "notes.yaml").write_text(AS_OBJECT.format(notes=notes))
    return copy


def notes_of(chart: Path, name: str, *given: str) -> str:
    ran = helm(
        "template",
        "dq",
        str(chart),
        "-n",
        "shop",
        "--kube-version",
        NEWEST,
        "-f",
        str(CASES[name]),
        "-s",
        "templates/notes.yaml",
        *given,
    )
    assert ran.returncode == 0, ran.stderr
    return str(yaml.safe_load(ran.stdout)["notes"])


@pytest.mark.parametrize("name", CASES)
def test_the_notes_name_the_url_and_what_there_is(chart: Path, name: str) -> None:
    notes = notes_of(chart, name)
    there = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in render(name)}
    service = next(one for one in render(name) if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None")
    port = service["spec"]["ports"][0]["port"]
    assert f" is at http://{service['metadata']['name']}.shop.svc:{port} in this cluster" in notes
    named = set(re.findall(r"\b(?:deployment|service)/[a-z-]+", notes))
    assert len(named) == 3
    assert named <= there
    assert "helm test dq -n shop" in notes
    assert "http://127.0.0.1:8080/console/" in notes


def test_the_notes_say_what_a_caller_needs(chart: Path) -> None:
    assert '-H "Authorization: Bearer $KEY"' in notes_of(chart, "keda")
    assert "Whoever reaches the API may do everything" not in notes_of(chart, "keda")
    assert "Authorization" not in notes_of(chart, "minimal")
    assert "Whoever reaches the API may do everything" in notes_of(chart, "minimal")
    assert "and at https://delayq.example.com outside." in notes_of(chart, "full")
