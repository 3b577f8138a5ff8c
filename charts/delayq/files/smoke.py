"""The test of `helm test`: the API is ready. With a topic, a message is scheduled, read and cancelled, too."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

ATTEMPTS = 30


def ask(method, url, body=None):
    """Status and JSON of one call."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key := os.environ.get("API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")
    except OSError as error:
        return 0, {"detail": str(error)}


def want(status, said, *wanted):
    """End the test unless the status is one of those."""
    if status not in wanted:
        sys.exit(f"delayq test: {status}: {said.get('detail', said)}")


def main(url, topic):
    for left in reversed(range(ATTEMPTS)):
        status, said = ask("GET", f"{url}/readyz")
        if status == 200 or not left:
            break
        time.sleep(2)
    want(status, said, 200)
    print("the API is ready")
    if topic:
        status, said = ask("POST", f"{url}/v1/messages", {"topic": topic, "body": "helm test", "delayTime": "1h"})
        want(status, said, 201)
        message = f"{url}/v1/messages/{said['id']}"
        status, said = ask("GET", message)
        want(status, said, 200)
        status, said = ask("DELETE", message)
        want(status, said, 200)
        print("a message was scheduled, seen and cancelled")


main(sys.argv[1], sys.argv[2])
