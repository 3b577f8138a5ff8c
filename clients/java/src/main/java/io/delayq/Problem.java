package io.delayq;

import java.util.Map;

/** Why the API refused something (RFC 9457). {@code field} and {@code state} are null where there is none. */
public record Problem(int status, String kind, String detail, String field, String state) {
    private static final String PREFIX = "urn:delayq:problem:";

    /** Whether a value is a problem that delayq wrote. */
    static boolean isOne(Object value) {
        return value instanceof Map<?, ?> map && map.get("detail") instanceof String && String.valueOf(map.get("type")).startsWith(PREFIX);
    }

    /** The problem of a value that is one; {@code status} is that of its answer. */
    static Problem of(Object value, int status) {
        @SuppressWarnings("unchecked")
        var map = (Map<String, Object>) value;
        var kind = Answers.textOf(map, "type", "").substring(PREFIX.length());
        int own = (int) Answers.numberOf(map, "status", status);
        return new Problem(own, kind, (String) map.get("detail"), Answers.textOf(map, "field", null), Answers.textOf(map, "state", null));
    }

    /** Whether the API is away or busy, so that a later call may succeed. */
    boolean isPassing() {
        return status == 429 || status >= 500;
    }
}
