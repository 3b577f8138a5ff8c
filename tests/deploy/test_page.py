"""docs/deploying.md: its commands name what there is. What runs without Docker is run by the other tests of this folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delayq.cli import main
from delayq.config import Settings
from tests.deploy.compose import COMPOSE, ROOT, load
from tests.docs.blocks import blocks_of

PAGE = ROOT / "docs" / "deploying.md"
NOTE = "run by tests/deploy/test_page.py"
BLOCKS = [block for block in blocks_of(PAGE) if block.note == NOTE]
SERVICES: dict[str, Any] = load(COMPOSE.read_text(), {})["services"]
STAGES = re.findall(r"^FROM .* AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def commands() -> list[list[str]]:
    """The words of each command of the page, without variables set before it."""
    lines = "\n".join(block.text for block in BLOCKS).replace("\\\n", " ")
    lines = re.sub(r"curl .*?\n.*\n", "", lines)
    return [[word for word in shlex.split(line) if not re.match(r"DELAYQ_\w+=", word)] for line in lines.splitlines()]


COMPOSING = [words[2:] for words in commands() if words[:2] == ["docker", "compose"]]
BUILDING = [words for words in commands() if words[:2] == ["docker", "build"]]


def test_every_command_of_docker_names_what_there_is() -> None:
    assert len(COMPOSING) >= 9
    for words in COMPOSING:
        named = {words[at + 1] for at, word in enumerate(words) if word == "--profile"}
        assert named <= {profile for one in SERVICES.values() for profile in one.get("profiles", ())}, words
        rest = [word for at, word in enumerate(words) if word != "--profile" and words[at - 1] != "--profile"]
        what, *rest = rest
        assert what in {"up", "down", "exec", "restart", "run", "logs"}
        for scaled in (words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--scale"):
            assert scaled in SERVICES
        if what in ("exec", "run"):
            service, program, *_ = [word for word in rest if not word.startswith("-")]
            assert service in SERVICES and program in ("delayq", "python"), words


def test_what_is_built_has_a_stage() -> None:
    targets = [words[words.index("--target") + 1] for words in BUILDING]
    assert targets == ["delayq", "spark"] and set(targets) <= set(STAGES)


@pytest.mark.parametrize(
    "words", [words[words.index("delayq") + 1 :] for words in COMPOSING if "delayq" in words], ids=" ".join
)
def test_a_command_of_delayq_is_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([words[0], "--help"]) == 0
    options = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in options] == []


def test_the_keys_of_the_page_are_made_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = [words for words in commands() if words[:2] == ["delayq", "api-keys"]]
    file = Path(line[line.index("--file") + 1])
    (tmp_path / file.parent).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(line[1:]) == 0
    assert msgspec.yaml.decode(file.read_text())
    assert f"./{file.parent}:/etc/delayq/keys:ro" in SERVICES["api"]["volumes"]


def test_the_variables_of_the_page_are_those_of_the_file() -> None:
    used = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))
    told = set(re.findall(r"`(DELAYQ_\w+)`", PAGE.read_text()))
    assert used <= told
    assert {name for name in told - used if name.removeprefix("DELAYQ_").lower() not in Settings.model_fields} == set()


def test_every_profile_and_published_port_is_told() -> None:
    text = PAGE.read_text()
    for one in SERVICES.values():
        assert all(f"`{profile}`" in text for profile in one.get("profiles", ()))
        assert all(re.search(rf"\b{port.split(':')[1].partition('-')[0]}\b", text) for port in one.get("ports", ()))
