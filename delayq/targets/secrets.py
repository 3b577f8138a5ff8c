"""Secrets of a route: written out, or named by the variable or the file that has them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["revealed"]


def revealed(text: str, what: str) -> str:
    """What stands in the variable (env:NAME) or the file (file:PATH) that the text names, or the text itself.

    Raises ValueError without it, which says `what` the secret is for.
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        if name not in os.environ:
            raise ValueError(f"{what}: there is no variable {name} in the environment")
        return os.environ[name].strip()
    if kind == "file":
        try:
            return Path(name).read_text().strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(f"{what}: {name} cannot be read: {reason}") from None
    return text
