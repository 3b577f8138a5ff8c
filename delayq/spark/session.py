"""A SparkSession for a command: the existing one, as under spark-submit, or its own, which ends with the command.

Its own session keeps the output of Spark in a file, so that the terminal shows only the output of the command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO
from zipfile import BadZipFile, ZipFile

from delayq.base.errors import ConfigError, DelayqError, MissingExtra
from delayq.base.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A JVM prints its version within this time, even on a busy machine (s).
JAVA_SECONDS: Final = 60
#: The difference between a class file's major version and Java's.
_CLASS_FILE: Final = 44
_OLDEST_KNOWN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_OF_PYTHON: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*: (.+)$", re.MULTILINE)
_OF_JAVA: Final = re.compile(r"^(?:Caused by: )?(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error): (.+)$", re.MULTILINE)


class SparkFailed(DelayqError):
    """Spark failed. The message has the reason, and the place of its log."""


@contextmanager
def session(name: str, *, master: str = "", conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yield a session, which is stopped at the end if it was made here. `conf` are settings of Spark.

    Raises MissingExtra, ConfigError for an unsuitable Java, and SparkFailed for exceptions of Spark meanwhile.
    """
    need_spark(name)
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        # Nothing here uses pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield from _session(name, SparkSession, master, conf or {})


def _session(
    name: str, SparkSession: type[SparkSession], master: str, conf: Mapping[str, str]
) -> Iterator[SparkSession]:
    there = SparkSession.getActiveSession()
    if there is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        if master:
            raise ConfigError("a Spark session exists already (of spark-submit), so --master has no effect; remove it")
        with _failures(None):
            yield there or SparkSession.builder.getOrCreate()
        return
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise executors take the first python3 of PATH
    builder = SparkSession.builder.appName(name)
    for key, value in (_defaults(master or conf.get("spark.master", "")) | dict(conf)).items():
        builder = builder.config(key, value)
    handle, path = tempfile.mkstemp(prefix="delayq-spark-", suffix=".log")
    log = Path(path)
    with _failures(log):
        with _stderr_into(handle) as kept, Progress("starting Spark", stream=kept):
            made = (builder.master(master) if master else builder).getOrCreate()
        try:
            yield made
        finally:
            with suppress(Exception):  # it is given up, whatever its state
                made.stop()
    log.unlink(missing_ok=True)


def need_spark(what: str) -> None:
    """Raise MissingExtra unless the extra is installed."""
    try:
        for name in (
            "pandas",
            "pyarrow",
            "pyspark",
        ):  # Spark would otherwise fail for the first two in the middle of a job
            import_module(name)
    except ImportError:
        raise MissingExtra(what, "spark") from None


def _defaults(master: str) -> dict[str, str]:
    conf = {
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",  # a second copy of a task costs time, and may fail the commit of a write (SPARK-56564)
    }
    if _is_local(master):
        # Nothing listens outside: neither the driver nor its pages.
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
    return conf


def _is_local(master: str) -> bool:
    """Whether Spark runs on this machine, which is the default."""
    from pyspark.find_spark_home import _find_spark_home

    if master:
        return master.startswith("local")
    conf = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"), "spark-defaults.conf")
    return not conf.exists() and "PYSPARK_SUBMIT_ARGS" not in os.environ


@contextmanager
def _stderr_into(handle: int) -> Iterator[TextIO]:
    """While it lasts, processes that are started write their stderr to the file: the JVM and its workers, until they end.

    Yields the former stderr.
    """
    sys.stderr.flush()
    with open(os.dup(2), "w", encoding="utf-8", errors="replace") as kept:
        os.dup2(handle, 2)
        os.close(handle)
        try:
            yield kept
        finally:
            os.dup2(kept.fileno(), 2)


# -- what is wrong with Java ---------------------------------------------------------------------------------------------


def check_java() -> None:
    """Raise ConfigError with the remedy, unless there is a Java that this Spark runs on."""
    from pyspark import __version__ as version

    least = needed_java()
    needs = f"pyspark {version} needs Java {least} or newer"
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if shutil.which(java) is None:
            raise ConfigError(f"JAVA_HOME is {home}, which has no bin/java; {needs}")
    else:
        found = shutil.which("java")
        if found is None:
            raise ConfigError(
                f"there is no java on PATH, and JAVA_HOME is not set; {needs}: install it or set JAVA_HOME"
            )
        java = found
    try:
        ran = subprocess.run(
            [java, "-version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=JAVA_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} does not start ({error}); {needs}") from None
    said = ran.stderr + ran.stdout
    match = _VERSION.search(said)
    if ran.returncode or match is None:
        first = next((line for line in said.splitlines() if line.strip()), f"status {ran.returncode}")
        raise ConfigError(f"{java} does not report its version ({first.strip()}); {needs}")
    major = int(match[2] or 0) if match[1] == "1" else int(match[1])  # 1.8 is 8
    if major < least:
        raise ConfigError(f"{java} is Java {major}, but {needs}: install it, or set JAVA_HOME to an installed one")


def needed_java() -> int:
    """Return the oldest Java that can read the classes of this Spark."""
    from pyspark.find_spark_home import _find_spark_home

    for jar in sorted(Path(_find_spark_home(), "jars").glob("spark-core_*.jar")):
        with suppress(OSError, KeyError, BadZipFile), ZipFile(jar) as classes:
            return int.from_bytes(classes.read("org/apache/spark/SparkContext.class")[6:8], "big") - _CLASS_FILE
    return _OLDEST_KNOWN


# -- what Spark raises ---------------------------------------------------------------------------------------------------


@contextmanager
def _failures(log: Path | None) -> Iterator[None]:
    """Convert Spark's exceptions to one sentence. The log of a failed session is kept, and named."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, ConnectionError) as error:
        where = f"; Spark's log is {log}" if log is not None else ""
        raise SparkFailed(f"{sentence_of(error)}{where}") from error
    except BaseException:
        if log is not None:
            log.unlink(missing_ok=True)
        raise


def sentence_of(error: Exception) -> str:
    """The error out of traces of Java within traces of Python: the last error of Python, otherwise of Java."""
    text = str(error)
    found = [line for line in _OF_PYTHON.findall(text) if "Traceback" not in line]
    if "Traceback (most recent call last)" in text and found:
        return str(found[-1]).strip()
    causes = _OF_JAVA.findall(text)
    first = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return str(re.sub(r"\s*SQLSTATE: \w+.*$", "", first)).strip().rstrip(".;")
