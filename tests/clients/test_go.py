"""clients/go: its own tests, the quick start of its README, and the story of all clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients.conftest import Consume, Run, TellStory, run_program
from tests.docs.blocks import blocks_of
from tests.support.service import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("go") is None, reason="no go on PATH: install Go 1.23 or newer (https://go.dev/dl)"
    ),
]

SOURCE = ROOT / "clients" / "go"
(QUICK_START,) = (
    block.text for block in blocks_of(SOURCE / "README.md") if block.note == "run by tests/clients/test_go.py"
)
MODULE = "github.com/delayq/delayq/clients/go"
#: Each handler lasts longer than a lease, until another consumer of the group has waited in vain for a message.
CONSUMER = """package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/delayq/delayq/clients/go"
)

func main() {
	topic, wait := os.Args[1], "3s"
	count, _ := strconv.Atoi(os.Args[2])
	client, err := delayq.New(os.Getenv("DELAYQ_API_URL"))
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	var handled atomic.Int64
	handle := func(ctx context.Context, message *delayq.Leased) error {
		others, err := client.Receive(ctx, topic, delayq.ReceiveIn{Group: "mail", Wait: &wait})
		check(err)
		var body struct{ Order int }
		check(message.JSON(&body))
		fmt.Println(message.Id, body.Order, message.Deliveries, len(others))
		if int(handled.Add(1)) == count {
			stop()
		}
		return nil
	}
	check(client.Consume(ctx, topic, "mail", handle, delayq.ConsumeOptions{Lease: time.Second}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
"""


def test_its_own_tests_pass_and_go_vet_and_gofmt_find_nothing() -> None:
    assert run_program(["gofmt", "-l", "."], SOURCE) == ""
    run_program(["go", "vet", "./..."], SOURCE)
    run_program(["go", "test", "-count=1", "./..."], SOURCE)


def test_it_tells_the_story_of_all_clients(tell_story: TellStory, tmp_path: Path) -> None:
    run_program(["go", "build", "-o", tmp_path / "story", "./internal/story"], SOURCE)
    tell_story("go", [tmp_path / "story"], tmp_path)


def test_a_consumer_renews_leases_and_handles_each_message_once(consume: Consume, tmp_path: Path) -> None:
    write_program(CONSUMER, tmp_path)
    run_program(["go", "build", "-o", "consumer", "."], tmp_path)
    consume("go", [tmp_path / "consumer"], tmp_path)


def test_the_quick_start_works(run: Run, tmp_path: Path) -> None:
    write_program(QUICK_START, tmp_path)
    assert run(["go", "run", "."], tmp_path).split()[-1] == "cancelled"


def write_program(text: str, folder: Path) -> None:
    (folder / "main.go").write_text(text, encoding="utf-8")
    module = f"module example\n\ngo 1.23\n\nrequire {MODULE} v0.0.0\n\nreplace {MODULE} => {SOURCE}\n"
    (folder / "go.mod").write_text(module, encoding="utf-8")
