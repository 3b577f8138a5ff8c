from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode, checks
from schemathesis.python.asgi import shutdown_lifespans

from api.app import create_app
from api.routes import OPERATIONS
from api.routes.openapi import document
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from tests.support.amounts import amount
from tests.support.timeouts import REDIS_TIMEOUT

METHODS = {"get", "post", "put", "patch", "delete"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document(OPERATIONS)["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_every_operation_is_described() -> None:
    names = []
    for method, path, operation in operations():
        names.append(operation["operationId"])
        assert method in METHODS
        assert operation["summary"]
        assert any(status in operation["responses"] for status in ("200", "201"))
        if path.startswith("/v1/"):
            assert "503" in operation["responses"]
        if method in ("post", "put", "patch"):
            assert operation["requestBody"]["content"]["application/json"]["example"]
    assert len(set(names)) == len(names)


def test_every_reference_leads_somewhere() -> None:
    whole = document(OPERATIONS)
    text = json.dumps(whole)
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in whole["components"]["schemas"]


def parts(part: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the document with its path."""
    if isinstance(part, dict):
        yield where, part
        for name, one in part.items():
            yield from parts(one, f"{where}/{name}")
    elif isinstance(part, list):
        for index, one in enumerate(part):
            yield from parts(one, f"{where}/{index}")


def kinds(schema: dict[str, Any]) -> list[str]:
    found = schema.get("type", [])
    return [found] if isinstance(found, str) else found


def test_generators_understand_requests_and_answers() -> None:
    whole = document(OPERATIONS)
    for name, schema in whole["components"]["schemas"].items():
        for where, part in parts(schema, name):
            if not isinstance(part.get("type", ""), (str, list)):
                continue  # the properties of an object, one of which is called type
            assert not part.keys() & {"oneOf", "allOf", "default"}, where
            if name.endswith("In"):
                assert "anyOf" not in part, where
                assert isinstance(part.get("type", ""), str), where
                assert "null" not in kinds(part), where
            else:
                assert "enum" not in part, where
                nullable = part.get("anyOf", [{"$ref": ""}, {"type": "null"}])
                assert [sorted(one) for one in nullable] == [["$ref"], ["type"]], where
            if "array" in kinds(part):
                assert part["items"], where
            if "integer" in kinds(part):
                assert part["format"] == "int64", where
    for _method, path, operation in operations():
        assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}, path


def test_the_document_is_written_for_programs() -> None:
    whole = document(OPERATIONS)
    assert whole["info"]["license"]["identifier"] == "Apache-2.0"
    assert whole["servers"][0]["url"] == "http://localhost:8080"
    tags = {tag for _, _, operation in operations() for tag in operation["tags"]}
    assert tags == {tag["name"] for tag in whole["tags"]}
    names = [operation["operationId"] for _, _, operation in operations()]
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]+)+", name) for name in names)
    assert {"scheduleMessage", "cancelMessages", "pauseTopics"} <= {*names}


def without_default() -> dict[str, Any]:
    """The document with the documented statuses alone: by `default`, every status would be documented."""
    whole = document(OPERATIONS)
    for methods in whole["paths"].values():
        for operation in methods.values():
            del operation["responses"]["default"]
    return whole


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The operations, on one API that lives as long as this module."""
    whole = without_default()
    with EmbeddedServer(data_dir=tmp_path_factory.mktemp("valkey")) as server:
        open_to_all = "yes-without-keys"  # or it would have to be called localhost, and here it is called testserver
        given = {"redis_url": server.url, "redis_timeout": REDIS_TIMEOUT, "body_limit": 1_000, "api_open": open_to_all}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("api.routes.openapi.document", lambda _: whole)
            application = create_app(load_settings(**given))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("api.routes.consuming.LONGEST_WAIT", 100)  # longer waits are refused, and not waited for
            yield schemathesis.openapi.from_asgi("/openapi.json", application)
        shutdown_lifespans()


checks.load_all_checks()
CONTRACT: list[Any] = [
    checks.CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
    )
]


def attempts() -> Iterator[Any]:
    """Every operation, with data that fit its description and, where it takes any, with data that do not."""
    for method, path, operation in operations():
        yield pytest.param(method, path, GenerationMode.POSITIVE, id=f"{method} {path} right")
        if operation.keys() & {"parameters", "requestBody"}:
            yield pytest.param(method, path, GenerationMode.NEGATIVE, id=f"{method} {path} wrong")


@pytest.mark.parametrize("part", range(amount(1, 5)))
@pytest.mark.parametrize(("method", "path", "mode"), list(attempts()))
def test_whatever_is_sent_is_answered_as_documented_and_never_by_a_fault(
    schema: Any, method: str, path: str, mode: GenerationMode, part: int
) -> None:
    @seed(part)
    @given(case=schema[path][method.upper()].as_strategy(generation_mode=mode))
    @settings(
        max_examples=amount(8, 20),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=CONTRACT)

    send()
