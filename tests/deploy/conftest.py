"""The stack of docker-compose.yml, which the tests on it share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from testbed.errors import ServerMissing
from tests.deploy.stack import Stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All its services without a profile, healthy."""
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli, which the health check of Redis is: install it (apt install redis-tools)")
    made = Stack(tmp_path_factory.mktemp("compose"))
    try:
        made.start()
        yield made
    except ServerMissing as error:
        pytest.skip(str(error))
    finally:
        made.stop()
