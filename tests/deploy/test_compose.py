"""What docker-compose.yml says."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from api.auth.keys_file import refuse_open_door
from delayq.config import Settings, variable
from delayq.times import parse_duration
from tests.deploy.compose import COMPOSE, ROOT, Container, Image, Names, in_order, load, replicas

pytestmark = pytest.mark.long

FILE = load(COMPOSE.read_text(), {})
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
PROFILES = {"kafka", "rocketmq", "rabbitmq", "spark", "observability"}
OURS = {"api", "worker", "backfill", "rabbitmq-queue"}

#: What runs the command of each service: the stack, or a test (or fixture) of these files.
RUN_BY = {
    **dict.fromkeys(("redis", "zookeeper-1", "zookeeper-2", "zookeeper-3", "api", "worker"), "stack.py"),
    "kafka": "test_compose_brokers.py::test_kafka_serves_the_other_containers_and_this_machine",
    "rocketmq-names": "test_compose_brokers.py::test_rocketmq_has_its_topic_which_takes_messages_in_order",
    "rocketmq": "test_compose_brokers.py::test_rocketmq_has_its_topic_which_takes_messages_in_order",
    "rocketmq-topic": "test_compose_brokers.py::test_rocketmq_has_its_topic_which_takes_messages_in_order",
    "rabbitmq": "test_compose_brokers.py::test_rabbitmq_has_its_user_and_its_queue",
    "rabbitmq-queue": "test_compose_brokers.py::test_rabbitmq_has_its_user_and_its_queue",
    "backfill": "test_compose_runs.py::test_the_example_of_a_backfill_schedules_its_table",
    "prometheus": "test_compose_observability.py::prometheus",
    "grafana": "test_compose_observability.py::test_grafana_shows_the_dashboard_and_asks_prometheus",
}


def settings_of(name: str) -> Settings:
    given = {key.removeprefix("DELAYQ_").lower(): value for key, value in SERVICES[name]["environment"].items()}
    known = {key: value for key, value in given.items() if key in Settings.model_fields}
    return Settings(**known)


def test_it_keeps_to_the_compose_specification() -> None:
    schema = json.loads((files("check_jsonschema.builtin_schemas.vendor") / "compose-spec.json").read_text())
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    validator.validate(msgspec.yaml.decode(COMPOSE.read_text()))
    validator.validate(FILE)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(FILE | {"services": {"redis": {"imagee": "redis"}}})


def test_it_has_the_services_and_profiles_that_are_promised() -> None:
    assert replicas(SERVICES["api"]) == 2 and replicas(SERVICES["worker"]) == 3
    assert [name for name in SERVICES if name.startswith("zookeeper-")] == ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    assert {profile for one in SERVICES.values() for profile in one.get("profiles", ())} == PROFILES
    always = {name for name, one in SERVICES.items() if not one.get("profiles")}
    assert always == {"redis", "zookeeper-1", "zookeeper-2", "zookeeper-3", "api", "worker"}


def test_every_service_is_run_by_a_test() -> None:
    assert RUN_BY.keys() == SERVICES.keys()
    for name, place in RUN_BY.items():
        file, _, test = place.partition("::")
        source = (Path(__file__).parent / file).read_text()
        if test:
            assert f'"{name}"' in source.split(f"def {test}(")[1].split("\n\n\n")[0]
        else:
            assert not SERVICES[name].get("profiles"), "the stack starts what has none"


def test_every_port_is_published_on_loopback_only() -> None:
    published = [port for one in SERVICES.values() for port in one.get("ports", ())]
    assert len(published) > 5
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:\d+(-\d+)?:\d+", port)] == []
    hosts = [port.split(":")[1] for port in published]
    assert len(hosts) == len(set(hosts))
    assert SERVICES["api"]["ports"] == ["127.0.0.1:8080-8081:8080"], "a port for each replica"


def test_every_image_is_pinned() -> None:
    for name, one in SERVICES.items():
        assert re.search(r":v?\d+\.\d+\.\d+", one["image"]), f"{name}: {one['image']}"


@pytest.mark.parametrize("name", sorted(OURS))
def test_delayqs_own_services_can_do_little(name: str) -> None:
    one = SERVICES[name]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in one["tmpfs"]] == ["/tmp"]
    assert all(volume.endswith(":ro") for volume in one["volumes"])
    assert not {"privileged", "user", "cap_add", "pid", "network_mode"} & set(one)


def test_what_is_waited_for_has_a_health_check() -> None:
    for name, one in SERVICES.items():
        for other, how in one.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}, f"{name}: {other}"
            assert "healthcheck" in SERVICES[other], other
            assert not SERVICES[other].get("profiles") or SERVICES[other]["profiles"] == one["profiles"]
    order = in_order(SERVICES)
    assert order.index("redis") < order.index("api")
    assert order.index("zookeeper-3") < order.index("worker")


def test_what_runs_on_has_a_health_check() -> None:
    once = {"backfill", "rocketmq-topic", "rabbitmq-queue"}
    assert {name for name, one in SERVICES.items() if "healthcheck" not in one} == once
    assert {name for name, one in SERVICES.items() if one.get("restart", "no") == "no"} == once


@pytest.mark.parametrize("name", ["api", "worker"])
def test_its_settings_are_settings_of_delayq(name: str) -> None:
    known = {variable(one) for one in Settings.model_fields}
    assert {key for key in SERVICES[name]["environment"] if key not in known} == {"RABBITMQ_PASSWORD"}
    settings_of(name)


def test_a_worker_has_longer_to_stop_than_it_drains() -> None:
    worker = SERVICES["worker"]
    assert parse_duration(worker["stop_grace_period"]) >= settings_of("worker").drain_timeout + 10_000
    assert parse_duration(SERVICES["api"]["stop_grace_period"]) > 8_000


def started_api(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """The API's command over a folder of keys with these files; in Python's place is what tells its settings."""
    keys, programs = folder / "keys", folder / "programs"
    for path in (keys, programs):
        path.mkdir()
    for name in (".gitignore", *files):
        (keys / name).write_text("keys: []\n")
    (programs / "python").write_text('#!/bin/sh\necho "$* keys=$DELAYQ_API_KEYS open=$DELAYQ_API_OPEN"\n')
    (programs / "python").chmod(0o755)
    command = [word.replace("/etc/delayq/keys", str(keys)) for word in SERVICES["api"]["command"]]
    env = {"PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_file_of_keys_that_is_there_is_in_force(tmp_path: Path) -> None:
    ran = started_api(tmp_path, "keys.yaml", "older.yaml")
    assert (ran.returncode, ran.stdout) == (0, f"-m api keys={tmp_path}/keys/keys.yaml open=\n")
    assert "./deploy/keys:/etc/delayq/keys:ro" in SERVICES["api"]["volumes"]


def test_without_keys_the_api_is_open_only_because_it_is_told_to(tmp_path: Path) -> None:
    assert started_api(tmp_path).stdout == "-m api keys= open=yes-without-keys\n"
    settings = settings_of("api")
    assert settings.api_host == "0.0.0.0" and not settings.api_keys
    refuse_open_door(settings.replace(api_open="yes-without-keys"))
    with pytest.raises(Exception, match="there are no keys"):
        refuse_open_door(settings)


def test_keys_under_another_name_are_not_left_out_silently(tmp_path: Path) -> None:
    ran = started_api(tmp_path, "keys.yml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "deploy/keys has files, and none of them is keys.yaml: give the file of keys this name\n"


def test_no_variable_of_this_machine_is_another_thing_in_a_container() -> None:
    """A path of this machine, as the command line has it in DELAYQ_API_KEYS, means nothing in there."""
    handed_on = set(re.findall(r"\$\{(DELAYQ_\w+)", COMPOSE.read_text())) & {
        variable(name) for name in Settings.model_fields
    }
    assert handed_on == {"DELAYQ_CONSOLE", "DELAYQ_LOG_LEVEL"}


def test_what_is_mounted_is_there() -> None:
    volumes = [volume.split(":")[0] for one in SERVICES.values() for volume in one.get("volumes", ())]
    assert {name for name in volumes if not name.startswith(".")} == set(FILE["volumes"])
    assert {name for name in volumes if name.startswith(".") and not (ROOT / name).exists()} == set()


def test_redis_is_set_as_the_page_of_redis_wants_it() -> None:
    words = SERVICES["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] in ("everysec", "always")
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--save"] == ""


def test_rocketmqs_topic_is_asked_for_until_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "mqadmin").write_text(
        '[ -e asked ] && echo "create topic to 10.0.0.1:10911 success." || echo >asked "$*"'
    )
    helper = Container(
        "topic", SERVICES["rocketmq-topic"], Names(SERVICES), {}, tmp_path, image=Image(working_directory=tmp_path)
    )
    helper.start()
    assert (helper.ended(), helper.said()) == (0, "create topic to 10.0.0.1:10911 success.\n")
    assert (tmp_path / "asked").read_text().endswith(" -c DefaultCluster -t delayq -a +message.type=FIFO\n")


def test_prometheus_finds_what_the_services_publish() -> None:
    config = msgspec.yaml.decode((ROOT / "observability" / "prometheus.yml").read_text())
    found = {
        (name, one["port"])
        for job in config["scrape_configs"]
        for one in job["dns_sd_configs"]
        for name in one["names"]
    }
    assert found == {("api", settings_of("api").api_port), ("worker", settings_of("worker").worker_port)}
    mounted = [volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]]
    assert set(config["rule_files"]) <= set(mounted)


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    folder = ROOT / "observability" / "grafana" / "provisioning"
    (source,) = msgspec.yaml.decode((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["uid"], source["url"]) == ("prometheus", "prometheus", "http://prometheus:9090")
    given = SERVICES["grafana"]["environment"]
    assert given["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in [
        volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]
    ]
    (provider,) = msgspec.yaml.decode((folder / "dashboards" / "delayq.yaml").read_text())["providers"]
    mounted = {Path(volume.split(":")[1]).parent.as_posix() for volume in SERVICES["grafana"]["volumes"]}
    assert provider["options"]["path"] in mounted
