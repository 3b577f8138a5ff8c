"""Which variables of the environment are settings. One that only looks like a setting is a slip, and refused."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from delayq.errors import ConfigError

__all__ = ["OTHERS", "PREFIX", "Environment", "variable"]

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


class Environment(EnvSettingsSource):
    """The variables that are settings; raises ConfigError for one that only looks so."""

    def __call__(self) -> dict[str, Any]:
        """What the environment sets."""
        _refuse_strangers(os.environ, self.settings_cls.model_fields)
        return super().__call__()

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """What it sets for a field; nothing, if Kubernetes only tells where a Service is."""
        value, key, is_complex = super().get_field_value(field, field_name)
        link = value is not None and _is_link(variable(field_name), value)
        return None if link else value, key, is_complex


def _refuse_strangers(environment: Mapping[str, str], names: Collection[str]) -> None:
    known = [variable(name) for name in names]
    for name, value in environment.items():
        if name in known or not name.upper().startswith(PREFIX) or _is_of_others(name, value):
            continue
        (nearest,) = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0)
        raise ConfigError(
            f"{name} is no setting of delayq; the nearest is {nearest}, "
            f"and variables of your own must not begin with {PREFIX}"
        )


def _is_of_others(name: str, value: str) -> bool:
    return (
        name in OTHERS
        or name.startswith(_OF_TESTS)
        or _OF_KUBERNETES.fullmatch(name) is not None
        or _is_link(name, value)
    )


def _is_link(name: str, value: str) -> bool:
    return name.endswith("_PORT") and _LINK.fullmatch(value) is not None
