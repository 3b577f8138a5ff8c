package io.delayq;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;

/** When a message is due. */
public record Due(String field, Object value) {
    /** So long from now, by the clock of the server. */
    public static Due in(Duration delay) {
        return new Due("delayTime", delay.toMillis() + "ms");
    }

    /** At this time, with ms. The past means now. */
    public static Due at(Instant time) {
        return new Due("expectDate", time.truncatedTo(ChronoUnit.MILLIS).toString());
    }

    /** After one of RocketMQ's delays: level 1 (1 s) to 18 (2 h). */
    public static Due level(int level) {
        return new Due("delayLevel", level);
    }

    Map<String, Object> fields() {
        return Map.of(field, value);
    }
}
