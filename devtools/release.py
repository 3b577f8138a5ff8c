"""./dev release VERSION: write the version into all files that name it, and print the commands that publish it.

With --dry-run the checkout stays as it is. A clone of its last commit gets the version and the tags. All parts of the
release are built from this clone into dist/. Each part must name the version, is installed into an empty environment,
and runs its smoke test there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from delayq.base.progress import Progress
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from devtools.pages import ROOT, blocks_of, read
from testbed import folders, image, tools
from testbed.errors import ServerMissing

#: The files that name the version, and how often each does, from its top.
PLACES: Final = {
    "pyproject.toml": 1,
    "Dockerfile": 1,
    "docker-compose.yml": 2,
    "charts/delayq/Chart.yaml": 2,
    "clients/java/pom.xml": 1,
    "clients/typescript/package.json": 1,
    "clients/typescript/package-lock.json": 2,
    "docs/openapi.json": 1,
    "clients/go/README.md": 1,
    "clients/java/README.md": 1,
    "clients/typescript/README.md": 1,
    "docs/deploying.md": 7,
    "docs/kubernetes.md": 4,
    "docs/systemd.md": 1,
    "examples/kafka-java-hand-back/pom.xml": 2,
}
#: The file of each part in dist/, a file in it, and a line there.
FILES: Final = {
    "wheel": ("delayq-{}-py3-none-any.whl", "delayq-{}.dist-info/METADATA", "Version: {}\n"),
    "sdist": ("delayq-{}.tar.gz", "delayq-{}/PKG-INFO", "Version: {}\n"),
    "npm package": ("delayq-client-{}.tgz", "package/package.json", '"version": "{}",\n'),
    "jar": ("delayq-client-{}.jar", "META-INF/maven/io.delayq/delayq-client/pom.properties", "version={}\n"),
    "image context": ("delayq-image-{}.tar.gz", "Dockerfile", "ARG VERSION={}\n"),
    "chart": ("delayq-{}.tgz", "delayq/Chart.yaml", "\nappVersion: {}\n"),
}
#: The commands after the version is written, and those that publish it.
COMMIT: Final = """\
git commit --all --message "Release {0}"
./dev check && ./dev test --all
./dev release {0} --dry-run
"""
PUBLISH: Final = """\
git tag v{0} && git tag clients/go/v{0} && git push origin HEAD v{0} clients/go/v{0}
twine upload dist/delayq-{0}-py3-none-any.whl dist/delayq-{0}.tar.gz
npm publish --access public dist/delayq-client-{0}.tgz
mvn deploy:deploy-file -Durl=$MAVEN_URL -DrepositoryId=$MAVEN_ID -DpomFile=clients/java/pom.xml -Dfile=dist/delayq-client-{0}.jar
docker build --target delayq --tag $REGISTRY/delayq:{0} --build-arg REVISION=v{0} - <dist/delayq-image-{0}.tar.gz
docker build --target spark --tag $REGISTRY/delayq-spark:{0} --build-arg REVISION=v{0} - <dist/delayq-image-{0}.tar.gz
docker push $REGISTRY/delayq:{0} && docker push $REGISTRY/delayq-spark:{0}
helm push dist/delayq-{0}.tgz oci://$REGISTRY/charts
"""
_GO: Final = "github.com/delayq/delayq"
_DELIVERS: Final = """
from delayq import Message, testing
with testing.run() as dq:
    dq.client.schedule(Message(topic="orders", body="x", delay_time="30m"))
    dq.advance("30m")
    assert [message.topic for message in dq.delivered] == ["orders"]
