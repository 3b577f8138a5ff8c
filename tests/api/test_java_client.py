"""Java's own HTTP client, which offers HTTP/2 to every http:// address (so does Spring's RestClient)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.jars import SHORT_LIVED
from tests.api.test_process import api_process
from tests.support.servers import ServerUnderTest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("javac") is None, reason="no javac on PATH: install a JDK (apt install default-jdk)"
    ),
]

PROGRAM = """
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;

public class Calls {
    static HttpClient client = HttpClient.newHttpClient();
    static String base;

    static void call(String method, String path, BodyPublisher body, boolean expect) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(base + path)).header("content-type", "application/json")
            .method(method, body).expectContinue(expect).build();
        HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(method + " " + answer.statusCode() + " " + answer.version());
    }

    static BodyPublisher text(String text) { return BodyPublishers.ofString(text); }

    static BodyPublisher chunks(String text) {
        return BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(text.getBytes()));
    }

    public static void main(String[] words) throws Exception {
        base = words[0];
        String body = "\\"DELETE /v1/messages/a HTTP/1.1\\"";
        String message = "{\\"topic\\":\\"t\\",\\"delayTime\\":60000,\\"id\\":\\"ID\\",\\"body\\":" + body + "}";
        call("POST", "/v1/messages", text(message.replace("ID", "a")), false);
        client = HttpClient.newHttpClient();
        call("POST", "/v1/messages", chunks(message.replace("ID", "b")), false);
        client = HttpClient.newHttpClient();
        call("POST", "/v1/messages", text(message.replace("ID", "c")), true);
        client = HttpClient.newHttpClient();
        call("PATCH", "/v1/messages/a", text("{\\"delayTime\\":50000}"), false);
        call("GET", "/v1/messages/a", BodyPublishers.noBody(), false);
        client = HttpClient.newHttpClient();
        call("DELETE", "/v1/messages/b", text("{}"), false);
        client = HttpClient.newHttpClient();
        call("POST", "/nowhere", text(message), false);
    }
}
"""


def test_every_call_of_javas_client_is_served(valkey: ServerUnderTest, tmp_path: Path) -> None:
    """A new client for most of the calls: it offers HTTP/2 until the server has answered once."""
    source = tmp_path / "Calls.java"
    source.write_text(PROGRAM, encoding="utf-8")
    with api_process(valkey.url, tmp_path) as process:
        command = ["java", *SHORT_LIVED, str(source), f"http://127.0.0.1:{process.port}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.split("\n") == [
            "POST 201 HTTP_1_1", "POST 201 HTTP_1_1", "POST 201 HTTP_1_1", "PATCH 200 HTTP_1_1", "GET 200 HTTP_1_1",
            "DELETE 200 HTTP_1_1", "POST 404 HTTP_1_1", "",
        ]  # fmt: skip
