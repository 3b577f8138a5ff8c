"""delayq works whatever the locale is: it reads its files, arguments and output as UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from delayq import Client, ConfigError, InvalidMessage
from delayq.client.audit import By
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT

pytestmark = pytest.mark.long

#: Locales in which Python's own default is not UTF-8. An embedded Python, as in uWSGI, has no UTF-8 mode of its own.
LOCALES: tuple[Mapping[str, str], ...] = (
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "C.ISO-8859-1", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
)

CLIENT = r"""
import sys
from delayq import Client, Message
from delayq.config import load_settings
from delayq.domain.routes import load_routes
from delayq.base.secrets import revealed
settings = load_settings(redis_url=sys.argv[1], routes=sys.argv[2])
assert revealed("file:" + sys.argv[3], "a key") == "gr\xf6\xdfe"
assert revealed("env:SECRET", "a key") == revealed(settings.zookeeper_password, "a key") == "gr\xf6\xdfe"
assert settings.node == "gr\xf6\xdfe"
assert [one.stream for one in load_routes(load_settings().routes).table] == ["gr\xf6\xdfe"]
with Client(settings=settings) as client:
    print(client.schedule(Message(topic="orders", body="gr\xf6\xdfe", delay_time=60_000, id="a")).id)
    assert client.get("a").record.body in ("gr\xf6\xdfe", "gr\xf6\xdfe".encode())
"""


def run(words: list[str], locale: Mapping[str, str], **more: str) -> subprocess.CompletedProcess[bytes]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "LC_", "LANG", "PYTHON"))
    }
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=clean | dict(locale) | more, capture_output=True, check=False
    )


@pytest.mark.parametrize("locale", LOCALES, ids=lambda one: one["LC_ALL"])
def test_the_client_reads_scripts_settings_and_secrets_in_every_locale(
    valkey: ServerUnderTest, tmp_path: Path, locale: Mapping[str, str]
) -> None:
    routes = tmp_path / "routes.yaml"
    routes.write_text("# Größe\nroutes: [{name: all, match: '*', target: 'log:'}]\n", encoding="utf-8")
    secret = tmp_path / "secret"
    named = tmp_path / "größe"
    for file in (secret, named):
        file.write_text("größe\n", encoding="utf-8")
    environment = {
        "SECRET": "größe", "DELAYQ_NODE": "größe", "DELAYQ_ROUTES": '[{"name": "r", "stream": "größe"}]',
        "DELAYQ_ZOOKEEPER_USER": "größe", "DELAYQ_ZOOKEEPER_PASSWORD": f"file:{named}",
    }  # fmt: skip
    ran = run(["-c", CLIENT, valkey.url, str(routes), str(secret)], locale, **environment)
    assert (ran.returncode, ran.stdout) == (0, b"a\n"), ran.stderr.decode()


def test_bytes_that_are_not_utf8_are_a_name_of_a_file_or_refused_in_a_sentence(
    valkey: ServerUnderTest, tmp_path: Path
) -> None:
    odd = os.fsdecode(b"\xff")
    file = tmp_path / f"body{odd}"
    file.write_text("x")
    words = [
        "-m",
        "delayq.cli",
        "schedule",
        "t",
        "--body-file",
        str(file),
        "--delay",
        "1h",
        "--id",
        "a",
        "--no-route-check",
    ]
    ran = run(words, {}, DELAYQ_REDIS_URL=valkey.url)
    assert (ran.returncode, ran.stderr) == (0, b"")
    cancel = ["-m", "delayq.cli", "cancel", "a"]
    assert run(cancel, {}, DELAYQ_REDIS_URL=valkey.url, USER=odd, LOGNAME=odd).returncode == 0
    for setting in ("DELAYQ_REDIS_PASSWORD", "DELAYQ_NODE"):
        ran = run(cancel, {}, DELAYQ_REDIS_URL=valkey.url, **{setting: odd})
        assert (ran.returncode, ran.stderr.decode()) == (2, f"delayq: {setting}: the value is not UTF-8.\n")
    with Client(valkey.url) as client:
        for call in (lambda: client.pause("a", reason=odd), lambda: client.cancel("a", by=By(actor=odd))):
            with pytest.raises(InvalidMessage):
                call()
    with pytest.raises(ConfigError, match="not UTF-8"):
        Client(f"redis://:{odd}@127.0.0.1")


@pytest.mark.parametrize("locale", LOCALES, ids=lambda one: one["LC_ALL"])
def test_the_command_line_takes_and_prints_utf8_in_every_locale(
    valkey: ServerUnderTest, tmp_path: Path, locale: Mapping[str, str]
) -> None:
    file = tmp_path / "größe.txt"
    file.write_bytes("größe 42".encode())
    for body in (["größe 42"], ["--body-file", str(file)]):
        command = ["-m", "delayq.cli", "schedule", "orders", *body, "--delay", "1h", "--json"]
        ran = run(command, locale, DELAYQ_REDIS_URL=valkey.url)
        assert ran.returncode == 0, ran.stderr.decode()
    shown = run(["-m", "delayq.cli", "get", json.loads(ran.stdout)["id"]], locale, DELAYQ_REDIS_URL=valkey.url)
    assert "größe 42".encode() in shown.stdout, shown.stdout


LOG_TARGET = r"""
from delayq.domain.routes import Route
from delayq.targets.log import LogTarget
from tests.support.deliveries import delivery, outcomes

target = LogTarget("log:", Route(name="r", target="log:"), "redis://")
print(outcomes(target.send([delivery("a", "gr\xf6\xdfe \N{SNOWMAN}")], 1.0)))
"""


@pytest.mark.parametrize("locale", LOCALES, ids=lambda one: one["LC_ALL"])
def test_the_log_target_writes_utf8_in_every_locale(locale: Mapping[str, str]) -> None:
    """Otherwise one character that the locale lacks would fail a whole batch, for ever."""
    ran = run(["-c", LOG_TARGET], locale, PYTHONPATH=str(ROOT))
    line, said = ran.stdout.decode().splitlines()
    assert (json.loads(line)["body"], said) == ("größe \N{SNOWMAN}", "['ok']"), ran.stderr.decode()
