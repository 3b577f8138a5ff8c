from __future__ import annotations

import configparser
import importlib.metadata
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.processes import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy, for a build leaves things beside what it builds
    shutil.copytree(ROOT / "delayq", source / "delayq", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md", "pyspark_delayq.py"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "library", source / "library", symlinks=True)
    (source / "api").mkdir()
    (source / "api" / "__init__.py").touch()
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*build, "-w", str(folder), str(source)], check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_installs_delayq_and_what_spark_looks_for_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    assert {name.partition("/")[0] for name in wheel.namelist()} == {
        "delayq",
        "pyspark_delayq.py",
        "delayq-0.1.0.dist-info",
    }


def test_the_wheel_has_every_module_and_script_of_the_library(wheel: zipfile.ZipFile) -> None:
    files = [path for path in (ROOT / "delayq").rglob("*") if path.suffix in {".py", ".lua", ".typed"}]
    in_tree = {str(path.relative_to(ROOT)) for path in files}
    assert any(name.startswith("delayq/store/lua/") for name in in_tree)
    assert "delayq/py.typed" in in_tree
    assert in_tree <= set(wheel.namelist())


def test_the_wheel_declares_its_command_and_its_targets(wheel: zipfile.ZipFile) -> None:
    declared = configparser.ConfigParser(delimiters=["="])
    declared.read_string(wheel.read("delayq-0.1.0.dist-info/entry_points.txt").decode())
    assert dict(declared["console_scripts"]) == {"delayq": "delayq.cli:main"}
    assert set(declared["delayq.targets"]) == {
        "redis+stream", "log", "http", "https", "kafka", "rabbitmq", "rabbitmqs", "rocketmq",
    }  # fmt: skip


LOOK = """\
import importlib.util, json, pkgutil
names = ("api", "benchmarks", "coordinator", "delayq", "pyspark_delayq", "scripts", "servers", "tests", "workers")
seen = {module.name for module in pkgutil.iter_modules()}
print(json.dumps([
    [name for name in names if importlib.util.find_spec(name)],
    [name for name in names if name in seen],
    importlib.util.find_spec("delayq").origin,
]))
"""


@pytest.mark.parametrize("above", [False, True])
def test_this_environment_offers_what_the_wheel_has_wherever_it_is_used(tmp_path: Path, above: bool) -> None:
    """Also from a folder that has one called delayq in it, as the one above a checkout has."""
    try:
        importlib.metadata.distribution("delayq")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("delayq is not installed in this Python: run ./dev test")
    if above:
        (tmp_path / "delayq").symlink_to(ROOT)
    ran = subprocess.run([sys.executable, "-c", LOOK], cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    imported, listed, where = json.loads(ran.stdout)
    assert imported == listed == ["delayq", "pyspark_delayq"]
    assert Path(where).samefile(ROOT / "delayq" / "__init__.py")
