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
        return new Result(Answers.textOf(answer, "id", id), Answers.textOf(answer, "result", "failed"), problem);
    }

    /** What became of the messages of one business key. */
    public record OfKey(String key, List<Result> messages, Problem problem) {
        static OfKey of(Map<String, Object> answer, String key) {
            var messages = Answers.listOf(answer, "messages");
            var problem = answer.get("problem") == null ? null : Problem.of(answer.get("problem"), 0);
            return new OfKey(key, messages.stream().map(one -> Result.of(one, "")).toList(), problem);
        }
    }
}
