"""What becomes of a message by what the endpoint answers, or does not."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from email.utils import formatdate
from typing import Any

import pytest

from delayq.embedded.processes import free_port
from delayq.targets import LONGEST_AFTER, Result
from delayq.targets.webhook.connections import Wire
from delayq.targets.webhook.target import MOST_READ, WebhookTarget
from delayq.testing import ManualClock
from tests.support.deliveries import delivery, outcomes
from tests.support.receiver import Receiver
from tests.support.timeouts import PATIENCE, SEND_SECONDS
from tests.targets.conftest import Webhooks

STATUSES = {
    "ok": (200, 201, 202, 204, 206, 299),
    "unavailable": (300, 301, 302, 303, 304, 307, 308, 425, 429, 503),
    "rejected": (400, 401, 402, 403, 404, 405, 406, 410, 411, 412, 413, 415, 418, 422, 431, 451),
    "unknown": (408, 409, 500, 501, 502, 504, 507, 599, 600, 999),
}


@pytest.mark.parametrize("outcome", STATUSES)
def test_the_status_decides(receiver: Receiver, webhooks: Webhooks, outcome: str) -> None:
    """E12: 2xx is delivered. 4xx buries, except 408, 409, 425 and 429."""
    hook = webhooks(receiver.url())
    for status in STATUSES[outcome]:
        receiver.say(status, b"" if status in (204, 304) else b"in its own words")
        (result,) = hook.send([delivery("a")], SEND_SECONDS)
        assert result.outcome == outcome, status
        if outcome != "ok":
            assert f"127.0.0.1:{receiver.port} answered {status}" in result.reason
            assert status == 304 or "in its own words" in result.reason


def test_a_route_changes_which_statuses_are_final_and_which_are_retried(receiver: Receiver, webhooks: Webhooks) -> None:
    hook = webhooks(receiver.url(), finalStatuses=[302, 409, 500, 503], retriedStatuses=[401, 404, 429, 502])
    for status, outcome in {
        302: "rejected", 409: "rejected", 500: "rejected", 503: "rejected",
        401: "unknown", 404: "unknown",
        429: "unavailable", 502: "unknown",  # these are retried anyway
        200: "ok", 307: "unavailable", 403: "rejected", 408: "unknown", 504: "unknown",  # not named
    }.items():  # fmt: skip
        receiver.say(status, b"in its own words", retry_after="7")
        (result,) = hook.send([delivery("a")], SEND_SECONDS)
        assert (status, result.outcome) == (status, outcome)
        assert result.after == (7_000 if outcome in ("unknown", "unavailable") else 0)


def test_a_redirect_is_not_followed(receiver: Receiver, webhooks: Webhooks) -> None:
    """E12, H4: 3xx is a failure."""
    places = ("http://169.254.169.254/", "/elsewhere", "https://example.com/")
    for status in (301, 302, 303, 307, 308):
        for place in places:
            receiver.say(status, location=place)
            (result,) = webhooks(receiver.url()).send([delivery("a")], SEND_SECONDS)
            assert result.outcome == "unavailable"
            assert "redirects are not followed" in result.reason
    assert len(receiver.requests) == 5 * len(places)
    assert {request.path for request in receiver.requests} == {"/hook"}


# -- Retry-After -----------------------------------------------------------------------------------------------------------

NOW = 1_796_121_000_000


WANTED = {
    "120": 120_000, "0": 0, "1": 1_000, str(10**8): LONGEST_AFTER, "-1": 0, "1.5": 0, "soon": 0, "": 0, "9" * 30: 0,
    formatdate(NOW / 1000 + 90, usegmt=True): 90_000, formatdate(NOW / 1000 - 90, usegmt=True): 0,
    formatdate(NOW / 1000 + 10**6, usegmt=True): LONGEST_AFTER, "Wed, 31 Feb 2027 10:00:00 GMT": 0,
    "Wed, 01 Xxx 2027 10:00:00 GMT": 0,
}  # fmt: skip


@pytest.mark.parametrize("status", [429, 503, 502, 307])
def test_a_wanted_pause_is_taken_up_to_a_cap(receiver: Receiver, webhooks: Webhooks, status: int) -> None:
    """E12: `Retry-After` is followed up to 10 min."""
    hook = webhooks(receiver.url(), clock=ManualClock(NOW))
    for text, after in WANTED.items():
        receiver.say(status, retry_after=text)
        (result,) = hook.send([delivery("a")], SEND_SECONDS)
        assert (result.outcome in ("unavailable", "unknown"), result.after) == (True, after), text
    for ends in (200, 410):  # an answer that ends the message
        receiver.say(ends, retry_after="60")
        assert hook.send([delivery("a")], SEND_SECONDS)[0].after == 0


# -- slow, huge and broken answers -----------------------------------------------------------------------------------------


#: ms: a send's time-out, and what is left of it when that begins which is not to end before it.
LONG, LEFT = 30_000, 400


def sent_until_over(receiver: Receiver, webhooks: Webhooks, begin: str) -> Result:
    """What a send comes to whose time passes by an order, however slow the machine is.

    None of it passes until the target's method `begin` is called, most of it then, and the rest with what is read from the
    socket; if nothing is there to read, the rest is that of the socket itself.
    """
    clock, beginning, read = ManualClock(), getattr(WebhookTarget, begin), Wire.read

    def reading(*given: Any, **more: Any) -> bytes:
        found = read(*given, **more)
        clock.advance(LEFT // 4)
        return found

    with pytest.MonkeyPatch.context() as patched:

        def begun(*given: Any) -> Any:
            clock.advance(LONG - LEFT)
            patched.setattr(Wire, "read", reading)
            return beginning(*given)

        patched.setattr(WebhookTarget, begin, begun)
        (result,) = webhooks(receiver.url(), clock=clock).send([delivery("a")], LONG / 1000)
    return result


def test_an_answer_that_never_gets_to_its_status_is_unknown_within_the_time_out(
    receiver: Receiver, webhooks: Webhooks
) -> None:
    for first, again in (
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"", b"HTTP/1.1 102 P\r\n\r\n"),
        (b"", b""),
    ):
        receiver.drip(first, again)
        result = sent_until_over(receiver, webhooks, "_request")
        assert (result.outcome, "no answer" in result.reason) == ("unknown", True)


def test_a_body_that_drips_for_ever_ends_with_the_time_out_and_the_status_counts(
    receiver: Receiver, webhooks: Webhooks
) -> None:
    for status, outcome in ((200, "ok"), (400, "rejected"), (500, "unknown")):
        receiver.drip(b"HTTP/1.1 %d X\r\ncontent-length: 1000000\r\n\r\n" % status, b"x")
        assert sent_until_over(receiver, webhooks, "_rest").outcome == outcome


@pytest.mark.parametrize("how", ["length", "chunked", "until the end"])
def test_of_a_huge_answer_only_the_beginning_is_read(receiver: Receiver, webhooks: Webhooks, how: str) -> None:
    """E12: The worker reads at most 64 KB and 2 s of an answer."""
    written = [0]

    def write(sock: socket.socket) -> None:
        head = {"length": b"content-length: 1000000000\r\n", "chunked": b"transfer-encoding: chunked\r\n"}.get(how, b"")
        sock.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        block = b"x" * 65_536
        try:
            while written[0] < 1_000_000_000:
                sock.sendall(b"10000\r\n" + block + b"\r\n" if how == "chunked" else block)
                written[0] += len(block)
        except OSError:
            receiver.over.set()  # the client has hung up

    receiver.say_raw(write)
    assert outcomes(webhooks(receiver.url()).send([delivery("a")], SEND_SECONDS)) == ["ok"]
    assert receiver.over.wait(PATIENCE)
    assert written[0] < 100 * MOST_READ  # what fits into the buffers of the system


def reset(sock: socket.socket) -> None:
    """Answer nothing, and reset the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.shutdown(socket.SHUT_RD)
    sock.close()


