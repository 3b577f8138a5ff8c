"""Calls of the API that `./dev` makes itself, by the standard library."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

#: The errors of a call. A refusal is one of them: urllib.error.HTTPError is an OSError.
FAILURES = (OSError, http.client.HTTPException)

# A proxy of the environment is not for this machine.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Call(NamedTuple):
    """A change by the API; `reason` goes into the audit."""

    path: str
    body: Any
    method: str = "POST"
    reason: str = ""


def send(api: str, call: Call) -> None:
    """Make the call; raises one of FAILURES."""
    headers = {"content-type": "application/json"} | ({"delayq-reason": call.reason} if call.reason else {})
    data = None if call.body is None else json.dumps(call.body).encode()
    request = urllib.request.Request(f"{api}{call.path}", data, headers, method=call.method)
    with _open(request, timeout=10) as answer:
        answer.read()


def get_status(url: str) -> tuple[int, str]:
    """The status of a GET, 0 when nothing answers, and the answer's text."""
    try:
        with _open(url, timeout=1) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")
    except FAILURES as error:
        return 0, str(error)
