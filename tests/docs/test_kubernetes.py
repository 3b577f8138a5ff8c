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

from delayq.domain.api_keys import load_keys
from testbed import tools
from testbed.errors import ServerMissing
from tests.deploy.kubernetes import NEWEST, complaints
from tests.docs.blocks import ROOT, blocks_of

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chart")]

PAGE = ROOT / "docs" / "kubernetes.md"
BLOCKS = blocks_of(PAGE)
READ = [block for block in BLOCKS if block.language == "text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, the chart, and the Helm that ./dev brokers fetch fetches, or that of this machine."""
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
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def test_its_commands_run_and_kubernetes_takes_what_they_print(folder: Path) -> None:
    blocks = [block for block in BLOCKS if block.language == "bash"]
    assert len(blocks) >= 5
    for block in blocks:
        printed = run(folder, block.text)
        if "api-keys" in block.text:
            assert {key.name for key in load_keys(folder / "keys.yaml")} == {"shop", "reader"}
        elif "> job.yaml" in block.text:
            (job,) = objects((folder / "job.yaml").read_text())
            assert (job["kind"], complaints(job, NEWEST)) == ("Job", [])
        elif "lint" not in block.text:
            assert [one for found in objects(printed) for one in complaints(found, NEWEST)] == []
        else:
            assert "Deployment" in {one["kind"] for one in objects(printed[printed.index("---\n") :])}


def test_its_other_commands_can_be_parsed_and_name_what_exists(folder: Path) -> None:
    lines = [line for block in READ for line in block.text.splitlines()]
    assert len(READ) >= 4
    for block in READ:
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
    assert {line.split()[0] for line in lines} <= {"docker", "helm", "kubectl"}
    upgrades = [line for line in lines if line.startswith("helm upgrade")]
    assert len(upgrades) == 2
    for line in upgrades:
        run(folder, re.sub(r"upgrade (--install )?(.*) --wait", r"template \2", line))
    made = objects(run(folder, "helm template delayq charts/delayq -f values.yaml -f backfill.yaml"))
    named = set(re.findall(r"\b(?:deployment|job|service)/[a-z0-9-]+", PAGE.read_text()))
    assert len(named) >= 3
    assert named <= {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in made}
