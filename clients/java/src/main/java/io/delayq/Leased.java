package io.delayq;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * A message that was received, with its lease.
 *
 * @param lease names this lease in {@link DelayqClient#ack}, {@link DelayqClient#extend} and {@link DelayqClient#handBack}
 * @param deliveries how often the group received it
 * @param handBacks how often the group handed it back
 */
public record Leased(
        String id,
        String topic,
        String lease,
        Instant due,
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

    @SuppressWarnings("unchecked")
    static Leased of(Map<String, Object> answer) {
        var encoded = (String) answer.get("bodyBase64");
        var text = (String) answer.getOrDefault("body", "");
        return new Leased(
                (String) answer.get("id"),
                (String) answer.get("topic"),
                (String) answer.get("lease"),
                Instant.ofEpochMilli(((Number) answer.get("dueMs")).longValue()),
                ((Number) answer.get("deliveries")).intValue(),
                ((Number) answer.get("handBacks")).intValue(),
                (String) answer.getOrDefault("tags", ""),
                (List<String>) answer.getOrDefault("keys", List.of()),
                (String) answer.getOrDefault("orderingKey", ""),
                (Map<String, String>) answer.getOrDefault("properties", Map.of()),
                encoded == null ? text.getBytes(StandardCharsets.UTF_8) : Base64.getDecoder().decode(encoded));
    }
}
