"""Which values charts/delayq takes, and how it refuses others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from delayq.config import Settings
from tests.deploy.rendering import CHART, of_kind, refused, render, schema, values

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chart")]

OPEN = "api.open=yes-without-keys"
REDIS = "redis.url=redis://redis:6379/0"
ZOOKEEPER = "zookeeper.hosts=zk:2181"
KEYS = "api.keys.existingSecret=k"
#: What the chart says by itself.
OWN = {
    "redis_url", "zookeeper", "zookeeper_root", "routes", "api_host", "api_port", "api_keys", "api_open", "worker_port",
    "node", "drain_timeout",
}  # fmt: skip


def sets(*given: str) -> list[str]:
    return [word for one in given for word in ("--set-json" if one.endswith(("]", "}")) else "--set", one)]


#: Values that contradict each other, and the reason that the chart gives.
CONTRADICTIONS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    ((OPEN,), "redis: delayq keeps everything in a Redis of yours"),
    ((OPEN, "redis.url=redis://:hunter2@redis:6379/0"), "redis.url: a password belongs into a secret"),
    ((OPEN, "redis.url=redis+sentinel://a:1/s?sentinel_password=x"), "redis.url: a password belongs into a secret"),
    ((REDIS,), "api: others can reach it, and there are no keys"),
    ((REDIS, KEYS, ZOOKEEPER, "workers.autoscaling.by=backlog"), "reader.existingSecret: KEDA needs a key"),
    ((REDIS, KEYS, "metrics.serviceMonitor.enabled=true"), "reader.existingSecret: Prometheus needs a key"),
)
#: Values that contradict each other beside a Redis and an open API, and the reason that the chart gives.
CONTRADICTIONS_BESIDE: Final[tuple[tuple[str, ...], ...]] = (
    ("redis.existingSecret=s", "not both"),
    (KEYS, "not both"),
    ("workers.replicas=2", "zookeeper.hosts: several workers need a ZooKeeper"),
    ("workers.autoscaling.by=cpu", "zookeeper.hosts: several workers need a ZooKeeper"),
    (ZOOKEEPER, "workers.autoscaling.by=cpu", "workers.autoscaling.minReplicas=9", "minReplicas is more"),
    ("api.autoscaling.enabled=true", "api.autoscaling.maxReplicas=1", "minReplicas is more"),
    ("workers.drainSeconds=36", "it is 45, and preStopSeconds + drainSeconds + 10 are 46"),
    ("workers.preStopSeconds=11", "a worker would be killed while it drains"),
    ("api.preStopSeconds=21", "the API would be killed while requests finish"),
    ('routes.table=[{"name": "a"}]', "routes.existingSecret=r", "not both"),
    ('routes.table=[{"name": "a", "target": "rabbitmq://u:hunter2@rabbit"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "options": {"sasl.password": "hunter2"}}]', "routes.table: sasl.password is a secret"),
    ('routes.table=[{"name": "a", "options": {"secret": ["env:A", "hunter2"]}}]', "routes.table: secret is a secret"),
    (
        'routes.table=[{"name": "a", "options": {"headers": {"Authorization": "hunter2"}}}]',
        "routes.table: Authorization is a secret",
    ),
    (
        "settings.DELAYQ_QUEUES=4", 'secretSettings.DELAYQ_QUEUES={"secret": "a", "key": "b"}',
        "DELAYQ_QUEUES: it stands in settings and in secretSettings",
    ),
    ("fullnameOverride=delayq-api", "would give DELAYQ_API_PORT to other pods"),
    ("ingress.enabled=true", "ingress.hosts: name a host"),
    ("backfill.enabled=true", "backfill: give it a name"),
)  # fmt: skip
#: Values that the schema refuses, and how Helm names the place in its one answer.
UNKNOWN: Final = {
    "workers.replica=3": "'replica'",
    "wrokers.replicas=3": "'wrokers'",
    "workers.replicas=many": "/workers/replicas",
    "workers.autoscaling.by=lag": "/workers/autoscaling/by",
    "api.open=yes": "/api/open",
    "redis.url=http://redis": "/redis/url",
    "zookeeper.hosts=zk-without-port": "/zookeeper/hosts",
    "settings.DELAYQ_FINAL_WINDWO=1h": "'DELAYQ_FINAL_WINDWO'",
    "settings.DELAYQ_REDIS_URL=redis://redis": "'DELAYQ_REDIS_URL'",
    "image.digest=latest": "/image/digest",
    "backfill.run=Unpaid_1": "/backfill/run",
    'secretSettings.password={"secret": "a", "key": "b"}': "'password'",
    'routes.table=[{"match": "*"}]': "missing property 'name'",
}


def test_a_contradiction_is_refused_with_what_to_do() -> None:
    beside = [((REDIS, OPEN, *given), said) for *given, said in CONTRADICTIONS_BESIDE]
    for given, said in (*CONTRADICTIONS, *beside):
        answer = refused(*sets(*given))
        assert said in answer
        assert "hunter2" not in answer


def test_a_value_that_the_schema_does_not_know_is_refused() -> None:
    answer = refused(*sets(REDIS, OPEN, *UNKNOWN))
    assert "values don't meet the specifications of the schema" in answer
    assert [where for where in UNKNOWN.values() if where not in answer] == []


def test_a_chart_of_yours_may_have_it_as_a_part() -> None:
    assert render("minimal", "--set", "global.region=eu")


def test_without_zookeeper_the_one_worker_ends_before_the_next_begins() -> None:
    assert of_kind(render("minimal"), "Deployment", "-workers")["spec"]["strategy"] == {"type": "Recreate"}
    rolling = of_kind(render("hpa"), "Deployment", "-workers")["spec"]["strategy"]
    assert rolling["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_every_setting_of_delayq_can_be_given() -> None:
    known = set(schema()["properties"]["settings"]["properties"])
    passwords = {name for name in Settings.model_fields if name.endswith("password")}  # by secretSettings
    wanted = {f"DELAYQ_{name.upper()}" for name in Settings.model_fields.keys() - OWN - passwords}
    assert known == wanted, "mend properties.settings in charts/delayq/values.schema.json"


def test_every_object_of_the_schema_names_what_it_takes() -> None:
    loose = [
        path
        for path, one in objects_in(schema())
        if "properties" in one and one.get("additionalProperties") is not False
    ]
    assert loose == []


def test_the_schema_and_the_values_have_the_same_names() -> None:
    found = schema()
    optional = {"global", "resources.claims"}

    def compare(known: dict[str, Any], given: Any, path: str) -> Iterator[str]:
        if "$ref" in known:
            known = found["definitions"][known["$ref"].rpartition("/")[2]]
        if "properties" not in known or not isinstance(given, dict) or path == "settings.":
            return
        for name in known["properties"].keys() | given.keys():
            where = f"{path}{name}"
            if name not in given:
                if not any(where.endswith(one) for one in (*optional, "initialDelaySeconds", "rollingUpdate", "type")):
                    yield where
            else:
                yield from compare(known["properties"][name], given[name], f"{where}.")

    assert list(compare(found, values(), "")) == []


def objects_in(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for name, inner in node.items():
            yield from objects_in(inner, f"{path}/{name}")
    elif isinstance(node, list):
        for inner in node:
            yield from objects_in(inner, path)


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values by their paths, as the table of the README has them."""
    for name, inner in node.items():
        where = f"{path}{name}"
        if isinstance(inner, dict) and inner and name not in WHOLE:
            yield from leaves(inner, f"{where}.")
        else:
            yield where, inner


#: Told as one value each.
WHOLE = {
    "resources", "strategy", "startupProbe", "livenessProbe", "readinessProbe", "podSecurityContext", "labels",
    "containerSecurityContext", "podDisruptionBudget",
}  # fmt: skip


def test_the_readme_tells_of_every_value_and_its_default() -> None:
    told = {}
    for names, default in re.findall(r"^\| (`[^|]+`) \| ([^|]*?) ?\|", (CHART / "README.md").read_text(), re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in told
            told[name] = default
    there = dict(leaves(values()))
    assert told.keys() == there.keys()
    for name, default in told.items():
        if default != "see values.yaml":
            assert (yaml.safe_load(default.strip("`")) or None) == (there[name] or None), name
