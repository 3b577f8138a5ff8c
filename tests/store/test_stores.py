"""What Store and AsyncStore promise beside running a command: order, errors in their place, lost replies."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Self
from unittest.mock import Mock

import msgspec
import pytest
import redis
import uvloop

from delayq import AsyncClient, Client, Message, Settings
from delayq.base.errors import ConfigError, NotDone, StoreError, StoreUnavailable
from delayq.client import handshake
from delayq.client.plan import Plan
from delayq.client.scheduling.schedule import Scheduled
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import commands
from delayq.store.commands import Command, plain
from delayq.store.connect.async_sentinel import AsyncPrimary
from delayq.store.connect.async_store import AsyncStore
from delayq.store.connect.durability import Durability
from delayq.store.connect.event_loop import Connection, Server
from delayq.store.connect.link import AHEAD
from delayq.store.connect.sentinel import Primary
from delayq.store.connect.server_state import Fault
from delayq.store.connect.store import Store
from delayq.store.connect.threads import CLOCK, Wakes
from delayq.store.keys import KEYS
from tests.support.clusters import Member
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, AsyncRunner, Queue, Runner, give_up_after, row, schedule_command
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

MAKERS = {"sync": Store, "async": AsyncRunner}
HOUR = 3_600_000


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes stores, of each kind, and closes them."""
    made: list[Runner] = []

    def one(url: str, **options: Any) -> Any:
        made.append(MAKERS[request.param](url, **({"timeout": PATIENCE} | options)))
        return made[-1]

    yield one
    for store in made:
        store.close()


@pytest.fixture
def q(make: Any, valkey: ServerUnderTest) -> Queue:
    """A queue by each of the stores."""
    return Queue(make(valkey.url), valkey)


