"""The Dockerfile: what it says, and its steps done without a builder; test_image_build.py has one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.deploy.compose import ROOT, image_environment

LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text()).splitlines()
STEPS = [line.partition(" ")[::2] for line in LINES if line and not line.startswith(("#", " "))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVICES = ("api", "workers", "coordinator")


def values(word: str) -> list[str]:
    return [rest.strip() for step, rest in STEPS if step == word]


def args() -> dict[str, str]:
    return dict(one.split("=", 1) for one in values("ARG") if "=" in one)


def stages() -> dict[str, list[tuple[str, str]]]:
    """The steps of each stage, by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for step, rest in STEPS:
        if step == "FROM":
            found[rest.split(" AS ")[1]] = []
        elif found:
            found[list(found)[-1]].append((step, rest.strip()))
    return found


def test_the_base_is_pinned_and_every_stage_comes_from_it() -> None:
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", args()["PYTHON"])
    assert PROJECT["requires-python"] == ">=3.11" and args()["PYTHON"] >= "python:3.11"
    bases = [one.split(" AS ")[0] for one in values("FROM")]
    assert set(bases) <= {"${PYTHON}", *stages()}
    assert ":latest" not in (ROOT / "Dockerfile").read_text()


def test_what_runs_is_nobody_by_number_and_the_default_target_is_the_services() -> None:
    for name in ("delayq", "spark"):
        users = [rest for step, rest in stages()[name] if step == "USER"]
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    assert values("FROM")[-1] == "delayq AS final" and stages()["final"] == []
    assert values("STOPSIGNAL") == ["SIGTERM"]


def test_what_is_built_with_does_not_get_into_what_runs() -> None:
    assert stages()["wheels"][-1] == ("RUN", 'pip wheel --wheel-dir /wheels ".[${EXTRAS}]"')
    assert any("PIP_CONSTRAINT=/source/constraints.txt" in rest for step, rest in stages()["wheels"] if step == "ENV")
    for step, rest in stages()["delayq"]:
        assert not re.search(r"build-essential|gcc|apt-get|pip wheel", rest), f"{step} {rest}"
    installs = [rest for step, rest in stages()["delayq"] if step == "RUN" and "pip install" in rest]
    assert len(installs) == 1 and "--no-index" in installs[0]


