"""The programs that the console offers to copy: each runs, and each sends the values that its reader saw."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.jars import SHORT_LIVED
from tests.clients import test_go, test_java
from tests.clients.conftest import JAVAC, compile_typescript, run_program
from tests.support.service import ROOT, Service
from tests.support.waiting import eventually

CALLS: Final = ROOT / "api" / "console" / "parts" / "calls.js"
#: Quotes, commands of shells, escapes of every language, invisible characters, and characters beyond 16 bits.
HOSTILE: Final = (
    'it\'s "$(id)" `id` ${HOME} %s {0} \\ \\n \\u000a \\u0022 \\x41 */ // # @file \u00a0\u202e\u2028\u2029\ufeff'
    "\x01\x1b[31m\x7f\x80\xff1 end\r\n\tÄ 支付 \U0001f600\U000e0001 \\"
)
_WRITE: Final = """
import { LANGUAGES, msOf } from %s;
const [calls, api, texts] = JSON.parse(process.argv[1]);
const write = (call) => Object.fromEntries(Object.entries(LANGUAGES).map(([name, one]) => [name, one.write(call, api)]));
const programs = calls.map(write);
console.log(JSON.stringify({ programs, ms: texts.map(msOf) }));
"""
#: Writes programs to a folder, compiles them, and returns the command of each.
Build = Callable[[Sequence[str], Path], list[list[Any]]]


def node(source: str, *words: str) -> str:
    """What Node.js prints for a module."""
    if shutil.which("node") is None:
        pytest.skip("no node on PATH: install Node.js 18 or newer")
    return subprocess.run(
        ["node", "--input-type=module", "-e", source, *words], capture_output=True, check=True, encoding="utf-8"
    ).stdout


def written(*calls: dict[str, Any], url: str = "http://127.0.0.1:8080", key: bool = False) -> list[dict[str, str]]:
    """The programs of each call, by their languages."""
    given = json.dumps([calls, {"url": url, "key": key}, []])
    programs: list[dict[str, str]] = json.loads(node(_WRITE % json.dumps(CALLS.as_uri()), given))["programs"]
    return programs


def test_hostile_texts_mean_the_same_in_each_language() -> None:
    texts = [HOSTILE, "'", '"', "\\", "\x00", "\n", "x\\"]
    for text, program in zip(
        texts,
        written(*({"does": "schedule", "topic": text, "body": text, "delay": "1h"} for text in texts)),
        strict=True,
    ):
        body = shlex.split(program["curl"].replace("\\\n", " ", 2))[-1]
        assert json.loads(body) == {"topic": text, "body": text, "delayTime": "1h"}
        (message,) = (
            one
            for one in ast.walk(ast.parse(program["python"]))
            if isinstance(one, ast.Call) and len(one.keywords) == 3
        )
        assert {one.arg: ast.literal_eval(one.value) for one in message.keywords} == {
            "topic": text, "body": text, "delay_time": "1h",
        }  # fmt: skip
        (line,) = (one for one in program["typescript"].splitlines() if one.startswith("const message"))
        assert json.loads(node(f"{line}\nconsole.log(JSON.stringify(message));"))["body"] == text
        for name, source in program.items():
            assert not [one for one in source if one not in "\n\t" and not one.isprintable()], name


def test_a_delay_is_read_as_the_api_reads_it() -> None:
    texts = ["1500", "90s", "1h30m", "2d", "7ms", "PT30M", "P1DT2H", "P1W", "", "1.5h", "h", "P", "PT", "-1", "soon"]
    expected = [1_500, 90_000, 5_400_000, 172_800_000, 7, 1_800_000, 93_600_000, 604_800_000, *[None] * 7]
    given = json.dumps([[], {}, texts])
    assert json.loads(node(_WRITE % json.dumps(CALLS.as_uri()), given))["ms"] == expected


@pytest.fixture
def curl() -> Build:
    return lambda texts, _: [["sh", "-c", text] for text in texts]


@pytest.fixture
def python() -> Build:
    return lambda texts, _: [[sys.executable, "-c", text] for text in texts]


@pytest.fixture
def typescript(typescript_package: Path) -> Build:
    def build(texts: Sequence[str], folder: Path) -> list[list[Any]]:
        (folder / "node_modules" / "@delayq").mkdir(parents=True)
        (folder / "node_modules" / "@delayq" / "client").symlink_to(typescript_package)
        names = [f"call{number}" for number in range(len(texts))]
        compile_typescript(typescript_package, folder, dict(zip(names, texts, strict=True)))
        return [["node", f"{name}.js"] for name in names]

    return build


@pytest.fixture
def go() -> Build:
    def build(texts: Sequence[str], folder: Path) -> list[list[Any]]:
        needs = f"require {test_go.MODULE} v0.0.0\n\nreplace {test_go.MODULE} => {test_go.SOURCE}\n"
        (folder / "go.mod").write_text(f"module example\n\ngo 1.23\n\n{needs}", encoding="utf-8")
        (folder / "bin").mkdir()
        names = [f"call{number}" for number in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            (folder / name).mkdir()
            (folder / name / "main.go").write_text(text, encoding="utf-8")
        assert run_program(["gofmt", "-l", "."], folder) == ""
        run_program(["go", "build", "-ldflags=-s -w", "-o", "bin/", "./..."], folder)
        return [[folder / "bin" / name] for name in names]

    return build


@pytest.fixture
def java(java_package: Path) -> Build:
    (jar,) = (java_package / "target").glob("delayq-client-*.jar")

    def build(texts: Sequence[str], folder: Path) -> list[list[Any]]:
        names = [f"Call{number}" for number in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            own = text.replace("public class Call ", f"public class {name} ")  # one compiler for all of them
            (folder / f"{name}.java").write_text(own, encoding="utf-8")
        files = [f"{name}.java" for name in names]
        run_program([*JAVAC, "-encoding", "UTF-8", "-Xlint:all", "-Werror", "-cp", jar, *files], folder)
        return [["java", *SHORT_LIVED, "-cp", f"{jar}:.", name] for name in names]

    return build


NEEDS: Final[dict[str, list[pytest.MarkDecorator]]] = {
    "typescript": [pytest.mark.xdist_group("typescript")],
    "go": test_go.pytestmark[1:],
    "java": test_java.pytestmark[1:],
}


@pytest.mark.long
@pytest.mark.parametrize(
    "language",
    [pytest.param(one, marks=NEEDS.get(one, ())) for one in ("curl", "python", "typescript", "go", "java")],
)
def test_each_call_does_in_each_language_what_it_does_in_the_console(
    service: Service, tmp_path: Path, request: pytest.FixtureRequest, language: str
) -> None:
    """Every other program reads a key, which this API does not need."""
    build: Build = request.getfixturevalue(language)
    topic = f"calls.{language}"

    def kept() -> str:
        answer = service.http.post("/v1/messages", json={"topic": topic, "delayTime": "1h"}).json()
        return str(answer["id"])

    first, second = kept(), kept()
    calls: list[dict[str, Any]] = [
        {"does": "schedule", "topic": topic, "body": HOSTILE, "delay": "1h30m"},
        {"does": "get", "id": first},
        {"does": "reschedule", "id": first, "date": "2035-01-31T08:00:00.250Z"},
        {"does": "reschedule", "id": second, "delay": "1800000"},
        {"does": "cancel", "id": first},
        {"does": "redrive", "id": first},
        {"does": "discard", "id": first},
        {"does": "deliverNow", "id": second, "force": True},
        {"does": "receive", "topic": topic, "group": "mine"},
    ]
    half = [written(*calls, url=service.url, key=key) for key in (False, True)]
    texts = [half[number % 2][number][language] for number in range(len(calls))]
    programs = iter(build(texts, tmp_path))

    def call() -> str:
        return run_program(next(programs), tmp_path, DELAYQ_API_KEY="dq_none")

    def state(id: str) -> Any:
        return service.http.get(f"/v1/messages/{id}").json()

    printed = call()
    found = service.http.get("/v1/messages", params={"topic": topic}).json()["messages"]
    assert [one["message"]["body"] for one in found if one["id"] in printed] == [HOSTILE]
    assert "scheduled" in call()
    call()
    assert state(first)["dueTime"] == "2035-01-31T08:00:00.250Z"
    call()
    assert "cancelled" in call()
    assert "notDead" in call()
    call()
    assert state(first)["state"] == "cancelled"
    call()
    eventually(lambda: state(second)["state"] == "delivered", "it is delivered")
    assert second in call()
