"""The origin of rows: columns that are carried beside the fields, so that a refused row can be corrected.

A refused row is written as it was read, with its place and the reason of its refusal. These columns are ignored when
the corrected rows are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from delayq.base.errors import DelayqError, InvalidMessage, PastDue

if TYPE_CHECKING:
    import pyarrow as pa

#: The file of a row, and its line there (of Parquet its row), from 1 on.
FILE: Final = "reject_file"
LINE: Final = "reject_line"
#: The row as it was read: the text of a JSON object, or a struct of all columns. It is never written under this name.
ROW: Final = "reject_row"
#: The reason of a refusal, as a word and as a sentence.
REASON: Final = "reject_reason"
DETAIL: Final = "reject_detail"
CARRIED: Final = (FILE, LINE, ROW)
#: Columns that readers add: they are ignored.
OWN: Final = (*CARRIED, REASON, DETAIL)

#: Fields as the HTTP API names them, if a table's column has another name.
_FIELD: Final = re.compile(r"\b(?:delayTime|expectDate|delayLevel|bodyType|orderingKey|maxAttempts|expireAfter)\b")


class Rejects(msgspec.Struct, frozen=True, kw_only=True):
    """The format of refused rows: the separator and escape of CSV, and the table's column of each field."""

    format: Literal["parquet", "csv", "json"] = "parquet"
    separator: str = ","
    escape: str = "\\"
    columns: Mapping[str, str] = {}

    def sentence_of(self, error: DelayqError) -> str:
        """The error of a row, with the column names of the table."""
        if isinstance(error, PastDue):
            return f"{self._column('expectDate')}: the time has passed"
        if not isinstance(error, InvalidMessage):
            return str(error)
        field, bracket, rest = error.field.partition("[")
        reason = _FIELD.sub(lambda found: self._column(found[0]), error.reason)
        return f"{self._column(field)}{bracket}{rest}: {reason}"

    def _column(self, field: str) -> str:
        return self.columns.get(field) or re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", field)


def camel(field: str) -> str:
    """Return the name of a field in the HTTP API, which errors use."""
    head, *others = field.split("_")
    return head + "".join(one.title() for one in others)


def fields_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without the carried columns."""
    own = [name for name in batch.schema.names if name.lower() in OWN]
    return batch.drop_columns(own) if own else batch


def place_of(batch: pa.RecordBatch, row: int) -> str:
    """Return the place of a row, as 'orders.csv, line 3: '; '' if it is unknown."""
    file, line = (_value(batch, name, row) for name in (FILE, LINE))
    return "" if line is None else f"{file}, line {line}: "


def _value(batch: pa.RecordBatch, name: str, row: int) -> Any:
    return batch.column(name)[row].as_py() if name in batch.schema.names else None
