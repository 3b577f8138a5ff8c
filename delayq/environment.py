"""Which variables of the environment are settings. One that only looks like a setting is a slip, and refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final

from delayq.errors import ConfigError

__all__ = ["OTHERS", "settings_in", "variable"]

PREFIX: Final = "DELAYQ_"
#: Variables that begin so and are no settings of a process: of docker-compose.yml, and of where ./dev looks for jars.
OTHERS: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "APPENDFSYNC",
        "GRAFANA_PASSWORD",
        "HTTP_PORTS",
        "JARS",
        "RABBITMQ_PASSWORD",
        "REDIS_MAXMEMORY",
        "REDIS_PORT",
        "VERSION",
    )
)
_OF_TESTS: Final = f"{PREFIX}TEST_"
#: What Kubernetes tells every container of a namespace with a Service called delayq, or delayq-something.
_OF_KUBERNETES: Final = re.compile(
    r"DELAYQ(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
#: And the value of its DELAYQ_PORT, or of a DELAYQ_API_PORT that is not the setting.
_LINK: Final = re.compile(r"(tcp|udp|sctp)://.*")


def variable(name: str) -> str:
    """The variable that a setting comes from."""
    return PREFIX + name.upper()


def settings_in(environment: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """What the environment sets, of the settings with these names; raises ConfigError for a stranger among them."""
    known = {variable(name): name for name in names}
    found: dict[str, str] = {}
    for name, value in environment.items():
        if not name.upper().startswith(PREFIX) or _is_of_others(name, value):
            continue
        if name not in known:
            (nearest,) = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0)
            raise ConfigError(
                f"{name} is no setting of delayq; the nearest is {nearest}, "
                f"and variables of your own must not begin with {PREFIX}"
            )
        found[known[name]] = value
    return found


def _is_of_others(name: str, value: str) -> bool:
    link = name.endswith("_PORT") and _LINK.fullmatch(value) is not None
    return link or name in OTHERS or name.startswith(_OF_TESTS) or _OF_KUBERNETES.fullmatch(name) is not None
