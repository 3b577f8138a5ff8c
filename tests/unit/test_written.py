"""The files that people write: one reader for routes and API keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delayq.base.errors import ConfigError
from delayq.base.written import NotWritten, Twice, converted, options_as, parsed
from delayq.domain.api_keys import ApiKey, parse_keys
from delayq.domain.routes import Route, load_routes
from delayq.targets import open_target

pytest.importorskip("yaml", reason="no PyYAML: pip install 'delayq[cli]'")
HASH = "sha256:" + "0" * 64


def routes_of(path: Path, text: str) -> tuple[Route, ...]:
    path.write_text(text)
    return load_routes(str(path)).table


def keys_of(name: str, text: str) -> list[ApiKey]:
    return parse_keys(text.encode(), Path(name))


# -- names ---------------------------------------------------------------------------------------------------------------

TWICE = {
    "json": ('[{"name": "a", "target": "log:", "target": "redis+stream:"}]', "the name 'target' stands twice"),
    "json options": ('[{"name": "a", "options": {"x": 1, "x": 2}}]', "the name 'x' stands twice"),
    "yaml": ('routes:\n- name: a\n  target: "log:"\n  "target": "log:"\n', "line 4: the name 'target' stands twice"),
    "yaml list": ("routes:\n- {name: a}\nroutes:\n- {name: b}\n", "line 3: the name 'routes' stands twice"),
    "toml": ('[[routes]]\nname = "a"\nmatch = "a"\nmatch = "b"\n', "line 4: the name 'match' stands twice"),
    "toml options": ('[[routes]]\nname = "a"\noptions = {x = 1, x = 2}\n', "stands twice"),
}


@pytest.mark.parametrize("kind", TWICE)
def test_a_name_that_stands_twice_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    text, told = TWICE[kind]
    with pytest.raises(ConfigError, match=told) as caught:
        routes_of(tmp_path / f"routes.{kind.split()[0]}", text)
    assert str(caught.value).startswith(f"DELAYQ_ROUTES: {tmp_path}/routes.")
    assert "\n" not in str(caught.value)


KEYS_TWICE = {
    "keys.json": '{"keys": [{"id": "aaaa", "name": "n", "hash": "%s", "scopes": {"o.*": ["read"], "o.*": ["admin"]}}]}',
    "keys.yaml": 'keys:\n- id: aaaa\n  name: n\n  hash: "%s"\n  scopes:\n    "o.*": [read]\n    o.*: [admin]\n',
    "keys.toml": '[[keys]]\nid = "aaaa"\nname = "n"\nhash = "%s"\n[keys.scopes]\n"o.*" = ["read"]\n"o.*" = ["admin"]\n',
}


@pytest.mark.parametrize("name", KEYS_TWICE)
def test_a_scope_that_stands_twice_is_refused_by_its_name_and_nothing_else_is_quoted(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the name 'o\.\*' stands twice") as caught:
        keys_of(name, KEYS_TWICE[name] % HASH)
    assert "000" not in str(caught.value)


@pytest.mark.parametrize("name", ["routes.json", "routes.yaml", "routes.toml"])
def test_an_unknown_name_at_the_top_is_refused_and_one_for_the_writer_is_not(name: str, tmp_path: Path) -> None:
    texts = {
        "routes.json": '{"routes": [{"name": "a"}], "NAME": [1]}',
        "routes.yaml": "NAME: [1]\nroutes: [{name: a}]\n",
        "routes.toml": 'NAME = [1]\n[[routes]]\nname = "a"\n',
    }
    with pytest.raises(ConfigError, match="unknown field `route`"):
        routes_of(tmp_path / name, texts[name].replace("NAME", "route"))
    assert [one.name for one in routes_of(tmp_path / name, texts[name].replace("NAME", "x-route"))] == ["a"]
    with pytest.raises(ConfigError, match="unknown field `key`"):
        keys_of("keys.yaml", "keys: []\nkey: []\n")


def test_anchors_and_merges_of_yaml_are_read_and_a_name_beside_a_merge_is_not_twice(tmp_path: Path) -> None:
    text = """
