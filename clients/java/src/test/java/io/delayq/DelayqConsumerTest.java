package io.delayq;

import static io.delayq.TestServer.problem;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.delayq.TestServer.Answer;
import io.delayq.TestServer.Request;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.UnaryOperator;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

class DelayqConsumerTest {
    private static final Map<String, String> RESULTS = Map.of("ack", "acknowledged", "handBack", "handedBack", "extend", "extended");

    /** A topic with messages, whose API answers each verb by {@code answers}, else as delayq does. */
    private static final class Topic implements AutoCloseable {
        final Map<String, Deque<Answer>> answers = new HashMap<>();
        private final Deque<String> ready = new ArrayDeque<>();
        private final TestServer server;
        private boolean isClosed;

        Topic(String... messages) throws Exception {
            ready.addAll(List.of(messages));
            server = new TestServer(this::answer);
        }

        private static String verb(Request request) {
            return request.path().substring(request.path().indexOf(':') + 1);
        }

        private synchronized Answer answer(Request request) {
            notifyAll();
            var verb = verb(request);
            var left = answers.get(verb);
            if (left != null && !left.isEmpty()) return left.poll();
            if (!verb.equals("receive")) {
                var results = request.messages().stream().map(one -> Map.of("id", one.get("id"), "status", 200, "result", RESULTS.get(verb)));
                return new Answer(200, Json.write(Map.of("results", results.toList())));
            }
            int count = seen("receive", 0).size();
            while (ready.isEmpty() && !isClosed && !request.body().get("wait").equals("0ms") && seen("receive", 0).size() == count) sleep();
            var given = new ArrayList<String>();
            for (int most = ((Long) request.body().get("max")).intValue(); most > 0 && !ready.isEmpty(); most--) given.add(ready.poll());
            return new Answer(200, "{\"messages\":[" + String.join(",", given) + "]}");
        }

        /** The calls of a verb, after there are at least so many. */
        synchronized List<Request> seen(String verb, int count) {
            while (true) {
                var found = List.copyOf(server.requests).stream().filter(one -> verb(one).equals(verb)).toList();
                if (found.size() >= count) return found;
                sleep();
            }
        }

        private void sleep() {
            try {
                wait();
            } catch (InterruptedException error) {
                isClosed = true;
            }
        }

        List<String> idsOf(String verb) {
            return seen(verb, 0).stream().flatMap(one -> ids(one).stream()).sorted().toList();
        }

        @Override
        public void close() {
            synchronized (this) {
                isClosed = true;
                notifyAll();
            }
            server.close();
        }
    }

    private static List<String> ids(Request request) {
        return request.messages().stream().map(one -> (String) one.get("id")).toList();
    }

    private static String message(String id, String key) {
        return Json.write(Map.of("id", id, "topic", "t", "lease", "lease of " + id, "dueMs", 1, "orderingKey", key));
    }

    private static Answer lost(String id) {
        return new Answer(200, "{\"results\":[{\"id\":\"" + id + "\",\"status\":409,\"result\":\"lost\"}]}");
    }

    private static DelayqClient client(Topic topic) {
        return DelayqClient.builder(topic.server.url).giveUpAfter(Duration.ZERO).build();
    }

