from __future__ import annotations

import json
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


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The operations, on one API that lives as long as this module."""
    with EmbeddedServer(data_dir=tmp_path_factory.mktemp("valkey")) as server:
        open_to_all = "yes-without-keys"  # or it would have to be called localhost, and here it is called testserver
        given = {"redis_url": server.url, "redis_timeout": REDIS_TIMEOUT, "body_limit": 1_000, "api_open": open_to_all}
        application = create_app(load_settings(**given))
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
