"""./dev brokers: real brokers on this machine, which go on until they are stopped.

up [NAME...]      start these or all, on free ports of 127.0.0.1.
down [NAME...]    stop these or all, and remove their data.
fetch [NAME...]   fetch the classes of servers (zookeeper, too) or a tool, and start nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from delayq.base.progress import Progress
from testbed import folders, jars, tools
from testbed.brokers import Brokers, Note, known, prepare
from testbed.errors import ServerError, ServerMissing
from testbed.rocketmq import GROUP

FOLDER = Path(__file__).resolve().parent.parent / "build" / "brokers"


def main(arguments: Sequence[str], *, brokers: Brokers | None = None) -> int:
    """Run the command line. Return 0, or 1 if a requested broker is missing."""
    parser = argparse.ArgumentParser(
        prog="./dev brokers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=("up", "down", "fetch"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for their data and notes (build/brokers)")
    options = parser.parse_args(arguments)
    names = [*_with_pins(), *tools.TOOLS, *folders.FOLDERS] if options.action == "fetch" else known()
    if strangers := [name for name in options.names if name not in names]:
        parser.error(f"there is no {strangers[0]!r}: {options.action} takes {', '.join(names)}")
    if options.action == "fetch":
        return fetch(options.names or _with_pins())
    brokers = brokers if brokers is not None else Brokers(options.folder)
    with brokers.alone():
        return up(brokers, options.names) if options.action == "up" else down(brokers, options.names)


def fetch(names: Sequence[str]) -> int:
    """Fetch classes and tools."""
    for name in names:
        source = tools if name in tools.TOOLS else folders if name in folders.FOLDERS else jars
        try:
            print(f"{name}: {source.fetch(name)}")
        except ServerMissing as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


def up(brokers: Brokers, names: Sequence[str]) -> int:
    """Start the missing brokers, and print the address of each. The others start even if one fails."""
    running: dict[str, Note] = {}
    missing = []
    for name in names or known():
        try:
            prepare(name)
            with Progress(f"starting {name}", name="dev"):
                running[name], before = brokers.up(name)
        except (ServerMissing, ServerError) as error:
            missing.append(name)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{name} {'runs already' if before else 'runs'}: {running[name].url}", flush=True)
    if running:
        table = [{"name": name, "match": f"{name}.*", "target": note.url} for name, note in running.items()]
        print("\nA route for each, by the beginnings of topics:")
        print(f"  export DELAYQ_ROUTES='{json.dumps(table)}'")
        print("\nEach has the topic NAME.demo:")
        print(f"  delayq schedule {next(iter(running))}.demo hello --delay 5s")
        if "rocketmq" in running:
            print(f"In RocketMQ it is rocketmq-demo, and its consumer group is {GROUP}.")
        print("\n./dev brokers down stops them and removes their data.")
    return 1 if not running or (names and missing) else 0


def down(brokers: Brokers, names: Sequence[str]) -> int:
    """Stop them."""
    wanted = names or list(brokers.notes())
    for name in wanted:
        print(f"{name} {'is stopped' if brokers.down(name) else 'was not running'}", flush=True)
    if not wanted:
        print("no broker was running")
    return 0


def _with_pins() -> list[str]:
    return sorted(file.stem for file in Path(__file__).parent.glob("*.jars"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
