"""One Spark for the tests of the commands, and the commands run in this process on an empty Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delayq.errors import ConfigError
from delayq.spark.session import session
from tests.cli.conftest import Cli, Given, alone, cli, cli_server, given
from tests.support.spark import CONF

__all__ = ["Cli", "Given", "alone", "cli", "cli_server", "given"]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A SparkSession of two cores, which the commands find and use."""
    try:
        with session("tests", master="local[2]", conf=CONF) as made:
            yield made
    except ConfigError as error:
        pytest.skip(str(error))
