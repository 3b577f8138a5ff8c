from __future__ import annotations

import configparser
import importlib.metadata
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.processes import ROOT

pytestmark = pytest.mark.long


def test_a_project_of_ones_own_installs_the_library_as_the_readme_says_and_nothing_else(tmp_path: Path) -> None:
    # A copy of what is built, because a build leaves files beside it; and a service, which is to stay out.
    source, site = tmp_path / "delayq", tmp_path / "site"
    shutil.copytree(ROOT / "delayq", source / "delayq", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md", "pyspark_delayq.py"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "library", source / "library", symlinks=True)
    (source / "api").mkdir()
    (source / "api" / "__init__.py").touch()

    (command,) = re.findall(r"`(pip install [^`]*)`", (ROOT / "README.md").read_text())
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--target", str(site)]
    words = [sys.executable, "-m", *shlex.split(command), *offline]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)

    assert {path.name for path in site.iterdir()} == {"bin", "delayq", "pyspark_delayq.py", "delayq-0.1.0.dist-info"}
    files = [path for path in (ROOT / "delayq").rglob("*") if path.suffix in {".py", ".lua", ".typed"}]
    names = {str(path.relative_to(ROOT)) for path in files}
    assert any(name.startswith("delayq/store/lua/") for name in names) and "delayq/py.typed" in names
    assert [name for name in names if not (site / name).is_file()] == []
    declared = configparser.ConfigParser(delimiters=["="])
    declared.read_string((site / "delayq-0.1.0.dist-info" / "entry_points.txt").read_text())
    assert dict(declared["console_scripts"]) == {"delayq": "delayq.cli:main"}
    schemes = {"redis+stream", "log", "http", "https", "kafka", "rabbitmq", "rabbitmqs", "rocketmq"}
    assert set(declared["delayq.targets"]) == schemes
    code = "import sys; sys.path.insert(0, sys.argv[1]); import delayq; delayq.Client; print(delayq.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(site)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{site}/delayq/__init__.py\n"


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
