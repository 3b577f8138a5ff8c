"""The RabbitMQ that tests and `./dev` start."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq.embedded.processes import port_is_free
from testbed import rabbitmq
from testbed.errors import ServerError, ServerMissing
from testbed.rabbitmq import RabbitMQ, available
from tests.support.amqp import amqp, real_rabbitmq

pytestmark = pytest.mark.long


def test_where_there_is_none_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rabbitmq, "_DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="apt install rabbitmq-server"):
        available()
    with pytest.raises(ServerMissing):
        RabbitMQ().start()


def test_it_keeps_its_messages_over_a_kill_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with real_rabbitmq(data_dir=tmp_path / "data") as server:
        port, names = server.port, int(server._environment["ERL_EPMD_PORT"])
        with amqp(server) as one:
            queue = one.queue()
            one.publish(queue, message_id="kept")
        server.control("eval", "mnesia:sync_log().")  # that there is the queue it writes down a moment later
        server.kill()
        assert server.pid is None and port_is_free(port)
        with pytest.raises(ServerError, match="does not run"):
            server.control("list_queues")
        server.start()
        with amqp(server) as one:
            assert one.ids(queue, 1) == ["kept"]
    assert server.pid is None
    assert port_is_free(port) and port_is_free(names)
    assert (tmp_path / "data").exists()


def test_another_one_goes_on_with_its_data_and_a_temporary_one_has_none(tmp_path: Path) -> None:
    with real_rabbitmq(data_dir=tmp_path / "data") as server, amqp(server) as one:
        queue = one.queue()
        one.publish(queue, message_id="kept")
    with real_rabbitmq(data_dir=tmp_path / "data") as server, amqp(server) as one:
        assert one.ids(queue, 1) == ["kept"]
    with real_rabbitmq() as server:
        folder = server.data_dir
        assert folder is not None and folder.exists()
    assert not folder.exists()


def test_what_it_cannot_start_with_it_tells_from_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerError, match=r"RabbitMQ ended at once; .*rabbitmq\.log ends:"),
        real_rabbitmq(data_dir=tmp_path, settings={"no.such.setting": "1"}),
    ):
        pass
