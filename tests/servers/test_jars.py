"""The classes of a server are exactly those whose checksums are pinned."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from testbed import jars
from testbed.errors import ServerMissing
from testbed.jars import cache, fetch

CONTENT = b"content of a jar"


def test_a_jar_with_a_wrong_checksum_is_refused_and_a_damaged_one_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "mirror" / "org" / "example" / "zookeeper" / "1" / "zookeeper-1.jar"
    source.parent.mkdir(parents=True)
    monkeypatch.setenv("DELAYQ_JARS", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "read_pins", lambda _: {"org.example:zookeeper:1": hashlib.sha256(CONTENT).hexdigest()})
    monkeypatch.setattr(jars, "_repository", (tmp_path / "mirror").as_uri)

    source.write_bytes(b"something else")
    with pytest.raises(ServerMissing, match="not what was expected"):
        fetch("zookeeper")
    assert list(cache("zookeeper").iterdir()) == []

    source.write_bytes(CONTENT)
    (jar,) = fetch("zookeeper").iterdir()
    jar.write_bytes(b"")
    fetch("zookeeper")
    assert jar.read_bytes() == CONTENT
