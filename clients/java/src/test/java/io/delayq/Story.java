package io.delayq;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/** Runs clients/story.json: Story STORY RUN ROUNDS AT_ONCE. Prints how many calls it made; fails at the first difference. */
public final class Story {
    private static final DelayqClient CLIENT = DelayqClient.builder(System.getenv().getOrDefault("DELAYQ_API_URL", "http://127.0.0.1:8080"))
            .giveUpAfter(Duration.ofMinutes(1))
            .build();

    private Story() {}

    public static void main(String[] words) throws Exception {
        var story = Files.readString(Path.of(words[0]));
        int rounds = Integer.parseInt(words[2]);
        var next = new AtomicInteger();
        var calls = new AtomicInteger();
        var threads = Executors.newFixedThreadPool(Integer.parseInt(words[3]));
        var running = new ArrayList<Future<?>>();
        for (int thread = 0; thread < Integer.parseInt(words[3]); thread++) {
            running.add(threads.submit(() -> {
                for (int n = next.getAndIncrement(); n < rounds; n = next.getAndIncrement()) {
                    calls.addAndGet(tell(story.replace("{n}", String.valueOf(n)).replace("{run}", words[1])));
                }
            }));
        }
        threads.shutdown();
        for (var one : running) one.get();
        System.out.println(calls.get());
    }

    @SuppressWarnings("unchecked")
    private static int tell(String text) {
        var steps = (List<Map<String, Object>>) ((Map<String, Object>) Json.read(text)).get("steps");
        var earlier = new HashMap<String, Object>();
        for (var step : steps) {
            var found = perform((String) step.get("call"), (Map<String, Object>) step.get("with"), earlier);
            earlier.put((String) step.get("name"), found);
            var wrong = difference(found instanceof Leased leased ? shown(leased) : found, step.get("expect"), earlier, List.of());
            if (wrong != null) throw new AssertionError(step.get("name") + ": " + wrong);
        }
        return steps.size();
    }

    @SuppressWarnings("unchecked")
    private static Object perform(String call, Map<String, Object> with, Map<String, Object> earlier) {
        switch (call) {
            case "schedule":
                return outcome(CLIENT.scheduleAll(List.of(message(with))).get(0));
            case "scheduleMany":
                var messages = ((List<Map<String, Object>>) with.get("messages")).stream().map(Story::message).toList();
                return Map.of("results", CLIENT.scheduleAll(messages).stream().map(Story::outcome).toList());
            case "reschedule":
                try {
                    var due = Due.in(duration((String) with.get("delayTime")));
                    return outcome(new Scheduled.Outcome(CLIENT.reschedule((String) with.get("id"), due), null));
                } catch (DelayqException.Refused error) {
                    return outcome(new Scheduled.Outcome(null, error));
                }
            case "get":
                return CLIENT.get((String) with.get("id"))
                        .map(found -> Map.of("id", found.id(), "state", found.state(), "topic", found.message().get("topic")))
                        .orElse(null);
            case "find":
                return Map.of("count", CLIENT.search(Map.of("key", (String) with.get("key"))).count());
            case "cancel":
                var done = CLIENT.cancel((String) with.get("id"));
                return Map.of("id", done.id(), "result", done.result());
            case "cancelByKeys":
                var keys = CLIENT.cancelByKeys((List<String>) with.get("keys")).stream()
                        .map(key -> {
                            var results = new LinkedHashSet<>(key.messages().stream().map(Result::result).toList());
                            return Map.of("key", key.key(), "count", (long) key.messages().size(), "results", List.copyOf(results));
                        })
                        .toList();
                return Map.of("keys", keys);
            case "receive":
                for (;;) {
                    var received = CLIENT.receive((String) with.get("topic"), (String) with.get("group"), 1, Duration.ofSeconds(20), Duration.ofHours(1));
                    if (!received.isEmpty()) return received.get(0);
                }
            case "ack":
                var leased = List.of((Leased) earlier.get(with.get("received")));
                return Map.of("result", CLIENT.ack((String) with.get("topic"), (String) with.get("group"), leased).get(0).result());
            case "handBack":
                var held = List.of((Leased) earlier.get(with.get("received")));
                return Map.of("result", CLIENT.handBack((String) with.get("topic"), (String) with.get("group"), held, "").get(0).result());
            case "verifyWebhook":
                return verify(with);
            default:
                throw new AssertionError("no such call: " + call);
        }
    }

