"""The files of charts/delayq, the image that it names, and the notes that Helm prints after an install."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from devtools.release import version_of
from tests.deploy.kubernetes import NEWEST
from tests.deploy.rendering import CASES, CHART, ROOT, helm, of_kind, pod_specs, render, values

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chart")]

#: `helm template` prints no notes, and `helm install` needs a cluster: a copy of the chart has them as an object.
AS_OBJECT = '{{{{ define "notes" }}}}{notes}{{{{ end }}}}notes: |{{{{ include "notes" . | nindent 2 }}}}'


def test_the_image_is_that_of_this_version_unless_the_values_name_another() -> None:
    version = version_of(ROOT)
    digest = f"sha256:{'0' * 64}"
    for given, image in (
        ((), f"delayq:{version}"),
        (("--set", "image.tag=edge"), "delayq:edge"),
        (("--set", f"image.tag=edge,image.digest={digest}"), f"delayq@{digest}"),
    ):
        pods = pod_specs(render("minimal", *given))
        assert {one["image"] for _, spec in pods for one in spec["containers"]} == {image}


def test_the_user_is_that_of_the_image_and_the_files_are_copies_of_ours() -> None:
    users = re.findall(r"^USER (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    security = values()["podSecurityContext"]
    assert users[-1] == f"{security['runAsUser']}:{security['runAsGroup']}"
    for name in ("alerts.yaml", "dashboard.json"):
        original, copy = ROOT / "observability" / name, CHART / "files" / name
        assert copy.read_text() == original.read_text(), f"cp observability/{name} charts/delayq/files/"


def test_it_can_be_packaged_without_what_is_only_for_its_tests(tmp_path: Path) -> None:
    ran = helm("package", str(CHART), "--destination", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    (package,) = tmp_path.glob("delayq-*.tgz")
    with tarfile.open(package) as archive:
        names = set(archive.getnames())
    assert {"delayq/Chart.yaml", "delayq/README.md", "delayq/values.schema.json", "delayq/files/smoke.py"} <= names
    assert not [name for name in names if "/ci/" in name]


def test_the_dashboard_is_shipped_for_grafana(tmp_path: Path) -> None:
    """With a copy of the chart, so that it does not matter which dashboard there is."""
    copy = tmp_path / "delayq"
    shutil.copytree(CHART, copy)
    given = ("-f", str(CASES["minimal"]), "--set", "metrics.dashboard.enabled=true", "--kube-version", NEWEST)
    (copy / "files" / "dashboard.json").unlink(missing_ok=True)
    without = helm("template", "dq", str(copy), *given)
    assert "files/dashboard.json is not in this chart" in without.stderr
    (copy / "files" / "dashboard.json").write_text('{"title": "{{ kept }}",\n "panels": []}\n')
    ran = helm("template", "dq", str(copy), *given)
    found = of_kind([one for one in yaml.safe_load_all(ran.stdout) if one], "ConfigMap", "-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["delayq.json"])["title"] == "{{ kept }}"


@pytest.fixture(scope="module")
def with_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chart that prints its notes."""
    copy = tmp_path_factory.mktemp("notes") / "delayq"
    shutil.copytree(CHART, copy)
    notes = (copy / "templates" / "NOTES.txt").read_text()
    (copy / "templates" / "notes.yaml").write_text(AS_OBJECT.format(notes=notes))
    return copy


@pytest.mark.parametrize("name", CASES)
def test_the_notes_name_what_exists_and_what_a_caller_needs(with_notes: Path, name: str) -> None:
    given = ("-n", "shop", "--kube-version", NEWEST, "-f", str(CASES[name]), "-s", "templates/notes.yaml")
    ran = helm("template", "dq", str(with_notes), *given)
    assert ran.returncode == 0, ran.stderr
    notes = str(yaml.safe_load(ran.stdout)["notes"])
    objects = render(name)
    service = next(one for one in objects if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None")
    port = service["spec"]["ports"][0]["port"]
    assert f" is at http://{service['metadata']['name']}.shop.svc:{port} in this cluster" in notes
    named = set(re.findall(r"\b(?:deployment|service)/[a-z-]+", notes))
    assert len(named) == 3
    assert named <= {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in objects}
    assert "helm test dq -n shop" in notes
    assert "http://127.0.0.1:8080/console/" in notes
    keyed = '-H "Authorization: Bearer $KEY"' in notes
    assert ("Every caller who reaches the API may do everything" in notes) is not keyed
    assert keyed is {"keda": True, "minimal": False}.get(name, keyed)
    assert ("and at https://delayq.example.com outside." in notes) is (name == "full")
