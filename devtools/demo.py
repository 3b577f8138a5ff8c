"""./dev up --demo: a trickle of messages, scheduled over HTTP as an application would."""

from __future__ import annotations

import http.client
import json
import random
import threading
import urllib.error
import urllib.request

from devtools.screen import Screen

# A proxy of the environment is not for this machine.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def get_status(url: str) -> tuple[int, str]:
    """The status of a GET, 0 when nothing answers, and the answer's text."""
    try:
        with _open(url, timeout=1) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)


def trickle(api: str, stopped: threading.Event, screen: Screen) -> None:
    """Schedule one message a second for topic `demo`, each with a delay of 1 to 10 s, until stopped."""
    number, failing = 0, False
    while not stopped.wait(1):
        number += 1
        delay = random.randint(1_000, 10_000)
        message = {"topic": "demo", "body": f"message {number}, {delay} ms later", "delayTime": delay}
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{api}/v1/messages", json.dumps(message).encode(), headers)
        try:
            with _open(request, timeout=5) as answer:
                answer.read()
            failing = False
        except (OSError, http.client.HTTPException) as error:
            if not failing and not stopped.is_set():  # once for each time that the API is away
                screen.say(f"--demo cannot schedule now: {error}")
            failing = True
