"""What a generator makes of docs/openapi.json, by the compiler of TypeScript."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from testbed import node
from testbed.errors import ServerMissing

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).resolve().parents[2]
#: What compiles, and what must not.
PROGRAM: Final = """\
import type { components, operations } from "./delayq";

type Message = components["schemas"]["MessageIn"];
type Asked = operations["scheduleMessage"]["requestBody"]["content"]["application/json"];

export const least: Message = { topic: "orders.unpaid", delayTime: "30m" };
export const dated: Message = { topic: "t", expectDate: "2027-01-31T08:00:00Z", body: { order: 42 }, keys: ["order-42"] };
export const level: Message = { topic: "t", delayLevel: 3, orderingKey: "order-42" };
export const asked: Asked = least;
export const batch: components["schemas"]["BatchIn"] = { messages: [least, dated, level] };
export const moved: components["schemas"]["PatchIn"] = { delayTime: "1s" };
export const some: components["schemas"]["CancelIn"] = { ids: ["a"] };
export const carrying: components["schemas"]["CancelIn"] = { keys: ["order-42"] };
export const paused: operations["pauseTopics"]["requestBody"]["content"]["application/json"] = { match: "orders.*" };
export const policy: components["schemas"]["PolicyIn"] = { match: "sms.*", rate: 50, backoff: ["10s", "1m"] };

// @ts-expect-error there is no topic
export const nowhere: Message = { delayTime: "1s" };
// @ts-expect-error there is no such field
export const wrong: Message = { topic: "t", delayTime: "1s", tag: "paid" };

export function tags(message: components["schemas"]["MessageOut"]): string {
  // @ts-expect-error a message without tags comes without the field
  return message.tags;
}
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the generator and the compiler."""
    try:
        return node.find("openapi-typescript") / "node_modules" / ".bin"
    except ServerMissing as error:
        pytest.skip(str(error))


def test_generated_typescript_takes_a_topic_and_a_delay_and_refuses_what_the_api_refuses(
    programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "use.ts").write_text(PROGRAM)
    document = ROOT / "docs" / "openapi.json"
    commands: list[list[str | Path]] = [
        [programs / "openapi-typescript", document, "-o", "delayq.d.ts"],
        [programs / "tsc", "--strict", "--noEmit", "use.ts"],
    ]
    for words in commands:
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
