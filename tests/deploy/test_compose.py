"""docker-compose.yml, its commands that run without Docker, and docs/deploying.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from api.auth.keys_file import refuse_open_door
from delayq.base.times import parse_duration
from delayq.cli import main
from delayq.config import SETTINGS, Settings, variable
from delayq.domain.routes import load_routes
from devtools.pages import ROOT, blocks_of
from tests.deploy.test_image import stages
from tests.support.servers import ServerUnderTest

COMPOSE: Final = ROOT / "docker-compose.yml"
PAGE: Final = ROOT / "docs" / "deploying.md"
TEXT: Final = COMPOSE.read_text()
#: With the default of each variable in its place, as Compose puts it: after it has read the YAML.
FILE: Final[dict[str, Any]] = msgspec.json.decode(
    re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", msgspec.json.encode(msgspec.yaml.decode(TEXT)).decode()).replace("$$", "$")
)
SERVICES: Final[dict[str, dict[str, Any]]] = FILE["services"]
PROFILES: Final = {"kafka", "rocketmq", "rabbitmq", "spark", "observability"}
OURS: Final = ("api", "worker", "backfill", "rabbitmq-queue")
#: Services that do one thing and end.
ONCE: Final = {"backfill", "rocketmq-topic", "rabbitmq-queue"}


def settings_of(name: str) -> Settings:
    given = {key.removeprefix("DELAYQ_").lower(): value for key, value in SERVICES[name]["environment"].items()}
    return Settings(**{key: value for key, value in given.items() if key in SETTINGS})


@pytest.mark.long
def test_it_keeps_to_the_compose_specification() -> None:
    import jsonschema

    schema = json.loads((files("check_jsonschema.builtin_schemas.vendor") / "compose-spec.json").read_text())
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    validator.validate(msgspec.yaml.decode(TEXT))
    validator.validate(FILE)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(FILE | {"services": {"redis": {"imagee": "redis"}}})


def test_it_has_the_services_and_profiles_that_the_page_names() -> None:
    assert (SERVICES["api"]["deploy"], SERVICES["worker"]["deploy"]) == ({"replicas": 2}, {"replicas": 3})
    assert {profile for one in SERVICES.values() for profile in one.get("profiles", ())} == PROFILES
    always = {name for name, one in SERVICES.items() if not one.get("profiles")}
    assert always == {"redis", "zookeeper-1", "zookeeper-2", "zookeeper-3", "api", "worker"}
    page = PAGE.read_text()
    assert {profile for profile in PROFILES if f"`{profile}`" not in page} == set()


def test_every_port_is_published_on_loopback_only_and_named_by_the_page() -> None:
    published = [port for one in SERVICES.values() for port in one.get("ports", ())]
    assert len(published) > 5
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:\d+(-\d+)?:\d+", port)] == []
    hosts = [port.split(":")[1] for port in published]
    assert len(hosts) == len(set(hosts))
    assert SERVICES["api"]["ports"] == ["127.0.0.1:8080-8081:8080"], "a port for each replica"
    page = PAGE.read_text()
    assert [host for host in hosts if not re.search(rf"\b{host.partition('-')[0]}\b", page)] == []


def test_every_image_is_pinned_and_ours_are_built_by_the_dockerfile() -> None:
    for name, one in SERVICES.items():
        assert re.search(r":v?\d+\.\d+\.\d+", one["image"]), f"{name}: {one['image']}"
    assert {one["build"]["target"] for one in SERVICES.values() if "build" in one} <= set(stages())


def test_delayqs_own_services_run_without_rights() -> None:
    for name in OURS:
        one = SERVICES[name]
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert [mount.partition(":")[0] for mount in one["tmpfs"]] == ["/tmp"], name
        assert all(volume.endswith(":ro") for volume in one["volumes"]), name
        assert not {"privileged", "user", "cap_add", "pid", "network_mode"} & set(one), name


def test_a_service_starts_when_those_that_it_needs_are_healthy() -> None:
    for name, one in SERVICES.items():
        for other, how in one.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}, f"{name}: {other}"
            assert not SERVICES[other].get("profiles") or SERVICES[other]["profiles"] == one["profiles"]
    assert "redis" in SERVICES["api"]["depends_on"]
    assert {"redis", "zookeeper-1", "zookeeper-2", "zookeeper-3"} <= SERVICES["worker"]["depends_on"].keys()
    assert {name for name, one in SERVICES.items() if "healthcheck" not in one} == ONCE
    assert {name for name, one in SERVICES.items() if one.get("restart", "no") == "no"} == ONCE


def test_the_settings_of_api_and_worker_are_settings_of_delayq() -> None:
    known = {variable(one) for one in SETTINGS}
    for name in ("api", "worker"):
        assert {key for key in SERVICES[name]["environment"] if key not in known} == {"RABBITMQ_PASSWORD"}
    worker = SERVICES["worker"]
    assert parse_duration(worker["stop_grace_period"]) >= settings_of("worker").drain_timeout + 10_000
    assert parse_duration(SERVICES["api"]["stop_grace_period"]) > 8_000


def test_no_variable_of_this_machine_means_something_else_in_a_container() -> None:
    """In a container, a path of this machine means nothing, such as DELAYQ_API_KEYS of the command line."""
    used = set(re.findall(r"\$\{(\w+)", TEXT))
    assert used & {variable(name) for name in SETTINGS} == {"DELAYQ_CONSOLE", "DELAYQ_LOG_LEVEL"}
    named = set(re.findall(r"`(DELAYQ_\w+)`", PAGE.read_text()))
    assert used <= named
    assert {name for name in named - used if name.removeprefix("DELAYQ_").lower() not in SETTINGS} == set()


def test_mounted_files_exist_and_the_routes_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = [volume.split(":")[0] for one in SERVICES.values() for volume in one.get("volumes", ())]
    assert {name for name in volumes if not name.startswith(".")} == set(FILE["volumes"])
    assert {name for name in volumes if name.startswith(".") and not (ROOT / name).exists()} == set()
    monkeypatch.setenv("RABBITMQ_PASSWORD", "delayq")
    routes = load_routes(str(ROOT / "deploy" / "routes.yaml")).table
    assert [route.name for route in routes] == ["kafka", "rocketmq", "rabbitmq", "streams"]
    hosts = {match[1] for route in routes if (match := re.match(r"\w+://([\w-]+):\d+", f"{route.target}"))}
    assert hosts == {"kafka", "rocketmq", "rabbitmq"} and hosts <= SERVICES.keys()


def test_redis_is_configured_as_its_page_demands() -> None:
    words = SERVICES["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] in ("everysec", "always")
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--save"] == ""


def test_prometheus_and_grafana_find_what_they_read() -> None:
    config = msgspec.yaml.decode((ROOT / "observability" / "prometheus.yml").read_text())
    jobs = [one for job in config["scrape_configs"] for one in job["dns_sd_configs"]]
    scraped = {(name, one["port"]) for one in jobs for name in one["names"]}
    assert scraped == {("api", settings_of("api").api_port), ("worker", settings_of("worker").worker_port)}
    assert set(config["rule_files"]) <= {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    folder = ROOT / "observability" / "grafana" / "provisioning"
    (source,) = msgspec.yaml.decode((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["uid"], source["url"]) == ("prometheus", "prometheus", "http://prometheus:9090")
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
    (provider,) = msgspec.yaml.decode((folder / "dashboards" / "delayq.yaml").read_text())["providers"]
    assert provider["options"]["path"] in {Path(place).parent.as_posix() for place in mounted}


def run(words: list[str], programs: Path, **scripts: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these scripts in the place of programs."""
    programs.mkdir()
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run(words, cwd=programs, env=env, capture_output=True, text=True, check=False)


