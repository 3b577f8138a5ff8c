"""Where the classes of a server come from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from coordinator import zookeeper_jars
from coordinator.zookeeper_jars import CENTRAL, PINNED, ZooKeeperMissing, cache, fetch, find_jars, find_java

CONTENT = b"as good as a jar"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it, and its home."""
    for name in ("DELAYQ_ZOOKEEPER_JARS", "SPARK_HOME", "JAVA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(zookeeper_jars, "_DEBIAN", tmp_path / "java")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    return tmp_path


@pytest.fixture
def repository(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror of Maven Central with one jar, which is what is pinned."""
    jar = bare / "mirror" / "org" / "example" / "zookeeper" / "1" / "zookeeper-1.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(CONTENT)
    monkeypatch.setattr(zookeeper_jars, "PINNED", {"org.example:zookeeper:1": hashlib.sha256(CONTENT).hexdigest()})
    monkeypatch.setattr(zookeeper_jars, "CENTRAL", (bare / "mirror").as_uri())
    return jar


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_without_java_it_is_said_how_to_get_it(bare: Path) -> None:
    with pytest.raises(ZooKeeperMissing, match="Java 11 or newer: install it"):
        find_java()


def test_java_is_that_of_java_home_before_that_of_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = touch(bare / "bin" / "java")
    assert find_java() == plain
    chosen = touch(bare / "jdk" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    assert find_java() == chosen


def test_without_jars_it_is_said_how_to_get_them(bare: Path) -> None:
    with pytest.raises(ZooKeeperMissing, match=r"python -m coordinator\.zookeeper_server"):
        find_jars()


def test_jars_are_the_fetched_ones_then_debians_then_those_of_spark(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(bare / "spark" / "jars" / "zookeeper-3.9.5.jar")
    monkeypatch.setenv("SPARK_HOME", str(bare / "spark"))
    assert find_jars() == [f"{bare}/spark/jars/*"]
    debian = touch(bare / "java" / "zookeeper.jar")
    touch(bare / "java" / "zookeeper-3.8.0.jar")
    touch(bare / "java" / "ant.jar")
    assert find_jars() == [str(debian)]
    touch(cache() / "zookeeper-3.9.5.jar")
    assert find_jars() == [f"{cache()}/*"]


def test_the_folder_can_be_chosen(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache() == bare / ".cache" / "delayq" / "zookeeper"
    monkeypatch.setenv("DELAYQ_ZOOKEEPER_JARS", str(bare / "elsewhere"))
    assert cache() == bare / "elsewhere"


def test_what_is_fetched_is_found_and_not_fetched_again(repository: Path) -> None:
    folder = fetch()
    assert [jar.read_bytes() for jar in folder.iterdir()] == [CONTENT]
    assert find_jars() == [f"{folder}/*"]
    repository.unlink()
    assert fetch() == folder


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_not_kept(repository: Path) -> None:
    repository.write_bytes(b"something else")
    with pytest.raises(ZooKeeperMissing, match="not what was expected"):
        fetch()
    assert list(cache().iterdir()) == []


def test_a_damaged_jar_is_fetched_again(repository: Path) -> None:
    jar = fetch() / "zookeeper-1.jar"
    jar.write_bytes(b"")
    fetch()
    assert jar.read_bytes() == CONTENT


def test_a_repository_that_does_not_answer_is_one_sentence(repository: Path) -> None:
    repository.unlink()
    with pytest.raises(ZooKeeperMissing, match="could not be fetched"):
        fetch()


@pytest.mark.parametrize("which", ["central", "*", "external:*"])
def test_the_mirror_of_the_machines_maven_is_used(bare: Path, which: str) -> None:
    settings = bare / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>m</id>'
        f"<url>https://mirror.example/maven/</url><mirrorOf>{which}</mirrorOf></mirror></mirrors></settings>"
    )
    assert zookeeper_jars._repository() == "https://mirror.example/maven"


@pytest.mark.parametrize("text", ["<settings/>", "not XML", "<settings><mirrors><mirror/></mirrors></settings>"])
def test_settings_without_a_mirror_mean_maven_central(bare: Path, text: str) -> None:
    assert zookeeper_jars._repository() == CENTRAL
    settings = bare / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(text)
    assert zookeeper_jars._repository() == CENTRAL


def test_every_jar_is_pinned_by_version_and_sum() -> None:
    assert any(coordinates.startswith("org.apache.zookeeper:zookeeper:") for coordinates in PINNED)
    for coordinates, digest in PINNED.items():
        _, _, version = coordinates.split(":")
        assert version[0].isdigit()
        assert len(bytes.fromhex(digest)) == 32
