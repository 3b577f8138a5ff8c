"""Finds the Java classes of a ZooKeeper server on this machine, or fetches them from Maven Central."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delayq.errors import DelayqError

__all__ = ["ZooKeeperMissing", "cache", "fetch", "find_jars", "find_java"]

CENTRAL: Final = "https://repo1.maven.org/maven2"
#: What a server needs, no more: no TLS, no web console. Maven coordinates, and the SHA-256.
PINNED: Final[Mapping[str, str]] = {
    "io.dropwizard.metrics:metrics-core:4.1.12.1": "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    "org.slf4j:slf4j-api:2.0.13": "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9",
    "org.slf4j:slf4j-simple:2.0.13": "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7",
    "org.xerial.snappy:snappy-java:1.1.10.7": "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36",
    "org.apache.zookeeper:zookeeper:3.9.6": "09bdf93be7c0b5b7cd9fe51bee6abe424796cd5aaf75cf0c10bbd6f1273562ee",
    "org.apache.zookeeper:zookeeper-jute:3.9.6": "74f9cb1e4ba899ecc4b816201b4afd1c63c256705bd9176393fac4071597c75f",
}
_DEBIAN: Final = Path("/usr/share/java")
_DEBIANS: Final = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java")
_SECONDS: Final = 60.0


class ZooKeeperMissing(DelayqError):
    """This machine has no Java, or no ZooKeeper."""


def find_java() -> Path:
    """The `java` of JAVA_HOME or of the PATH; raises ZooKeeperMissing."""
    home = os.environ.get("JAVA_HOME")
    for found in (shutil.which("java", path=str(Path(home) / "bin")) if home else None, shutil.which("java")):
        if found:
            return Path(found)
    raise ZooKeeperMissing("a ZooKeeper server needs Java 11 or newer: install it (apt install default-jre-headless)")


def cache() -> Path:
    """Where fetched classes are kept: $DELAYQ_ZOOKEEPER_JARS, or ~/.cache/delayq/zookeeper."""
    given = os.environ.get("DELAYQ_ZOOKEEPER_JARS")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delayq" / "zookeeper"


def find_jars() -> list[str]:
    """The class path of a server: fetched jars first, then Debian's, then those of PySpark; raises ZooKeeperMissing."""
    folder = cache()
    if any(folder.glob("zookeeper-[0-9]*.jar")):
        return [f"{folder}/*"]
    if (_DEBIAN / "zookeeper.jar").is_file():
        return [str(jar) for name in _DEBIANS if (jar := _DEBIAN / f"{name}.jar").is_file()]
    for jars in _spark():
        if any(jars.glob("zookeeper-[0-9]*.jar")):
            return [f"{jars}/*"]
    raise ZooKeeperMissing(
        "no ZooKeeper server on this machine: fetch one by `python -m coordinator.zookeeper_server`, "
        "or install Debian's (apt install --no-install-recommends zookeeper)"
    )


def _spark() -> list[Path]:
    folders = [Path(home) / "jars"] if (home := os.environ.get("SPARK_HOME")) else []
    spec = importlib.util.find_spec("pyspark")  # found, not imported
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "jars")
    return folders


# -- fetching ----------------------------------------------------------------------------------------------------------


def fetch(folder: Path | None = None) -> Path:
    """Fetch what is missing from Maven Central (or its mirror in ~/.m2/settings.xml); the folder with the jars."""
    folder = folder if folder is not None else cache()
    folder.mkdir(parents=True, exist_ok=True)
    for coordinates, digest in PINNED.items():
        group, artifact, version = coordinates.split(":")
        jar = folder / f"{artifact}-{version}.jar"
        if not jar.is_file() or _digest(jar.read_bytes()) != digest:
            url = "/".join((_repository(), group.replace(".", "/"), artifact, version, jar.name))
            _fetch_one(url, jar, digest)
    return folder


def _fetch_one(url: str, jar: Path, digest: str) -> None:
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS, context=context) as answer:
            content: bytes = answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise ZooKeeperMissing(f"{url} could not be fetched: {error}") from None
    if _digest(content) != digest:
        raise ZooKeeperMissing(f"{url} is not what was expected: its SHA-256 is {_digest(content)}")
    # Renamed when it is whole, so that a fetch that was cut off leaves no half jar.
    with tempfile.NamedTemporaryFile(dir=jar.parent, delete=False) as part:
        part.write(content)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(jar)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _repository() -> str:
    """Maven Central, or what this machine's Maven uses in its place."""
    try:
        root = xml.parse(Path.home() / ".m2" / "settings.xml").getroot()
    except (OSError, xml.ParseError):
        return CENTRAL
    for mirror in root.iter():
        if mirror.tag.rpartition("}")[2] == "mirror":
            says = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in mirror}
            if says.get("mirrorOf") in ("*", "central", "external:*") and says.get("url", "").startswith("http"):
                return says["url"].rstrip("/")
    return CENTRAL
