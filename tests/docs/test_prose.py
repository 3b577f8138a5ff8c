"""The linter of prose: a bad sentence is found wherever people read one, at its own line, and code and output are exempt."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from devtools.checks import prose
from testbed import tools
from testbed.errors import ServerMissing

pytestmark = pytest.mark.processes

LONG: Final = "The worker " + "sends the message to the target and " * 4 + "stops."
#: A sentence that each rule refuses.
BAD: Final = {
    "Length": LONG,
    "Opening": "Of these policies the first applies.",
    "Inversion": "Never is a message lost.",
    "Subject": "What is held waits.",
    "Words": "The error is told at once.",
    "Terms": "The message has a due of tomorrow.",
}
#: By file: its text, and the line of the word `aside` in it.
PLANTED: Final = {
    "README.md": ("# delayq\n\nThe message\nis set aside.\n", 4),
    "docs/tasks/new.md": ("| a | b |\n| --- | --- |\n| pause | It sets messages aside. |\n", 3),
    "delayq/cli/help.py": ('option = Option("--all", help="set all messages aside")\n', 1),
    "delayq/base/errors.py": ('\n\ndef f(topic):\n    raise ValueError(f"the topic {topic} is set aside")\n', 4),
    "devtools/sentences.py": ('SENTENCES = {\n    "held": "messages of {topic} are set aside",\n}\n', 2),
    "delayq/client.py": (
        '"""A client."""\n\n\ndef park():\n    """Park it.\n\n    The message is set aside.\n    """\n',
        7,
    ),
    "workers/comment.py": ("x = 1\n# The message\n# is set aside.\ny = 2  # its place\n", 3),
    "delayq/store/lua/park.lua": ("local x = 1\n-- The message is set aside.\n", 2),
    "api/console/strings/en.js": ('export default {\n  "parked.one": "set aside: {count}",\n};\n', 2),
    "api/console/pages/topics.js": ("/**\n * The messages that are set aside.\n */\n", 2),
    "docs/openapi.json": ('{\n  "description": "Messages that are set aside."\n}\n', 2),
    "charts/delayq/values.yaml": ("workers: 1\n# The messages that are set aside.\n", 2),
    "charts/delayq/templates/_checks.tpl": (
        '{{- if .Values.x -}}\n{{- fail "set this value aside" -}}\n{{- end -}}\n',
        2,
    ),
    "charts/delayq/templates/NOTES.txt": ("delayq {{ .Chart.Version }}\n\nMessages are set aside.\n", 3),
    "observability/alerts.yaml": ("rules:\n  - annotations:\n      summary: Many messages are set aside\n", 3),
}
#: Code, output, names, and questions. `tests/` has no reader but the tests.
ALLOWED: Final = {
    "README.md": "# What it does\n\nWhat is `aside`? The pages answer it.\n\n```\nthe message is told aside\n```\n",
    "delayq/usage.py": '"""Run it.\n\n' + "do NAME       do this with that one thing and any other\n" * 3 + '"""\n',
    "delayq/names.py": 'KEYS = ["aside", "set:aside"]\nSOURCE = "local told = aside(told, 1)"\n',
    "tests/test_aside.py": '"""The message is set aside."""\n',
    "docs/openapi.json": '{\n  "operationId": "set_aside",\n  "enum": ["told aside"]\n}\n',
    "names.md": "A name takes its place here and now. "
    + "`name` of this message and its other name begin a sentence. " * 3,
    "due.md": "The message is due now. Time moves forward. The due time passes, by default after 2 s.\n",
}


@pytest.fixture(autouse=True)
def _vale() -> None:
    try:
        tools.find("vale")
    except ServerMissing as error:
        pytest.skip(str(error))


def planted(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_each_rule_finds_its_sentence(tmp_path: Path) -> None:
    found = prose.findings(planted(tmp_path, {f"{rule}.md": f"It works.\n\n{text}\n" for rule, text in BAD.items()}))
    assert {name: [line.rpartition(" ")[2] for line in lines] for name, lines in found.items()} == {
        f"{rule}.md": [f"(delayq.{rule})"] for rule in BAD
    }
    assert all(line.startswith(f"{name}:3: ") for name, lines in found.items() for line in lines)


def test_a_bad_word_is_found_in_every_kind_of_text_at_its_line(tmp_path: Path) -> None:
    found = prose.findings(planted(tmp_path, {name: text for name, (text, _) in PLANTED.items()}))
    assert {name: [line.rpartition(": ")[0].split(": ")[0] for line in lines] for name, lines in found.items()} == {
        name: [f"{name}:{line}"] for name, (_, line) in PLANTED.items()
    }


def test_code_and_names_and_questions_are_exempt(tmp_path: Path) -> None:
    assert not prose.findings(planted(tmp_path, ALLOWED))


def test_by_hand_is_refused_in_code_and_allowed_in_pages(tmp_path: Path) -> None:
    found = prose.findings(planted(tmp_path, {"x.md": "Edit it by hand.\n", "x.py": 'x = "it was changed by hand"\n'}))
    assert list(found) == ["x.py"]


def test_only_ci_requires_the_linter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Path:
        raise ServerMissing(f"there is no {name}: ./dev brokers fetch {name} fetches it")

    monkeypatch.setattr(tools, "find", missing)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(ServerMissing, match="fetch vale"):
        list(prose.complaints(tmp_path))
    monkeypatch.setenv("CI", "true")
    (complaint,) = prose.complaints(tmp_path)
    assert "fetch vale" in complaint
