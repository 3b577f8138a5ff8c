"""The fixture `dq` of pytest. An entry point of the package names this module, so no conftest.py has to import it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from delayq.testing.service import Service

__all__ = ["dq", "dq_routes", "dq_service"]


@pytest.fixture(scope="session")
def dq_routes() -> str | Sequence[Mapping[str, Any]] | None:
    """The routes of `dq`. Without any, each topic is a Redis Stream. A conftest.py may override this fixture."""
    return None


@pytest.fixture(scope="session")
def dq_service(dq_routes: str | Sequence[Mapping[str, Any]] | None) -> Iterator[Service]:
    """The Valkey and the worker of all tests of this process."""
    from delayq.testing.service import run  # only for tests that use it

    with run(routes=dq_routes) as service:
        yield service


@pytest.fixture
def dq(dq_service: Service) -> Service:
    """delayq without any messages, policies and deliveries; `dq.advance` moves its time."""
    dq_service.begin_test()
    return dq_service
