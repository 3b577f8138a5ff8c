"""Spark's types as Arrow's, for what columns may be. (PySpark's own function changes from version to version.)"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import types

__all__ = ["arrow_schema"]

_PLAIN: Final = (
    (types.StringType, pa.string()),
    (types.BinaryType, pa.binary()),
    (types.IntegralType, pa.int64()),
    (types.BooleanType, pa.bool_()),
    (types.FractionalType, pa.float64()),
    (types.TimestampType, pa.timestamp("us", tz="UTC")),
    (types.TimestampNTZType, pa.timestamp("us")),
    (types.DateType, pa.date32()),
    (types.DayTimeIntervalType, pa.duration("us")),
)


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """The columns; `null` is the type of those that no message can have."""
    return pa.schema([pa.field(field.name, _type(field.dataType)) for field in schema.fields])


def _type(type: types.DataType) -> pa.DataType:
    if isinstance(type, types.ArrayType):
        return pa.list_(_type(type.elementType))
    if isinstance(type, types.MapType):
        return pa.map_(_type(type.keyType), _type(type.valueType))
    if isinstance(type, types.StructType):
        return pa.struct([pa.field(field.name, _type(field.dataType)) for field in type.fields])
    return next((arrow for spark, arrow in _PLAIN if isinstance(type, spark)), pa.null())