x-log: &log {target: "log:", maxAttempts: 3}
routes:
- {name: a, match: a, <<: *log}
- {<<: *log, name: b, match: b, maxAttempts: 5}
- {name: c, match: c, <<: [{maxAttempts: 7}, *log]}
"""
    table = routes_of(tmp_path / "routes.yaml", text)
    assert [(one.target, one.max_attempts) for one in table] == [("log:", 3), ("log:", 5), ("log:", 7)]


# -- scalars of YAML -----------------------------------------------------------------------------------------------------

#: Scalars that YAML 1.1 changes, or that have several forms.
CHANGED = [
    "030000", "1:30", "01234567", "no", "yes", "on", "off", "y", "1e3", "0o17", "0x10", "0b11", "1_000", "+5", ".5", ".inf",
    "2027-01-31", "2027-01-31T08:00:00Z", "12:30:45", "1.50", "1e-3", "-0x1", "0777", "nan",
]  # fmt: skip


@pytest.mark.parametrize("scalar", CHANGED)
def test_a_scalar_is_the_text_as_written_where_text_is_expected_and_refused_where_a_number_is(
    scalar: str, tmp_path: Path
) -> None:
    path = tmp_path / "routes.yaml"
    (route,) = routes_of(
        path, f"routes:\n- {{name: a, stream: {scalar}, options: {{sasl.password: {scalar}}}, target: kafka://h}}\n"
    )
    assert (route.stream, route.options["sasl.password"]) == (scalar, scalar)
    for field, expected in (("sendTimeout", "a number in plain digits"), ("perQueue", "true or false")):
        with pytest.raises(ConfigError, match=f"DELAYQ_ROUTES: {path}: line 2: {field} must be {expected}"):
            routes_of(path, f"routes:\n- {{name: a, {field}: {scalar}}}\n")
    (key,) = keys_of(
        "k.yml", f'keys:\n- {{id: "{"a" * 4}", name: n, hash: "{HASH}", created: {scalar}, scopes: {{a: [read]}}}}'
    )
    assert key.created == scalar


def test_numbers_names_and_booleans_are_read_by_the_type_that_is_expected(tmp_path: Path) -> None:
    text = "routes:\n- {name: 123, match: 456, sendTimeout: 30000, perQueue: true, maxLength: null, maxAttempts: ~}\n"
    (route,) = routes_of(tmp_path / "routes.yaml", text)
    assert (route.name, route.match, route.send_timeout, route.per_queue) == ("123", "456", 30_000, True)
    assert (route.max_length, route.max_attempts) == (None, None)
    options = "{a: 5, b: true, c: null, d: [1, 0o1], e: {f: 1.5}, '6': '7', g: !!str 8, h: \"9\"}"
    (route,) = routes_of(tmp_path / "routes.yaml", f"routes: [{{name: a, target: 'own://h', options: {options}}}]")
    found = {"a": 5, "b": True, "c": None, "d": [1, "0o1"], "e": {"f": 1.5}, "6": "7", "g": "8", "h": "9"}
    assert route.options == found


NOT_YAML = {
    "a: [": "line 2: ",
    "a: 1\n--- \nb: 2": "line 2: ",
    "a: !own 5": "line 1: the tag '!own' has no meaning here",
    "a: !!set {b}": "the tag 'set' has no meaning here",
    "{[a]: 5}": "a name must be text",
    "a: &a [*a]": "nested too deeply",
    "<<: 5": "<< needs an object",
    "\x00": "",
}


@pytest.mark.parametrize("text", NOT_YAML)
def test_what_is_not_read_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(NotWritten) as caught:
        parsed(text, "YAML")
    assert NOT_YAML[text] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, Twice)


def test_json_and_toml_keep_the_types_that_they_write() -> None:
    for wrong in ('[{"name": 5}]', '[{"name": "a", "sendTimeout": "5"}]'):
        with pytest.raises(ValueError, match="Expected"):
            converted(parsed(wrong, "JSON"), list[Route])
    with pytest.raises(NotWritten, match="nested too deeply"):
        parsed("[" * 100_000, "JSON")
    rows: Any = converted(parsed(json.dumps([{"name": "a", "options": {"é": "ü"}}]), "JSON"), list[Route])
    assert rows[0].options == {"é": "ü"}


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("rabbitmq://h/v", {"user": 12, "password": 12345678, "connectTimeout": 500}),
        ("kafka://h", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": 12,
                       "sasl.password": 12345678}),
    ],
)  # fmt: skip
def test_digits_are_text_in_an_option_that_is_text(target: str, options: dict[str, Any], tmp_path: Path) -> None:
    kind = target.partition(":")[0]
    pytest.importorskip(
        {"rabbitmq": "pika", "kafka": "confluent_kafka"}[kind], reason="the extra of the target is missing"
    )
    path = tmp_path / "routes.yaml"
    given = ", ".join(f"{name}: {value}" for name, value in options.items())
    (route,) = routes_of(path, f"routes: [{{name: a, target: '{target}', options: {{{given}}}}}]")
    opened: Any = open_target(route, "redis://127.0.0.1:1/0")
    opened.close()
    assert options_as(_Login, {"password": 12, "port": 5}) == _Login("12", 5)
    for wrong in (1.5, True):
        with pytest.raises(ValueError, match="Expected `str`"):
            options_as(_Login, {"password": wrong})


class _Login(msgspec.Struct, frozen=True):
    password: str
    port: int = 0
