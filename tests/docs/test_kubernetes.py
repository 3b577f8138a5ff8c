"""docs/kubernetes.md: Helm's commands are run, where they need no cluster; the others name what the chart makes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from delayq.api_keys import load_keys
from testbed import tools
from testbed.errors import ServerMissing
from tests.deploy.kubernetes import NEWEST, complaints
from tests.docs.blocks import ROOT, Block, blocks_of

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "kubernetes.md"
BLOCKS = blocks_of(PAGE)
READ = [block for block in BLOCKS if block.language == "text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, the chart, and the Helm that ./dev brokers fetch builds, or that of this machine."""
    try:
        helm = tools.find("helm")
    except ServerMissing as error:
        pytest.skip(str(error))
    made = tmp_path_factory.mktemp("page")
    for block in BLOCKS:
        verb, _, name = block.note.partition(" ")
        if verb == "file":
            (made / name).write_text(block.text)
    (made / "charts").symlink_to(ROOT / "charts")
    (made / "bin").mkdir()
    (made / "bin" / "helm").symlink_to(helm)
    return made


def run(folder: Path, text: str) -> str:
    path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=env | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "bash"], ids=str)
def test_its_commands_run_and_kubernetes_takes_what_they_print(block: Block, folder: Path) -> None:
    printed = run(folder, block.text)
    if "api-keys" in block.text:
        assert {key.name for key in load_keys(folder / "keys.yaml")} == {"shop", "reader"}
    elif "> job.yaml" in block.text:
        (job,) = objects((folder / "job.yaml").read_text())
        assert (job["kind"], complaints(job, NEWEST)) == ("Job", [])
    elif "lint" not in block.text:
        assert [one for found in objects(printed) for one in complaints(found, NEWEST)] == []
    else:
        rendered = printed[printed.index("---\n") :]
        assert "Deployment" in {one["kind"] for one in objects(rendered)}


def test_the_page_has_commands_of_both_kinds() -> None:
    assert len(READ) >= 4
    assert len([block for block in BLOCKS if block.language == "bash"]) >= 5


def test_the_other_commands_can_be_parsed() -> None:
    for block in READ:
        subprocess.run(["bash", "-n", "-c", block.text], check=True, timeout=10)
        for line in block.text.splitlines():
            assert line.split()[0] in ("docker", "helm", "kubectl"), line


def test_an_upgrade_takes_the_values_that_it_names(folder: Path) -> None:
    upgrades = [line for block in READ for line in block.text.splitlines() if line.startswith("helm upgrade")]
    assert len(upgrades) == 2
    for line in upgrades:
        run(folder, re.sub(r"upgrade (--install )?(.*) --wait", r"template \2", line))


def test_the_deployments_and_jobs_that_it_names_are_there(folder: Path) -> None:
    made = objects(run(folder, "helm template delayq charts/delayq -f values.yaml -f backfill.yaml"))
    there = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in made}
    named = set(re.findall(r"\b(?:deployment|job|service)/[a-z0-9-]+", PAGE.read_text()))
    assert len(named) >= 3
    assert named <= there
