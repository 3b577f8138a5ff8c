package io.delayq;

import static io.delayq.TestServer.DROPS;
import static io.delayq.TestServer.SCHEDULES;
import static io.delayq.TestServer.problem;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.delayq.TestServer.Answer;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
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
        var busy = new Answer(503, problem(503, "overloaded"), "1");
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
    void aWrongUrlAndAServerThatIsNotDelayqAreNamed() throws Exception {
        for (var wrong : List.of("redis://127.0.0.1", "http://user:secret@host", "localhost")) {
            assertThrows(IllegalArgumentException.class, () -> DelayqClient.of(wrong), wrong);
        }
        try (var server = new TestServer(request -> new Answer(404, "<html>"))) {
            var error = assertThrows(DelayqException.Refused.class, () -> DelayqClient.of(server.url).read("/v1/me", Map.of()));
            assertTrue(error.getMessage().contains("is this the URL of its API"), error.getMessage());
        }
    }
}
