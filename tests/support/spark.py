"""How Spark is set in tests: small, quiet, nothing left behind."""

from __future__ import annotations

from typing import Final

CONF: Final = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
}