    /** Consume until something has happened, and return the warnings. */
    private static List<String> consume(
            Topic topic, DelayqConsumer.Handler handler, Runnable until, UnaryOperator<DelayqConsumer> options) throws Exception {
        Queue<String> warnings = new ConcurrentLinkedQueue<>();
        var logger = Logger.getLogger("io.delayq");
        var recording = new Handler() {
            @Override
            public void publish(LogRecord record) {
                warnings.add(record.getMessage());
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        logger.addHandler(recording);
        logger.setUseParentHandlers(false);
        try {
            var consumer = options.apply(client(topic).consumer("t", "mail"));
            var failure = new AtomicReference<Throwable>();
            var running = new Thread(() -> consumer.run(handler));
            running.setUncaughtExceptionHandler((thread, error) -> failure.set(error));
            running.start();
            until.run();
            consumer.close();
            running.join();
            assertNull(failure.get());
        } finally {
            logger.removeHandler(recording);
        }
        return List.copyOf(warnings);
    }

    @Test
    void messagesAreAcknowledgedAndThoseWhoseHandlerFailsAreHandedBack() throws Exception {
        var failures = Map.of(
                "exception", new IllegalStateException("no\n stock"), "error", new AssertionError("wrong"), "overflow", new StackOverflowError(),
                "interrupted", new InterruptedException(), "long", new Exception("\ud83d\ude00".repeat(200) + "\ud83d"));
        try (var topic = new Topic(
                message("a", ""), message("exception", ""), message("error", ""), message("overflow", ""), message("interrupted", ""),
                message("long", ""), message("z", ""))) {
            consume(topic, one -> {
                var failure = failures.get(one.id());
                if (one.id().equals("interrupted")) Thread.currentThread().interrupt();
                if (failure instanceof Error error) throw error;
                if (failure instanceof Exception exception) throw exception;
            }, () -> topic.seen("handBack", 5), options -> options);
            assertEquals(List.of("a", "z"), topic.idsOf("ack"));
            var reasons = new HashMap<String, Object>();
            topic.seen("handBack", 0).forEach(one -> reasons.put(ids(one).get(0), one.messages().get(0).get("reason")));
            assertEquals("java.lang.IllegalStateException: no stock", reasons.get("exception"));
            assertEquals("java.lang.AssertionError: wrong", reasons.get("error"));
            assertEquals(failures.keySet(), reasons.keySet());
            var reason = (String) reasons.get("long");
            assertEquals(200, reason.codePointCount(0, reason.length()));
        }
    }

    @Test
    void leasesOfAllMessagesAreRenewedByOneCallWhileHandlersRunAndNoThreadIsLeft() throws Exception {
        try (var topic = new Topic(message("a", ""), message("b", ""), message("behind", "k"), message("after", "k"))) {
            consume(topic, one -> topic.seen("extend", 3), () -> topic.seen("ack", 1), options -> options.lease(Duration.ofMillis(30)));
            var first = topic.seen("extend", 1).get(0);
            assertEquals(List.of("a", "b", "behind", "after"), ids(first));
            assertEquals("30ms", first.body().get("lease"));
            for (var thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getName().startsWith("delayq-")) thread.join();
            }
        }
    }

    @Test
    void aLeaseIsRenewedForAtMostMaxLease() throws Exception {
        try (var topic = new Topic(message("a", ""))) {
            var isOver = new Object() {
                volatile boolean is;
            };
            var logger = Logger.getLogger("io.delayq");
            logger.setFilter(record -> {
                isOver.is = true;
                return true;
            });
            var warnings = consume(topic, one -> {
                while (!isOver.is) Thread.onSpinWait();
            }, () -> topic.seen("ack", 1), options -> options.lease(Duration.ofMillis(30)).maxLease(Duration.ofMillis(90)));
            logger.setFilter(null);
            assertTrue(topic.seen("extend", 0).size() <= 6, "90 ms have room for six thirds after which 30 ms are left");
            assertEquals(
                    List.of("The lease of message a is not renewed any more, because maxLease (PT0.09S) is over"), warnings);
        }
    }

    @Test
    void aLostLeaseAndALostAcknowledgementAreLoggedOnce() throws Exception {
        try (var topic = new Topic(message("a", ""))) {
            topic.answers.put("extend", new ArrayDeque<>(List.of(lost("a"))));
            topic.answers.put("ack", new ArrayDeque<>(List.of(lost("a"))));
            var heard = new ConcurrentLinkedQueue<String>();
            var logger = Logger.getLogger("io.delayq");
            logger.setFilter(record -> heard.add(record.getMessage()));
            var warnings = consume(topic, one -> {
                while (heard.isEmpty()) Thread.onSpinWait();
            }, () -> topic.seen("ack", 1), options -> options.lease(Duration.ofMillis(30)));
            logger.setFilter(null);
            assertEquals(
                    List.of(
                            "The lease of message a was lost, and it may be received again",
                            "Message a was not settled, because its lease was lost before; it may be received again"),
                    warnings);
        }
    }

    @Test
    void messagesOfOneOrderingKeyAreHandledOneAfterAnother() throws Exception {
        try (var topic = new Topic(message("a1", "a"), message("a2", "a"), message("b1", "b"), message("a3", "a"))) {
            Set<String> running = ConcurrentHashMap.newKeySet();
            Queue<String> order = new ConcurrentLinkedQueue<>();
            consume(topic, one -> {
                if (!running.add(one.orderingKey())) throw new AssertionError("two messages of a key at once");
                if (one.orderingKey().equals("a")) order.add(one.id());
                if (one.id().equals("a1")) topic.seen("ack", 1); // of b1
                running.remove(one.orderingKey());
            }, () -> {
                for (int count = 1; topic.idsOf("ack").size() < 4; count++) topic.seen("ack", count);
            }, options -> options);
            assertEquals(List.of("a1", "a2", "a3"), List.copyOf(order));
            assertEquals(List.of(), topic.idsOf("handBack"));
        }
    }

    @Test
    void theLoopGoesOnWhileTheApiIsAwayOrBusyWithTheSameCall() throws Exception {
        try (var topic = new Topic(message("a", ""))) {
            topic.answers.put("receive", new ArrayDeque<>(List.of(
                    new Answer(503, problem(503, "unavailable")), new Answer(429, problem(429, "rate")), new Answer(0, ""), new Answer(502, "<html>"))));
            var warnings = consume(topic, one -> {}, () -> topic.seen("ack", 1), options -> options);
            var calls = topic.seen("receive", 5).stream().limit(5).map(one -> one.body().get("call")).toList();
            assertEquals(1, Set.copyOf(calls).size());
            assertEquals(4, warnings.size(), warnings.toString());
        }
    }

    @Test
    void aMessageWhoseAcknowledgementFailsIsAcknowledgedOnceTheApiIsBackAndUntilThenItsLeaseIsRenewed() throws Exception {
        try (var topic = new Topic(message("a", ""), message("b", ""), message("c", ""))) {
            var partly = "{\"results\":[{\"id\":\"a\",\"status\":503,\"problem\":" + problem(503, "unavailable") + "}]}";
            topic.answers.put("ack", new ArrayDeque<>(List.of(new Answer(200, partly), new Answer(0, ""))));
            Queue<String> handled = new ConcurrentLinkedQueue<>();
            var warnings = consume(topic, one -> handled.add(one.id()), () -> {
                for (int count = 1; !topic.idsOf("ack").contains("c"); count++) topic.seen("ack", count);
            }, options -> options.lease(Duration.ofMillis(30)).concurrency(1));
            assertEquals(List.of("a", "b", "c"), List.copyOf(handled));
            assertEquals(Set.of("a", "b", "c"), Set.copyOf(topic.idsOf("ack")));
            assertEquals(2, warnings.stream().filter(one -> one.startsWith("Cannot acknowledge messages of t, ")).limit(2).count());
            assertTrue(topic.seen("extend", 0).size() >= 2);
        }
    }

    @Test
    void whatCannotBeAcknowledgedAtTheEndOfTheLoopIsLogged() throws Exception {
        try (var topic = new Topic(message("a", ""))) {
            topic.answers.put("ack", new ArrayDeque<>(List.of(new Answer(0, ""), new Answer(0, ""))));
            var warnings = consume(topic, one -> {}, () -> topic.seen("ack", 1), options -> options);
            var last = warnings.get(warnings.size() - 1);
            assertTrue(last.startsWith("Message a could not be settled, and is received again: "), last);
        }
    }

    @Test
    void theLoopEndsWhenTheApiRefusesTheCallAfterTheHandlersThatRun() throws Exception {
        for (var refusal : Map.of(400, "invalid", 401, "unauthorized", 403, "forbidden", 404, "not-found", 409, "other-filter").entrySet()) {
            try (var topic = new Topic()) {
                topic.answers.put("receive", new ArrayDeque<>(List.of(
                        new Answer(200, "{\"messages\":[" + message("a", "") + "]}"),
                        new Answer(refusal.getKey(), problem(refusal.getKey(), refusal.getValue())))));
                var consumer = client(topic).consumer("t", "mail");
                var error = assertThrows(DelayqException.Refused.class, () -> consumer.run(one -> topic.seen("receive", 2)));
                assertEquals(refusal.getKey(), error.problem().status());
                assertEquals(List.of("a"), topic.idsOf("ack"));
            }
        }
    }

    @Test
    void theEndOfTheLoopWaitsForHandlersAndGivesBackWhatNoneHasBegun() throws Exception {
        try (var topic = new Topic(message("a", "k"), message("b", "k"))) {
            var consumer = client(topic).consumer("t", "mail");
            consumer.run(one -> {
                topic.seen("receive", 2);
                synchronized (topic) {
                    topic.answers.put("receive", new ArrayDeque<>(List.of(new Answer(200, "{\"messages\":[" + message("meanwhile", "") + "]}"))));
                }
                consumer.stop();
                topic.seen("extend", 1);
            });
            assertEquals(List.of("a"), topic.idsOf("ack"));
            var released = topic.seen("extend", 1).get(0);
            assertEquals(List.of("b", "meanwhile"), ids(released));
            assertEquals("0ms", released.body().get("lease"));
            var received = topic.seen("receive", 3);
            assertEquals(received.get(1).body().get("call"), received.get(2).body().get("call"));
            assertFalse(Thread.currentThread().isInterrupted());
        }
    }

    @Test
    void anInterruptEndsTheLoopAndStaysSet() throws Exception {
        try (var topic = new Topic()) {
            Thread.currentThread().interrupt();
            client(topic).consumer("t", "mail").run(one -> {});
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void optionsThatCannotBeAreRefused() {
        var client = DelayqClient.of("http://127.0.0.1:1");
        assertThrows(IllegalArgumentException.class, () -> client.consumer("t", "g").concurrency(0));
        assertThrows(IllegalArgumentException.class, () -> client.consumer("t", "g").maxLease(Duration.ofHours(13)).run(one -> {}));
        assertThrows(IllegalArgumentException.class, () -> client.consumer("t", "g").maxLease(Duration.ofSeconds(1)).run(one -> {}));
        assertThrows(IllegalArgumentException.class, () -> client.consumer("t", "g").lease(Duration.ZERO).run(one -> {}));
    }
}
