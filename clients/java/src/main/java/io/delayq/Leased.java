package io.delayq;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * A message that was received from delayq, with its lease.
 *
 * @param lease names this lease in {@link DelayqClient#ack}, {@link DelayqClient#extend} and {@link DelayqClient#handBack}
 * @param due when it was to be delivered
 * @param attempt the attempts to deliver it to the stream; 1 for the first
 * @param deliveries how often the group received it; 1 for the first
 * @param handBacks how often the group handed it back
 */
public record Leased(
        String id,
        String topic,
        String lease,
        Instant due,
        int attempt,
        int deliveries,
        int handBacks,
        String tags,
        List<String> keys,
        String orderingKey,
        Map<String, String> properties,
        byte[] body) {

    /** The body as text (UTF-8). */
    public String text() {
        return new String(body, StandardCharsets.UTF_8);
    }

    /** The value of a body in JSON, as {@link Json#read} returns it. Throws IllegalArgumentException if the body is not JSON. */
    public Object json() {
        return Json.read(text());
    }

    @SuppressWarnings("unchecked")
    static Leased of(Map<String, Object> answer) {
        var encoded = Answers.textOf(answer, "bodyBase64", null);
        var text = Answers.textOf(answer, "body", "");
        return new Leased(
                Answers.textOf(answer, "id", null),
                Answers.textOf(answer, "topic", null),
                Answers.textOf(answer, "lease", null),
                Instant.ofEpochMilli(Answers.numberOf(answer, "dueMs", 0)),
                (int) Answers.numberOf(answer, "attempt", 1),
                (int) Answers.numberOf(answer, "deliveries", 1),
                (int) Answers.numberOf(answer, "handBacks", 0),
                Answers.textOf(answer, "tags", ""),
                answer.get("keys") instanceof List<?> keys ? (List<String>) keys : List.of(),
                Answers.textOf(answer, "orderingKey", ""),
                answer.get("properties") instanceof Map<?, ?> map ? (Map<String, String>) map : Map.of(),
                encoded == null ? text.getBytes(StandardCharsets.UTF_8) : Base64.getDecoder().decode(encoded));
    }
}
