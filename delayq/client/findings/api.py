"""The check of an API process: whether its file of keys is in force."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.client.findings.check import WARN, Check
from delayq.client.findings.facts import Facts


def check_api_keys(facts: Facts) -> Iterator[Check]:
    """A check if the API process that answers could not read its file of keys."""
    if facts.stale_keys:
        text = f"this API cannot read its file of keys and keeps the previous keys: {facts.stale_keys}"
        yield Check(
            "apiKeys", WARN, text, "correct the file; the API reads it again each second", runbook="delayqapikeysstale"
        )
