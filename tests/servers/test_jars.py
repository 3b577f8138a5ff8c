"""Where the classes of a server come from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from testbed import jars, zookeeper
from testbed.errors import ServerMissing
from testbed.jars import CENTRAL, cache, fetch, find_java, missing, read_pins
from testbed.zookeeper import find_jars

PINNED_FILES = sorted(path.stem for path in Path(jars.__file__).parent.glob("*.jars"))

CONTENT = b"as good as a jar"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it, and its home."""
    for name in ("DELAYQ_JARS", "SPARK_HOME", "JAVA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(zookeeper, "_DEBIAN", tmp_path / "java")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    return tmp_path


@pytest.fixture
def repository(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror of Maven Central with one jar, which is what is pinned."""
    jar = bare / "mirror" / "org" / "example" / "zookeeper" / "1" / "zookeeper-1.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(CONTENT)
    pins = {"org.example:zookeeper:1": hashlib.sha256(CONTENT).hexdigest()}
    monkeypatch.setattr(jars, "read_pins", lambda _: pins)
    monkeypatch.setattr(jars, "CENTRAL", (bare / "mirror").as_uri())
    return jar


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_without_java_it_is_said_how_to_get_it(bare: Path) -> None:
    with pytest.raises(ServerMissing, match="Java 17 or newer: install it"):
        find_java("it")


def test_java_is_that_of_java_home_before_that_of_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = touch(bare / "bin" / "java")
    assert find_java("it") == plain
    chosen = touch(bare / "jdk" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    assert find_java("it") == chosen


def test_without_jars_it_is_said_how_to_get_them(bare: Path) -> None:
    with pytest.raises(ServerMissing, match="dev brokers fetch zookeeper"):
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
    touch(cache("zookeeper") / "zookeeper-3.9.5.jar")
    assert find_jars() == [f"{cache('zookeeper')}/*"]


def test_the_folder_can_be_chosen(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache("zookeeper") == bare / ".cache" / "delayq" / "zookeeper"
    monkeypatch.setenv("DELAYQ_JARS", str(bare / "elsewhere"))
    assert cache("zookeeper") == bare / "elsewhere" / "zookeeper"


def test_what_is_fetched_is_found_and_not_fetched_again(repository: Path) -> None:
    folder = fetch("zookeeper")
    assert [jar.read_bytes() for jar in folder.iterdir()] == [CONTENT]
    assert find_jars() == [f"{folder}/*"]
    repository.unlink()
    assert fetch("zookeeper") == folder


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_not_kept(repository: Path) -> None:
    repository.write_bytes(b"something else")
    with pytest.raises(ServerMissing, match="not what was expected"):
        fetch("zookeeper")
    assert list(cache("zookeeper").iterdir()) == []


def test_a_damaged_jar_is_fetched_again(repository: Path) -> None:
    jar = fetch("zookeeper") / "zookeeper-1.jar"
    jar.write_bytes(b"")
    fetch("zookeeper")
    assert jar.read_bytes() == CONTENT


def test_a_repository_that_does_not_answer_is_one_sentence(repository: Path) -> None:
    repository.unlink()
    with pytest.raises(ServerMissing, match="could not be fetched"):
        fetch("zookeeper")


@pytest.mark.parametrize("which", ["central", "*", "external:*"])
def test_the_mirror_of_the_machines_maven_is_used(bare: Path, which: str) -> None:
    settings = bare / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>m</id>'
        f"<url>https://mirror.example/maven/</url><mirrorOf>{which}</mirrorOf></mirror></mirrors></settings>"
    )
    assert jars._repository() == "https://mirror.example/maven"


@pytest.mark.parametrize("text", ["<settings/>", "not XML", "<settings><mirrors><mirror/></mirrors></settings>"])
def test_settings_without_a_mirror_mean_maven_central(bare: Path, text: str) -> None:
    assert jars._repository() == CENTRAL
    settings = bare / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(text)
    assert jars._repository() == CENTRAL


@pytest.mark.parametrize("name", PINNED_FILES)
def test_every_jar_is_pinned_by_version_and_sum(name: str) -> None:
    pins = read_pins(name)
    assert pins
    for coordinates, digest in pins.items():
        _, _, version, *_ = coordinates.split(":")
        assert version[0].isdigit()
        assert len(bytes.fromhex(digest)) == 32


def test_what_is_missing_is_named_and_a_jar_of_a_version_before_goes(repository: Path) -> None:
    assert missing("zookeeper") == ["org.example:zookeeper:1"]
    old = touch(cache("zookeeper") / "zookeeper-0.jar")
    fetch("zookeeper")
    assert missing("zookeeper") == []
    assert not old.exists()
