"""Java classes from Maven Central (or what this machine's Maven uses in its place), pinned by their SHA-256."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from delayq.base.progress import Progress
from testbed.errors import ServerMissing
from testbed.fetch_lock import fetching, wait_for_fetch

CENTRAL: Final = "https://repo1.maven.org/maven2"
_SECONDS: Final = 120.0
_AT_ONCE: Final = 8
#: Options of a Java program that ends after seconds: to compile its code well would take longer than the code runs.
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def find_java(what: str) -> Path:
    """The `java` of JAVA_HOME or of the PATH, for the server named `what`; raises ServerMissing."""
    home = os.environ.get("JAVA_HOME")
    for found in (shutil.which("java", path=str(Path(home) / "bin")) if home else None, shutil.which("java")):
        if found:
            return Path(found)
    raise ServerMissing(f"{what} needs Java 17 or newer: install it (apt install default-jre-headless)")


def read_pins(name: str) -> Mapping[str, str]:
    """Maven coordinates (group:artifact:version) to SHA-256, of the file `NAME.jars` beside this one."""
    lines = (Path(__file__).parent / f"{name}.jars").read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def cache(name: str) -> Path:
    """Where a server's fetched classes are kept: $DELAYQ_JARS/NAME, or ~/.cache/delayq/NAME."""
    if given := os.environ.get("DELAYQ_JARS"):
        return Path(given) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delayq" / name


def missing(name: str) -> list[str]:
    """The coordinates of those that were not fetched yet."""
    folder = cache(name)
    wait_for_fetch(folder.parent, name)
    return [one for one in read_pins(name) if not _jar(folder, one).is_file()]


def fetch(name: str) -> Path:
    """Fetch what is missing or damaged; the folder with the jars. Raises ServerMissing."""
    folder = cache(name)
    folder.mkdir(parents=True, exist_ok=True)
    pins = read_pins(name)
    with fetching(folder.parent, name):
        wanted = [one for one, digest in pins.items() if not _is_whole(_jar(folder, one), digest)]
        with Progress(f"fetching {name}", "files", name="dev") as progress, ThreadPoolExecutor(_AT_ONCE) as threads:
            size, running = 0, [threads.submit(_fetch_one, folder, one, pins[one]) for one in wanted]
            for done, one in enumerate(as_completed(running), 1):
                size += one.result()
                progress.count(done, len(wanted), f"{size / 1e6:.0f} MB")
        for stranger in set(folder.glob("*.jar")) - {_jar(folder, one) for one in pins}:
            stranger.unlink()  # of a version before
    return folder


def _jar(folder: Path, coordinates: str) -> Path:
    _, artifact, version, *classifier = coordinates.split(":")
    return folder / f"{'-'.join([artifact, version, *classifier])}.jar"


def _is_whole(jar: Path, digest: str) -> bool:
    return jar.is_file() and _digest(jar.read_bytes()) == digest


def _fetch_one(folder: Path, coordinates: str, digest: str) -> int:
    """Fetch a jar and return its size."""
    group, artifact, version, *_ = coordinates.split(":")
    jar = _jar(folder, coordinates)
    url = "/".join((_repository(), group.replace(".", "/"), artifact, version, jar.name))
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS, context=context) as answer:
            content: bytes = answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise ServerMissing(f"{url} could not be fetched: {error}") from None
    if _digest(content) != digest:
        raise ServerMissing(f"{url} is not what was expected: its SHA-256 is {_digest(content)}")
    # Renamed when it is complete, so that an interrupted fetch leaves no half jar.
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
        part.write(content)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(jar)
    return len(content)


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
