"""The Dockerfile: what it says; test_image_build.py builds it."""

from __future__ import annotations

import re
import tomllib

from devtools.pages import ROOT

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


def test_the_image_says_what_it_is_and_carries_no_secret() -> None:
    (labels,) = values("LABEL")
    for name in ("title", "description", "licenses", "version", "revision", "source"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert PROJECT["description"] in labels
    assert args()["PYTHON"] in labels
    assert not re.search(r"password|secret|token|api[-_]?key", "\n".join(LINES), re.IGNORECASE)


def test_a_stage_declares_the_arguments_that_it_uses() -> None:
    # BuildKit hands them on to a stage that comes from another one, other builders do not.
    for name, steps in stages().items():
        used = {word for _, rest in steps for word in re.findall(r"\$\{(\w+)\}", rest)}
        assert used == {rest.partition("=")[0] for step, rest in steps if step == "ARG"}, name


def test_what_is_copied_is_there_and_let_in_by_dockerignore() -> None:
    copied = [path for one in values("COPY") for path in one.split()[:-1]]
    ignored, *let_in = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == "*"
    assert {path.rstrip("/") for path in copied} == {line[1:] for line in let_in if line.startswith("!")}
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert {f"{name}/" for name in (*SERVICES, "delayq")} <= set(copied)
