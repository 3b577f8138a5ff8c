package io.delayq;

import java.util.Map;

/** Why the API refused something (RFC 9457). {@code field} and {@code state} are null where there is none. */
public record Problem(int status, String kind, String detail, String field, String state) {
    static Problem of(Object answer, int status) {
        if (answer instanceof Map<?, ?> map && map.get("detail") instanceof String detail) {
            var kind = String.valueOf(map.get("type")).replaceFirst("^urn:delayq:problem:", "");
            int own = map.get("status") instanceof Number number ? number.intValue() : status;
            return new Problem(own, kind, detail, (String) map.get("field"), (String) map.get("state"));
        }
        var detail = "The server answered " + status + " without a problem of delayq; is this the URL of its API?";
        return new Problem(status, "unknown", detail, null, null);
    }

    boolean isRepeated() {
        return status == 429 || status == 503;
    }
}
