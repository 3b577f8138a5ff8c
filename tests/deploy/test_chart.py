"""charts/delayq: what Helm makes of it, and whether Kubernetes takes that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import server
from api.routes.operators import OPERATIONS
from delayq.config import Settings
from delayq.routes import load_routes
from tests.deploy.kubernetes import NEWEST, RELEASES, complaints
from tests.deploy.rendering import CASES, CHART, Objects, helm, of_kind, pod_specs, render

pytestmark = pytest.mark.long

#: What API and workers answer; docs/http.md and docs/nodes.md.
PROBES = {"/livez", "/readyz"}
SETTINGS = {f"DELAYQ_{name.upper()}" for name in Settings.model_fields}

case = pytest.mark.parametrize("name", CASES)


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in pod_specs(objects):
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            yield name, container


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def deployments(objects: Objects) -> Objects:
    return [one for one in objects if one["kind"] == "Deployment"]


@case
def test_it_passes_the_strict_linter(name: str) -> None:
    ran = helm("lint", "--strict", "--kube-version", NEWEST, str(CHART), "-f", str(CASES[name]))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("release", RELEASES)
@case
def test_kubernetes_takes_every_object(name: str, release: str) -> None:
    objects = render(name)
    assert len(objects) >= 8
    assert [one for found in objects for one in complaints(found, release)] == []


def test_an_object_that_kubernetes_does_not_take_is_noticed() -> None:
    api = of_kind(render("minimal"), "Deployment", "-api")
    broken = json.loads(json.dumps(api))
    broken["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    broken["spec"]["replicas"] = "two"
    assert len(complaints(broken, NEWEST)) == 2
    scaled = json.loads(json.dumps(of_kind(render("keda"), "ScaledObject")))
    scaled["spec"]["triggers"][0]["metadata"]["targetValue"] = 5
    scaled["spec"]["pollInterval"] = 5
    assert len(complaints(scaled, NEWEST)) == 2


@case
def test_no_object_has_a_field_without_a_value(name: str) -> None:
    def empty(value: Any, path: str) -> Iterator[str]:
        if value is None:
            yield path
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in inside:
            yield from empty(inner, f"{path}.{key}")

    assert [path for one in render(name) for path in empty(one, one["kind"])] == []


def test_all_kinds_are_rendered_by_some_values() -> None:
    kinds = {one["kind"] for name in CASES for one in render(name)}
    assert kinds == {
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PrometheusRule",
        "ScaledObject",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "TriggerAuthentication",
    }


@case
def test_every_container_runs_without_rights(name: str) -> None:
    found = list(pod_specs(render(name)))
    assert len(found) >= 3
    for pod, spec in found:
        assert spec["automountServiceAccountToken"] is False, pod
        assert spec["enableServiceLinks"] is False, pod
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for pod, container in containers(render(name)):
        may = container["securityContext"]
        assert may["readOnlyRootFilesystem"] is True, pod
        assert may["allowPrivilegeEscalation"] is False, pod
        assert may["capabilities"] == {"drop": ["ALL"]}, pod
        assert "memory" in container["resources"]["limits"], pod


@case
def test_every_variable_of_delayq_is_a_setting_of_it_and_is_given_once(name: str) -> None:
    for pod, container in containers(render(name)):
        names = [one["name"] for one in container.get("env", ())]
        assert len(names) == len(set(names)), pod
        assert {one for one in names if one.startswith("DELAYQ_")} <= SETTINGS, pod


def test_no_service_gives_other_pods_a_variable_that_is_a_setting() -> None:
    for name in CASES:
        for one in render(name):
            if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None":
                word = one["metadata"]["name"].upper().replace("-", "_")
                assert not {f"{word}_PORT", f"{word}_SERVICE_HOST", f"{word}_SERVICE_PORT"} & SETTINGS


@case
def test_no_secret_stands_in_an_object(name: str) -> None:
    """Secrets are named, never made; what a ConfigMap has refers to them."""
    objects = render(name)
    assert not [one for one in objects if one["kind"] == "Secret"]
    for one in objects:
        if one["kind"] == "ConfigMap":
            for text in one["data"].values():
                assert not re.search(r"://[^/\s\"]*@", text)
                for secret in re.findall(r'(?i)"[^"]*(?:password|secret|token)[^"]*": *"([^"]*)"', text):
                    assert secret.startswith(("env:", "file:"))


@case
def test_the_end_of_a_pod_outlasts_its_drain(name: str) -> None:
    objects = render(name)
    workers = of_kind(objects, "Deployment", "-workers")["spec"]["template"]["spec"]
    settings = {one["name"]: one.get("value") for one in workers["containers"][0]["env"]}
    drain = Settings(drain_timeout=settings["DELAYQ_DRAIN_TIMEOUT"]).drain_timeout / 1000
    assert workers["terminationGracePeriodSeconds"] >= pre_stop(workers) + drain + 10
    api = of_kind(objects, "Deployment", "-api")["spec"]["template"]["spec"]
    assert pre_stop(api) > 0, "who is sent there yet gets an answer"
    assert api["terminationGracePeriodSeconds"] >= pre_stop(api) + server.STOP_SECONDS + 2


def pre_stop(spec: dict[str, Any]) -> int:
    hook = spec["containers"][0].get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})
    return int(hook["preStop"]["sleep"]["seconds"])


@case
def test_probes_ask_for_what_is_served_at_the_port_that_is_listened_on(name: str) -> None:
    for one in deployments(render(name)):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        (port,) = container["ports"]
        given = {each["name"]: each.get("value") for each in container["env"]}
        listens = given["DELAYQ_API_PORT"] if container["name"] == "api" else given["DELAYQ_WORKER_PORT"]
        assert str(port["containerPort"]) == listens
        probes = [container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [probe["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
        assert {probe["port"] for probe in probes} == {port["name"]}
    assert {operation.path for operation in OPERATIONS if operation.open} >= PROBES


@case
def test_services_budgets_and_policies_select_the_pods_of_one_deployment(name: str) -> None:
    objects = render(name)
    pods = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in deployments(objects)}
    for one in objects:
        spec = one.get("spec", {})
        selector = {
            "Service": lambda spec: spec["selector"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
            "Deployment": lambda spec: spec["selector"]["matchLabels"],
        }.get(one["kind"])
        if selector is not None:
            hit = [pod for pod, labels in pods.items() if selects(selector(spec), labels)]
            assert len(hit) == 1, f"{one['kind']} {one['metadata']['name']} selects {hit}"
    for one in deployments(objects):
        labels = one["spec"]["template"]["metadata"]["labels"]
        for spread in one["spec"]["template"]["spec"].get("topologySpreadConstraints", ()):
            assert selects(spread["labelSelector"]["matchLabels"], labels)


@case
def test_a_policy_opens_the_ports_that_are_listened_on_and_no_others(name: str) -> None:
    objects = render(name)
    for one in deployments(objects):
        policy = of_kind(objects, "NetworkPolicy", one["metadata"]["name"])
        (port,) = one["spec"]["template"]["spec"]["containers"][0]["ports"]
        (rule,) = policy["spec"]["ingress"]
        assert rule["ports"] == [{"port": port["containerPort"], "protocol": "TCP"}]
        assert ("Egress" in policy["spec"]["policyTypes"]) == ("egress" in policy["spec"])


def test_a_policy_that_names_callers_lets_the_test_in_too() -> None:
    objects = render("keda")
    (rule,) = of_kind(objects, "NetworkPolicy", "-api")["spec"]["ingress"]
    (own,) = [one["podSelector"]["matchLabels"] for one in rule["from"] if "podSelector" in one]
    assert selects(own, of_kind(objects, "Pod")["metadata"]["labels"])


@case
def test_what_monitors_select_are_services_with_that_port(name: str) -> None:
    objects = render(name)
    services = [one for one in objects if one["kind"] == "Service"]
    for monitor in (one for one in objects if one["kind"] == "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [one for one in services if selects(selector, one["metadata"]["labels"])]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


def test_scalers_scale_deployments_that_say_no_number_themselves() -> None:
    for name in CASES:
        objects = render(name)
        scaled = {
            one["spec"]["scaleTargetRef"]["name"]
            for one in objects
            if one["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")
        }
        for one in deployments(objects):
            assert ("replicas" in one["spec"]) != (one["metadata"]["name"] in scaled), name


def test_a_change_of_the_routes_starts_the_pods_anew() -> None:
    def annotations(*given: str) -> Any:
        return of_kind(render("keda", *given), "Deployment", "-workers")["spec"]["template"]["metadata"]["annotations"]

    assert annotations() != annotations("--set", "routes.table[1].stream=x")


def test_the_routes_are_those_that_were_given(tmp_path: Path) -> None:
    (data,) = of_kind(render("keda"), "ConfigMap", "-routes")["data"].items()
    path = tmp_path / data[0]
    path.write_text(data[1])
    assert [route.name for route in load_routes(str(path)).table] == ["orders", "rest"]


def test_a_large_number_stays_a_number() -> None:
    settings = of_kind(render("minimal", "--set", "settings.DELAYQ_REQUEST_LIMIT=16777216"), "Deployment", "-api")
    environment = settings["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "DELAYQ_REQUEST_LIMIT", "value": "16777216"} in environment
    with_file = render("spark", "--set", "backfill.activeDeadlineSeconds=10000000")
    assert of_kind(with_file, "Job")["spec"]["activeDeadlineSeconds"] == 10_000_000
