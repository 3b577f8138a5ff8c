"""The OpenAPI document, made of the operations and the types that they take and give.

`python -m api.routes.openapi` prints it: docs/openapi.json is that, and `./dev check` compares the two.
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
from api.wire.problems import KINDS, ProblemOut

__all__ = ["TITLE", "VERSION", "document"]

TITLE: Final = "delayq"
VERSION: Final = version("delayq")
ABOUT: Final = """\
Takes a message now and hands it to a topic later, at the millisecond that you chose.

Every refusal is `application/problem+json` (RFC 9457): `detail` says what is wrong and how to mend it, `field` where.
After a 503 nothing was done, or the outcome is unknown, as `detail` says, and it does not change later; repeat with the
id that the problem names, and the message is scheduled once.
"""
_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dq_<id>_<secret>",
    "description": "A key of the API; `delayq api-keys new` makes one. An API that listens on loopback may take none.",
}
_GOOD: Final = {200: "Done", 201: "Scheduled", 202: "Removed, but in flight"}
_DUES: Final = ("delayTime", "expectDate", "delayLevel")


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": VERSION, "description": ABOUT, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": _schemas(operations), "securitySchemes": {"key": _KEY}},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    summary, _, description = inspect.cleandoc(operation.handle.__doc__ or "").partition("\n")
    out: dict[str, Any] = {"summary": summary, "operationId": operation.handle.__name__}
    if description.strip():
        out["description"] = description.strip()
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": _PATHS[name]}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    parameters += [{"name": name, "in": "query"} | about for name, about in operation.query.items()]
    parameters += [{"name": name, "in": "header"} | about for name, about in operation.headers.items()]
    if operation.method == "DELETE":
        about = {"schema": {"type": "string", "maxLength": 200}, "description": "why, for the audit"}
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
    if not operation.open:
        out["security"] = [{"key": []}, {}]
    return out


_PATHS: Final = {
    "id": r"^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}$",
    "name": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$",
    "topic": "^(?!delayq:)[A-Za-z0-9._:-]{1,255}$",
}


def _ref(type: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{type.__name__}"}


def _good(status: int, type: type | None) -> dict[str, Any]:
    if type is None:
        return {"description": _GOOD[status], "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"description": _GOOD[status], "content": {"application/json": {"schema": _ref(type)}}}


def _bad(status: int) -> dict[str, Any]:
    titles = " · ".join(title for code, title in KINDS.values() if code == status)
    out: dict[str, Any] = {
        "description": titles,
        "content": {"application/problem+json": {"schema": _ref(ProblemOut)}},
    }
    if status == 401:
        out["headers"] = {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}}
    if status in (429, 503, 507):
        out["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return out


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    types = {type for operation in operations for type in (operation.takes, *operation.gives.values()) if type}
    _, schemas = msgspec.json.schema_components([ProblemOut, *types], ref_template="#/components/schemas/{name}")
    # A generated client takes a field that has a default for one that is always there: it would ask for all of them.
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            field.pop("default", None)
    # What a type cannot say: of some fields there is exactly one.
    for name in ("MessageIn", "PatchIn"):
        schemas[name]["oneOf"] = [_only(one, _DUES) for one in _DUES]
    schemas["CancelIn"]["oneOf"] = [_only(one, ("ids", "keys")) for one in ("ids", "keys")]
    return dict(sorted(schemas.items()))


def _only(name: str, among: Sequence[str]) -> dict[str, Any]:
    """`name` is given, and of the others none but null."""
    given: dict[str, Any] = {name: {"not": {"type": "null"}}}
    return {"required": [name], "properties": given | {one: {"type": "null"} for one in among if one != name}}


def main() -> None:
    """Print the document, the same one each time."""
    from api.routes import OPERATIONS

    json.dump(document(OPERATIONS), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
