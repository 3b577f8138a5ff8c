package io.delayq;

import java.time.Instant;
import java.util.Map;

/**
 * A message that delayq has accepted. Use its id from now on: an ordering key adds five characters to yours.
 *
 * @param state {@code scheduled}; {@code delivered} or {@code dead} if the message of this id is so already
 * @param due null if the message has been delivered
 * @param created false if an earlier attempt or call had scheduled it
 */
public record Scheduled(String id, int queue, String state, Instant due, boolean created) {
    static Scheduled of(Map<String, Object> answer, boolean created) {
        var due = answer.get("dueMs") instanceof Number ms ? Instant.ofEpochMilli(ms.longValue()) : null;
        int queue = answer.get("queue") instanceof Number number ? number.intValue() : -1;
        return new Scheduled(Answers.textOf(answer, "id", null), queue, Answers.textOf(answer, "state", null), due, created);
    }

    /** What became of one message of a batch: either {@code scheduled} or {@code error} is null. */
    public record Outcome(Scheduled scheduled, DelayqException error) {
        /** The message; throws the error, if there is one. */
        public Scheduled get() {
            if (error != null) throw error;
            return scheduled;
        }
    }
}
