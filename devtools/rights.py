"""The rights in Redis in docs/operations.md, which ./dev check --fix writes."""

from __future__ import annotations

import re
import textwrap
from typing import Final

from delayq.store.rights import CLIENT, CONDITIONAL, CONSUMER, PROCESSES, acl_line
from devtools.pages import DOCS, with_part

PAGE: Final = DOCS / "operations.md"
BEGIN: Final = "<!-- rights: ./dev check --fix writes them -->\n"
END: Final = "<!-- end of rights -->\n"
NOTE: Final = "<!-- run by tests/docs/test_redis.py -->\n"
MIDDLE: Final = "A user for one kind of process needs less:\n"
HEAD: Final = "| needed by, or for | commands |\n| --- | --- |\n"


def table() -> str:
    """Which commands each kind of process needs, and which only where something else is so."""
    by_all = set.intersection(*(set(needs.commands) for needs in PROCESSES))
    rows = [("all", by_all)] + [(needs.processes, set(needs.commands) - by_all) for needs in PROCESSES[:-1]]
    rows.append((f"{CONSUMER.processes}, besides", set(CONSUMER.commands) - set(CLIENT.commands)))
    lines = [f"| {who} | {' '.join(f'`{word}`' for word in sorted(words))} |\n" for who, words in rows]
    lines += [f"| {when} | `{word}` |\n" for word, when in CONDITIONAL.items()]
    return HEAD + "".join(re.sub(r"(?<=\w)\|", r"\\|", line) for line in lines)


def page(text: str) -> str:
    """The page with the rights as the list has them."""
    head, _, commands = acl_line().partition(" +")
    wrapped = textwrap.fill(
        f"+{commands}", 118, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return with_part(PAGE, text, BEGIN, f"{NOTE}```text\n{head}\n{wrapped}\n```\n\n{MIDDLE}\n{table()}", END)
