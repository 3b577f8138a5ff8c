"""Clients that generators make of docs/openapi.json: they compile under strict settings and call a real API."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from testbed import folders, jars
from testbed.errors import ServerMissing
from tests.api.test_process import Api, api_process
from tests.support.servers import ServerUnderTest

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = ROOT / "docs" / "openapi.json"
PROGRAMS: Final = Path(__file__).parent / "generated"
#: Each program schedules, reads the message, cancels it by its key, and reads the problem of a repeat.
PRINTED: Final = ["scheduled", "order-42 true", "cancelled", "urn:delayq:problem:conflict"]


@pytest.fixture(scope="module")
def running_api(session_valkey: ServerUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with api_process(session_valkey.url, tmp_path_factory.mktemp("api")) as process:
        yield process


@pytest.fixture
def api(running_api: Api, valkey: ServerUnderTest) -> Api:
    """One API for all tests. The messages of the last test are gone."""
    return running_api


def fetched(name: str) -> Path:
    try:
        return folders.find(name)
    except ServerMissing as error:
        pytest.skip(str(error))


def run(folder: Path, *words: str | Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Run a program that must succeed, and return what it printed."""
    given = os.environ | (environment or {})
    ran = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def url(api: Api) -> str:
    return f"http://127.0.0.1:{api.port}"


def test_openapi_typescript_and_openapi_fetch(api: Api, tmp_path: Path) -> None:
    modules = fetched("openapi-typescript") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(PROGRAMS / "use.ts", tmp_path)
    run(tmp_path, modules / ".bin" / "openapi-typescript", DOCUMENT, "-o", "delayq.d.ts")
    strict = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noImplicitReturns")
    form = ("--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable")
    run(tmp_path, modules / ".bin" / "tsc", *strict, *form, "--types", "node", "use.ts")
    assert run(tmp_path, "node", "use.js", url(api)) == PRINTED


@pytest.mark.parametrize("generator", ["oapi-codegen", "ogen"])
def test_go_generators(api: Api, tmp_path: Path, generator: str) -> None:
    pinned = fetched("openapi-go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(pinned / name, tmp_path)
    (tmp_path / "delayq").mkdir()
    if generator == "ogen":
        run(tmp_path, pinned / "bin" / "ogen", "-package", "delayq", "-target", "delayq", DOCUMENT)
        shutil.copy(PROGRAMS / "ogen.go", tmp_path / "main.go")
    else:
        form = ("-package", "delayq", "-generate", "types,client", "-o", "delayq/delayq.go")
        run(tmp_path, pinned / "bin" / "oapi-codegen", *form, DOCUMENT)
        shutil.copy(PROGRAMS / "oapi.go", tmp_path / "main.go")
    environment = folders.go_environment(pinned) | {"GOPROXY": "off"}
    run(tmp_path, "go", "vet", "./...", environment=environment)
    run(tmp_path, "go", "build", "-o", "use", ".", environment=environment)
    assert run(tmp_path, tmp_path / "use", url(api)) == PRINTED


def test_openapi_generator_for_java(api: Api, tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("no javac on PATH: install a JDK (apt install default-jdk)")
    if missing := jars.missing("openapi-generator"):
        pytest.skip(f"{missing[0]} is missing: ./dev brokers fetch openapi-generator fetches it")
    classes = {path.name.rpartition("-")[0]: path for path in jars.cache("openapi-generator").glob("*.jar")}
    generator = ("java", *jars.SHORT_LIVED, "-jar", classes.pop("openapi-generator-cli"))
    # It first validates the document, and makes nothing of an invalid one.
    made = ("--generator-name", "java", "--library", "native", "--output", "made")
    properties = ("--additional-properties", "openApiNullable=false")
    run(tmp_path, *generator, "generate", "--input-spec", DOCUMENT, *made, *properties)
    sources = sorted((tmp_path / "made" / "src" / "main" / "java").rglob("*.java"))
    path = os.pathsep.join(map(str, classes.values()))
    # The generator's own code calls a method of Jackson that is deprecated.
    strict = ("-Xlint:all,-deprecation", "-Werror", "-proc:none")
    compiler = ("javac", *(f"-J{option}" for option in jars.SHORT_LIVED))
    run(tmp_path, *compiler, *strict, "-d", "classes", "-cp", path, *sources, PROGRAMS / "Use.java")
    assert run(tmp_path, "java", *jars.SHORT_LIVED, "-cp", f"classes{os.pathsep}{path}", "Use", url(api)) == PRINTED


def test_openapi_python_client(api: Api, tmp_path: Path) -> None:
    python = fetched("openapi-python-client") / "venv" / "bin" / "python"
    run(tmp_path, python, "-m", "openapi_spec_validator", DOCUMENT)
    (tmp_path / "settings.yaml").write_text("package_name_override: delayq_generated\npost_hooks: []\n")
    made = ("--meta", "none", "--config", "settings.yaml", "--output-path", "delayq_generated")
    run(tmp_path, python, "-m", "openapi_python_client", "generate", "--path", DOCUMENT, *made, "--fail-on-warning")
    shutil.copy(PROGRAMS / "use.py", tmp_path)
    run(tmp_path, python, "-m", "mypy", "--strict", "delayq_generated", "use.py")
    assert run(tmp_path, python, "use.py", url(api)) == PRINTED
