"""What charts/delayq is made of, and the image that it names."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.kubernetes import NEWEST
from tests.deploy.rendering import CASES, CHART, ROOT, helm, of_kind, pod_specs, render, values

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ((), "delayq:{version}"),
        (("--set", "image.tag=edge"), "delayq:edge"),
        (("--set", f"image.tag=edge,image.digest=sha256:{'0' * 64}"), f"delayq@sha256:{'0' * 64}"),
    ],
)
def test_the_image_is_that_of_this_version_unless_told(given: tuple[str, ...], image: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version
    images = {one["image"] for _, spec in pod_specs(render("minimal", *given)) for one in spec["containers"]}
    assert images == {image.format(version=version)}


def test_the_user_is_that_of_the_image() -> None:
    dockerfile = ROOT / "Dockerfile"
    if not dockerfile.exists():
        pytest.skip("there is no Dockerfile here: it is in the repository's root")
    users = re.findall(r"^USER (.+)$", dockerfile.read_text(), re.MULTILINE)
    security = values()["podSecurityContext"]
    assert users[-1] == f"{security['runAsUser']}:{security['runAsGroup']}"


def test_what_is_shipped_is_what_stands_in_the_repository() -> None:
    for name in ("alerts.yaml", "dashboard.json"):
        original, copy = ROOT / "observability" / name, CHART / "files" / name
        if original.exists():
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