def test_the_image_says_what_it_is_and_carries_no_secret() -> None:
    (labels,) = values("LABEL")
    for name in ("title", "description", "licenses", "version", "revision", "source"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert args()["VERSION"] == PROJECT["version"]
    assert PROJECT["description"] in labels
    assert args()["PYTHON"] in labels
    assert not re.search(r"password|secret|token|api[-_]?key", "\n".join(LINES), re.IGNORECASE)


def test_the_extras_are_extras_of_delayq() -> None:
    assert args()["EXTRAS"].split(",") == ["services", "kafka", "rocketmq", "rabbitmq", "webhook", "tracing"]
    assert {*args()["EXTRAS"].split(","), "spark"} <= set(PROJECT["optional-dependencies"])


def test_a_stage_declares_the_arguments_that_it_uses() -> None:
    # BuildKit hands them on to a stage that comes from another one, other builders do not.
    for name, steps in stages().items():
        used = {word for _, rest in steps for word in re.findall(r"\$\{(\w+)\}", rest)}
        assert used == {rest.partition("=")[0] for step, rest in steps if step == "ARG"}, name


def test_java_finds_the_folder_that_slim_images_lack() -> None:
    (install,) = [rest for step, rest in stages()["spark"] if step == "RUN" and "jre" in rest]
    assert install.startswith("mkdir -p /usr/share/man/man1 && apt-get update ")


def test_what_is_copied_is_there_and_let_in_by_dockerignore() -> None:
    copied = [path for one in values("COPY") for path in one.split()[:-1]]
    ignored, *let_in = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == "*"
    assert {path.rstrip("/") for path in copied} == {line[1:] for line in let_in if line.startswith("!")}
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert {f"{name}/" for name in (*SERVICES, "delayq")} <= set(copied)


def test_compose_builds_targets_that_there_are_with_the_same_version() -> None:
    services = msgspec.yaml.decode((ROOT / "docker-compose.yml").read_text())["services"]
    builds = {one["build"]["target"]: one["image"] for one in services.values() if "build" in one}
    assert set(builds) <= set(stages())
    assert builds["delayq"] == f"delayq:${{DELAYQ_VERSION:-{PROJECT['version']}}}"


# -- the steps, without Docker -----------------------------------------------------------------------------------------

#: Runs a command as the image does, in so far as a process can: as nobody, unless this is nobody already.
AS_NOBODY = """\
import os, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(10001); os.setuid(10001)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """/app and the installed wheel, made by the Dockerfile's own steps, all of it read-only."""
    root = Path(tempfile.mkdtemp(prefix="delayq-image-"))  # pytest's folders are for nobody else
    try:
        _build(root)
        yield root
    finally:
        subprocess.run(["chmod", "-R", "u+w", root], check=True)
        shutil.rmtree(root)


def _build(root: Path) -> None:
    source, site = root / "source", root / "site-packages"
    for folder in (source, root / "empty"):
        folder.mkdir()
    for path in (path for step, rest in stages()["wheels"] if step == "COPY" for path in rest.split()[:-1]):
        subprocess.run(["cp", "-r", ROOT / path, source], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build: list[str | Path] = [
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        root / "wheels",
        source,
    ]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = (root / "wheels").glob("*.whl")
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--target", site, wheel], check=True)
    for path, target in (rest.split() for step, rest in stages()["delayq"] if step == "COPY"):
        inside = root / target.strip("/")
        inside.parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", ROOT / path, inside], check=True)
    subprocess.run(["chmod", "-R", "a-w,a+rX", root], check=True)


def run(image: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command in the image, from an empty folder, with the image's own environment and no home."""
    environment = image_environment()
    packages = [image / "app", image / "site-packages", sysconfig.get_paths()["purelib"]]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, packages))
    return subprocess.run(
        [*_nobody(), sys.executable, *words],
        cwd=image / "empty",
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], **environment, **settings},
        check=False,
    )


@cache
def _nobody() -> list[str]:
    """What runs a command as nobody; nothing where nobody may use this Python."""
    words = [sys.executable, "-I", "-c", AS_NOBODY]
    tried = subprocess.run([*words, sys.executable, "-c", "import redis"], capture_output=True, check=False)
    return words if tried.returncode == 0 else []


@pytest.mark.slow
def test_the_commands_start_from_anywhere_and_write_nothing(image: Path) -> None:
    before = sorted(image.rglob("*"))
    ran = run(image, "-m", "delayq.cli", "version")
    assert (ran.returncode, ran.stdout) == (0, f"delayq {PROJECT['version']}\n"), ran.stderr
    # Each gets as far as it can without a Redis or a ZooKeeper: the modules, the scripts, the settings are there.
    ran = run(image, "-m", "coordinator", "--once")
    assert ran.returncode == 2 and "DELAYQ_ZOOKEEPER is not set" in ran.stderr
    ran = run(image, "-m", "api", DELAYQ_API_HOST="0.0.0.0")
    assert ran.returncode == 2 and "there are no keys" in ran.stderr
    ran = run(image, "-m", "workers", DELAYQ_ROUTES="nowhere.yaml")
    assert ran.returncode == 2 and "nowhere.yaml" in ran.stderr
    look = (
        "import delayq, api; from delayq.store import scripts; print(len(scripts.NAMES), delayq.__file__, api.__file__)"
    )
    ran = run(image, "-c", look)
    count, library, api = ran.stdout.split()
    assert int(count) == len(list((ROOT / "delayq" / "store" / "lua").glob("[!i]*/*.lua")))
    assert library.startswith(str(image / "site-packages")) and api.startswith(str(image / "app"))
    targets = "import " + ", ".join(
        f"delayq.targets.{one}.target" for one in ("kafka", "rocketmq", "rabbitmq", "webhook")
    )
    assert run(image, "-c", targets).returncode == 0
    assert sorted(image.rglob("*")) == before