    private static Map<String, Object> shown(Leased one) {
        return Map.of("topic", one.topic(), "deliveries", (long) one.deliveries(), "handBacks", (long) one.handBacks());
    }

    @SuppressWarnings("unchecked")
    private static Object verify(Map<String, Object> with) {
        var now = Clock.fixed(Instant.ofEpochSecond((Long) with.get("now")), ZoneOffset.UTC);
        var webhook = new Webhook(List.of((String) with.get("secret")), Duration.ofMinutes(5), now);
        var headers = (Map<String, String>) with.get("headers");
        try {
            var got = webhook.verify(headers::get, ((String) with.get("body")).getBytes(java.nio.charset.StandardCharsets.UTF_8));
            var due = got.due().toEpochMilli();
            return Map.of(
                    "id", got.id(), "topic", got.topic(), "dueMs", due, "attempt", (long) got.attempt(), "keys", got.keys(),
                    "properties", got.properties(), "body", got.text());
        } catch (Webhook.WrongSignature error) {
            return Map.of("refused", true);
        }
    }

    @SuppressWarnings("unchecked")
    private static Message message(Map<String, Object> given) {
        var message = Message.to((String) given.get("topic"));
        if (given.get("id") != null) message = message.id((String) given.get("id"));
        if (given.get("body") instanceof Map<?, ?> map) message = message.json((Map<String, ?>) map);
        if (given.get("body") instanceof String text) message = message.text(text);
        if (given.get("keys") instanceof List<?> keys) message = message.keys(keys.toArray(String[]::new));
        if (given.get("expectDate") instanceof String date) return message.at(Instant.parse(date));
        return message.in(duration((String) given.get("delayTime")));
    }

    private static Duration duration(String text) {
        return text.endsWith("ms") ? Duration.ofMillis(Long.parseLong(text.replace("ms", ""))) : Duration.parse("PT" + text);
    }

    private static Object outcome(Scheduled.Outcome outcome) {
        var found = new LinkedHashMap<String, Object>();
        if (outcome.error() instanceof DelayqException.Refused refused) {
            var problem = refused.problem();
            var fields = new LinkedHashMap<String, Object>(Map.of("status", (long) problem.status(), "kind", problem.kind()));
            fields.put("field", problem.field());
            return Map.of("problem", fields);
        }
        var scheduled = outcome.get();
        found.put("id", scheduled.id());
        found.put("state", scheduled.state());
        found.put("dueMs", scheduled.due() == null ? null : scheduled.due().toEpochMilli());
        found.put("created", scheduled.created());
        return found;
    }

    /** Where {@code found} lacks what is expected; null if it lacks nothing. */
    private static String difference(Object found, Object expected, Map<String, Object> earlier, List<String> path) {
        if (expected instanceof Map<?, ?> wanted && wanted.get("same") instanceof String name) {
            var value = earlier.get(name);
            for (var part : path) value = ((Map<?, ?>) value).get(part);
            return difference(found, value, Map.of(), path);
        }
        if (expected instanceof Map<?, ?> wanted) {
            for (var entry : wanted.entrySet()) {
                var deeper = new ArrayList<>(path);
                deeper.add((String) entry.getKey());
                var given = found instanceof Map<?, ?> map ? map.get(entry.getKey()) : null;
                var wrong = difference(given, entry.getValue(), earlier, deeper);
                if (wrong != null) return wrong;
            }
            return null;
        }
        if (expected instanceof List<?> wanted) {
            if (!(found instanceof List<?> given) || given.size() != wanted.size()) return path + " is " + found;
            for (int at = 0; at < wanted.size(); at++) {
                var wrong = difference(given.get(at), wanted.get(at), earlier, path);
                if (wrong != null) return wrong;
            }
            return null;
        }
        return Objects.equals(found, expected) ? null : path + " is " + found + ", not " + expected;
    }
}
