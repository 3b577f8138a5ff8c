"""./dev check: everything that can be said about the code without running its tests."""

from __future__ import annotations

import difflib
import subprocess
import sys
import time
from pathlib import Path

from devtools import javascript, unasync
from testbed.errors import ServerMissing

ROOT = Path(__file__).resolve().parent.parent
OPENAPI = ROOT / "docs" / "openapi.json"
TYPED = [
    "delayq",
    "api",
    "workers",
    "coordinator",
    "benchmarks",
    "reliability",
    "tests",
    "devtools",
    "testbed",
    "dev",
    "pyspark_delayq.py",
]
LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports_command; sys.argv[1:] = ['--no-logo']; "


def check(*, fix: bool) -> bool:
    """Run every check and print its result; whether all are good."""
    python = [sys.executable, "-m"]
    if fix:
        unasync.write()
    checks = {
        "format": [*python, "ruff", "format", *([] if fix else ["--check"])],
        "lint": [*python, "ruff", "check", *(["--fix"] if fix else ["--output-format=concise"])],
        "types": [*python, "mypy", *TYPED],
        "import contracts": [sys.executable, "-c", LINT_IMPORTS + "lint_imports_command()"],
    }
    results = [_report(name, command) for name, command in checks.items()]
    began = time.monotonic()
    outdated = "\n".join(f"{path.relative_to(ROOT)} is not what its source makes" for path in unasync.outdated())
    if outdated:
        outdated += "\n./dev check --fix makes it anew."
    _print_result("modules for threads are up to date", began, outdated)
    began = time.monotonic()
    complaint = write_openapi() if fix else _openapi_differs()
    _print_result("docs/openapi.json is up to date", began, complaint)
    return all(results) and not outdated and not complaint and _check_javascript()


def _check_javascript() -> bool:
    began = time.monotonic()
    try:
        complaint = javascript.wrong_types()
    except ServerMissing as error:
        print(f"skipped types of the console's JavaScript: {error}", flush=True)
        return True
    _print_result("types of the console's JavaScript", began, complaint)
    return not complaint


def write_openapi() -> str:
    """Write docs/openapi.json as the API has it now; what went wrong, or nothing."""
    generated, complaint = _generate_openapi()
    if not complaint:
        OPENAPI.parent.mkdir(exist_ok=True)
        OPENAPI.write_text(generated, encoding="utf-8")
    return complaint


def _openapi_differs() -> str:
    generated, complaint = _generate_openapi()
    if complaint:
        return complaint
    committed = OPENAPI.read_text(encoding="utf-8") if OPENAPI.exists() else ""
    lines = difflib.unified_diff(committed.splitlines(), generated.splitlines(), "committed", "generated", lineterm="")
    shown = list(lines)[:40]
    return "\n".join([*shown, "./dev openapi writes it anew."]) if shown else ""


def _generate_openapi() -> tuple[str, str]:
    command = [sys.executable, "-m", "api.routes.openapi"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    return (ran.stdout, "") if ran.returncode == 0 else ("", ran.stderr)


def _report(name: str, command: list[str]) -> bool:
    began = time.monotonic()
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    _print_result(name, began, (ran.stdout + ran.stderr) or "it failed" if ran.returncode else "")
    return ran.returncode == 0


def _print_result(name: str, began: float, complaint: str) -> None:
    print(f"{'FAILED' if complaint else 'ok':<8}{name} ({time.monotonic() - began:.1f} s)", flush=True)
    if complaint:
        print(complaint.rstrip(), "\n", flush=True)


def main() -> int:
    """What ./dev check and ./dev openapi end with."""
    if "--openapi" in sys.argv:
        if complaint := write_openapi():
            print(complaint, file=sys.stderr)
        return 1 if complaint else 0
    return 0 if check(fix="--fix" in sys.argv) else 1


if __name__ == "__main__":
    sys.exit(main())
