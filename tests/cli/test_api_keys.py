"""api-keys new, list, revoke."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from delayq.base.local_time import shown
from delayq.domain.api_keys import hash_of, load_keys
from tests.cli.conftest import Ran

Cli = Callable[..., Ran]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELAYQ_API_KEYS", str(tmp_path / "keys.yaml"))
    return tmp_path / "keys.yaml"


@pytest.fixture(params=["keys.yaml", "keys.json", "keys"])
def any_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of each form that a file of keys may have."""
    path: Path = tmp_path / request.param
    monkeypatch.setenv("DELAYQ_API_KEYS", str(path))
    return path


def test_a_new_key_is_shown_once_and_only_its_hash_is_kept(cli: Cli, any_file: Path) -> None:
    ran = cli("api-keys", "new", "shop", "--allow", "orders.*=read,schedule", "--allow", "*=read", "--rate", "5")
    printed = dict(ran.rows)
    text = printed["key"]
    assert text.startswith(f"dq_{printed['id']}_")
    assert "not shown again" in ran.err
    (key,) = load_keys(any_file)
    assert (key.name, key.rate, key.hash) == ("shop", 5, hash_of(text))
    assert key.scopes == {"orders.*": ["schedule", "read"], "*": ["read"]}
    assert text.split("_", 2)[2] not in any_file.read_text()
    assert stat.S_IMODE(any_file.stat().st_mode) == 0o600
    listed = cli("api-keys", "list")
    assert listed.rows == [
        [key.id, "shop", "orders.*=schedule,read *=read", "-", "5", "-", "-", shown(key.created), "-", "-"]
    ]
    assert key.hash not in cli("api-keys", "list", "--json").out


def test_a_key_is_revoked_by_its_id_and_the_others_stay(cli: Cli, any_file: Path) -> None:
    ids = [json.loads(cli("api-keys", "new", n, "--allow", "*=read", "--json").out)["id"] for n in ("a", "b")]
    any_file.chmod(0o644)
    assert cli("api-keys", "revoke", ids[0]).code == 0
    assert [key.id for key in load_keys(any_file)] == ids[1:]
    assert stat.S_IMODE(any_file.stat().st_mode) == 0o600
    ran = cli("api-keys", "revoke", ids[0])
    assert ran.code == 1
    assert "no key" in ran.sentence()


def test_invalid_words_are_refused_and_change_nothing(cli: Cli, file: Path) -> None:
    for words, sentence in (
        ((), "--allow"), (("--allow", "orders.*"), "--allow"), (("--allow", "orders.*=write"), "--allow"),
        (("--allow", "=read"), "--allow"), (("--allow", "or ders=read"), "topic pattern"),
        (("--allow", "*=read", "--rate", "0"), "rate"), (("--allow", "*=read", "--burst", "5"), "burst"),
        (("--allow", "*=read", "--ids", "a b"), "ids"),
    ):  # fmt: skip
        assert sentence in cli("api-keys", "new", "shop", *words).refused()
        assert not file.exists()


def test_a_broken_file_is_told_without_its_text_and_left_alone(cli: Cli, file: Path) -> None:
    for content in (
        "{ canary!",
        "canary!",
        '{"keys": [{"canary-field": 1}]}',
        '{"keys": [{"id": "canary!", "name": 1}]}',
    ):
        file.write_text(content)
        for arguments in (("new", "shop", "--allow", "*=read"), ("list",), ("revoke", "x")):
            assert "canary!" not in cli("api-keys", *arguments).refused()
        assert file.read_text() == content


def test_ids_of_two_names_are_kept_apart_and_a_key_may_be_none_for_the_console(cli: Cli, file: Path) -> None:
    assert cli("api-keys", "new", "shop", "--allow", "*=read", "--ids", "shop.").code == 0
    assert cli("api-keys", "new", "shop", "--allow", "*=read", "--ids", "shop.").code == 0  # the next key of the same
    for ids in ("shop.", "shop.x.", "sh"):
        assert "prefix" in cli("api-keys", "new", "press", "--allow", "*=read", "--ids", ids).refused()
    cli("api-keys", "new", "machine", "--allow", "*=read", "--no-console")
    assert [key.console for key in load_keys(file)] == [True, True, False]
    listed = json.loads(cli("api-keys", "list", "--json").out)["keys"]
    assert [one["console"] is False for one in listed] == [False, False, True]


def test_toml_is_read_but_not_written_and_a_file_has_to_be_named_where_it_can_be_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELAYQ_API_KEYS", raising=False)
    assert "--file" in cli("api-keys", "list").refused()
    nowhere = str(tmp_path / "nowhere" / "keys.yaml")
    assert "cannot open" in cli("api-keys", "new", "shop", "--allow", "*=read", "--file", nowhere).refused()
    path = tmp_path / "keys.toml"
    hash = hash_of("x")
    path.write_text(f'[[keys]]\nid = "abcd"\nname = "shop"\nhash = "{hash}"\nscopes = {{ "*" = ["read"] }}\n')
    assert [row[0] for row in cli("api-keys", "list", "--file", str(path)).rows] == ["abcd"]
    assert "TOML" in cli("api-keys", "revoke", "abcd", "--file", str(path)).refused()


def test_keys_made_at_once_are_all_kept(cli: Cli, file: Path) -> None:
    """By threads, which the lock of the folder keeps apart like processes."""
    from delayq.cli.commands import api_keys

    def make(number: int) -> None:
        api_keys.new(f"n{number}", allow=["*=read"], file=str(file), json=True)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(load_keys(file)) == 8
