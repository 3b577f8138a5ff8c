"""Every cache of shipped code is bounded in bytes: what callers choose is the key of a `Remembered`, or is short for
sure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from devtools.checks.encodings import SHIPPED
from devtools.pages import ROOT, at, tree

DECORATORS: Final = {"lru_cache", "cache"}
#: `functools` keeps arguments of any length. These functions get short ones only, or few.
SHORT: Final = {
    "api/routes/files.py": "the files of the console and of the documentation",
    "delayq/domain/codec.py": "topics of at most 255 characters: others raise, and an exception is not kept",
    "delayq/embedded/processes.py": "no argument",
    "delayq/domain/patterns.py": "patterns of at most 255 characters, checked before",
    "delayq/store/connect/cluster_exchange.py": "names of Redis keys, which have a topic in them at most",
    "delayq/store/keys.py": "numbers of queues",
    "delayq/store/scripts.py": "names of scripts",
    "delayq/targets/kafka/target.py": "topics of messages, which were checked when they were scheduled",
    "delayq/targets/rabbitmq/target.py": "topics of messages, which were checked when they were scheduled",
    "delayq/base/times.py": "hours, as numbers",
}


def complaints() -> Iterator[str]:
    """No cache has keys of a length that a caller chooses."""
    used = set()
    for package in SHIPPED:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Name) and node.id in DECORATORS:
                    used.add(name)
                    if name not in SHORT:
                        yield at(
                            path,
                            node.lineno,
                            f"{node.id}: use delayq.base.remembered.Remembered, which is bounded in bytes",
                        )
                elif isinstance(node, ast.If) and _clears_what_is_full(node) and name != "delayq/base/remembered.py":
                    yield at(
                        path,
                        node.lineno,
                        "this cache is bounded in entries only: use delayq.base.remembered.Remembered",
                    )
    for name in sorted(SHORT.keys() - used):
        yield at(ROOT / "devtools/checks/caches.py", 1, f"{name} has no such cache any more: remove its line")


def _clears_what_is_full(node: ast.If) -> bool:
    """Whether it is `if len(some) >= most: some.clear()`, as a cache without a library begins."""
    test = node.test
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.GtE, ast.Gt))):
        return False
    counted = test.left
    if not (isinstance(counted, ast.Call) and ast.unparse(counted.func) == "len"):
        return False
    some = ast.unparse(counted.args[0])
    return any(isinstance(one, ast.Call) and ast.unparse(one.func) == f"{some}.clear" for one in ast.walk(node))
