"""What is wrong with Java, in a sentence, before Spark is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delayq.base.errors import ConfigError

pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")

from delayq.spark.session import check_java, needed_java, sentence_of


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is found as `java`; nothing else is."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "java"


def says(java: Path, text: str, status: int = 0) -> None:
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {status}\n")
    java.chmod(0o755)


def complaint() -> str:
    with pytest.raises(ConfigError) as raised:
        check_java()
    text = str(raised.value)
    assert f"needs Java {needed_java()} or newer" in text and "\n" not in text
    return text


def test_a_new_java_is_good_and_another_or_none_is_refused_in_one_sentence(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert needed_java() in (8, 11, 17, 21)
    assert complaint().startswith("there is no java on PATH, and JAVA_HOME is not set;")
    for version in ('openjdk version "17.0.15" 2025-04-15', 'java version "25" 2025-09-16'):
        says(java, version)
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert f"JAVA_HOME is {tmp_path / 'nothing'}, which has no bin/java" in complaint()
    monkeypatch.delenv("JAVA_HOME")
    says(java, 'openjdk version "1.8.0_392"')
    assert f"{java} is Java 8, but pyspark " in complaint()
    home = tmp_path / "home" / "bin"
    home.mkdir(parents=True)
    says(home / "java", 'openjdk version "21.0.1"')
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", os.fspath(home.parent))
        check_java()
    says(java, "No runtime present", 1)
    assert "does not report its version (No runtime present)" in complaint()
    java.write_bytes(b"\x7fELF nothing")
    assert "does not start" in complaint()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03",
            "[PATH_NOT_FOUND] Path does not exist: file:/x",
        ),
        (
            "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: [X] Failed: Traceback (most recent "
            'call last):\n  File "x.py", line 1, in f\ndelayq.errors.ConfigError: option past: no\n\n\tat org.apache.Y.z()',
            "option past: no",
        ),
        (
            ": org.apache.spark.SparkException: Job aborted.\n\tat a.b\nCaused by: java.io.IOException: No space left\n\tat c",
            "No space left",
        ),
    ],
)
def test_a_trace_becomes_a_sentence(text: str, sentence: str) -> None:
    assert sentence_of(Exception(text)) == sentence
