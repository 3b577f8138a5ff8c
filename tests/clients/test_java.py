"""clients/java: its own tests, the quick start of its README, and the story of all clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed.jars import SHORT_LIVED
from tests.clients.conftest import JAVAC, Consume, Run, TellStory, run_program
from tests.docs.blocks import blocks_of
from tests.support.service import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("java"),
    pytest.mark.skipif(
        shutil.which("mvn") is None or shutil.which("javac") is None,
        reason="no mvn or javac on PATH: install Maven and a JDK (apt install maven default-jdk)",
    ),
]

SOURCE = ROOT / "clients" / "java"
(QUICK_START,) = (
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_java.py"
)

#: Each handler lasts longer than a lease, until another consumer of the group has waited in vain for a message.
CONSUMER = """import io.delayq.DelayqClient;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

public class Consuming {
    public static void main(String[] words) {
        var delayq = DelayqClient.of(System.getenv("DELAYQ_API_URL"));
        var handled = new AtomicInteger();
        var consumer = delayq.consumer(words[0], "mail").lease(Duration.ofSeconds(1));
        consumer.run(message -> {
            int others = delayq.receive(words[0], "mail", 1, Duration.ofSeconds(3), Duration.ofSeconds(30)).size();
            var order = ((Map<?, ?>) message.json()).get("order");
            System.out.println(message.id() + " " + order + " " + message.deliveries() + " " + others);
            if (handled.incrementAndGet() == Integer.parseInt(words[1])) consumer.stop();
        });
    }
}
"""


def test_it_tells_the_story_of_all_clients(java_package: Path, tell_story: TellStory) -> None:
    classes = f"{java_package / 'target' / 'classes'}:{java_package / 'target' / 'test-classes'}"
    tell_story("java", ["java", *SHORT_LIVED, "-cp", classes, "io.delayq.Story"], java_package)


def test_the_quick_start_works_with_the_jar(java_package: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "QuickStart.java").write_text(QUICK_START, encoding="utf-8")
    (jar,) = (java_package / "target").glob("delayq-client-*.jar")
    run_program([*JAVAC, "-cp", jar, "QuickStart.java"], tmp_path)
    assert run(["java", *SHORT_LIVED, "-cp", f"{jar}:.", "QuickStart"], tmp_path).split()[-1] == "cancelled"


def test_a_consumer_renews_leases_and_handles_each_message_once(
    java_package: Path, consume: Consume, tmp_path: Path
) -> None:
    (tmp_path / "Consuming.java").write_text(CONSUMER, encoding="utf-8")
    (jar,) = (java_package / "target").glob("delayq-client-*.jar")
    run_program([*JAVAC, "-cp", jar, "Consuming.java"], tmp_path)
    consume("java", ["java", *SHORT_LIVED, "-cp", f"{jar}:.", "Consuming"], tmp_path)