def started_api(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """The API's command with these files in its folder of keys; in Python's place a script prints its settings."""
    (keys := folder / "keys").mkdir()
    for name in (".gitignore", *files):
        (keys / name).write_text("keys: []\n")
    words = [word.replace("/etc/delayq/keys", str(keys)) for word in SERVICES["api"]["command"]]
    return run(words, folder / "bin", python='echo "$* keys=$DELAYQ_API_KEYS open=$DELAYQ_API_OPEN"')


def test_a_file_of_keys_that_is_there_is_in_force(tmp_path: Path) -> None:
    """H16: In compose an existing file of keys is in force."""
    ran = started_api(tmp_path, "keys.yaml", "older.yaml")
    assert (ran.returncode, ran.stdout) == (0, f"-m api keys={tmp_path}/keys/keys.yaml open=\n")
    assert "./deploy/keys:/etc/delayq/keys:ro" in SERVICES["api"]["volumes"]


def test_without_keys_the_api_is_open_only_because_it_is_told_to(tmp_path: Path) -> None:
    assert started_api(tmp_path).stdout == "-m api keys= open=yes-without-keys\n"
    settings = settings_of("api")
    assert settings.api_host == "0.0.0.0" and not settings.api_keys
    refuse_open_door(settings.replace(api_open="yes-without-keys"))
    with pytest.raises(Exception, match="no keys are set"):
        refuse_open_door(settings)


def test_keys_under_another_name_are_not_left_out_silently(tmp_path: Path) -> None:
    ran = started_api(tmp_path, "keys.yml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "deploy/keys has files, and none of them is keys.yaml: give the file of keys this name\n"


def test_the_topic_of_rocketmq_is_requested_until_it_exists(tmp_path: Path) -> None:
    created = "create topic to 10.0.0.1:10911 success."
    admin = f'[ -e asked ] && echo "{created}" || echo "$*" >asked'
    ran = run(SERVICES["rocketmq-topic"]["command"], tmp_path / "bin", mqadmin=admin)
    assert (ran.returncode, ran.stdout) == (0, f"{created}\n")
    assert (tmp_path / "bin" / "asked").read_text().endswith(" -c DefaultCluster -t delayq -a +message.type=FIFO\n")


def test_the_example_of_a_backfill_schedules_its_table(
    valkey: ServerUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("/tables", str(ROOT / "deploy" / "tables")) for word in SERVICES["backfill"]["command"]]
    assert main([*words[1:], "--local", "--json", "--redis-url", valkey.url]) == 0
    assert json.loads(capsys.readouterr().out)["scheduled"] == 2


# -- docs/deploying.md ---------------------------------------------------------------------------------------------------


def commands(*begin: str) -> list[list[str]]:
    """The words behind `begin` of each such command of the page, without variables in front of it."""
    blocks = [block for block in blocks_of(PAGE) if block.note == "run by tests/deploy/test_compose.py"]
    lines = re.sub(r"curl .*?\n.*\n", "", "".join(block.text for block in blocks).replace("\\\n", " ")).splitlines()
    found = [[word for word in shlex.split(line) if not re.match(r"DELAYQ_\w+=", word)] for line in lines]
    return [words[len(begin) :] for words in found if words[: len(begin)] == [*begin]]


def test_the_commands_of_the_page_name_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(commands("docker", "compose")) >= 9
    for words in commands("docker", "compose"):
        while words[0] == "--profile":
            assert words[1] in PROFILES
            words = words[2:]
        assert words[0] in {"up", "down", "exec", "restart", "run", "logs"}
        scaled = [words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--scale"]
        assert set(scaled) <= SERVICES.keys()
        if words[0] in ("exec", "run"):
            service, program, *rest = [word for word in words[1:] if not word.startswith("-")]
            assert service in SERVICES and program in ("delayq", "python"), words
            if program == "delayq":
                assert main([rest[0], "--help"]) == 0
                options = capsys.readouterr().out
                own = words[words.index("delayq") :]
                assert [word for word in own if word.startswith("--") and word not in options] == []
    targets = [words[words.index("--target") + 1] for words in commands("docker", "build")]
    assert targets == ["delayq", "spark"] and set(targets) <= set(stages())


def test_the_keys_of_the_page_are_created_where_the_api_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (words,) = commands("delayq", "api-keys")
    file = Path(words[words.index("--file") + 1])
    (tmp_path / file.parent).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(["api-keys", *words]) == 0
    assert msgspec.yaml.decode(file.read_text())
    assert f"./{file.parent}:/etc/delayq/keys:ro" in SERVICES["api"]["volumes"]
