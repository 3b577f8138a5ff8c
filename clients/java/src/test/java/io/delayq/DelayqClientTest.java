package io.delayq;

import static io.delayq.TestServer.DROPS;
import static io.delayq.TestServer.SCHEDULES;
import static io.delayq.TestServer.problem;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.delayq.TestServer.Answer;
import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class DelayqClientTest {
    private static Message message(String id) {
        return Message.to("t").id(id).in(Duration.ZERO);
    }

    @Test
    void aMessageKeepsItsIdWhenAnAnswerIsLost() throws Exception {
        try (var server = new TestServer(DROPS, DROPS, SCHEDULES)) {
            var done = DelayqClient.of(server.url).schedule(Message.to("orders").in(Duration.ofMinutes(30)));
            var ids = server.requests.stream().map(request -> request.messages().get(0).get("id")).toList();
            assertEquals(List.of(done.id(), done.id(), done.id()), ids);
            assertTrue(done.created());
        }
    }

    @Test
    void messagesOfABatchAreRepeatedAfter429And503() throws Exception {
        var partly = "{\"results\":[{\"status\":200,\"id\":\"a\",\"queue\":1,\"state\":\"scheduled\"},{\"status\":429,\"problem\":"
                + problem(429, "quota") + "}]}";
        var busy = new Answer(503, problem(503, "overloaded"), Map.of("Retry-After", "1"));
        try (var server = new TestServer(request -> busy, request -> new Answer(200, partly), SCHEDULES)) {
            long began = System.nanoTime();
            var outcomes = DelayqClient.of(server.url).scheduleAll(List.of(message("a"), message("b")));
            assertTrue(System.nanoTime() - began >= 1_000_000_000L, "Retry-After is in seconds");
            assertEquals(List.of(false, true), outcomes.stream().map(one -> one.get().created()).toList());
            assertEquals(List.of(2, 2, 1), server.requests.stream().map(request -> request.messages().size()).toList());
        }
    }

    @Test
    void aRefusalIsAnExceptionAndIsNotRepeated() throws Exception {
        var refused = "{\"results\":[{\"status\":400,\"problem\":" + problem(400, "invalid") + "}]}";
        try (var server = new TestServer(request -> new Answer(200, refused))) {
            var error = assertThrows(DelayqException.Refused.class, () -> DelayqClient.of(server.url).schedule(message("a")));
            assertEquals("invalid", error.problem().kind());
            assertEquals(1, server.requests.size());
        }
        try (var server = new TestServer(request -> new Answer(403, problem(403, "forbidden")))) {
            var client = DelayqClient.builder(server.url).apiKey("dq_x").build();
            assertThrows(DelayqException.NotAllowed.class, () -> client.read("/v1/queues", Map.of()));
            assertEquals("Bearer dq_x", server.requests.get(0).authorization());
        }
    }

    @Test
    void aCallGivesUpAndNamesItsIds() throws Exception {
        try (var server = new TestServer(DROPS)) {
            var client = DelayqClient.builder(server.url).giveUpAfter(Duration.ofMillis(300)).build();
            var error = assertThrows(DelayqException.Unavailable.class, () -> client.schedule(message("a")));
            assertEquals(List.of("a"), error.ids());
            Thread.currentThread().interrupt();
            assertThrows(DelayqException.Unavailable.class, () -> client.cancel("a"));
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void batchesAreSplitByNumberAndHalvedWhenTheServerTakesLess() throws Exception {
        var large = new Answer(413, problem(413, "too-large"));
        try (var server = new TestServer(request -> request.messages().size() > 300 ? large : SCHEDULES.apply(request))) {
            var messages = IntStream.range(0, 1_100).mapToObj(n -> message("m" + n)).toList();
            var outcomes = DelayqClient.of(server.url).scheduleAll(messages);
            assertEquals(messages.stream().map(Message::id).toList(), outcomes.stream().map(one -> one.get().id()).toList());
            var sizes = server.requests.stream().map(request -> request.messages().size()).toList();
            assertEquals(List.of(1_000, 500, 250, 250, 500, 250, 250, 100), sizes);
        }
    }

    @Test
    void fieldsAreWrittenAsTheApiTakesThem() throws Exception {
        try (var server = new TestServer(SCHEDULES)) {
            var message = Message.to("t").id("a").bytes(new byte[] {1, -1}).at(Instant.parse("2033-01-31T08:00:00Z"));
            DelayqClient.of(server.url).schedule(message.expireAfter(Duration.ofSeconds(90)).keys("k").properties(Map.of("p", "ü\n")));
            var sent = server.requests.get(0).messages().get(0);
            var expected = Map.of(
                    "id", "a", "topic", "t", "bodyBase64", "Af8=", "expectDate", "2033-01-31T08:00:00Z",
                    "expireAfter", "90000ms", "keys", List.of("k"), "properties", Map.of("p", "ü\n"));
            assertEquals(expected, sent);
        }
    }

    @Test
    void aSearchGoesOnToTheLastPage() throws Exception {
        var first = new Answer(200, "{\"messages\":[{\"id\":\"a\",\"queue\":1}],\"nextPageToken\":\"p2\"}");
        var last = new Answer(200, "{\"messages\":[{\"id\":\"b\",\"queue\":1}],\"nextPageToken\":null}");
        try (var server = new TestServer(request -> first, request -> last)) {
            var ids = DelayqClient.of(server.url).search(Map.of("topic", "t.*")).map(Found::id).toList();
            assertEquals(List.of("a", "b"), ids);
            assertEquals("/v1/messages?topic=t.%2A&pageToken=p2", server.requests.get(1).path().replace("*", "%2A"));
        }
    }

    @Test
    void consumerGroupsGoOnToTheLastPage() throws Exception {
        var first = new Answer(200, "{\"groups\":[{\"topic\":\"t\",\"group\":\"audit\"}],\"total\":2,\"nextPageToken\":\"p2\"}");
        var last = new Answer(200, "{\"groups\":[{\"topic\":\"t\",\"group\":\"mail\"}],\"total\":2,\"nextPageToken\":null}");
        try (var server = new TestServer(request -> first, request -> last)) {
            var groups = DelayqClient.of(server.url).consumers(Map.of("match", "t")).map(one -> one.get("group")).toList();
            assertEquals(List.of("audit", "mail"), groups);
            assertEquals("/v1/consumers?match=t&pageToken=p2", server.requests.get(1).path());
        }
    }

    @Test
    void aReceiveKeepsItsNameWhenAnAnswerIsLostAndItsLeasesAreSettled() throws Exception {
        var message = "{\"id\":\"a\",\"topic\":\"t\",\"lease\":\".1-0.x\",\"dueMs\":1,\"attempt\":1,\"deliveries\":1,\"handBacks\":0,"
                + "\"bodyBase64\":\"aGk=\"}";
        var received = new Answer(200, "{\"messages\":[" + message + "]}");
        var settled = new Answer(200, "{\"results\":[{\"id\":\"a\",\"status\":200,\"result\":\"acknowledged\"}]}");
        try (var server = new TestServer(DROPS, request -> received, request -> settled)) {
            var client = DelayqClient.of(server.url);
            var messages = client.receive("t", "mail", 10, Duration.ofSeconds(20), Duration.ofSeconds(60));
            assertEquals("hi", messages.get(0).text());
            assertEquals(server.requests.get(0).body().get("call"), server.requests.get(1).body().get("call"));
            assertEquals("acknowledged", client.ack("t", "mail", messages).get(0).result());
            client.extend("t", "mail", messages, Duration.ZERO);
            client.handBack("t", "mail", messages, "no stock");
            assertEquals("/v1/topics/t:handBack", server.requests.get(4).path());
            assertEquals(List.of(Map.of("id", "a", "lease", ".1-0.x", "reason", "no stock")), server.requests.get(4).messages());
        }
    }

    @Test
    void leasesWhoseChangeFailedForAWhileAreChangedAgainWithoutTheOthers() throws Exception {
        var partly = "{\"results\":[{\"id\":\"a\",\"status\":200,\"result\":\"acknowledged\"},{\"id\":\"b\",\"status\":503,\"problem\":"
                + problem(503, "unavailable") + "}]}";
        var rest = new Answer(200, "{\"results\":[{\"id\":\"b\",\"status\":409,\"result\":\"lost\"}]}");
        try (var server = new TestServer(request -> new Answer(200, partly), request -> rest)) {
            var messages = List.of(Leased.of(Map.of("id", "a", "lease", "la")), Leased.of(Map.of("id", "b", "lease", "lb")));
            var results = DelayqClient.of(server.url).ack("t", "mail", messages);
            assertEquals(List.of("acknowledged", "lost"), results.stream().map(Result::result).toList());
            assertEquals(List.of(Map.of("id", "b", "lease", "lb")), server.requests.get(1).messages());
        }
    }

    @Test
    void aDeliveredMessageIsHandedBack() throws Exception {
        var answer = new Answer(200, "{\"results\":[{\"status\":201,\"id\":\"a.b3\",\"state\":\"scheduled\",\"dueMs\":1}]}");
        try (var server = new TestServer(request -> answer)) {
            var headers = Map.of("id", "a.b2", "due", "1", "p:delayq-hand-backs", "2");
            var message = Received.fromKafka("t", headers, "hello".getBytes());
            var done = DelayqClient.of(server.url).handBackDelivered(List.of(message), "no stock", null);
            assertEquals("a.b3", done.get(0).get().id());
            assertEquals("/v1/messages:handBack", server.requests.get(0).path());
            assertEquals("hello", server.requests.get(0).messages().get(0).get("body"));
        }
    }

    @Test
    void aReceivedMessageHasItsBodyAsBytesAsTextAndAsJson() throws Exception {
        var received = "{\"messages\":[{\"id\":\"a\",\"lease\":\"l\",\"attempt\":2,\"body\":\"{\\\"n\\\":12345678901234567890}\"},"
                + "{\"id\":\"b\",\"lease\":\"l\",\"bodyBase64\":\"/w==\"},{\"id\":\"c\",\"lease\":\"l\"}]}";
        try (var server = new TestServer(request -> new Answer(200, received))) {
            var messages = DelayqClient.of(server.url).receive("t", "mail", 10, Duration.ZERO, Duration.ofSeconds(60));
            assertEquals(Map.of("n", new BigDecimal("12345678901234567890")), messages.get(0).json());
            assertEquals(2, messages.get(0).attempt());
            assertArrayEquals(new byte[] {-1}, messages.get(1).body());
            assertThrows(IllegalArgumentException.class, () -> messages.get(1).json());
            assertEquals("", messages.get(2).text());
        }
    }

    @Test
    void aBodyComesBackWithItsBytesAndItsContentType() throws Exception {
        var cases = List.of(
                List.of("application/json", "{\"price\":1.0}", "\"body\":{\"price\":1.0}"),
                List.of("application/json", "1e3", "\"body\":1e3"),
                List.of("application/json", "{\"id\":12345678901234567890}", "\"body\":{\"id\":12345678901234567890}"),
                List.of("application/json", "{\"b\":1,\"1\":2,\"b\":3}", "\"body\":{\"b\":1,\"1\":2,\"b\":3}"),
                List.of("application/json", "[\"\\u00e9<&>\u2028\"]", "\"body\":[\"\\u00e9<&>\u2028\"]"),
                List.of("application/json", "null", "\"body\":null"),
                List.of("Application/JSON; charset=utf-8", "[1.50]", "\"body\":[1.50]"),
                List.of("application/json", "\"text\"", "\"body\":\"\\\"text\\\"\""),
                List.of("application/json", "{broken", "\"body\":\"{broken\""),
                List.of("application/json", "01", "\"body\":\"01\""),
                List.of("application/json-seq", "1.0", "\"body\":\"1.0\""),
                List.of("text/plain; charset=utf-8", "\ufeff<b>", "\"body\":\"\ufeff<b>\""),
                List.of("application/octet-stream", "text", "\"bodyBase64\":\"dGV4dA==\""),
                List.of("", "1.0", "\"body\":\"1.0\""));
        var answer = new Answer(200, "{\"results\":[{\"status\":201,\"id\":\"a.b1\",\"state\":\"scheduled\",\"dueMs\":1}]}");
        try (var server = new TestServer(request -> answer)) {
            var client = DelayqClient.of(server.url);
            for (var one : cases) {
                var body = one.get(1).getBytes(StandardCharsets.UTF_8);
                var webhook = Map.of("ce-id", "a", "ce-type", "t", "ce-time", "2033-01-01T00:00:00Z", "content-type", one.get(0));
                var read = List.of(
                        Received.fromWebhook(webhook::get, body),
                        Received.fromKafka("t", Map.of("id", "a", "due", "1", "content-type", one.get(0)), body),
                        Received.fromRabbitMq("a", "t", one.get(0), Map.of("delayq-due", 1), body));
                for (var message : read) {
                    client.handBackDelivered(List.of(message), null, null);
                    var sent = server.requests.get(server.requests.size() - 1).text();
                    assertTrue(sent.contains(one.get(2)), one + " is sent as " + sent);
                    assertEquals(one.get(1).equals("\"text\""), sent.contains("\"contentType\":\"application/json\""), sent);
                }
            }
            var latin = new Received("a", "t", Instant.EPOCH, 1, "", List.of(), "", Map.of(), new byte[] {-23}, "text/plain; charset=latin1");
            client.handBackDelivered(List.of(latin), null, null);
            assertEquals("6Q==", server.requests.get(server.requests.size() - 1).messages().get(0).get("bodyBase64"));
        }
    }

    @Test
    void aScheduledBodyIsJsonAndKeepsItsDigits() throws Exception {
        try (var server = new TestServer(SCHEDULES)) {
            DelayqClient.of(server.url).schedule(message("a").json("{\"id\":12345678901234567890,\"price\":1.0}"));
            assertTrue(server.requests.get(0).text().contains("\"body\":{\"id\":12345678901234567890,\"price\":1.0}"));
            DelayqClient.of(server.url).schedule(message("a").text("\ud83d\ude00 \ud83d"));
            assertTrue(server.requests.get(1).text().contains("\"body\":\"\ud83d\ude00 \\ud83d\""), server.requests.get(1).text());
            assertThrows(IllegalArgumentException.class, () -> message("a").json("{\"a\":1},{"));
        }
    }

    private interface Do {
        void with(DelayqClient client);
    }

    private static final List<Leased> LEASED = List.of(Leased.of(Map.of("id", "x", "lease", "l")));

    /** Every method that sends a request. */
    private static final Map<String, Do> CALLS = Map.ofEntries(
            Map.entry("schedule", client -> client.schedule(message("a"))),
            Map.entry("get", client -> client.get("x")),
            Map.entry("search", client -> client.search(Map.of()).toList()),
            Map.entry("deadLetters", client -> client.deadLetters(Map.of()).toList()),
            Map.entry("topics", client -> client.topics(Map.of()).toList()),
            Map.entry("consumers", client -> client.consumers(Map.of()).toList()),
            Map.entry("audit", client -> client.audit(Map.of()).toList()),
            Map.entry("cancel", client -> client.cancel("x")),
            Map.entry("cancelAll", client -> client.cancelAll(List.of("x"))),
            Map.entry("cancelByKeys", client -> client.cancelByKeys(List.of("k"))),
            Map.entry("reschedule", client -> client.reschedule("x", Due.in(Duration.ZERO))),
            Map.entry("deliverNow", client -> client.deliverNow("x", false)),
            Map.entry("redrive", client -> client.redrive(List.of("x"))),
            Map.entry("discard", client -> client.discard(List.of("x"))),
            Map.entry("receive", client -> client.receive("t", "g", 1, Duration.ZERO, Duration.ofSeconds(1))),
            Map.entry("consumer", client -> client.consumer("t", "g").run(message -> {})),
            Map.entry("ack", client -> client.ack("t", "g", LEASED)),
            Map.entry("extend", client -> client.extend("t", "g", LEASED, Duration.ofSeconds(1))),
            Map.entry("handBack", client -> client.handBack("t", "g", LEASED, "")),
            Map.entry("handBackDelivered", client -> client.handBackDelivered(List.of(Received.fromKafka("t", Map.of("id", "a", "due", "1"), new byte[0])), null, null)),
            Map.entry("pauseTopics", client -> client.pauseTopics("t", null, Duration.ZERO)),
            Map.entry("resumeTopics", client -> client.resumeTopics("t")),
            Map.entry("putPolicy", client -> client.putPolicy("p", Map.of("match", "t"))),
            Map.entry("deletePolicy", client -> client.deletePolicy("p")),
            Map.entry("read", client -> client.read("/v1/me", Map.of())));

    @Test
    void anAnswerThatIsNotFromDelayqIsAnErrorWithTheUrlAtOnceAndFromEveryCall() throws Exception {
        var methods = Arrays.stream(DelayqClient.class.getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()) && !Modifier.isStatic(method.getModifiers()))
                .map(Method::getName)
                .filter(name -> !name.equals("scheduleAll"))
                .collect(Collectors.toSet());
        assertEquals(methods, CALLS.keySet(), "a call is missing in this test");
        var html = Map.of("Content-Type", "text/html; charset=utf-8");
        var others = Map.ofEntries(
                Map.entry("a page", new Answer(200, "<html>please log in</html>", html)),
                Map.entry("a page without a type", new Answer(200, "<html>please log in</html>")),
                Map.entry("a page that is not found", new Answer(404, "<html>", html)),
                Map.entry("JSON as a page", new Answer(200, "{\"results\":[{\"id\":\"x\"}],\"id\":\"x\",\"state\":\"due\"}", html)),
                Map.entry("no content", new Answer(204, "")),
                Map.entry("no body", new Answer(200, "")),
                Map.entry("an empty object", new Answer(200, "{}")),
                Map.entry("an array", new Answer(200, "[{\"id\":\"x\"}]")),
                Map.entry("null", new Answer(200, "null")),
                Map.entry("truncated JSON", new Answer(200, "{\"messages\":[],\"results\":[{\"id\":\"x\"")),
                Map.entry("another problem", new Answer(404, "{\"type\":\"about:blank\",\"status\":404,\"detail\":\"No such page\"}")),
                Map.entry("another path of an API", new Answer(404, problem(404, "not-found").replace("No.", "Unknown path. /docs lists all paths."))));
        for (var other : others.entrySet()) isNamed(other.getKey(), other.getValue(), CALLS);
        var checked = new HashMap<>(CALLS);
        checked.remove("read"); // of any path, so any object may be its answer
        var lists = "{\"results\":[1],\"messages\":[1],\"topics\":[1],\"groups\":1,\"entries\":[null],\"deadLetters\":[1],\"id\":5}";
        isNamed("lists of something else", new Answer(200, lists), checked);
        isNamed("too few results", new Answer(200, "{\"results\":[]}"), checked);
        isNamed("results of nothing", new Answer(200, "{\"results\":[{}],\"messages\":[{}]}"), checked);
    }

    @Test
    void anAnswerAboutAnotherMessageIsNotTheOneThatWasAskedFor() throws Exception {
        isNamed("another message", new Answer(200, "{\"id\":\"other\",\"state\":\"due\"}"), Map.of("get", client -> client.get("x")));
        try (var server = new TestServer(request -> new Answer(200, "{\"id\":\"x.0a1b\",\"state\":\"a new one\"}"))) {
            assertEquals("x.0a1b", DelayqClient.of(server.url).get("x").orElseThrow().id());
        }
    }

    private static void isNamed(String what, Answer answer, Map<String, Do> calls) throws Exception {
        for (var call : calls.entrySet()) {
            try (var server = new TestServer(request -> answer)) {
                var error = assertThrows(
                        DelayqException.class, () -> call.getValue().with(DelayqClient.of(server.url)), call.getKey() + ": " + what);
                var message = error.getMessage();
                assertTrue(message.startsWith(server.url) && message.endsWith(": is this the URL of its API?"), call.getKey() + ": " + what + ": " + message);
                assertEquals(1, server.requests.size(), call.getKey() + " was repeated: " + what);
            }
        }
    }

    @Test
    void aRedirectIsRefusedWithItsTargetAndNoRequestFollowsIt() throws Exception {
        for (int status : List.of(301, 302, 303, 307, 308)) {
            try (var target = new TestServer(SCHEDULES);
                    var server = new TestServer(request -> new Answer(status, "", Map.of("Location", target.url + "/login")))) {
                var wanted = server.url + " answered " + status + ", a redirect to '" + target.url
                        + "/login', which delayq does not follow: is this the URL of its API?";
                var client = DelayqClient.builder(server.url).apiKey("dq_x").build();
                for (var call : CALLS.entrySet()) {
                    var error = assertThrows(DelayqException.Refused.class, () -> call.getValue().with(client), call.getKey());
                    assertEquals(wanted, error.getMessage());
                }
                assertEquals(List.of(CALLS.size(), 0), List.of(server.requests.size(), target.requests.size()));
            }
        }
        var follows = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.NORMAL).build();
        assertThrows(IllegalArgumentException.class, () -> DelayqClient.builder("http://host").http(follows));
    }

    @Test
    void getFindsNothingOnlyForAnIdThatDelayqDoesNotKnow() throws Exception {
        try (var server = new TestServer(request -> new Answer(404, problem(404, "not-found")))) {
            assertTrue(DelayqClient.of(server.url).get("x").isEmpty());
        }
        for (int status : List.of(502, 503, 504)) {
            try (var server = new TestServer(request -> new Answer(status, "<html>"))) {
                var client = DelayqClient.builder(server.url).giveUpAfter(Duration.ZERO).build();
                var error = assertThrows(DelayqException.Unavailable.class, () -> client.get("x"));
                assertEquals(server.url + " answered " + status, error.getMessage());
            }
        }
    }

    @Test
    void aRepeatedChangeHasTheNameOfItsFirstAttempt() throws Exception {
        var good = new Answer(200, "{\"id\":\"x\",\"state\":\"scheduled\",\"results\":[{\"id\":\"x\",\"result\":\"scheduled\"}]}");
        Map<String, Do> named = Map.of(
                "reschedule", client -> client.reschedule("x", Due.in(Duration.ZERO), "mine"),
                "deliverNow", client -> client.deliverNow("x", false, "mine"),
                "redrive", client -> client.redrive(List.of("x"), "mine"));
        for (var call : named.entrySet()) {
            try (var server = new TestServer(DROPS, request -> good)) {
                var client = DelayqClient.of(server.url);
                CALLS.get(call.getKey()).with(client);
                CALLS.get(call.getKey()).with(client);
                call.getValue().with(client);
                var names = server.requests.stream().map(request -> request.body().get("call")).toList();
                assertEquals(names.get(0), names.get(1), call.getKey());
                assertEquals(List.of(3, "mine"), List.of(Set.copyOf(names).size(), names.get(3)), call.getKey());
            }
        }
    }

    @Test
    void aCallIsBoundedAlsoWhileTheBodyOfItsAnswerArrives() throws Exception {
        var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        var stalling = new Thread(() -> {
            try (server; var connection = server.accept()) {
                connection.getOutputStream().write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".getBytes(StandardCharsets.UTF_8));
                while (connection.getInputStream().read() >= 0) {} // until the client closes the connection
            } catch (IOException error) {
                // it was reset
            }
        });
        stalling.start();
        var client = DelayqClient.builder("http://127.0.0.1:" + server.getLocalPort()).timeout(Duration.ofMillis(100)).giveUpAfter(Duration.ZERO).build();
        assertThrows(DelayqException.Unavailable.class, () -> client.cancel("x"));
        stalling.join();
    }

    @Test
    void aWrongUrlAndAWrongKeyAreNamed() throws Exception {
        for (var wrong : List.of("redis://127.0.0.1", "http://user:secret@host", "localhost", "http://host?key=secret")) {
            assertThrows(IllegalArgumentException.class, () -> DelayqClient.of(wrong), wrong);
        }
        assertThrows(IllegalArgumentException.class, () -> DelayqClient.builder("http://host").apiKey("dq_x\n"));
    }
}
