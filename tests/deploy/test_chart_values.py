"""Which values charts/delayq takes, and how it refuses others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from delayq.config import SETTINGS
from delayq.domain.routes import Route
from delayq.targets.kafka.settings import OPTIONS
from tests.deploy.kubernetes import NEWEST, complaints
from tests.deploy.rendering import CASES, CHART, Objects, empty, of_kind, refused, render, schema, values

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chart")]

OPEN = "api.open=yes-without-keys"
REDIS = "redis.url=redis://redis:6379/0"
ZOOKEEPER = "zookeeper.hosts=zk:2181"
KEYS = "api.keys.existingSecret=k"
#: What the chart says by itself.
OWN = {
    "redis_url", "zookeeper", "zookeeper_root", "routes", "api_host", "api_port", "api_keys", "api_open", "worker_port",
    "node", "drain_timeout", "api_url", "api_key",  # the last two are for callers of the API
}  # fmt: skip


#: Of an object of the user's own.
OWN_NAME: Final = '{{ include "delayq.fullname" . }}-own'


def sets(*given: str) -> list[str]:
    return [word for one in given for word in ("--set-json" if one.endswith(("]", "}")) else "--set", one)]


#: Values that contradict each other, and the reason that the chart gives.
CONTRADICTIONS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    ((OPEN,), "redis: delayq needs a Redis"),
    ((OPEN, "redis.url=redis://:hunter2@redis:6379/0"), "redis.url: a password belongs into a secret"),
    ((OPEN, "redis.url=redis+sentinel://a:1/s?sentinel_password=x"), "redis.url: a password belongs into a secret"),
    ((REDIS,), "api: others can reach it without keys"),
    ((REDIS, KEYS, ZOOKEEPER, "workers.autoscaling.by=backlog"), "reader.existingSecret: KEDA needs a key"),
    ((REDIS, KEYS, "metrics.serviceMonitor.enabled=true"), "reader.existingSecret: Prometheus needs a key"),
)
#: Values that contradict each other beside a Redis and an open API, and the reason that the chart gives.
CONTRADICTIONS_BESIDE: Final[tuple[tuple[str, ...], ...]] = (
    ("redis.existingSecret=s", "not both"),
    (KEYS, "not both"),
    ("workers.replicas=2", "zookeeper.hosts: several workers need a ZooKeeper"),
    ("workers.autoscaling.by=cpu", "zookeeper.hosts: several workers need a ZooKeeper"),
    (ZOOKEEPER, "workers.autoscaling.by=cpu", "workers.autoscaling.minReplicas=9", "minReplicas is greater"),
    ("api.autoscaling.enabled=true", "api.autoscaling.maxReplicas=1", "minReplicas is greater"),
    ("workers.drainSeconds=36", "The value is 45: set at least preStopSeconds + drainSeconds + 10 = 46"),
    ("workers.preStopSeconds=11", "a worker would be killed during its drain"),
    ("api.preStopSeconds=21", "the API would be killed before its requests finish"),
    ('routes.table=[{"name": "a"}]', "routes.existingSecret=r", "not both"),
    ('routes.table=[{"name": "a", "target": "rabbitmq://u:hunter2@rabbit"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "target": "redis+stream://r/0?password=hunter2"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "target": "https://h/x?tenant=b&access_token=hunter2"}]', "the target of a has a password"),
    ('routes.table=[{"name": "a", "target": "https://h/x?code=hunter2"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "target": "https://h/x?pass=hunter2"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "target": "https://h/x#token=hunter2"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "target": "rabbitmq://u:hunter2/@rabbit"}]', "the target of a has a password in it"),
    ('routes.table=[{"name": "a", "options": {"x.endpoint.url": "https://u:hunter2@h/"}}]', "x.endpoint.url is a secret"),
    ('routes.table=[{"name": "a", "options": {"headers": {"X-Api-Key": "hunter2"}}}]', "routes.table: X-Api-Key is a secret"),
    ('routes.table=[{"name": "a", "options": {"headers": {"Cookie": "a=hunter2"}}}]', "routes.table: Cookie is a secret"),
    ('routes.table=[{"name": "a", "options": {"keyPassword": "hunter2"}}]', "routes.table: keyPassword is a secret"),
    ('routes.table=[{"name": "a", "options": {"deep": [{"secretKey": "hunter2"}]}}]', "routes.table: secretKey is a secret"),
    ("redis.url=redis://:hun/ter2@redis:6379/0", "redis.url: a password belongs into a secret"),
    ("redis.url=unix:///run/redis.sock?password=hunter2", "redis.url: a password belongs into a secret"),
    ("settings.DELAYQ_TRACES=https://u:hunter2@otel:4318", "settings: DELAYQ_TRACES is a secret"),
    ('env=[{"name": "SHOP_TOKEN", "value": "hunter2"}]', "env: SHOP_TOKEN is a secret"),
    ('workers.env=[{"name": "X", "value": "redis://:hunter2@redis"}]', "env: X is a secret"),
    ('env=[{"name": "OTEL_HEADERS", "value": "a=b,authorization=hunter2"}]', "env: OTEL_HEADERS is a secret"),
    (
        'workers.sidecars=[{"name": "log", "env": [{"name": "A", "value": "b"}, {"name": "SHOP_TOKEN", "value": "hunter2"}]}]',
        "container log: SHOP_TOKEN is a secret",
    ),
    ('initContainers=[{"name": "wait", "args": ["--password=hunter2"]}]', "container wait: its command line is a secret"),
    ('api.sidecars=[{"name": "log", "command": ["x", "redis://:hunter2@redis"]}]', "container log: its command line is a"),
    ('backfill.arguments=["--option", "password=hunter2"]', "backfill: its source and arguments can be read"),
    ('backfill.arguments=["--option=url=jdbc:x://h/d;password=hunter2"]', "backfill: its source and arguments"),
    ('api.strategy.rollingUpdate={"maxSurge": 0}', "maxSurge and maxUnavailable are both 0"),
    ("fullnameOverride=1shop", "the Service would be called 1shop"),
    ('routes.table=[{"name": "a", "options": {"sasl.password": "hunter2"}}]', "routes.table: sasl.password is a secret"),
    ('routes.table=[{"name": "a", "options": {"secret": ["env:A", "hunter2"]}}]', "routes.table: secret is a secret"),
    (
        'routes.table=[{"name": "a", "options": {"headers": {"Authorization": "hunter2"}}}]',
        "routes.table: Authorization is a secret",
    ),
    (
        "settings.DELAYQ_QUEUES=4", 'secretSettings.DELAYQ_QUEUES={"secret": "a", "key": "b"}',
        "DELAYQ_QUEUES: set it in settings or in secretSettings",
    ),
    ("fullnameOverride=delayq-api", "would give DELAYQ_API_PORT to other pods"),
    ("ingress.enabled=true", "ingress.hosts: name a host"),
    ("backfill.enabled=true", "backfill: set a name"),
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
    "workers.strategy=Recreate": "/workers/strategy",
    "api.livenessProbe.exec.command=x": "'exec'",
    "extraObjects=x": "/extraObjects",
    'workers.env=[{"name": "A", "value": 1}]': "/workers/env/0/value",
    "api.sidecars=x": "/api/sidecars",
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


def test_what_only_says_where_a_secret_is_may_stand_in_values() -> None:
    options = {
        "sasl.oauthbearer.token.endpoint.url": "https://login/token", "ssl.key.location": "/certs/key.pem",
        "sasl.password": "env:KAFKA", "headers": {"Authorization": "file:/run/key", "X-Tenant": "a"}, "accessKey": "AK",
        "key": "/certs/key.pem", "sasl.username": "delayq", "secret": ["env:NEW", "env:OLD"],
    }  # fmt: skip
    table = [
        {"name": "a", "target": "https://h/@team/x?tenant=a@b", "options": options},
        {"name": "b", "target": "kafka://[fd00::1]:9093/{topic}"},
    ]
    of_secret = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}
    found = render(
        "spark",
        *(
            "--set-json",
            f"routes.table={json.dumps(table)}",
            "--set-json",
            "workers.env=" + json.dumps([{"name": "TOKEN_FILE", "value": "/x"}]),
            "--set-json",
            "workers.sidecars="
            + json.dumps([{"name": "a", "args": ["--token", "$(T)", "--key-file=/x"], "env": [of_secret]}]),
        ),
        *(
            "--set",
            "backfill.source=abfss://c@account/x,redis.existingSecret=,redis.url=rediss://[fd00::2]:6379/0?ssl_ca_certs=/ca",
        ),
        *("--set-json", 'backfill.arguments=["--map", "token=body", "--option", "dbtable=x"]'),
    )
    assert json.loads(of_kind(found, "ConfigMap", "-routes")["data"]["routes.json"]) == {"routes": table}


def test_each_secret_of_a_kafka_route_is_refused_and_all_other_options_are_taken() -> None:
    secret = {name for name in OPTIONS if name.endswith(("password", "secret", "key.pem"))}
    assert len(secret) >= 5
    for name in secret:
        given = json.dumps([{"name": "a", "options": {name: "hunter2"}}])
        assert f"{name} is a secret" in refused(*sets(REDIS, OPEN, f"routes.table={given}"))
    given = json.dumps([{"name": "a", "options": dict.fromkeys(sorted(OPTIONS - secret), "x")}])
    assert render("minimal", "--set-json", f"routes.table={given}")


def nullable(known: dict[str, Any], given: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Each value by its path, and whether it is needed."""
    for name, value in given.items():
        needed = name in known.get("required", ())
        yield f"{path}{name}", needed
        inner = known["properties"][name]
        if needed and isinstance(value, dict) and "properties" in inner:
            yield from nullable(inner, value, f"{path}{name}.")


