"""The check of where an accepted change is stored when it is answered, and of how it could be lost."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.base.errors import ConfigError
from delayq.client.findings.check import FAIL, OK, WARN, Check
from delayq.client.findings.facts import Facts
from delayq.store import checks


def check_durability(facts: Facts) -> Iterator[Check]:
    """Check whether the server can keep DELAYQ_MIN_REPLICAS and DELAYQ_FSYNC."""
    yield _durability(facts)


def _durability(facts: Facts) -> Check:
    server, settings = facts.server, facts.settings
    policy = server.appendfsync or "unknown"  # the user of Redis may have no right to read it
    if settings.fsync == "always":
        try:
            checks.refuse_fsync(server)
        except ConfigError as error:
            return Check("durability", FAIL, str(error), "unset DELAYQ_FSYNC, or set appendfsync on the server")
    wanted, there = settings.min_replicas, server.replicas
    on_disk = settings.fsync == "always" or policy == "always"
    text = f"a change is answered once it is {'on the disk' if on_disk else 'in the memory'} of the primary"
    if wanted:
        text += f" and in {wanted} of its replicas, of which {there} are connected"
    if there < wanted:
        return Check("durability", FAIL, f"{text}: no change can be confirmed", "connect replicas, or lower the number")
    if wanted and there == wanted:
        mend = "run one replica more than DELAYQ_MIN_REPLICAS: without it, a fail-over stops all changes"
        return Check("durability", WARN, text, mend)
    risks = [] if on_disk else [f"a power failure can lose the latest changes (appendfsync {policy})"]
    risks += [] if wanted else ["a fail-over can lose changes that the replica has not received"]
    return Check("durability", OK, "; ".join([text, *risks]))
