"""The client with the oldest and the newest redis-py that pyproject.toml allows, each in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT

pytestmark = pytest.mark.long

#: Calls of each kind; what is asked for goes to the standard output.
PROGRAM = """
import asyncio, sys, warnings
warnings.simplefilter("error")
import hiredis, redis
from delayq import AsyncClient, Client, Message

def message(id):
    return Message(topic="t", body="x", id=id, keys=("key",), delay_time=3_600_000)

async def ask():
    async with AsyncClient(sys.argv[1]) as client:
        created = (await client.schedule(message("async"))).created
        return created, len(await client.find("key")), (await client.cancel("async")).result

with Client(sys.argv[1]) as client:
    created = client.schedule(message("sync")).created
    found = created, len(client.find("key")), client.cancel("sync").result
print(redis.__version__, *found, *asyncio.run(ask()))
"""


def wanted() -> tuple[str, str]:
    """The oldest and the newest redis-py, as requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (redis,) = [one for one in project["dependencies"] if one.startswith("redis")]
    found = re.fullmatch(r"redis\[hiredis\]>=([0-9.]+),<([0-9]+)", redis)
    assert found is not None, redis
    return f"redis=={found[1]}", f"redis<{found[2]}"


def environment(folder: Path, *requirements: str) -> Path:
    """A Python that has these besides what this one has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", *requirements]
    clean = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    done = subprocess.run(pip, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no package registry, or no pip: {done.stderr.strip().splitlines()[-1]}")
    (site,) = folder.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    (site / "rest.pth").write_text(f"import site; site.addsitedir({here!r})\n{ROOT / 'library'}\n", encoding="utf-8")
    return python


@pytest.mark.parametrize(("place", "hiredis"), [(0, "hiredis==3.0.0"), (1, "hiredis")], ids=["oldest", "newest"])
def test_a_client_schedules_finds_and_cancels(
    valkey: ServerUnderTest, tmp_path: Path, place: int, hiredis: str
) -> None:
    requirement = wanted()[place]
    python = environment(tmp_path / "venv", requirement, hiredis)
    asked = [str(python), "-c", PROGRAM, valkey.url]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, *found = done.stdout.split()
    assert found == ["True", "1", "cancelled"] * 2
    if place == 0:
        assert version.startswith(requirement.removeprefix("redis=="))