def in_values(given: dict[str, Any], path: str) -> bool:
    here: Any = given
    for part in path.split("."):
        if not isinstance(here, dict) or part not in here:
            return False
        here = here[part]
    return True


def test_a_value_set_to_null_is_left_out_or_named_as_missing() -> None:
    paths = list(nullable(schema(), values()))
    needed = [path for path, is_needed in paths if is_needed]
    sections = {path for path in needed if any(other.startswith(f"{path}.") for other in needed)}
    for some in (
        [path for path in sections if "." not in path],
        [path for path in sections if "." in path],
        [path for path in needed if path not in sections],
    ):
        answer = refused(*sets(*(f"{path}=null" for path in some)))
        assert len(some) > 3
        assert [path for path in some if f"'{path.rpartition('.')[2]}'" not in answer] == []
    for name, case in CASES.items():
        given = yaml.safe_load(case.read_text())
        nulls = [f"{path}=null" for path, is_needed in paths if not is_needed and not in_values(given, path)]
        assert len(nulls) > 50
        for one in render(name, "--set", ",".join(nulls)):
            assert [*complaints(one, NEWEST), *empty(one, one["kind"])] == [], name


def test_a_pod_may_be_without_a_probe_a_user_or_bounds() -> None:
    given = "api.livenessProbe=null,podSecurityContext.runAsUser=null,podSecurityContext.fsGroup=null,api.resources.limits=null"
    objects = render("minimal", "--set", given)
    spec = of_kind(objects, "Deployment", "-api")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {"livenessProbe", "readinessProbe", "startupProbe"} & container.keys() == {"readinessProbe", "startupProbe"}
    assert {"runAsUser", "fsGroup"} & spec["securityContext"].keys() == set()
    assert container["resources"].keys() == {"requests"}
    assert of_kind(objects, "Deployment", "-workers")["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]


@pytest.mark.parametrize(
    ("given", "api", "workers"),
    [
        ("", {"maxSurge": 1, "maxUnavailable": 0}, None),
        ("strategy.type=Recreate", None, None),
        ("strategy.type=Recreate,{c}.strategy.rollingUpdate.maxSurge=2", None, None),  # of two files
        ("strategy.rollingUpdate.maxSurge=50%", *[{"maxSurge": "50%", "maxUnavailable": 0}] * 2),
        ("strategy=null", {"maxSurge": 1, "maxUnavailable": 0}, None),
    ],
)  # fmt: skip
def test_every_strategy_is_one_that_kubernetes_takes(given: str, api: Any, workers: Any) -> None:
    words = ",".join(f"{one}.{given.replace('{c}', one)}" for one in ("api", "workers") if given)
    objects = render("minimal", *(("--set", words) if words else ()))
    for end, rolling in (("-api", api), ("-workers", workers)):
        one = of_kind(objects, "Deployment", end)
        recreate = {"type": "Recreate"}
        wanted = recreate if rolling is None else {"type": "RollingUpdate", "rollingUpdate": rolling}
        assert one["spec"]["strategy"] == wanted
        assert complaints(one, NEWEST) == []


def test_names_that_yaml_takes_for_something_else_stay_names() -> None:
    secrets = ("redis.existingSecret", "routes.existingSecret", "reader.existingSecret", "test.existingSecret")
    words = [f"{path}={name}" for path, name in zip(secrets, ("123", "1e3", "null.", "0x1f"), strict=True)]
    words = [word.replace("null.", "true") for word in words] + ["redis.url=", "redis.secretKey=1", "test.secretKey=2"]
    words += ["api.priorityClassName=5", "nameOverride=7", "reader.secretKey=8", "fullnameOverride=yes"]
    more = ("--set-json", 'secretSettings={"NO": {"secret": "1", "key": "2"}}')
    objects = render("minimal", *(word for one in words for word in ("--set-string", one)), *more, release="d8")
    assert [complaint for one in objects for complaint in complaints(one, NEWEST)] == []
    (env,) = [
        one
        for one in of_kind(objects, "Deployment", "-api")["spec"]["template"]["spec"]["containers"][0]["env"]
        if one["name"] == "NO"
    ]
    assert env["valueFrom"]["secretKeyRef"] == {"name": "1", "key": "2"}


def test_long_names_that_begin_alike_stay_two() -> None:
    def names(release: str, run: str) -> set[str]:
        more = ("--set", f"backfill.run={run}")
        return {one["metadata"]["name"] for one in render("spark", *more, release=release)}

    long = "a" * 49
    first, second, other = (
        names(long + "-b", "r" * 38 + "-1"),
        names(long + "-c", "r" * 38 + "-1"),
        names(long + "-b", "r" * 38 + "-2"),
    )
    assert not first & second
    assert len(first ^ other) == 2
    assert max(map(len, first | second | other)) <= 63


def test_zookeeper_may_have_addresses_of_ipv6() -> None:
    hosts = r"[fd00::1]:2181\,zk-1.zk:2181\,10.0.0.1:2181"
    api = of_kind(render("minimal", "--set", f"zookeeper.hosts={hosts}"), "Deployment", "-api")
    env = {one["name"]: one.get("value") for one in api["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["DELAYQ_ZOOKEEPER"] == hosts.replace("\\", "")
    for wrong in ("fd00::1:2181", "u:p@zk:2181", "[fd00::1],zk:1", "[zk]:2181"):
        assert "/zookeeper/hosts" in refused(*sets(REDIS, OPEN, f"zookeeper.hosts={wrong.replace(',', chr(92) + ',')}"))


def test_pods_and_the_release_take_what_the_chart_does_not_know() -> None:
    more: dict[str, Any] = {
        "envFrom": [{"secretRef": {"name": "all"}}], "sidecars": [{"name": "log", "image": "log:1"}],
        "volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a"}],
        "initContainers": [{"name": "first", "image": "first:1"}],
        "api": {
            "env": [{"name": "A", "value": "1"}], "envFrom": [{"configMapRef": {"name": "api"}}],
            "volumes": [{"name": "b", "emptyDir": {}}], "volumeMounts": [{"name": "b", "mountPath": "/b"}],
        },
        "workers": {"sidecars": [{"name": "proxy", "image": "proxy:1"}], "initContainers": [{"name": "next", "image": "next:1"}]},
        "backfill": {"envFrom": [{"secretRef": {"name": "spark"}}]},
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OWN_NAME}, "data": {"a": "1"}},
            "apiVersion: v1\nkind: Service\nmetadata: {name: own}\nspec: {clusterIP: None}\n",
        ],
    }  # fmt: skip
    given = dict(leaves(more))
    words = (word for path, value in given.items() for word in ("--set-json", f"{path}={json.dumps(value)}"))
    objects = render("spark", *words)
    assert [complaint for one in objects for complaint in complaints(one, NEWEST)] == []
    api, worker, job = (
        spec_of(objects, *one) for one in (("Deployment", "-api"), ("Deployment", "-workers"), ("Job", ""))
    )
    names = [[one["name"] for one in spec["containers"]] for spec in (api, worker, job)]
    assert names == [["api", "log"], ["worker", "log", "proxy"], ["backfill"]]
    assert [[one["name"] for one in spec.get("initContainers", ())] for spec in (api, worker, job)] == [
        ["first"],
        ["first", "next"],
        [],
    ]
    everywhere = more["envFrom"]
    assert [spec["containers"][0]["envFrom"] for spec in (api, worker, job)] == [
        [*everywhere, {"configMapRef": {"name": "api"}}], everywhere, [*everywhere, {"secretRef": {"name": "spark"}}],
    ]  # fmt: skip
    assert {"name": "A", "value": "1"} in api["containers"][0]["env"]
    assert [one["name"] for one in api["volumes"]] == ["tmp", "a", "b"] and "b" not in [
        one["name"] for one in worker["volumes"]
    ]
    assert [one["mountPath"] for one in api["containers"][0]["volumeMounts"]] == ["/tmp", "/a", "/b"]
    assert of_kind(objects, "ConfigMap", "dq-delayq-own")["data"] == {"a": "1"}
    assert of_kind(objects, "Service", "own")["spec"] == {"clusterIP": "None"}


