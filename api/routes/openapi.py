"""The OpenAPI document, generated from the operations and the types of their requests and answers.

`python -m api.routes.openapi` prints it. docs/openapi.json is that output, and `./dev check` compares the two.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from api.service import Operation
from api.wire.problems import KINDS
from delayq.answers.problems import ProblemOut

TITLE: Final = "delayq"
VERSION: Final = version("delayq")
ABOUT: Final = """\
Accepts a message now and delivers it to a topic later, at the millisecond that you choose.

Every refusal is `application/problem+json` (RFC 9457): `detail` has the mistake and the remedy, `field` its place.
After a 503, either nothing was done or the outcome is unknown, as `detail` states; the outcome does not change later.
Repeat the call with the id in the problem, and the message is scheduled once.
"""
_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dq_<id>_<secret>",
    "description": "An API key, created by `delayq api-keys new`. An API that listens on loopback may need none.",
}
_GOOD: Final = {200: "Done", 201: "Scheduled", 202: "Removed, but in flight"}
#: The default address of generated clients. An API serves the document with its own address.
_SERVER: Final = {"url": "http://localhost:8080", "description": "the API of ./dev up"}
_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_TAGS: Final = {
    "messages": "Schedule, find, move and cancel messages",
    "deadLetters": "Find, redrive and discard dead letters",
    "topics": "Pause and resume topics",
    "consumers": "Receive, acknowledge and hand back messages of streams here",
    "policies": "Limits, retries and expiry by topic",
    "audit": "Manual changes",
    "service": "Queues, nodes, routes, health and figures",
    "development": "Time of a development server",
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": VERSION, "description": ABOUT, "license": _LICENSE},
        "servers": [_SERVER],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "responses": {"Problem": _problem("A problem. Its `status` is the status of the answer.")},
            "securitySchemes": {"key": _KEY},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    summary, _, description = inspect.cleandoc(operation.handle.__doc__ or "").partition("\n")
    out: dict[str, Any] = {"tags": [operation.tag], "summary": summary, "operationId": operation.id}
    if description.strip():
        out["description"] = description.strip()
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": _PATHS[name]}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    parameters += [
        {"name": name, "in": "query"} | about | {"schema": _plain(about["schema"], True)}
        for name, about in operation.query.items()
    ]
    parameters += [{"name": name, "in": "header"} | about for name, about in operation.headers.items()]
    if operation.method == "DELETE":
        about = {"schema": {"type": "string", "maxLength": 200}, "description": "The reason, recorded in the audit."}
        parameters.append({"name": "Delayq-Reason", "in": "header"} | about)
    if parameters:
        out["parameters"] = parameters
    if operation.takes is not None:
        content = {"schema": _ref(operation.takes), "example": operation.example}
        out["requestBody"] = {"required": True, "content": {"application/json": content}}
    refusals = {*operation.problems} if operation.open else {401, 403, 429, *operation.problems}
    out["responses"] = {str(status): _good(status, type) for status, type in operation.gives.items()} | {
        str(status): _bad(status) for status in sorted(refusals)
    }
    out["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    if not operation.open:
        out["security"] = [{"key": []}, {}]
    return out


_PATHS: Final = {
    "id": r"^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}$",
    "name": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$",
    "group": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$",
    "topic": "^(?!delayq:)[A-Za-z0-9._:-]{1,255}$",
}


def _ref(type: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{type.__name__}"}


def _good(status: int, type: type | None) -> dict[str, Any]:
    if type is None:
        return {"description": _GOOD[status], "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"description": _GOOD[status], "content": {"application/json": {"schema": _ref(type)}}}


def _bad(status: int) -> dict[str, Any]:
    out = _problem(" · ".join(title for code, title in KINDS.values() if code == status))
    if status == 401:
        out["headers"] = {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}}
    if status in (429, 503, 507):
        out["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return out


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/problem+json": {"schema": _ref(ProblemOut)}}}


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    types = {type for operation in operations for type in (operation.takes, *operation.gives.values()) if type}
    _, schemas = msgspec.json.schema_components([ProblemOut, *types], ref_template="#/components/schemas/{name}")
    return {name: _plain(schema, name.endswith("In")) for name, schema in sorted(schemas.items())}


def _plain(schema: dict[str, Any], given: bool) -> dict[str, Any]:
    """Return a schema in the terms that all generators understand; `given` for requests.

    - A request has no null, because null means not given. It has no union: a duration or a date is text.
    - In an answer, null is one more type of a value. Words are an open set, so that a client accepts those of later
      versions.
    - No value has a default: a generated client would require all fields that have one.
    - Integers have 64 bits: a due time in ms needs 41.
    """
    plain = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "title")}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if {} in kinds:  # any JSON value
        kinds = [{}]
    if len(kinds) > 1:
        for bound in ("minimum", "maximum"):
            plain.pop(bound, None)
        plain |= {"type": "string"}
        if "examples" in plain:
            plain["examples"] = [one for one in plain["examples"] if isinstance(one, str)]
    elif kinds and (given or kinds == [{}]):
        plain = kinds[0] | plain
    elif kinds and "type" in kinds[0]:
        plain = kinds[0] | plain | {"type": [kinds[0]["type"], "null"]}
    elif kinds:
        plain["anyOf"] = schema["anyOf"]
    if "enum" in plain and not given:
        plain["x-extensible-enum"] = plain.pop("enum")
    if "integer" in plain.get("type", ()):
        plain["format"] = "int64"
    for name in ("items", "additionalProperties"):
        if isinstance(plain.get(name), dict):
            plain[name] = _plain(plain[name], given)
    if "properties" in plain:
        plain["properties"] = {name: _plain(one, given) for name, one in plain["properties"].items()}
    return plain


def main() -> None:
    """Print the document, always with the same bytes."""
    from api.routes import OPERATIONS

    json.dump(document(OPERATIONS), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
