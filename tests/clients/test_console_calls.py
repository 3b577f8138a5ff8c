"""The programs that the console offers to copy: each runs, and each sends the values that its reader saw."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients import test_go, test_java, test_typescript
from tests.clients.conftest import run_program
from tests.support.service import ROOT, Service
from tests.support.waiting import eventually

package = test_java.package
typescript_package = test_typescript.package

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
#: Runs a program in a folder and returns what it printed.
RunText = Callable[[str, Path], str]


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
def curl(service: Service) -> RunText:
    return lambda text, folder: run_program(["sh", "-c", text], folder, DELAYQ_API_KEY="dq_none")


@pytest.fixture
def python(service: Service) -> RunText:
    return lambda text, folder: run_program([sys.executable, "-c", text], folder, DELAYQ_API_KEY="dq_none")


@pytest.fixture
def typescript(service: Service, typescript_package: Path) -> RunText:
    def run(text: str, folder: Path) -> str:
        (folder / "node_modules" / "@delayq").mkdir(parents=True)
        (folder / "node_modules" / "@delayq" / "client").symlink_to(typescript_package)
        (folder / "node_modules" / "@types").symlink_to(typescript_package / "node_modules" / "@types")
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (folder / "call.ts").write_text(text, encoding="utf-8")
        compiler = typescript_package / "node_modules" / ".bin" / "tsc"
        options = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"]
        run_program([compiler, *options, "call.ts"], folder)
        return run_program(["node", "call.js"], folder, DELAYQ_API_KEY="dq_none")

    return run


@pytest.fixture
def go(service: Service) -> RunText:
    def run(text: str, folder: Path) -> str:
        (folder / "main.go").write_text(text, encoding="utf-8")
        module = f"module example\n\ngo 1.23\n\nrequire {test_go.MODULE} v0.0.0\n\nreplace {test_go.MODULE} => {test_go.SOURCE}\n"
        (folder / "go.mod").write_text(module, encoding="utf-8")
        assert run_program(["gofmt", "-l", "."], folder) == ""
        run_program(["go", "vet", "."], folder)
        return run_program(["go", "run", "."], folder, DELAYQ_API_KEY="dq_none")

    return run


@pytest.fixture
def java(service: Service, package: Path) -> RunText:
    (jar,) = (package / "target").glob("delayq-client-*.jar")

    def run(text: str, folder: Path) -> str:
        (folder / "Call.java").write_text(text, encoding="utf-8")
        run_program(["javac", "-encoding", "UTF-8", "-Xlint:all", "-Werror", "-cp", jar, "Call.java"], folder)
        return run_program(["java", "-cp", f"{jar}:.", "Call"], folder, DELAYQ_API_KEY="dq_none")

    return run


NEEDS: Final = {"go": test_go.pytestmark[1], "java": test_java.pytestmark[1]}


@pytest.mark.long
@pytest.mark.parametrize(
    "language",
    [pytest.param(one, marks=NEEDS.get(one, ())) for one in ("curl", "python", "typescript", "go", "java")],
)
def test_each_call_does_in_each_language_what_it_does_in_the_console(
    service: Service, tmp_path: Path, request: pytest.FixtureRequest, language: str
) -> None:
    """Every other program reads a key, which this API does not need."""
    run: RunText = request.getfixturevalue(language)
    numbers = count()

    def call(does: str, **more: Any) -> str:
        number = next(numbers)
        (program,) = written({"does": does, **more}, url=service.url, key=number % 2 == 1)
        folder = tmp_path / str(number)
        folder.mkdir()
        return run(program[language], folder)

    topic = f"calls.{language}"
    printed = call("schedule", topic=topic, body=HOSTILE, delay="1h30m")
    (found,) = service.http.get("/v1/messages", params={"topic": topic}).json()["messages"]
    id = found["id"]
    assert (found["message"]["body"], id in printed) == (HOSTILE, True)
    assert "scheduled" in call("get", id=id)
    call("reschedule", id=id, date="2035-01-31T08:00:00.250Z")
    assert service.http.get(f"/v1/messages/{id}").json()["dueTime"] == "2035-01-31T08:00:00.250Z"
    call("reschedule", id=id, delay="1800000")
    assert "cancelled" in call("cancel", id=id)
    assert "notDead" in call("redrive", id=id)
    call("discard", id=id)
    call("schedule", topic=topic, delay="1d")
    (found,) = service.http.get("/v1/messages", params={"topic": topic}).json()["messages"]
    call("deliverNow", id=found["id"], force=True)
    eventually(
        lambda: service.http.get(f"/v1/messages/{found['id']}").json()["state"] == "delivered", "it is delivered"
    )
    assert found["id"] in call("receive", topic=topic, group="mine")
