package io.delayq;

import java.time.Instant;
import java.util.Map;

/**
 * How a message stands.
 *
 * @param state {@code scheduled}, {@code due}, {@code inFlight}, {@code retrying}, {@code parked}, {@code held}, {@code dead}, or
 *     how it ended: {@code delivered}, {@code cancelled}, {@code removedInFlight}, {@code discarded}
 * @param due null once it has ended
 * @param reason why it is dead, or what it waits for; else null
 * @param message topic, body, keys and all else that was scheduled; null once it has ended
 */
public record Found(String id, int queue, String state, int attempts, Instant due, String reason, Map<String, Object> message) {
    @SuppressWarnings("unchecked")
    static Found of(Map<String, Object> answer) {
        var due = answer.get("dueMs") instanceof Number ms ? Instant.ofEpochMilli(ms.longValue()) : null;
        return new Found(
                Answers.textOf(answer, "id", null),
                (int) Answers.numberOf(answer, "queue", -1),
                Answers.textOf(answer, "state", "dead"),
                (int) Answers.numberOf(answer, "attempts", 0),
                due,
                Answers.textOf(answer, "reason", null),
                answer.get("message") instanceof Map<?, ?> message ? (Map<String, Object>) message : null);
    }
}
