"""`{topic}` in a webhook's URL: in its path and its query it stands for the message's topic, never in its host."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from delayq.domain.routes import stray_braces

TOPIC: Final = "{topic}"


def check_topic_in(url: str) -> None:
    """Raise ValueError for braces that stand for nothing, or stand where they may not."""
    parts = urlsplit(url)
    if TOPIC in parts.netloc:
        raise ValueError(f"{TOPIC} is for the path and the query of its URL, never for the host")
    if stray := stray_braces(f"{parts.path}?{parts.query}"):
        raise ValueError(f"it has {stray[:40]!r} in its URL: {TOPIC} is all that stands for something")


def filled(target: str, topic: str) -> str:
    """The path and query for messages of `topic`."""
    return target.replace(TOPIC, quote(topic, safe=""))


def refusal(target: str, topic: str) -> str:
    """Why messages of `topic` cannot go there; '' if they can."""
    path = target.partition("?")[0]
    for segment in path.split("/"):
        # Servers and proxies take these for steps in the path, in per cents too.
        if TOPIC in segment and (found := filled(segment, topic)) in (".", ".."):
            return f"{found!r} would lead out of the path in the webhook's URL; use another topic"
    return ""
