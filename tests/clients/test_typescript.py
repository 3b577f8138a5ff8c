"""clients/typescript: its own tests, the quick starts of its README, and the story of all clients."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import Consume, Run, TellStory, compile_typescript, run_program
from tests.docs.blocks import blocks_of
from tests.support.service import ROOT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("typescript")]

SOURCE = ROOT / "clients" / "typescript"
BLOCKS = [
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_typescript.py"
]
NAMES = ("quick-start", "more-calls")
#: Programs that import the package, by the name of their file, and what they are compiled with.
#: `node10` is how projects with older settings find types: by `main` and `types`, not by `exports`.
IMPORTS = {
    "cjs/node10.ts": ["--module", "commonjs", "--moduleResolution", "node10"],
    "cjs/node16.ts": ["--module", "node16"],
    "esm/node16.ts": ["--module", "node16"],
    "esm/bundler.ts": ["--module", "es2022", "--moduleResolution", "bundler"],
}
PROGRAM = """import { DelayqClient, RawJson, type Leased } from "@delayq/client";
import { verifyWebhook, type Received } from "@delayq/client/webhook";

const handle = (message: Leased): void => console.log(message.text);
const client: DelayqClient = new DelayqClient("http://127.0.0.1:1");
const received: Received | undefined = undefined;
console.log(typeof client.schedule, typeof verifyWebhook, new RawJson("1.0").text, typeof handle, received);
"""
#: Each handler lasts longer than a lease, until another consumer of the group has waited in vain for a message.
CONSUMER = """import { DelayqClient } from "@delayq/client";

const [topic, count] = process.argv.slice(2);
const client = new DelayqClient(process.env.DELAYQ_API_URL);
const stop = new AbortController();
let handled = 0;
await client.consume(topic, "mail", async (message) => {
  const others = await client.receive(topic, "mail", { wait: "3s", max: 1 });
  console.log(message.id, message.json().order, message.deliveries, others.length);
  if (++handled === Number(count)) stop.abort();
}, { lease: "1s", signal: stop.signal });
"""
PRINTED = "function function 1.0 function undefined\n"


@pytest.fixture(scope="module")
def tested(typescript_package: Path) -> Path:
    """The client with its tests and its story, compiled."""
    compiler = typescript_package / "node_modules" / ".bin" / "tsc"
    run_program([compiler, "--project", "tsconfig.test.json"], typescript_package)
    return typescript_package


def test_its_own_tests_pass(tested: Path) -> None:
    tests = sorted((tested / "build" / "test").glob("*.test.js"))
    assert "# fail 0" in run_program(["node", "--test", *tests], tested)


def test_it_tells_the_story_of_all_clients(tested: Path, tell_story: TellStory) -> None:
    tell_story("ts", ["node", "build/test/story.js"], tested)


@pytest.fixture(scope="module")
def installed(typescript_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as npm installs it."""
    folder = tmp_path_factory.mktemp("installed")
    pack = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder]
    (packed,) = run_program(pack, typescript_package).split()
    package = folder / "node_modules" / "@delayq" / "client"
    package.mkdir(parents=True)
    run_program(["tar", "-xzf", folder / packed, "--strip-components=1", "-C", package], folder)
    return folder


@pytest.fixture(scope="module")
def readme(typescript_package: Path, installed: Path) -> Path:
    """A folder with the programs of the README, compiled with the package as npm installs it."""
    folder = installed
    compile_typescript(typescript_package, folder, dict(zip(NAMES, BLOCKS, strict=True)))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_works_with_the_package_as_npm_installs_it(readme: Path, run: Run, name: str) -> None:
    assert "cancelled" in run(["node", f"{name}.js"], readme)


@pytest.mark.parametrize("name", IMPORTS)
def test_the_package_can_be_imported_and_required(typescript_package: Path, readme: Path, name: str) -> None:
    file = readme / "imports" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    kind = "module" if file.parent.name == "esm" else "commonjs"
    (file.parent / "package.json").write_text(f'{{"type": "{kind}"}}', encoding="utf-8")
    file.write_text(PROGRAM, encoding="utf-8")
    compiler = typescript_package / "node_modules" / ".bin" / "tsc"
    run_program([compiler, "--strict", "--target", "es2022", "--types", "node", *IMPORTS[name], file.name], file.parent)
    assert run_program(["node", *_as_node_18(), file.with_suffix(".js")], readme) == PRINTED


def _as_node_18() -> list[str]:
    """The option with which `require` loads no ES modules, as before Node.js 20.19."""
    option = "--no-experimental-require-module"
    return [option] if subprocess.run(["node", option, "-e", ""], capture_output=True).returncode == 0 else []


def test_a_consumer_renews_leases_and_handles_each_message_once(installed: Path, consume: Consume) -> None:
    (installed / "consumer.mjs").write_text(CONSUMER, encoding="utf-8")
    consume("ts", ["node", "consumer.mjs"], installed)
