"""The alert rules and the dashboard: by promtool, and against the metrics that the code exports."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from api.routes import OPERATIONS
from delayq.cli.app import main
from devtools.exported_metrics import exported
from testbed import tools
from testbed.errors import ServerMissing
from tests.docs.blocks import blocks_of
from tests.observability.promql import named_in
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT

pytestmark = pytest.mark.long

FOLDER: Final = ROOT / "observability"
RUNBOOK: Final = ROOT / "docs" / "runbook.md"
RULES: Final[list[dict[str, Any]]] = msgspec.yaml.decode((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD: Final[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS: Final[list[dict[str, Any]]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
SECTIONS: Final = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL))
#: What scraping puts on, and the ends of buckets.
ALWAYS: Final = {"namespace", "job", "instance", "le"}


@pytest.fixture
def promtool() -> Path:
    try:
        return tools.find("promtool")
    except ServerMissing as error:
        pytest.skip(str(error))


def run(*words: str | Path) -> str:
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_promtool_takes_every_file_and_expression(promtool: Path, tmp_path: Path) -> None:
    (block,) = (one for one in blocks_of(ROOT / "docs" / "observability.md") if one.note.endswith("test_rules.py"))
    commands = [line.split() for line in block.text.splitlines()]
    assert [words[1:3] for words in commands] == [["check", "rules"], ["test", "rules"]]
    for words in commands:
        assert "SUCCESS" in run(promtool, *words[1:])
    settings, mounted = (FOLDER / "prometheus.yml").read_text(), "/etc/prometheus/alerts.yaml"
    assert settings.count(mounted) == 1
    (tmp_path / "prometheus.yml").write_text(settings.replace(mounted, str(FOLDER / "alerts.yaml")))
    assert "SUCCESS" in run(promtool, "check", "config", tmp_path / "prometheus.yml")
    rules = []
    for panel in PANELS:
        for number, target in enumerate(panel["targets"]):
            expression = target["expr"].replace("$__rate_interval", "5m").replace("$namespace", ".*")
            rules.append({"record": f"panel:{panel['id']}:{number}", "expr": expression})
    path = tmp_path / "dashboard.yaml"
    path.write_bytes(msgspec.yaml.encode({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(promtool, "check", "rules", path)


def test_each_alert_has_tests_that_it_fires_and_that_it_does_not_at_once() -> None:
    tests = msgspec.yaml.decode((FOLDER / "alerts_test.yaml").read_text())["tests"]
    healthy, *others = tests
    assert all(one["exp_samples"] == [] for one in healthy["promql_expr_test"])
    assert [one["name"] for one in others] == [rule["alert"] for rule in RULES]
    for one in others:
        before, after = one["promql_expr_test"]
        for part in (before, after):
            assert f'alertname="{one["name"]}"' in part["expr"]
        assert (before["exp_samples"], len(after["exp_samples"])) == ([], 1)


def test_rules_and_dashboard_name_all_metrics_of_delayq_and_no_unknown_ones(valkey: ServerUnderTest) -> None:
    metrics = exported(valkey.url)
    series = {name: metric for metric in metrics.values() for name in metric.series}
    expressions = [rule["expr"] for rule in RULES] + [one["expr"] for panel in PANELS for one in panel["targets"]]
    for expression in expressions:
        named = named_in(expression)
        assert named.series, expression
        assert named.series - series.keys() == set(), expression
        known = ALWAYS.union(*(series[name].labels for name in named.series))
        assert named.labels - known == set(), expression
    shown = "\n".join(expressions)
    own = [metric for name, metric in metrics.items() if name.startswith("delayq_")]
    assert [one.name for one in own if not any(re.search(rf"\b{name}\b", shown) for name in one.series)] == []


def test_unknown_names_in_an_expression_are_found() -> None:
    named = named_in('sum by (a) (rate(x_total{b=~"c,d", e!="f"}[5m])) / 2.5 > 10 and on (g) y{} or absnt(z)')
    assert named == ({"x_total", "y", "absnt", "z"}, {"a", "b", "e", "g"})


def test_each_alert_has_a_description_and_a_section_in_the_runbook() -> None:
    assert list(SECTIONS) == [rule["alert"] for rule in RULES]
    for rule in RULES:
        check(rule)


def check(rule: dict[str, Any]) -> None:
    name, notes = rule["alert"], rule["annotations"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert notes["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    assert notes["summary"] and notes["description"].endswith(".")
    section = SECTIONS[name]
    words = re.findall(r"^- \*\*(\w+( \w+)?)[:*]", section, re.MULTILINE)
    assert [word for word, _ in words] == ["Means", "Users feel", "Look", "Mend"]
    named = re.search(r"Panels? ((?:\*[^*]+\*(?:,| and)? ?)+)", " ".join(section.split()))
    assert named is not None, "it names a panel"
    titles = re.findall(r"\*([^*]+)\*", named[1])
    assert set(titles) <= {panel["title"] for panel in PANELS}
    shown = {
        name
        for panel in PANELS
        if panel["title"] in titles
        for target in panel["targets"]
        for name in named_in(target["expr"]).series
    }
    assert shown & named_in(rule["expr"]).series, "a panel that it names shows what it is about"


def test_the_runbook_names_only_commands_paths_settings_and_events_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = RUNBOOK.read_text()
    commands = {tuple(words.split()) for words in re.findall(r"`delayq ([a-z][^`]*)`", text)}
    assert ("doctor", "--repair") in commands
    for words in commands:
        options = [word for word in words if word.startswith("--")]
        path = [word for word in words if re.fullmatch("[a-z][a-z-]*", word)]
        assert main([*path, "--help"]) == 0, words
        said = capsys.readouterr().out
        assert all(option in said for option in options), words
    paths = set(re.findall(r"http://127\.0\.0\.1:8080(/\S+?)`", text)) | set(re.findall(r"`(/[a-z]+)`", text))
    assert paths
    assert paths <= {one.path for one in OPERATIONS}
    redis = {words.split()[0] for words in re.findall(r"`redis-cli ([^`]*)`", text)}
    assert redis == {"ping", "info", "bgrewriteaof"}
    settings = set(re.findall(r"`(DELAYQ_[A-Z_]+)`", text))
    assert settings <= set(re.findall(r"`(DELAYQ_[A-Z_]+)`", (ROOT / "docs" / "configuration.md").read_text()))
    known = set(re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs" / "observability.md").read_text(), re.MULTILINE))
    other = {"aof_last_write_status", "rdb_last_bgsave_status", "overloaded", "queue", "ok"}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", RUNBOOK.read_text()))
    assert named - known - other == set()


def test_each_panel_of_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    titles = [panel["title"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    names = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "namespace"}
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        assert panel["title"] and panel["description"] and panel["targets"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == source
        assert all(one["datasource"] == source and one["expr"] and one["legendFormat"] for one in panel["targets"])
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
