"""Reads the files that people write: JSON, YAML and TOML, of routes and of API keys.

A name that stands twice in one object is refused: one of its values would be lost. YAML has the scalars of version 1.2,
and of its numbers only those in plain digits. So 0123 is text where text is expected, such as a password, and refused
where a number is. Names at the top of a file that begin with 'x-' are for the writer, such as anchors. A byte order mark
is skipped, because some editors write one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
#: The kinds of files by the end of their names; any other file is JSON.
KINDS: Final = {".json": "JSON", ".yaml": "YAML", ".yml": "YAML", ".toml": "TOML"}

#: Some editors write it at the beginning of a file.
BYTE_ORDER_MARK: Final = "\ufeff"

_NULL: Final = ("", "~", "null", "Null", "NULL")
_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}")
_TAG: Final = "tag:yaml.org,2002:"
_TWICE_IN_TOML: Final = re.compile(r"(?:Cannot (?:overwrite|declare|mutate)|Duplicate) .*\(at line (\d+), column \d+\)")
_PLAIN: Final = "plain"
_MERGE: Final = "<<"
#: The sentence about a wrong scalar, by the expected type.
_EXPECTED: Final = (
    (inspect.BoolType, "must be true or false"),
    (
        (inspect.IntType, inspect.FloatType),
        "must be a number in plain digits, without leading zeros, colon or exponent",
    ),
)


class NotWritten(ValueError):
    """The text is not of its kind. The reason may quote the text."""


class Twice(NotWritten):
    """A name stands twice. The reason names it and quotes nothing else."""


class _Plain(str):
    """A scalar of YAML without quotes, as it is written, and its line."""

    line: int

    def value(self) -> Any:
        """Return its value: None, true or false, a number that would be written the same way, or the text."""
        if self in _NULL:
            return None
        if self in _TRUE or self in _FALSE:
            return self in _TRUE
        if _INTEGER.fullmatch(self):
            return int(self)
        if _DECIMAL.fullmatch(self) and repr(float(self)) == self:
            return float(self)
        return str(self)


def kind_of(path: Path) -> str:
    """Return the kind of a file by its name."""
    return KINDS.get(path.suffix.lower(), "JSON")


def parsed(text: str | bytes, kind: str) -> Any:
    """Return the data of a text, for `converted`. Raises NotWritten, and ImportError without PyYAML."""
    try:
        text = (text if isinstance(text, str) else text.decode()).removeprefix(BYTE_ORDER_MARK)
        if kind == "YAML":
            return _yaml(text)
        if kind == "TOML":
            return msgspec.toml.decode(text)
        found = msgspec.json.decode(text)
        json.loads(text, object_pairs_hook=_once)
        return found
    except NotWritten:
        raise
    except RecursionError:
        raise NotWritten("it is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        at = _TWICE_IN_TOML.match(reason) if kind == "TOML" else None
        if at is None:
            raise NotWritten(reason) from None
        name = str(text).splitlines()[int(at[1]) - 1].partition("=")[0].strip(" []\t\"'")
        raise Twice(f"line {at[1]}: the name {name!r:.100} stands twice in one object; keep one") from None


def converted(data: Any, type: type[T]) -> T:
    """Return the data as the type. Raises ValueError with a sentence that quotes no value."""
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if not name.startswith("x-")}
    found: T = msgspec.convert(_fitted(data, inspect.type_info(type), ""), type)
    return found


def options_as(type: type[S], options: Mapping[str, Any]) -> S:
    """Return the options of a route as the type. An integer is text where text is expected, such as a password of digits.

    Raises ValueError with a sentence.
    """
    texts = {field.encode_name for field in msgspec.structs.fields(type) if field.type is str}
    given = {name: str(one) if name in texts and _is_integer(one) else one for name, one in options.items()}
    found: S = msgspec.convert(given, type)
    return found


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Twice(f"the name {name!r:.100} stands twice in one object; keep one")
        found[name] = value
    return found


# -- YAML ----------------------------------------------------------------------------------------------------------------


def _loader() -> Any:
    """Return the class that parses YAML into nodes, where a scalar without quotes and tag has the tag `_PLAIN`."""
    import yaml  # of the extra `cli`

    class Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc] # either of both
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is yaml.ScalarNode:
                return _PLAIN if implicit[0] else f"{_TAG}str"
            return super().resolve(kind, value, implicit)

        def close(self) -> None:
            self.dispose()

    return Loader


def _yaml(text: str) -> Any:
    import yaml  # of the extra `cli`

    try:
        with closing(_loader()(text)) as loader:
            node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise NotWritten(f"line {mark.line + 1}: {problem}" if mark is not None else problem) from None
    return None if node is None else _value(node)


def _value(node: Any) -> Any:
    line = node.start_mark.line + 1
    tag = node.tag.removeprefix(_TAG)
    if isinstance(node.value, str):
        if tag not in (_PLAIN, "str", "int", "float", "bool", "null"):
            raise NotWritten(f"line {line}: the tag {tag!r:.100} has no meaning here; remove it")
        if tag == "str":
            return node.value
        found = _Plain(node.value)
        found.line = line
        return found
    if tag == "seq":
        return [_value(one) for one in node.value]
    if tag != "map":
        raise NotWritten(f"line {line}: the tag {tag!r:.100} has no meaning here; remove it")
    own: dict[Hashable, Any] = {}
    merged: dict[Hashable, Any] = {}
    for key, value in node.value:
        if not isinstance(key.value, str):
            raise NotWritten(f"line {key.start_mark.line + 1}: a name must be text")
        if key.tag == _PLAIN and key.value == _MERGE:
            for more in _merged(_value(value), line):
                merged = {**more, **merged}
            continue
        if key.value in own:
            raise Twice(
                f"line {key.start_mark.line + 1}: the name {key.value!r:.100} stands twice in one object; keep one"
            )
        own[key.value] = _value(value)
    return {**merged, **own}


def _merged(value: Any, line: int) -> Iterator[Mapping[Hashable, Any]]:
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            raise NotWritten(f"line {line}: {_MERGE} needs an object or a list of objects")
        yield one


def _fitted(value: Any, kind: inspect.Type, name: str) -> Any:
    """Return the value with each scalar of YAML as the type needs it."""
    if isinstance(value, dict):
        types: Mapping[str, inspect.Type] = {}
        if isinstance(kind, inspect.StructType):
            types = {field.encode_name: field.type for field in kind.fields}
        others = kind.value_type if isinstance(kind, inspect.DictType) else inspect.AnyType()
        return {one: _fitted(each, types.get(one, others), one) for one, each in value.items()}
    if isinstance(value, list):
        items = kind.item_type if isinstance(kind, inspect.ListType | inspect.VarTupleType) else inspect.AnyType()
        return [_fitted(each, items, name) for each in value]
    return _scalar(value, kind, name) if isinstance(value, _Plain) else value


def _scalar(value: _Plain, kind: inspect.Type, name: str) -> Any:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    found = value.value()
    if found is None:
        return None
    if any(isinstance(one, inspect.StrType | inspect.LiteralType) for one in kinds):
        return str(value)
    if isinstance(found, str):
        for expected, reason in _EXPECTED:
            if any(isinstance(one, expected) for one in kinds):
                raise ValueError(f"line {value.line}: {name} {reason}")
    return found
