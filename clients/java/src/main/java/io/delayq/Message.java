package io.delayq;

import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * A message to schedule. It is immutable: each method returns another message.
 *
 * <pre>{@code Message.to("orders.unpaid").text("order 42").keys("order-42").in(Duration.ofMinutes(30))}</pre>
 *
 * Fields are described in docs/http.md#schedule-a-message.
 */
public record Message(Map<String, Object> fields) {
    public Message {
        fields = Collections.unmodifiableMap(new LinkedHashMap<>(fields));
    }

    /** A message for a topic, with an id of its own: a UUID, unless you give another one. */
    public static Message to(String topic) {
        return new Message(Map.of("topic", topic)).id(UUID.randomUUID().toString());
    }

    /** Your own id. A call with the same id and content schedules one message, however often it is repeated. */
    public Message id(String id) {
        return with("id", id);
    }

    public String id() {
        return (String) fields.get("id");
    }

    /** Due so long from now. */
    public Message in(Duration delay) {
        return due(Due.in(delay));
    }

    /** Due at this time. */
    public Message at(Instant time) {
        return due(Due.at(time));
    }

    public Message due(Due due) {
        var changed = new LinkedHashMap<>(fields);
        changed.keySet().removeAll(List.of("delayTime", "expectDate", "delayLevel"));
        changed.putAll(due.fields());
        return new Message(changed);
    }

    /** The body as text. */
    public Message text(String text) {
        return with("body", text);
    }

    /** The body as bytes. */
    public Message bytes(byte[] bytes) {
        return with("bodyBase64", Base64.getEncoder().encodeToString(bytes));
    }

    /** The body as JSON text, as your JSON library writes it. */
    public Message json(String json) {
        return with("body", new Json.Raw(json));
    }

    /** The body as JSON: maps, lists, strings, numbers, booleans. */
    public Message json(Map<String, ?> value) {
        return with("body", value);
    }

    public Message tags(String tags) {
        return with("tags", tags);
    }

    /** Business keys, to find and cancel the message by. */
    public Message keys(String... keys) {
        return with("keys", List.of(keys));
    }

    public Message properties(Map<String, String> properties) {
        return with("properties", Map.copyOf(properties));
    }

    /** Messages of one topic and ordering key never overtake each other. */
    public Message orderingKey(String key) {
        return with("orderingKey", key);
    }

    public Message maxAttempts(int attempts) {
        return with("maxAttempts", attempts);
    }

    /** How long after its due time the message is still worth delivering. */
    public Message expireAfter(Duration duration) {
        return with("expireAfter", duration.toMillis() + "ms");
    }

    /** Spread the due time over so long, by the id. */
    public Message window(Duration duration) {
        return with("window", duration.toMillis() + "ms");
    }

    /** Schedule it even if a message with this id was cancelled before it could be delivered. */
    public Message again() {
        return with("again", true);
    }

    private Message with(String field, Object value) {
        var changed = new LinkedHashMap<>(fields);
        changed.put(field, value);
        return new Message(changed);
    }
}
