from __future__ import annotations

import configparser
import importlib.metadata
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.processes import ROOT

pytestmark = pytest.mark.long  # who asks first builds a wheel


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built, for a build leaves things beside that; and a service, which is to stay out."""
    source = tmp_path_factory.mktemp("wheel") / "delayq"
    shutil.copytree(ROOT / "delayq", source / "delayq", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md", "pyspark_delayq.py"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "library", source / "library", symlinks=True)
    (source / "api").mkdir()
    (source / "api" / "__init__.py").touch()
    return source


@pytest.fixture(scope="module")
def wheel(source: Path) -> zipfile.ZipFile:
    folder = source.parent
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
        "redis+stream",
        "log",
        "http",
        "https",
        "kafka",
        "rabbitmq",
        "rabbitmqs",
        "rocketmq",
    }


def test_a_project_of_ones_own_installs_it_as_the_readme_says(source: Path, tmp_path: Path) -> None:
    (command,) = re.findall(r"`(pip install [^`]*)`", (ROOT / "README.md").read_text())
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(tmp_path / "site")]
    words = [sys.executable, "-m", *shlex.split(command), *offline]
    subprocess.run(words, cwd=source.parent, check=True, capture_output=True)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import delayq; delayq.Client; print(delayq.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "site")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{tmp_path}/site/delayq/__init__.py\n"
    assert not (tmp_path / "site" / "api").exists()


LOOK = """\
import importlib.util, json, pkgutil
names = ("api", "benchmarks", "coordinator", "delayq", "pyspark_delayq", "devtools", "reliability", "testbed", "tests", "workers")
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
