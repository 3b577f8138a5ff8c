"""The commands api, worker and coordinator, which run the services in the wheel.

Their packages have names that are too common for other people's environments. The wheel therefore has them in
`delayq/_services`, and only a process that runs a service has this folder on its path.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

from delayq.base.errors import MissingExtra
from delayq.cli.options import option

FOLDER: Final = Path(__file__).parents[2] / "_services"
#: Modules of the extra. Each of them is checked, because other packages may have installed some of them.
OF_SERVER: Final = ("fastapi", "httptools", "kazoo", "prometheus_client", "structlog", "uvicorn", "uvloop")


def api() -> int:
    """Run the HTTP API until a signal such as SIGTERM asks it to stop."""
    return _run("api", "api")


def worker() -> int:
    """Run a worker until a signal such as SIGTERM asks it to stop."""
    return _run("worker", "workers")


def coordinator(
    once: Annotated[bool, option("--once", help="Print the current assignment and exit.")] = False,
    json: Annotated[bool, option("--json", help="Print one line of JSON for each change.")] = False,
) -> int:
    """Print which node owns which queues, after each change."""
    return _run("coordinator", "coordinator", *["--once"] * once, *["--json"] * json)


def _run(name: str, package: str, *arguments: str) -> int:
    """Run the package as the main program of this process."""
    if any(find_spec(module) is None for module in OF_SERVER):
        raise MissingExtra(f"delayq {name}", "server")
    sys.path.insert(0, str(FOLDER))
    sys.argv[1:] = arguments
    runpy.run_module(package, run_name="__main__", alter_sys=True)
    return 0
