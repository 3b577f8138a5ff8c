"""Whoever speaks HTTP can schedule: the clients that people use, each with its defaults, on http://."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from testbed import folders
from testbed.errors import ServerMissing
from tests.clients.conftest import Run, run_program
from tests.support.service import Service

pytestmark = pytest.mark.long

HERE: Final = Path(__file__).parent / "http"
#: The clients of each program. Java's own client, and Spring's with it, offer HTTP/2 by `Upgrade: h2c`.
JAVA: Final = {"jdk", "spring-jdk", "spring-simple", "spring-apache", "spring-default", "okhttp", "apache"}
NODE: Final = {"fetch", "undici", "axios", "node-http"}
PYTHON: Final = {"requests", "httpx", "urllib"}
CURL: Final = {"curl": [], "curl-http1.1": ["--http1.1"], "curl-http2": ["--http2"]}

CALLS_OF_PYTHON: Final = """
import json, sys, urllib.request
import httpx, requests

url = sys.argv[1] + "/v1/messages"
message = lambda name: {"topic": "any", "id": name, "body": {"by": name}, "delayTime": "1h"}
print("requests", requests.post(url, json=message("requests")).status_code)
print("httpx", httpx.post(url, json=message("httpx")).status_code)
request = urllib.request.Request(url, json.dumps(message("urllib")).encode(), {"content-type": "application/json"})
print("urllib", urllib.request.urlopen(request).status)
"""


def program(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} on PATH: install it")


def all_scheduled(printed: str, names: set[str], service: Service) -> None:
    """Each client printed "name 201", and its message is there, with its body."""
    assert dict(line.split() for line in printed.splitlines()) == dict.fromkeys(names, "201")
    for name in names:
        found = service.http.get(f"/v1/messages/{name}").json()
        assert (found["state"], found["message"]["body"]) == ("scheduled", {"by": name})


def test_java(service: Service, run: Run, tmp_path: Path) -> None:
    program("mvn")
    program("javac")
    shutil.copytree(HERE / "java", tmp_path / "java")
    run_program(["mvn", "--batch-mode", "--quiet", "package"], tmp_path / "java")
    path = f"{tmp_path}/java/target/classes:{tmp_path}/java/target/dependency/*"
    all_scheduled(run(["java", "-cp", path, "Calls", service.url], tmp_path), JAVA, service)


def test_node(service: Service, run: Run, tmp_path: Path) -> None:
    try:
        modules = folders.find("http-clients")
    except ServerMissing as error:
        pytest.skip(str(error))
    all_scheduled(run(["node", HERE / "node" / "calls.mjs", service.url, modules], tmp_path), NODE, service)


def test_go(service: Service, run: Run, tmp_path: Path) -> None:
    program("go")
    all_scheduled(run(["go", "run", HERE / "go" / "main.go", service.url], tmp_path), {"go"}, service)


def test_python(service: Service, run: Run, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    run_program([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], tmp_path)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run_program([*install, "requests==2.32.5", "httpx==0.28.1"], tmp_path, PIP_CONSTRAINT="")
    all_scheduled(run([python, "-c", CALLS_OF_PYTHON, service.url], tmp_path), PYTHON, service)


@pytest.mark.parametrize("name", CURL)
def test_curl(service: Service, run: Run, tmp_path: Path, name: str) -> None:
    program("curl")
    message = json.dumps({"topic": "any", "id": name, "body": {"by": name}, "delayTime": "1h"})
    words = ["curl", "-s", "-o", "/dev/null", "-w", f"{name} %{{http_code}}\n", "-H", "content-type: application/json"]
    printed = run([*words, *CURL[name], "-d", message, f"{service.url}/v1/messages"], tmp_path)
    all_scheduled(printed, {name}, service)
