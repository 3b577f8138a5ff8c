"""The commands, run in this process: they find the Spark of the tests and use it, on an empty Valkey of their own."""

from __future__ import annotations

from tests.cli.conftest import Cli, Given, alone, cli, cli_server, given
from tests.spark.conftest import spark

__all__ = ["Cli", "Given", "alone", "cli", "cli_server", "given", "spark"]
