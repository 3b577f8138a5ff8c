"""./dev check: everything that can be checked in the code and the pages without running tests.

Each module in devtools/checks has functions that return complaints, as lines "file:line: what is wrong, and the remedy".
They run in this process, beside mypy, which takes longest.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final, NamedTuple

from delayq.base.progress import Progress
from testbed.errors import ServerMissing

ROOT: Final = Path(__file__).resolve().parent.parent
OPENAPI: Final = ROOT / "docs" / "openapi.json"
TYPED: Final = (
    "delayq", "api", "workers", "coordinator", "benchmarks", "tests", "reliability", "devtools", "testbed", "dev",
    "pyspark_delayq.py",
)  # fmt: skip
LINT_IMPORTS: Final = "import sys; from importlinter.cli import lint_imports_command; sys.argv[1:] = ['--no-logo']; "
#: The arguments of Python.
PROGRAMS: Final = {
    "types": ["-m", "mypy", *TYPED],
    "format": ["-m", "ruff", "format", "--check"],
    "lint": ["-m", "ruff", "check", "--output-format=concise"],
    "import contracts": ["-c", LINT_IMPORTS + "lint_imports_command()"],
}


class Result(NamedTuple):
    """The result of a check: without a complaint it passed. `skipped` is the reason why it could not run."""

    name: str
    seconds: float
    complaint: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        if self.skipped:
            return f"skipped {self.name}: {self.skipped}"
        line = f"{'FAILED' if self.complaint else 'ok':<8}{self.name} ({self.seconds:.1f} s)"
        return f"{line}\n{self.complaint.rstrip()}\n" if self.complaint else line


def check(*, fix: bool) -> bool:
    """Run every check and print the result of each. Return whether all passed."""
    if fix:
        with Progress("repairing", name="dev"):
            _repair()
    # One core runs the programs, the other one our own checks. These parse Python, which Python 3.11 may fail to do in
    # two threads at a time (python/cpython#106905), so they share this thread.
    with Progress("checking", "checks", name="dev") as progress, ThreadPoolExecutor(max_workers=1) as pool:
        programs = [pool.submit(_run, name, words) for name, words in PROGRAMS.items()]
        own = _own_checks()
        results: list[Result] = []

        def note(result: Result) -> None:
            with progress.hidden():
                print(result, flush=True)
            results.append(result)
            progress.count(len(results), len(own) + len(programs))

        for name, complaints in own.items():
            note(_measured(name, complaints))
        for done in as_completed(programs):
            note(done.result())
    return not any(result.complaint for result in results)


def _own_checks() -> dict[str, Callable[[], Iterable[str]]]:
    """The checks that run in this process. They import the product, which takes a while: mypy has begun by then."""
    from devtools import go_types
    from devtools.checks import (
        architecture,
        console,
        faults,
        files,
        libraries,
        links,
        logged,
        metrics,
        names,
        prose,
        scripts,
        settings,
        twins,
        words,
    )

    return {
        "imports without a ZooKeeper": files.import_no_kazoo,
        "modules for threads are up to date": twins.complaints,
        "docs/openapi.json is up to date": _openapi,
        "types of the Go client": go_types.complaints,
        "settings, routes and options in docs/": settings.complaints,
        "metrics in docs/observability.md": metrics.complaints,
        "events in docs/observability.md": logged.complaints,
        "scripts, states and keys in docs/": scripts.complaints,
        "private names in docs/libraries.md": libraries.complaints,
        "docs/architecture.md": architecture.complaints,
        "faults, promises and their tests": faults.complaints,
        "links and named files": links.lead_somewhere,
        "every page is in docs/README.md": links.index_is_complete,
        "every command in docs/ is run": links.blocks_are_run,
        "length of pages and decisions": words.complaints,
        "prose of pages and of texts in code": prose.complaints,
        "words of the interfaces in docs/glossary.md": names.complaints,
        "files of the console": console.complaints,
        "types of the console's JavaScript": _javascript,
        "expected files": files.are_there,
        "deploy/constraints.txt": files.pin_the_image,
    }


def _repair() -> None:
    """Write the generated files, and run the repairs of ruff. The checks then list the rest."""
    from devtools import unasync

    unasync.write()
    for words in (["check", "--fix", "--quiet"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    # Only now, so that what they import is as it was just written.
    from devtools import configuration, go_types, rights
    from devtools.checks import architecture, console, faults
    from devtools.checks.generated import write

    write(configuration.PAGE, configuration.page)
    write(rights.PAGE, rights.page)
    write(architecture.PAGE, architecture.with_layers)
    write(faults.PAGE, faults.with_layers)
    write(console.PAGE, console.with_preloads)
    write_openapi()
    with contextlib.suppress(ServerMissing):
        write(go_types.PAGE, go_types.generate)


def write_openapi() -> None:
    """Write docs/openapi.json as the API has it now."""
    OPENAPI.write_text(_openapi_text(), encoding="utf-8")


def _openapi() -> Iterator[str]:
    from devtools.checks.generated import differences

    return differences(OPENAPI, lambda _: _openapi_text())


def _openapi_text() -> str:
    from api.routes import OPERATIONS
    from api.routes.openapi import document

    return json.dumps(document(OPERATIONS), indent=2, ensure_ascii=False) + "\n"


def _javascript() -> Iterator[str]:
    from devtools import javascript

    yield from javascript.wrong_types().splitlines()


def _measured(name: str, complaints: Callable[[], Iterable[str]]) -> Result:
    began = time.monotonic()
    skipped = ""
    try:
        complaint = "\n".join(complaints())
    except ServerMissing as error:
        complaint, skipped = "", str(error)
    except Exception:
        complaint = traceback.format_exc()
    return Result(name, time.monotonic() - began, complaint, skipped)


def _run(name: str, words: list[str]) -> Result:
    began = time.monotonic()
    command = [sys.executable, *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    complaint = (ran.stdout + ran.stderr).strip() or "it failed" if ran.returncode else ""
    return Result(name, time.monotonic() - began, complaint)


def main() -> int:
    """Run ./dev check or ./dev openapi, and return the exit status."""
    if "--openapi" in sys.argv:
        write_openapi()
        return 0
    return 0 if check(fix="--fix" in sys.argv) else 1


if __name__ == "__main__":
    sys.exit(main())