def spec_of(objects: Objects, kind: str, end: str) -> dict[str, Any]:
    found: dict[str, Any] = of_kind(objects, kind, end)["spec"]["template"]["spec"]
    return found


def test_a_chart_of_yours_may_have_it_as_a_part() -> None:
    assert render("minimal", "--set", "global.region=eu")


def test_without_zookeeper_the_one_worker_ends_before_the_next_begins() -> None:
    assert of_kind(render("minimal"), "Deployment", "-workers")["spec"]["strategy"] == {"type": "Recreate"}
    rolling = of_kind(render("hpa"), "Deployment", "-workers")["spec"]["strategy"]
    assert rolling["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_every_setting_of_delayq_can_be_given() -> None:
    known = set(schema()["properties"]["settings"]["properties"])
    passwords = {name for name in SETTINGS if name.endswith("password")}  # by secretSettings
    wanted = {f"DELAYQ_{name.upper()}" for name in SETTINGS.keys() - OWN - passwords}
    assert known == wanted, "mend properties.settings in charts/delayq/values.schema.json"


def test_the_numbers_of_a_route_have_the_bounds_that_delayq_has() -> None:
    given = schema()["properties"]["routes"]["properties"]["table"]["items"]["properties"]
    for field, _, least, most, _ in Route(name="a").numbers:
        assert (given[field]["minimum"], given[field]["maximum"]) == (least, most), field


def test_every_object_of_the_schema_names_what_it_takes() -> None:
    loose = [
        path
        for path, one in objects_in(schema())
        if "properties" in one and one.get("additionalProperties") is not False
    ]
    assert loose == []


def test_the_schema_and_the_values_have_the_same_names() -> None:
    found = schema()
    optional = {"global", "resources.claims", "strategy.rollingUpdate", "strategy.type"}

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
