"""A Spark of one's own: local, small, in time zones that nobody expects."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delayq import Client
from delayq.config import load_settings
from delayq.spark.options import WriteOptions
from delayq.spark.writing.handed import Handed
from delayq.spark.writing.task import Job
from tests.house.processes import ROOT
from tests.support.servers import ServerUnderTest
from tests.support.spark import need_java

#: The zone of the session, and that of the machine: neither is UTC, and they differ by more than half a day.
SESSION_ZONE, MACHINE_ZONE = "Asia/Tokyo", "America/New_York"
#: Few, so that a read has few tasks.
QUEUES = 4


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of a local Spark with two threads; a task is tried three times."""
    need_java()
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    environment = {
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": MACHINE_ZONE,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_DIRS": str(folder),
    }  # fmt: skip
    options = {
        "spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": SESSION_ZONE, "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.python.worker.reuse": "true", "spark.log.level": "OFF",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark's own, about pandas
            builder = SparkSession.builder.master("local[2,3]").appName("delayq tests")
            for name, value in options.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def client(valkey: ServerUnderTest) -> Iterator[Client]:
    """A client of the embedded Valkey."""
    with Client(settings=load_settings(redis_url=valkey.url, queues=QUEUES)) as made:
        made.context()
        yield made


Write = Callable[..., Any]


@pytest.fixture
def write(valkey: ServerUnderTest) -> Write:
    """What a task and the driver do with rows, without Spark: the job, and what its task committed."""

    def run(rows: list[dict[str, Any]] | pa.RecordBatch, *, commit: bool = False, **options: str) -> Any:
        batch = pa.RecordBatch.from_pylist(rows) if isinstance(rows, list) else rows
        given = {"topic": "orders", "retryFor": "0", **options}
        settings = load_settings(redis_url=given.pop("redisUrl", valkey.url), routes=given.pop("routes", ""))
        job = Job(WriteOptions.parse(given), Handed.of(settings))
        job.begin(stream=False)
        written = job.write([batch])
        if commit:
            job.commit([written])
        return written.counts

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for rejected rows."""
    return tmp_path / "rejects"