class Trickling:
    """A server that lets in, then sends `first`, and a bit now and then: by itself a reply that never ends."""

    first, then = b"$1000\r\n", b"x"
    step, most = 0.02, 500  # s between two bits, and how many it sends at most

    def __init__(self) -> None:
        self._listener = socket.create_server((LOCALHOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.given_up = False
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self._listener.close()

    def wait(self) -> None:
        """Until it was given up, or has sent enough."""
        self._thread.join()

    def _serve(self) -> None:
        taken, _ = self._listener.accept()
        with taken, suppress(ConnectionError):
            asked = b""
            while b"ECHO" not in asked:
                asked = taken.recv(4096)
                if not asked:
                    self.given_up = True
                    return
                taken.sendall(b"+OK\r\n" * (asked.count(b"SETINFO") + asked.count(b"PING")))
            taken.sendall(self.first)
            taken.settimeout(self.step)
            for _ in range(self.most):
                try:
                    taken.sendall(self.then)
                    self.given_up = taken.recv(1) == b""
                except TimeoutError:
                    continue
                except ConnectionError:  # a close with something unread
                    self.given_up = True
                return


class Slow(Trickling):
    """Answers two commands at once, and one more now and then: for AHEAD of them it takes some seconds."""

    step, most = 0.1, 100
    then = b"$1\r\nx\r\n"
    first = 2 * then


def no_question(answer: Any) -> Plan[Any]:
    """A plan that asks nothing."""
    yield from ()
    return answer


def echo(text: str) -> Command[str]:
    return plain("ECHO", text, read=lambda reply: reply.decode())


def increment(key: str = "counter") -> Command[int]:
    return plain("INCR", key, read=int)


# -- order ---------------------------------------------------------------------------------------------------------------


def test_answers_and_errors_stand_in_the_places_of_their_commands(q: Queue) -> None:
    texts = [f"text {number}" for number in range(3 * AHEAD + 1)]
    assert q.store.run_many(echo(text) for text in texts) == texts
    assert q.store.run_many([]) == []
    q.admin.set("text", "no number")
    for wrong, reason in ((increment("text"), "not an integer"), (plain("ECHO", "x", read=int), "cannot read")):
        wanted: list[Command[Any]] = [echo("a"), wrong, echo("b")]
        first, error, last = q.store.run_many(wanted)
        assert (first, last) == ("a", "b")
        assert isinstance(error, StoreError) and reason in str(error)
        with pytest.raises(StoreError, match=reason):
            q.run(wrong)


def test_commands_are_drawn_while_the_server_works_and_not_all_at_once(q: Queue) -> None:
    q.admin.set("counter", 0)
    seen = []

    def drawn() -> Iterator[Command[int]]:
        for _ in range(4 * AHEAD):
            seen.append(int(q.admin.get("counter") or 0))
            yield increment()

    assert q.store.run_many(drawn()) == list(range(1, 4 * AHEAD + 1))
    # When a command is drawn, those AHEAD before it have been answered.
    assert all(answered >= number - AHEAD for number, answered in enumerate(seen))


@pytest.mark.parametrize("fsync", [False, True], ids=["plain", "durable"])
def test_an_error_of_the_callers_own_network_is_no_fault_of_redis(valkey: ServerUnderTest, fsync: bool) -> None:
    def drawn() -> Iterator[Message]:
        yield Message(topic="orders", delay_time=3_600_000)
        raise ConnectionResetError("the caller's data base")

    with Client(valkey.url, settings=Settings(queues=2)) as client:
        client.queues()
        if fsync:
            client.store.durability = Durability(fsync=True, timeout=100)
        with pytest.raises(ConnectionResetError, match="the caller's data base"):
            client.schedule_many(drawn())
        assert client.schedule_many([]) == []
        made = valkey.admin.info("stats")["total_connections_received"]
        client.queues()
        assert valkey.admin.info("stats")["total_connections_received"] == made  # the connection stayed good


# -- scripts that the server does not have -------------------------------------------------------------------------------


def test_a_flush_in_the_middle_of_many_commands_changes_no_answer(q: Queue) -> None:
    q.given(row("first", at=20_000))

    def drawn() -> Iterator[Command[Any]]:
        for number in range(3 * AHEAD):
            if number in (AHEAD // 2, 2 * AHEAD):
                q.admin.script_flush()
            one = row(f"m{number}", at=20_000)
            yield schedule_command(q.keys, one, now=10_000)

    answers: list[Any] = q.store.run_many(drawn())
    assert [answer.others for answer in answers] == [{}] * (3 * AHEAD)
    assert len(q.state().queue) == 3 * AHEAD + 1
    wanted: list[Command[Any]] = [
        schedule_command(q.keys, row("a", at=10_000), now=10_000),
        commands.pull(q.keys, q.epoch, offset=0, room=10, now=10_000),
        commands.cancel(q.keys, ["a"], now=10_000),
    ]
    q.store.run_many(wanted)  # from now on the store expects that the server has these scripts
    q.server.flush()
    q.admin.script_flush()
    answers = q.store.run_many(wanted)
    scheduled, pulled, cancelled = answers  # in their order
    assert scheduled.others == {}
    assert [ticket[:1] for ticket in pulled.tickets] == [b"a"]
    assert cancelled == ["inFlight"]


def test_a_first_bulk_call_larger_than_what_is_sent_ahead_schedules_everything(valkey: ServerUnderTest) -> None:
    valkey.admin.script_flush()
    with Client(valkey.url, settings=Settings(queues=2)) as client:
        outcomes = client.schedule_many(
            Message(topic="orders", delay_time=3_600_000, body="x" * 300) for _ in range(6_000)
        )
        assert all(isinstance(outcome, Scheduled) and outcome.created for outcome in outcomes)
        assert sum(stats.scheduled for stats in client.queues()) == 6_000


# -- a server that is away -----------------------------------------------------------------------------------------------


def test_a_missing_server_is_unavailable_and_a_wrong_url_or_password_is_no_outage(
    valkey: ServerUnderTest, make: Any
) -> None:
    store = make(f"redis://{LOCALHOST}:{free_port()}/0")
    with pytest.raises(StoreUnavailable, match="Redis is unreachable"):
        store.run(echo("x"))
    answers = store.run_many(echo(str(number)) for number in range(100))
    assert [type(answer) for answer in answers] == [NotDone] * 100
    with pytest.raises(ConfigError, match="the Redis URL is wrong"):
        make("http://localhost")
    store = make(valkey.url.replace("redis://", "redis://nobody:wrong@"))
    with pytest.raises(StoreError, match="refused the credentials") as caught:
        store.run(echo("x"))
    assert not isinstance(caught.value, StoreUnavailable)


def test_a_server_that_is_loading_is_unavailable(make: Any, own_valkey: EmbeddedServer) -> None:
    store = make(own_valkey.url)
    assert store.run(increment()) == 1
    own_valkey.kill()
    own_valkey.start()
    assert store.run(increment()) == 2  # the idle connection was replaced
    # While it loads, it listens after each 1,024 commands. It loads for many seconds, but for no more once it was seen to.
    store.run_many(increment() for _ in range(12_000))
    own_valkey.kill()
    slow = EmbeddedServer(data_dir=own_valkey.data_dir, port=own_valkey.port, extra=["--key-load-delay", "1000"])
    slow.start(wait=False)
    admin = Member(slow).admin
    try:
        said = set()
        while not slow.answers():
            (answer,) = store.run_many([commands.layout(KEYS, 16)])
            said.add((type(answer), "loading" in str(answer)))
            if "loading" in str(answer):
                admin.config_set("key-load-delay", 0)
        assert {(StoreUnavailable, True), (NotDone, True)} & said
        assert {kind for kind, _ in said} <= {StoreUnavailable, NotDone, commands.Meta}
        assert store.run(commands.layout(KEYS, 16)).queues == 16
    finally:
        admin.close()
        slow.stop()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_reset_while_it_was_idle_is_replaced(
    run: Callable[[Coroutine[Any, Any, str]], str], proxy: FaultProxy
) -> None:
    async def ask_twice() -> str:
        store = AsyncStore(proxy.url, timeout=PATIENCE)
        await store.run(echo("before"))
        proxy.reset()
        await asyncio.sleep(0.2)  # so that the loop has seen it
        found = await store.run(echo("after"))
        await store.close()
        return found

    assert run(ask_twice()) == "after"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "the reply came too slowly"),
        (redis.exceptions.TimeoutError(""), "the reply came too slowly"),
        (ConnectionResetError(), "the connection broke (ConnectionResetError)"),
        (ssl.SSLZeroReturnError(), "the connection broke (SSLZeroReturnError)"),
        (redis.exceptions.ConnectionError(" "), "the connection broke (ConnectionError)"),
        (OSError(), "OSError"),
        (redis.exceptions.ResponseError("WRONGPASS no"), "WRONGPASS no"),
    ],
    ids=repr,
)
def test_the_reason_why_no_sentinel_names_the_primary_is_never_empty(
    make: Any, error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Fault(error)

    monkeypatch.setattr(Primary, "_ask", Mock(side_effect=Fault(error)))
    monkeypatch.setattr(AsyncPrimary, "_ask", fail)
    store = make(f"redis+sentinel://{LOCALHOST}:{free_port()},{LOCALHOST}:{free_port()}/delayq")
    with pytest.raises(StoreUnavailable) as caught:
        store.run(echo("x"))
    assert str(caught.value).endswith(f"no sentinel names the primary of delayq: {reason}")


# -- begun, and ended later ----------------------------------------------------------------------------------------------


def test_what_has_an_end_is_sent_before_any_reply_is_read(valkey: ServerUnderTest) -> None:
    """A process that is stopped in between has no rest to send when it goes on."""
    store = Store(valkey.url, timeout=PATIENCE)
    texts = [str(number) for number in range(3 * AHEAD)]
    begun = store.begin(map(echo, texts), within=HOUR)
    assert begun.link is not None and len(begun.link.waiting) == len(texts)
    assert store.end(begun) == texts
    store.close()


def test_commands_that_were_begun_run_until_they_are_ended(valkey: ServerUnderTest) -> None:
    def drawn() -> Iterator[Command[int]]:
        yield increment()
        raise TimeoutError("the caller's own")

    store = Store(valkey.url, timeout=PATIENCE, connections=2)
    valkey.admin.delete("counter")
    first = store.begin([increment(), echo("a")])
    second = store.begin([increment()])
    eventually(lambda: int(valkey.admin.get("counter") or 0) == 2, "both have run")
    assert store.end(second) == [2]
    assert store.end(first) == [1, "a"]
    for _ in range(3):  # each time the connection is returned
        with pytest.raises(TimeoutError, match="the caller's own"):
            store.run_many(drawn())
        begun = store.begin(drawn())
        with pytest.raises(TimeoutError, match="the caller's own"):
            store.end(begun)
    assert store.run_many([echo("b")] * 2) == ["b", "b"]
    store.close()
    store = Store(f"redis://{LOCALHOST}:{free_port()}", connections=1)
    for _ in range(2):  # the place for a connection is returned
        answers = store.end(store.begin([echo("a"), echo("b")]))
        assert [type(answer) for answer in answers] == [NotDone, NotDone]
    store.close()


def test_what_was_begun_and_lost_its_reply_is_run_once_more_but_not_what_an_owner_sends(proxy: FaultProxy) -> None:
    store = Store(proxy.url, timeout=PATIENCE)
    keys = KEYS.queue(0)
    pull = commands.pull(keys, f"{EPOCH}#0000000001", offset=0, room=1)
    assert store.run(increment()) == 1
    proxy.drop_reply("incr")
    begun = store.begin([increment()])
    assert store.end(begun) == [3]
    store.run(pull)
    proxy.drop_reply("pull")
    begun = store.begin([pull])
    (answer,) = store.end(begun)
    assert isinstance(answer, StoreUnavailable)
    assert store.run(echo("well")) == "well"
    store.close()


def test_for_what_is_not_answered_in_the_time_of_all_nobody_waits() -> None:
    """Each reply comes well within the time-out."""
    with Slow() as server:
        store = Store(f"redis://{LOCALHOST}:{server.port}/0", timeout=PATIENCE)
        begun = store.begin([echo("x")] * AHEAD, within=HOUR)
        assert begun.link is not None and begun.link.connection.readable(PATIENCE)  # what is answered at once is there
        begun.link.connection.until = CLOCK.precise() + 300
        answers = store.end(begun)
        assert answers[1] == "x"
        assert isinstance(answers[-1], StoreUnavailable)
    assert server.given_up
    store.close()


def test_what_has_arrived_in_time_is_read_later_too_and_what_does_not_go_out_in_time_goes_no_more(
    valkey: ServerUnderTest,
) -> None:
    store = Store(valkey.url, timeout=PATIENCE)
    begun = store.begin([echo("x")] * 3, within=8_000)
    assert begun.link is not None
    assert begun.link.connection.readable(PATIENCE)
    begun.link.connection.until = 0.0  # it lay unread for long
    assert store.end(begun) == ["x"] * 3
    valkey.pause()
    reads_again = threading.Timer(PATIENCE, valkey.resume)  # for one that waits until it goes out
    reads_again.start()
    try:
        (answer,) = store.end(store.begin([echo("x" * 8_000_000)], within=300))
    finally:
        reads_again.cancel()
        valkey.resume()
    assert isinstance(answer, StoreUnavailable)
    assert store.run(echo("well")) == "well"
    store.close()


async def test_asyncio_does_not_wait_for_it_either() -> None:
    with Slow() as server:
        store = AsyncStore(f"redis://{LOCALHOST}:{server.port}/0", timeout=PATIENCE)
        begun = await store.begin([echo("x")] * AHEAD, within=HOUR)
        assert begun.link is not None
        ending = asyncio.create_task(store.end(begun))
        answered = begun.answers
        while answered[1] != "x":  # noqa: ASYNC110  # what is answered at once is read
            await asyncio.sleep(0.01)
        begun.link.connection.until = CLOCK.precise() + 300
        answers = await ending
        assert answers[1] == "x"
        assert isinstance(answers[-1], StoreUnavailable)
        await asyncio.to_thread(server.wait)  # the loop has yet to close the connection
    assert server.given_up
    await store.close()


# -- lost replies --------------------------------------------------------------------------------------------------------


def test_a_command_is_repeated_once_after_a_lost_reply_and_then_its_outcome_is_unknown(
    proxy: FaultProxy, make: Any
) -> None:
    """B5: Only scripts that may be repeated are."""
    store = make(proxy.url)
    assert store.run(increment()) == 1
    proxy.drop_reply("incr")
    assert store.run(increment()) == 3  # it ran twice: scripts must be idempotent
    assert proxy.dropped == ["incr"]
    proxy.drop_reply("incr", times=2)
    with pytest.raises(StoreUnavailable, match="its reply was lost"):
        store.run(increment())
    assert store.run(increment()) == 6


def test_what_an_owner_sends_is_sent_once_and_nothing_behind_what_was_lost(proxy: FaultProxy, make: Any) -> None:
    store = make(proxy.url)
    keys = KEYS.queue(0)
    pull = commands.pull(keys, f"{EPOCH}#{1:010}", offset=0, room=1)
    store.run(pull)
    proxy.commands.clear()
    proxy.drop_reply("pull")
    answers = store.run_many([pull] * (AHEAD + 8))
    assert [type(answer) for answer in answers] == [StoreUnavailable] * AHEAD + [NotDone] * 8
    assert proxy.commands.count("pull") <= AHEAD
    assert store.run(pull) is not None  # by another connection, under whatever incarnation its owner goes on


def test_breaks_in_a_long_call_repeat_only_commands_without_an_answer(proxy: FaultProxy, make: Any) -> None:
    store = make(proxy.url)
    store.run(echo("warm"))
    breaks = (3, 100, 250, 499)
    for number in breaks:
        proxy.drop_reply("incr", when=lambda words, key=b"k%d" % number: words[1] == key)  # type: ignore[misc]  # a default binds it
    answers = store.run_many(increment(f"k{number}") for number in range(500))
    assert len(proxy.dropped) == 4
    assert {1, 2} >= set(answers)
    assert [answers[number] for number in breaks] == [2] * 4
    # A reset may swallow replies before it, and what was sent ahead behind it runs twice.
    near = {number for one in breaks for number in range(one - AHEAD, one + AHEAD)}
    assert {answers[number] for number in set(range(500)) - near} == {1}


def test_a_connection_cut_in_the_middle_of_a_command_is_made_anew(proxy: FaultProxy, make: Any) -> None:
    store = make(proxy.url)
    store.run(echo("warm"))
    proxy.cut_after(5_000)

    def drawn() -> Iterator[Command[str]]:
        for number in range(100):
            if number == 80:
                proxy.heal()
            yield echo(f"{number:0200}")

    answers = store.run_many(drawn())
    done = [answer for answer in answers if not isinstance(answer, StoreUnavailable)]
    assert done == [f"{number:0200}" for number in range(len(done))] or len(done) == 100
    assert store.run(echo("fine")) == "fine"


def test_a_black_hole_ends_with_the_time_out_and_nothing_is_repeated(proxy: FaultProxy, make: Any) -> None:
    store = make(proxy.url, timeout=PATIENCE)
    store.run(echo("warm"))
    proxy.black_hole()
    give_up_after(store, 0.3)
    answers = store.run_many([echo("a"), echo("b")])
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    give_up_after(store, PATIENCE)
    proxy.refuse()
    with pytest.raises(StoreUnavailable):
        store.run(echo("x"))
    proxy.heal()
    assert store.run(echo("back")) == "back"
    assert list(proxy.commands).count("echo") == 2


def test_what_a_url_says_holds_for_every_connection(valkey: ServerUnderTest, make: Any) -> None:
    store = make(valkey.url.replace("/0", "/3") + "?client_name=shop")
    for _ in range(3):
        told = store.run(plain("CLIENT", "INFO", read=bytes.decode))
        assert all(word in told.split() for word in ("resp=2", "db=3", "name=shop"))
        valkey.admin.execute_command("CLIENT", "KILL", "TYPE", "normal")  # the next command makes a new connection


def test_a_reply_that_trickles_is_given_up(make: Any) -> None:
    with Trickling() as server:
        store = make(f"redis://{LOCALHOST}:{server.port}/0", timeout=PATIENCE)
        assert store.run(plain("PING", read=bytes.decode)) == "OK"  # it is let in
        give_up_after(store, 0.2)
        with pytest.raises(StoreUnavailable):
            store.run(echo("x"))
    assert server.given_up


# -- threads and tasks ---------------------------------------------------------------------------------------------------


def test_when_all_connections_are_taken_one_waits_for_a_bounded_time(proxy: FaultProxy) -> None:
    """B8 (connection pool exhausted): Callers without a connection get 503 in time.

    The API stays alive; workers have their own connections.
    """
    store = Store(proxy.url, timeout=PATIENCE, connections=1)
    store.run(echo("warm"))
    proxy.black_hole()
    give_up_after(store, 0.3)
    threads = [threading.Thread(target=store.run_many, args=([echo("x")],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    give_up_after(store, PATIENCE)
    proxy.heal()
    assert store.run(echo("back")) == "back"
    store.close()


async def test_who_waits_in_vain_for_a_connection_is_told_so() -> None:
    url, told = f"redis://{LOCALHOST}:{free_port()}/0", "no connection became free in time"
    with pytest.raises(NotDone, match=told):
        Store(url, connections=0, timeout=0.05).run(echo("x"))
    with pytest.raises(NotDone, match=told):
        await AsyncStore(url, connections=0, timeout=0.05).run(echo("x"))


def test_after_a_fork_a_store_is_whole_before_another_thread_goes_on_with_it(valkey: ServerUnderTest) -> None:
    """A thread of the child that sees its own process id uses no connection and no place of the parent's."""

    class Watched(Store):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_process" and hasattr(self, "_process"):
                seen.append((self._state.idle[:], self._free is not parents))
            super().__setattr__(name, value)

    seen: list[Any] = []
    store = Watched(valkey.url, timeout=PATIENCE)
    store.run(echo("x"))
    parents, idle = store._free, store._state.idle[:]
    vars(store)["_process"] = 0  # as in a child
    assert store.run(echo("y")) == "y"
    assert seen == [([], True)]
    for connection in idle:
        connection.close()
    store.close()


def test_a_client_knows_where_changes_have_to_be_before_another_thread_may_make_one(valkey: ServerUnderTest) -> None:
    class Watched(Client):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_context" and value is not None:
                seen.append(self.store.durability)
            super().__setattr__(name, value)

    seen: list[Any] = []
    wanted = Durability(replicas=1, timeout=100)
    with Watched(valkey.url) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(handshake, "durability", lambda _: no_question(wanted))
        client.context()
    assert seen == [wanted]


def test_threads_share_a_store_through_an_outage(proxy: FaultProxy) -> None:
    store = Store(proxy.url, timeout=PATIENCE)
    results: list[Any] = []
    ready = threading.Barrier(9)

    def work(number: int) -> None:
        ready.wait()
        for turn in range(100):
            try:
                results.append(store.run(echo(f"{number} {turn}")) == f"{number} {turn}")
            except StoreUnavailable:
                pass
            except BaseException as error:
                results.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    ready.wait()
    for _ in range(10):
        proxy.reset()
    for thread in threads:
        thread.join()
    assert results
    assert [result for result in results if result is not True] == []
    store.close()


@pytest.mark.parametrize("most", [1, 3])
async def test_tasks_share_a_few_connections_and_a_cancelled_one_leaves_no_reply_to_the_next(
    valkey: ServerUnderTest, most: int
) -> None:
    store = AsyncStore(valkey.url, timeout=PATIENCE, connections=most)
    texts = [f"text {number}" for number in range(200)]
    assert await asyncio.gather(*(store.run(echo(text)) for text in texts)) == texts
    assert len(store._state.idle) <= most
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.run(plain("BLPOP", "nothing", 60, read=lambda reply: reply))
    assert await store.run(echo("mine")) == "mine"
    await store.close()


def test_a_second_event_loop_is_refused_before_anything_is_sent(valkey: ServerUnderTest) -> None:
    client = AsyncClient(valkey.url)
    kept = Message(topic="t", body="x", delay_time=3_600_000, id="kept")
    told = "belongs to the event loop that used it first"
    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(client.schedule(kept)).created
        for _ in range(2):
            with pytest.raises(RuntimeError, match=told):
                second.run(client.schedule(msgspec.structs.replace(kept, id="another")))
            with pytest.raises(RuntimeError, match=told):
                second.run(client.cancel("kept"))
        assert first.run(client.get_many(["kept", "another"]))[1] is None
        assert first.run(client.cancel("kept")).result == "cancelled"
        first.run(client.close())


async def test_what_a_loop_that_ended_left_open_can_be_closed() -> None:
    class Left:
        async def disconnect(self) -> None:
            raise RuntimeError("Event loop is closed")

    await Connection(Left(), Server("redis://127.0.0.1", 1.0), 0, 1.0).close()


# -- wakes ---------------------------------------------------------------------------------------------------------------


def test_a_subscription_receives_its_channels_and_can_be_made_again_after_it_broke(
    valkey: ServerUnderTest,
) -> None:
    store = Store(valkey.url, timeout=PATIENCE)
    wakes = Wakes(store.connect)
    for _ in range(2):
        wakes.connect(["one", "two"])
        assert [wakes.receive(PATIENCE) for _ in range(2)] == [("", b""), ("", b"")]
        for channel in ("three", "two", "one"):
            valkey.admin.publish(channel, channel.upper())
        assert [wakes.receive(PATIENCE) for _ in range(2)] == [("two", b"TWO"), ("one", b"ONE")]
        assert wakes.receive(0.01) is None
        valkey.admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        with pytest.raises(StoreUnavailable):
            wakes.receive(PATIENCE)
    with pytest.raises(StoreUnavailable):
        wakes.receive(0.01)
    wakes.close()
    store.close()