"""


class CannotRelease(Exception):
    """The version cannot be released; the message is the reason."""


def version_of(root: Path) -> str:
    """The version of a checkout."""
    version: str = tomllib.loads(read(root / "pyproject.toml"))["project"]["version"]
    return version


def differences(root: Path) -> Iterator[str]:
    """The files that do not name the version of pyproject.toml as often as they should."""
    version = version_of(root)
    for name, count in PLACES.items():
        if (found := len(re.findall(_pattern(version), read(root / name)))) < count:
            yield f"{name} names the version {version} {found} times, and should do so {count} times"


def write(root: Path, version: str) -> None:
    """Write the version into all files that name it, and into the changelog."""
    if (before := version_of(root)) == version:
        return
    for name, count in PLACES.items():
        text = re.sub(_pattern(before), version, read(root / name), count=count)
        (root / name).write_text(text, encoding="utf-8")
    heading, changes = "## Unreleased\n", root / "CHANGELOG.md"
    text = read(changes).replace(heading, f"{heading}\n## {version} - {datetime.now(UTC):%Y-%m-%d}\n", 1)
    changes.write_text(text, encoding="utf-8")


def _pattern(version: str) -> str:
    return rf"(?<![\d.]){re.escape(version)}(?![\d])"


class Release(NamedTuple):
    """A version while it is built: a clone that has it, the folder of its parts, and one for empty folders."""

    version: str
    source: Path
    dist: Path
    empty: Path

    def file(self, part: str) -> Path:
        """The file of a part."""
        return self.dist / FILES[part][0].format(self.version)

    def folder(self, name: str) -> Path:
        """An empty folder."""
        folder = self.empty / name
        folder.mkdir()
        return folder

    def unpack(self, part: str) -> Path:
        """Unpack the file of a part, check that it names the version, and return the folder. Raises CannotRelease."""
        path, folder = self.file(part), self.folder(f"in the {part}")
        zipped = path.suffix in {".whl", ".jar"}
        run(*(("python3", "-m", "zipfile", "-e", path) if zipped else ("tar", "-xf", path, "-C")), folder)
        name, line = (text.format(self.version) for text in FILES[part][1:])
        expect(read(folder / name), line)
        return folder

    def quick_start(self, language: str) -> str:
        """The first program of the README of a client. It schedules a message and cancels it."""
        blocks = blocks_of(self.source / "clients" / language / "README.md")
        return next(block.text for block in blocks if block.note.startswith("run by"))


def run(*words: object, folder: Path | None = None, **environment: str) -> str:
    """Return what a program printed. Raises CannotRelease if it fails, and ServerMissing if it is not on PATH."""
    command = list(map(str, words))
    if shutil.which(command[0]) is None:
        raise ServerMissing(f"there is no {command[0]} on PATH")
    env = os.environ | environment
    ran = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ran.returncode:
        raise CannotRelease(f"{command} ended with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-4_000:]}")
    return ran.stdout


def expect(text: str, words: str) -> None:
    """Check a file or the output of a smoke test. Raises CannotRelease."""
    if words not in text:
        raise CannotRelease(f"{words!r} is missing in:\n{text[-4_000:]}")


def python(release: Release, part: str) -> None:
    """The wheel or the sdist. Its smoke test delivers a message in 30 minutes."""
    build = f"from setuptools import build_meta; build_meta.build_{part}({str(release.dist)!r})"
    run(sys.executable, "-c", build, folder=release.source)
    release.unpack(part)
    bin = release.folder(part) / "bin"
    run(sys.executable, "-m", "venv", "--without-pip", bin.parent)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        bin / "python",
        "install",
        "--no-compile",
    )
    run(*pip, "--constraint", release.source / "deploy" / "constraints.txt", f"{release.file(part)}[testing]")
    expect(run(bin / "delayq", "version"), f"delayq {release.version}")
    run(bin / "python", "-c", _DELIVERS, folder=bin)


def chart(release: Release, api: str) -> None:
    """The chart. Its smoke test is that of `helm test`, and it names the image of this version."""
    helm, source = tools.find("helm"), release.source / "charts" / "delayq"
    run(helm, "package", source, "--destination", release.dist)
    values = ("--values", source / "ci" / "minimal-values.yaml")
    expect(run(helm, "template", "dq", release.file("chart"), *values), f"delayq:{release.version}")
    smoke = release.unpack("chart") / "delayq" / "files" / "smoke.py"
    expect(run(sys.executable, smoke, api, "orders.test"), "seen and cancelled")


def npm_package(release: Release, api: str) -> None:
    """The npm package. Its smoke test is its quick start."""
    source, folder = release.source / "clients" / "typescript", release.folder("npm")
    (source / "node_modules").symlink_to(folders.find("openapi-typescript") / "node_modules")
    run("npm", "pack", "--pack-destination", release.dist, folder=source)
    release.unpack("npm package")
    run("npm", "install", "--offline", "--prefix", folder, release.file("npm package"))
    (folder / "start.mjs").write_text(release.quick_start("typescript"), encoding="utf-8")
    expect(run("node", "start.mjs", folder=folder, DELAYQ_API_URL=api), "cancelled")


def jar(release: Release, api: str) -> None:
    """The jar. Its smoke test is its quick start."""
    source, folder = release.source / "clients" / "java", release.folder("jar")
    run("mvn", "--batch-mode", "--quiet", "package", "-Dmaven.test.skip=true", folder=source)
    shutil.copy(source / "target" / release.file("jar").name, release.dist)
    release.unpack("jar")
    (folder / "QuickStart.java").write_text(release.quick_start("java"), encoding="utf-8")
    started = run("java", "-cp", release.file("jar"), "QuickStart.java", folder=folder, DELAYQ_API_URL=api)
    expect(started, "cancelled")


def go_module(release: Release, api: str) -> None:
    """The module by its tag in the clone, which stands in for its public address. Its smoke test is its quick start."""
    folder = release.folder("go")
    (folder / "main.go").write_text(release.quick_start("go"), encoding="utf-8")
    clone = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{release.source}.insteadOf"}
    clone |= {"GIT_CONFIG_VALUE_0": f"https://{_GO}", "GOPRIVATE": _GO, "GOMODCACHE": str(folder / "modules")}
    clone |= {"GOFLAGS": "-mod=mod -modcacherw", "DELAYQ_API_URL": api}
    run("go", "mod", "init", "example", folder=folder, **clone)
    run("go", "get", f"{_GO}/clients/go@v{release.version}", folder=folder, **clone)
    expect(run("go", "run", ".", folder=folder, **clone), "cancelled")


def image_context(release: Release, api: str) -> None:
    """The input of `docker build`. The image is built from it on a stand-in of its base, and prints its version."""
    if reason := image.why_not():
        raise ServerMissing(reason)
    paths = [line.removeprefix("!") for line in read(release.source / ".dockerignore").splitlines() if line[:1] == "!"]
    files = ("Dockerfile", ".dockerignore", *paths)
    run("git", "archive", f"--output={release.file('image context')}", "HEAD", *files, folder=release.source)
    with image.mounted(image.build("delayq", release.unpack("image context"))) as root:
        expect(run("chroot", root, "delayq", "version"), f"delayq {release.version}")


#: The parts besides the wheel and the sdist. Their smoke tests call an API that runs from the wheel.
PARTS: Final[dict[str, Callable[[Release, str], None]]] = {
    "chart": chart,
    "npm package": npm_package,
    "jar": jar,
    "Go module": go_module,
    "image context": image_context,
}


@contextmanager
def service(bin: Path) -> Iterator[str]:
    """The URL of an API and a worker that run from an environment."""
    port = free_port()
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        env |= {"DELAYQ_REDIS_URL": server.url, "DELAYQ_API_PORT": str(port), "DELAYQ_LOG_LEVEL": "error"}
        for name in ("api", "worker"):
            process = stack.enter_context(subprocess.Popen([bin / "delayq", name], env=env, stdout=subprocess.DEVNULL))
            stack.callback(process.terminate)
        yield f"http://{LOCALHOST}:{port}"


def rehearse(version: str, dist: Path, parts: Iterable[str] = PARTS) -> list[str]:
    """Build, check, install and try all parts in this folder. Return those that cannot be built on this machine."""
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        release = Release(version, Path(folder, "delayq"), dist, Path(folder))
        run("git", "clone", "--quiet", ROOT, release.source)
        write(release.source, version)
        git = ("git", "-c", "user.name=delayq", "-c", "user.email=delayq@localhost", "-C", release.source)
        run(*git, "commit", "--quiet", "--all", "--allow-empty", "--no-verify", "--message", f"Release {version}")
        for tag in (f"v{version}", f"clients/go/v{version}"):
            run(*git, "tag", "--force", tag)
        for part in ("sdist", "wheel"):
            with Progress(f"trying the {part}", name="dev"):
                python(release, part)
        api = stack.enter_context(service(release.empty / "wheel" / "bin"))
        for part in parts:
            try:
                with Progress(f"trying the {part}", name="dev"):
                    PARTS[part](release, api)
            except ServerMissing as error:
                missing.append(part)
                print(f"dev: no {part}: {error}", file=sys.stderr)
    return missing


def prepare(version: str) -> None:
    """Write the version into the checkout. Raises CannotRelease if it has changes, or the version a tag."""
    if run("git", "status", "--porcelain", folder=ROOT):
        raise CannotRelease("the checkout has changes: commit them first")
    if run("git", "tag", "--list", f"v{version}", folder=ROOT):
        raise CannotRelease(f"there is a tag v{version} already: choose another version")
    write(ROOT, version)


def main(version: str, *options: str) -> int:
    """Run ./dev release, and return the exit status."""
    missing: list[str] = []
    try:
        if options:
            (dist := ROOT / "dist").mkdir(exist_ok=True)
            missing = rehearse(version, dist)
        else:
            prepare(version)
    except (CannotRelease, ServerMissing, image.CannotBuild) as error:
        print(f"dev: {error}", file=sys.stderr)
        return 1
    print(("" if options else COMMIT).format(version) + PUBLISH.format(version), end="")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
