"""Spark's types as Arrow's, for columns. (PySpark's own function changes from version to version.)"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import types

from delayq.spark.rows.columns import no_message

_PLAIN: Final = (
    ((types.StringType, types.CharType, types.VarcharType), pa.string()),
    (types.BinaryType, pa.binary()),
    (types.ByteType, pa.int8()),
    (types.ShortType, pa.int16()),
    (types.IntegerType, pa.int32()),
    (types.LongType, pa.int64()),
    (types.BooleanType, pa.bool_()),
    (types.FloatType, pa.float32()),
    (types.DoubleType, pa.float64()),
    (types.TimestampType, pa.timestamp("us", tz="UTC")),
    (types.TimestampNTZType, pa.timestamp("us")),
    (types.DateType, pa.date32()),
    (types.DayTimeIntervalType, pa.duration("us")),
    (getattr(types, "TimeType", ()), pa.time64("ns")),  # from 4.1 on
    (types.NullType, pa.null()),
)


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """Return the columns. Raises ConfigError for one that no message can have, wherever in it the reason is."""
    return pa.schema([pa.field(field.name, _type(field.dataType, field.name)) for field in schema.fields])


def _type(type: types.DataType, path: str) -> pa.DataType:
    if isinstance(type, types.ArrayType):
        return pa.list_(_type(type.elementType, f"{path}[]"))
    if isinstance(type, types.MapType):
        return pa.map_(_type(type.keyType, f"the key of {path}"), _type(type.valueType, f"{path}{{}}"))
    if isinstance(type, types.StructType):
        return pa.struct([pa.field(field.name, _type(field.dataType, f"{path}.{field.name}")) for field in type.fields])
    if isinstance(type, types.UserDefinedType):
        return _type(type.sqlType(), path)
    if isinstance(type, types.DecimalType):
        return pa.decimal128(type.precision, type.scale)
    for spark, arrow in _PLAIN:
        if isinstance(type, spark):
            return arrow
    raise no_message(path, type.simpleString())
