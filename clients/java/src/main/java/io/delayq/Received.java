package io.delayq;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.function.UnaryOperator;

/**
 * A message as a consumer received it, whatever broker brought it. It may arrive twice with the same id: remember the ids that you
 * have handled.
 *
 * @param due when it was to be delivered
 * @param attempt 1 for the first
 * @param contentType empty if the target does not carry it
 */
public record Received(
        String id,
        String topic,
        Instant due,
        int attempt,
        String tags,
        List<String> keys,
        String orderingKey,
        Map<String, String> properties,
        byte[] body,
        String contentType) {
    private static final Set<String> RABBITMQ =
            Set.of("delayq-due", "delayq-attempt", "delayq-tags", "delayq-keys", "delayq-ordering-key");

    /** Headers that RabbitMQ adds when it delivers a message again, or when a queue gave it up. */
    private static final List<String> BROKERS =
            List.of("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count", "x-opt-");

    public Received {
        if (id == null || id.isEmpty() || topic == null || topic.isEmpty()) {
            throw new IllegalArgumentException("delayq did not send this message: its id or its topic is missing.");
        }
        keys = List.copyOf(keys);
        properties = Map.copyOf(properties);
    }

    /** How often consumers handed it back. */
    public int handBacks() {
        var count = properties.getOrDefault("delayq-hand-backs", "");
        return count.matches("\\d{1,9}") ? Integer.parseInt(count) : 0;
    }

    /** The same message with the content type of its AMQP properties, so that a hand-back keeps it. */
    public Received withContentType(String type) {
        return new Received(id, topic, due, attempt, tags, keys, orderingKey, properties, body, type);
    }

    Map<String, Object> handBack(String reason, Duration delay) {
        var fields = new LinkedHashMap<String, Object>(Map.of(
                "id", id, "topic", topic, "tags", tags, "keys", keys, "orderingKey", orderingKey, "properties", properties,
                "handBacks", handBacks()));
        boolean isText = Arrays.equals(text().getBytes(StandardCharsets.UTF_8), body);
        // The next delivery has the same bytes and the same content type. A JSON string is sent as text with its content type, because
        // the API takes a string as text otherwise.
        var type = contentType.split(";", 2)[0].strip().toLowerCase(Locale.ROOT);
        if (type.equals("application/octet-stream") || !isText) {
            fields.put("bodyBase64", Base64.getEncoder().encodeToString(body));
        } else {
            var value = type.equals("application/json") ? jsonOrNothing() : Optional.empty();
            fields.put("body", value.isEmpty() || value.get() instanceof String ? text() : new Json.Raw(text()));
            if (value.isPresent() && value.get() instanceof String) fields.put("contentType", type);
        }
        if (reason != null) fields.put("reason", reason);
        if (delay != null) fields.put("delayTime", delay.toMillis() + "ms");
        return fields;
    }

    /** The value of the body if it is JSON; an object in place of null. */
    private Optional<Object> jsonOrNothing() {
        try {
            return Optional.of(Objects.requireNonNullElse(json(), Map.of()));
        } catch (IllegalArgumentException error) {
            return Optional.empty();
        }
    }

    /** The body as text (UTF-8). */
    public String text() {
        return new String(body, StandardCharsets.UTF_8);
    }

    /** The value of a body in JSON, as {@link Json#read} returns it. Throws IllegalArgumentException if the body is not JSON. */
    public Object json() {
        return Json.read(text());
    }

    /** A message that arrived as a webhook. {@code header} gives a header by its name, or null. Check its signature: {@link Webhook}. */
    public static Received fromWebhook(UnaryOperator<String> header, byte[] body) {
        UnaryOperator<String> unquoted = name -> {
            var value = header.apply(name);
            return value == null ? "" : URLDecoder.decode(value.replace("+", "%2B"), StandardCharsets.UTF_8);
        };
        var properties = new LinkedHashMap<String, String>();
        var given = header.apply("delayq-properties");
        if (given != null && Json.read(given) instanceof Map<?, ?> map) {
            map.forEach((name, value) -> properties.put((String) name, (String) value));
        }
        return new Received(
                header.apply("ce-id"),
                unquoted.apply("ce-type"),
                Instant.parse(need(header.apply("ce-time"), "ce-time")),
                attempt(header.apply("ce-attempt")),
                unquoted.apply("ce-tags"),
                words(unquoted.apply("ce-keys")),
                unquoted.apply("ce-partitionkey"),
                properties,
                body,
                textOf(header.apply("content-type")));
    }

    /** A message that a Kafka consumer received from {@code topic}. Give the headers as text. */
    public static Received fromKafka(String topic, Map<String, String> headers, byte[] value) {
        var properties = new LinkedHashMap<String, String>();
        headers.forEach((name, property) -> {
            if (name.startsWith("p:")) properties.put(name.substring(2), property);
            else if (name.equals("traceparent")) properties.put(name, property);
        });
        return new Received(
                headers.get("id"),
                headers.getOrDefault("topic", topic),
                due(headers.get("due")),
                attempt(headers.get("attempt")),
                headers.getOrDefault("tags", ""),
                words(headers.getOrDefault("keys", "")),
                headers.getOrDefault("ordering-key", ""),
                properties,
                value,
                headers.getOrDefault("content-type", ""));
    }

    /**
     * A message that a RabbitMQ consumer received: its message id, its type, its headers and its body. Give its content type, too:
     * without it, a body in JSON that is handed back is delivered as text next time.
     */
    public static Received fromRabbitMq(String messageId, String type, String contentType, Map<String, ?> headers, byte[] body) {
        return fromRabbitMq(messageId, type, headers, body).withContentType(textOf(contentType));
    }

    /** The same without a content type. */
    public static Received fromRabbitMq(String messageId, String type, Map<String, ?> headers, byte[] body) {
        var own = new LinkedHashMap<String, String>();
        var properties = new LinkedHashMap<String, String>();
        headers.forEach((name, value) -> {
            if (RABBITMQ.contains(name)) own.put(name, String.valueOf(value));
            else if (BROKERS.stream().noneMatch(name::startsWith)) properties.put(name, String.valueOf(value));
        });
        return new Received(
                messageId,
                type,
                due(own.get("delayq-due")),
                attempt(own.get("delayq-attempt")),
                own.getOrDefault("delayq-tags", ""),
                words(own.getOrDefault("delayq-keys", "")),
                own.getOrDefault("delayq-ordering-key", ""),
                properties,
                body,
                "");
    }

    /** A message that a RocketMQ consumer received: its topic, tag, keys (a space between two), message group, properties and body. */
    public static Received fromRocketMq(
            String topic, String tag, String keys, String messageGroup, Map<String, String> given, byte[] body) {
        var properties = new LinkedHashMap<>(given);
        properties.keySet().removeIf(name -> name.startsWith("delayq_"));
        var empty = given.get("delayq_empty");
        if (empty != null && Json.read(empty) instanceof List<?> list) {
            list.forEach(name -> properties.put((String) name, ""));
        }
        return new Received(
                given.get("delayq_id"),
                given.getOrDefault("delayq_topic", topic),
                due(given.get("delayq_due")),
                attempt(given.get("delayq_attempt")),
                textOf(tag),
                words(textOf(keys)),
                textOf(messageGroup),
                properties,
                body,
                "");
    }

    Received withId(String signed) {
        return new Received(signed, topic, due, attempt, tags, keys, orderingKey, properties, body, contentType);
    }

    private static String textOf(String value) {
        return value == null ? "" : value;
    }

    private static String need(String value, String name) {
        if (value == null) throw new IllegalArgumentException("delayq did not send this message: " + name + " is missing.");
        return value;
    }

    private static Instant due(String value) {
        return Instant.ofEpochMilli(Long.parseLong(need(value, "its due time")));
    }

    private static int attempt(String value) {
        return value == null ? 1 : Integer.parseInt(value);
    }

    private static List<String> words(String value) {
        return value.isEmpty() ? List.of() : List.of(value.split(" "));
    }
}
