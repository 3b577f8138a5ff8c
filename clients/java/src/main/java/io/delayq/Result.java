package io.delayq;

import java.util.List;
import java.util.Map;

/**
 * What became of one message.
 *
 * @param result for example {@code cancelled}, {@code inFlight}, {@code notFound}, {@code delivered}; {@code failed} if {@code problem} says why
 */
public record Result(String id, String result, Problem problem) {
    static Result of(Map<String, Object> answer, String id) {
        var problem = answer.get("problem") == null ? null : Problem.of(answer.get("problem"), 0);
        return new Result((String) answer.getOrDefault("id", id), (String) answer.getOrDefault("result", "failed"), problem);
    }

    /** What became of the messages of one business key. */
    public record OfKey(String key, List<Result> messages, Problem problem) {
        @SuppressWarnings("unchecked")
        static OfKey of(Map<String, Object> answer, String key) {
            var messages = (List<Map<String, Object>>) answer.getOrDefault("messages", List.of());
            var problem = answer.get("problem") == null ? null : Problem.of(answer.get("problem"), 0);
            return new OfKey(key, messages.stream().map(one -> Result.of(one, "")).toList(), problem);
        }
    }
}
