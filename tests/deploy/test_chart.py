"""charts/delayq: what Helm makes of it, and whether Kubernetes takes that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from api import server
from api.routes.operators import OPERATIONS
from delayq.config import SETTINGS, Settings, variable
from delayq.domain.routes import load_routes
from tests.deploy.kubernetes import NEWEST, RELEASES, complaints
from tests.deploy.rendering import CASES, CHART, ROOT, Objects, empty, helm, of_kind, pod_specs, render

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chart")]

VARIABLES: Final = set(map(variable, SETTINGS))
KINDS: Final = {
    "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Ingress", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget",
    "PrometheusRule", "ScaledObject", "Service", "ServiceAccount", "ServiceMonitor", "TriggerAuthentication",
}  # fmt: skip
#: Where each kind has the labels that it selects pods by.
SELECTORS: Final = {
    "Service": lambda spec: spec["selector"],
    "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
    "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
    "Deployment": lambda spec: spec["selector"]["matchLabels"],
}


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    """A set of values."""
    return str(request.param)


@pytest.fixture
def objects(name: str) -> Objects:
    """The objects that Helm makes of it."""
    return render(name)


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def deployments(objects: Objects) -> Objects:
    return [one for one in objects if one["kind"] == "Deployment"]


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def test_the_strict_linter_and_kubernetes_take_every_object(name: str, objects: Objects) -> None:
    ran = helm("lint", "--strict", "--kube-version", NEWEST, str(CHART), "-f", str(CASES[name]))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(objects) >= 8
    for release in (RELEASES[0], NEWEST):
        assert [one for found in objects for one in complaints(found, release)] == []
    assert [path for one in objects for path in empty(one, one["kind"])] == []


def test_an_object_that_kubernetes_does_not_take_is_noticed() -> None:
    broken = json.loads(json.dumps(of_kind(render("minimal"), "Deployment", "-api")))
    pod_of(broken)["containers"][0]["livenessprobe"] = {}
    broken["spec"]["replicas"] = "two"
    assert len(complaints(broken, NEWEST)) == 2
    scaled = json.loads(json.dumps(of_kind(render("keda"), "ScaledObject")))
    scaled["spec"]["triggers"][0]["metadata"]["targetValue"] = 5
    scaled["spec"]["pollInterval"] = 5
    assert len(complaints(scaled, NEWEST)) == 2


def test_the_sets_of_values_cover_every_kind_of_object() -> None:
    assert {one["kind"] for name in CASES for one in render(name)} == KINDS


def test_every_container_runs_without_rights_and_with_settings_of_delayq(objects: Objects) -> None:
    found = list(pod_specs(objects))
    assert len(found) >= 3
    for pod, spec in found:
        assert spec["automountServiceAccountToken"] is False, pod
        assert spec["enableServiceLinks"] is False, pod
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            may = container["securityContext"]
            assert may["readOnlyRootFilesystem"] is True, pod
            assert may["allowPrivilegeEscalation"] is False, pod
            assert may["capabilities"] == {"drop": ["ALL"]}, pod
            assert "memory" in container["resources"]["limits"], pod
            names = [one["name"] for one in container.get("env", ())]
            assert len(names) == len(set(names)), pod
            assert {one for one in names if one.startswith("DELAYQ_")} <= VARIABLES, pod
    for one in objects:  # Kubernetes gives other pods such variables
        if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None":
            word = one["metadata"]["name"].upper().replace("-", "_")
            assert not {f"{word}_PORT", f"{word}_SERVICE_HOST", f"{word}_SERVICE_PORT"} & VARIABLES


def test_no_object_contains_a_secret(objects: Objects) -> None:
    """Objects name secrets and never make one."""
    assert not [one for one in objects if one["kind"] == "Secret"]
    for text in (text for one in objects if one["kind"] == "ConfigMap" for text in one["data"].values()):
        assert not re.search(r"://[^/\s\"]*@", text)
        for secret in re.findall(r'(?i)"[^"]*(?:password|secret|token)[^"]*": *"([^"]*)"', text):
            assert secret.startswith(("env:", "file:"))


def test_kubernetes_waits_longer_for_a_pod_than_it_drains(objects: Objects) -> None:
    workers = pod_of(of_kind(objects, "Deployment", "-workers"))
    settings = {one["name"]: one.get("value") for one in workers["containers"][0]["env"]}
    drain = Settings(drain_timeout=settings["DELAYQ_DRAIN_TIMEOUT"]).drain_timeout / 1000
    assert workers["terminationGracePeriodSeconds"] >= pre_stop(workers) + drain + 10
    api = pod_of(of_kind(objects, "Deployment", "-api"))
    assert pre_stop(api) > 0, "the API still answers calls that are on their way"
    assert api["terminationGracePeriodSeconds"] >= pre_stop(api) + server.STOP_SECONDS + 2


def pre_stop(spec: dict[str, Any]) -> int:
    hook = spec["containers"][0].get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})
    return int(hook["preStop"]["sleep"]["seconds"])


def test_probes_and_policies_name_the_port_on_which_the_container_listens(objects: Objects) -> None:
    for one in deployments(objects):
        (container,) = pod_of(one)["containers"]
        (port,) = container["ports"]
        given = {each["name"]: each.get("value") for each in container["env"]}
        listens = given["DELAYQ_API_PORT"] if container["name"] == "api" else given["DELAYQ_WORKER_PORT"]
        assert str(port["containerPort"]) == listens
        probes = [container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [probe["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
        assert {probe["port"] for probe in probes} == {port["name"]}
        policy = of_kind(objects, "NetworkPolicy", one["metadata"]["name"])
        (rule,) = policy["spec"]["ingress"]
        assert rule["ports"] == [{"port": port["containerPort"], "protocol": "TCP"}]
        assert ("Egress" in policy["spec"]["policyTypes"]) == ("egress" in policy["spec"])
    assert {operation.path for operation in OPERATIONS if operation.open} >= {"/livez", "/readyz"}


def test_each_selector_selects_the_pods_of_one_deployment(objects: Objects) -> None:
    pods = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in deployments(objects)}
    for one in objects:
        if one["kind"] in SELECTORS:
            selector = SELECTORS[one["kind"]](one["spec"])
            hit = [pod for pod, labels in pods.items() if selects(selector, labels)]
            assert len(hit) == 1, f"{one['kind']} {one['metadata']['name']} selects {hit}"
    for one in deployments(objects):
        for spread in pod_of(one).get("topologySpreadConstraints", ()):
            assert selects(spread["labelSelector"]["matchLabels"], pods[one["metadata"]["name"]])


def test_the_api_may_have_addresses_of_both_families() -> None:
    """`::` is every address of IPv6 and IPv4: tests/unit/test_listening.py."""
    for name, listens, policy in (("full", "::", "PreferDualStack"), ("minimal", "0.0.0.0", None)):
        rendered = render(name)
        api = pod_of(of_kind(rendered, "Deployment", "-api"))["containers"][0]
        assert {"name": "DELAYQ_API_HOST", "value": listens} in api["env"]
        (service,) = [one for one in rendered if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None"]
        assert service["spec"].get("ipFamilyPolicy") == policy


def test_monitors_select_services_and_scalers_deployments_without_a_number(objects: Objects) -> None:
    services = [one for one in objects if one["kind"] == "Service"]
    for monitor in (one for one in objects if one["kind"] == "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [one for one in services if selects(selector, one["metadata"]["labels"])]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
        assert {endpoint["path"] for endpoint in monitor["spec"]["endpoints"]} == {"/metrics"}
    scalers = [one for one in objects if one["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")]
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in scalers}
    for one in deployments(objects):
        assert ("replicas" in one["spec"]) != (one["metadata"]["name"] in scaled)


def test_keda_reads_numbers_of_the_api() -> None:
    stats = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]["TotalOut"]["properties"]
    triggers = of_kind(render("keda"), "ScaledObject")["spec"]["triggers"]
    assert {one["metadata"]["url"] for one in triggers} == {"http://dq-delayq.shop.svc:8080/v1/queues"}
    values = {one["metadata"]["valueLocation"] for one in triggers}
    assert len(values) == 2 and {stats[value.removeprefix("total.")]["type"] for value in values} == {"integer"}


def test_a_policy_that_names_callers_lets_the_test_in_too() -> None:
    objects = render("keda")
    (rule,) = of_kind(objects, "NetworkPolicy", "-api")["spec"]["ingress"]
    (own,) = [one["podSelector"]["matchLabels"] for one in rule["from"] if "podSelector" in one]
    assert selects(own, of_kind(objects, "Pod")["metadata"]["labels"])


def test_the_routes_are_those_of_the_values_and_a_change_restarts_the_pods(tmp_path: Path) -> None:
    def annotations(*given: str) -> Any:
        return of_kind(render("keda", *given), "Deployment", "-workers")["spec"]["template"]["metadata"]["annotations"]

    assert annotations() != annotations("--set", "routes.table[1].stream=x")
    (data,) = of_kind(render("keda"), "ConfigMap", "-routes")["data"].items()
    path = tmp_path / data[0]
    path.write_text(data[1])
    assert [route.name for route in load_routes(str(path)).table] == ["orders", "rest"]


def test_a_large_number_stays_a_number() -> None:
    api = of_kind(render("minimal", "--set", "settings.DELAYQ_REQUEST_LIMIT=16777216"), "Deployment", "-api")
    assert {"name": "DELAYQ_REQUEST_LIMIT", "value": "16777216"} in pod_of(api)["containers"][0]["env"]
    with_file = render("spark", "--set", "backfill.activeDeadlineSeconds=10000000")
    assert of_kind(with_file, "Job")["spec"]["activeDeadlineSeconds"] == 10_000_000