def test_an_answer_that_is_none_is_an_unknown_outcome(receiver: Receiver, webhooks: Webhooks) -> None:
    receiver.say_raw(reset)
    assert outcomes(webhooks(receiver.url()).send([delivery("a")], SEND_SECONDS)) == ["unknown"]
    for answer in (
        b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"-ERR unknown\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,  # headers without end
    ):  # fmt: skip
        receiver.say_raw(lambda sock, answer=answer: sock.sendall(answer))  # type: ignore[misc]
        assert outcomes(webhooks(receiver.url()).send([delivery("a")], SEND_SECONDS)) == ["unknown"]


def test_an_answer_before_the_body_was_read_counts(webhooks: Webhooks) -> None:
    """As of a server that refuses a large body by its head, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            sock.recv(1_000)
            sock.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            while sock.recv(65_536):
                pass
            sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        hook = webhooks(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        (result,) = hook.send([delivery("a", b"x" * 1_000_000)], SEND_SECONDS)
        thread.join()
    assert (result.outcome, "answered 413" in result.reason) == ("rejected", True)


def test_a_receiver_that_does_not_read_is_an_unknown_outcome_within_the_time_out(webhooks: Webhooks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hook = webhooks(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        assert outcomes(hook.send([delivery("a", b"x" * 1_000_000)], 1.0)) == [
            "unknown"
        ]  # this time-out is the subject


def test_an_endpoint_that_is_not_there_took_nothing(webhooks: Webhooks) -> None:
    (result,) = webhooks(f"http://127.0.0.1:{free_port()}/").send([delivery("a")], SEND_SECONDS)
    assert (result.outcome, "refused" in result.reason) == ("unavailable", True)


def test_without_time_left_nothing_is_sent(receiver: Receiver, webhooks: Webhooks) -> None:
    assert outcomes(webhooks(receiver.url()).send([delivery("a")], 0.0)) == ["unavailable"]
    assert receiver.requests == []


# -- what is shown ---------------------------------------------------------------------------------------------------------


def test_the_endpoints_words_are_one_short_line_without_secrets_and_control_characters(
    receiver: Receiver, webhooks: Webhooks
) -> None:
    token = base64.b64encode(b"canary canary").decode()
    words = f"\x1b[31mno\r\n{{}}\u202e entry for  Bearer {token} or {token}\0" + "x" * 1_000
    receiver.say(400, words.encode() + b"\xff")
    (result,) = webhooks(receiver.url(), headers={"authorization": f"Bearer {token}"}).send(
        [delivery("a")], SEND_SECONDS
    )
    assert token not in result.reason
    assert result.reason.isprintable()
    assert "answered 400: [31mno {} entry for *** or ***" in result.reason
    assert len(result.reason) < 300
