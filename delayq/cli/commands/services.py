"""The commands api, worker and coordinator, which run the services that the wheel carries.

Their packages have names that are too common for other people's environments. So they are in `delayq/_services`, and only a
process that runs a service has this folder on its path.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

from delayq.cli.options import option
from delayq.errors import MissingExtra

__all__ = ["api", "coordinator", "worker"]

FOLDER: Final = Path(__file__).parents[2] / "_services"
#: Modules that the extra brings. Each is asked for: other packages may have brought some of them.
OF_SERVER: Final = ("fastapi", "httptools", "kazoo", "prometheus_client", "structlog", "uvicorn", "uvloop")


def api() -> int:
    """Run the HTTP API until SIGINT or SIGTERM."""
    return _run("api", "api")


def worker() -> int:
    """Run a worker until SIGINT or SIGTERM."""
    return _run("worker", "workers")


def coordinator(
    once: Annotated[bool, option("--once", help="Print how things are now, and end.")] = False,
    json: Annotated[bool, option("--json", help="Print a line of JSON for each change.")] = False,
) -> int:
    """Print which node owns which queues, and print it again whenever that changes."""
    return _run("coordinator", "coordinator", *["--once"] * once, *["--json"] * json)


def _run(name: str, package: str, *arguments: str) -> int:
    """Run the package as the main program of this process."""
    if any(find_spec(module) is None for module in OF_SERVER):
        raise MissingExtra(f"delayq {name}", "server")
    sys.path.insert(0, str(FOLDER))
    sys.argv[1:] = arguments
    runpy.run_module(package, run_name="__main__", alter_sys=True)
    return 0
