package io.delayq;

import java.net.http.HttpResponse;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Predicate;

/** Checks that what a server sent is an answer of delayq: a proxy, a login page or another service may stand at the URL. */
final class Answers {
    /** The most characters of a redirect's target that an error names. */
    private static final int MOST_LOCATION = 200;

    private Answers() {}

    /** Any answer with fields. */
    static final Predicate<Map<String, Object>> ANY = answer -> !answer.isEmpty();

    /** The answers about one message. */
    static final Predicate<Map<String, Object>> MESSAGE =
            answer -> answer.get("id") instanceof String && answer.get("state") instanceof String;

    /** The answers about the message of an id, to which an ordering key may have appended. */
    static Predicate<Map<String, Object>> messageOf(String id) {
        return MESSAGE.and(answer -> ((String) answer.get("id")).startsWith(id));
    }

    /** The answers to a change of pauses and policies. */
    static final Predicate<Map<String, Object>> CHANGED = answer -> answer.get("changed") instanceof Boolean;

    /** Answers with a list of objects. */
    static Predicate<Map<String, Object>> list(String name) {
        return answer -> answer.get(name) instanceof List<?> list && list.stream().allMatch(one -> one instanceof Map);
    }

    /** Answers with messages that have an id and a lease. */
    static final Predicate<Map<String, Object>> LEASED = list("messages")
            .and(answer -> listOf(answer, "messages").stream()
                    .allMatch(one -> one.get("id") instanceof String && one.get("lease") instanceof String));

    /** Answers with messages that have an id. */
    static final Predicate<Map<String, Object>> FOUND = list("messages")
            .and(answer -> listOf(answer, "messages").stream().allMatch(one -> one.get("id") instanceof String));

    /** Answers with a result for each of so many items: either a problem, or the id or key that it is about. */
    static Predicate<Map<String, Object>> results(int count) {
        return list("results").and(answer -> {
            var results = listOf(answer, "results");
            return results.size() == count && results.stream().allMatch(Answers::isResult);
        });
    }

    private static boolean isResult(Map<String, Object> result) {
        if (result.get("problem") != null) return Problem.isOne(result.get("problem"));
        return result.get("id") instanceof String || result.get("key") instanceof String;
    }

    /** The objects of a list in an answer; empty if there is no such list. */
    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> listOf(Map<String, Object> answer, String name) {
        return answer.get(name) instanceof List<?> list ? (List<Map<String, Object>>) list : List.of();
    }

    /** A text in an answer, or what is given if there is none. */
    static String textOf(Map<String, Object> answer, String name, String otherwise) {
        return answer.get(name) instanceof String text ? text : otherwise;
    }

    /** A number in an answer, or what is given if there is none. */
    static long numberOf(Map<String, Object> answer, String name, long otherwise) {
        return answer.get(name) instanceof Number number ? number.longValue() : otherwise;
    }

    /** What an answer says: either {@code value} or {@code problem} is null. */
    record Read(Map<String, Object> value, Problem problem) {}

    static Read read(HttpResponse<String> response, String url, Predicate<Map<String, Object>> check) {
        int status = response.statusCode();
        var value = parse(response);
        if (status >= 200 && status < 300) {
            if (value != null && check.test(value)) return new Read(value, null);
            return new Read(null, unknown(status, url + " answered " + status + " without an answer of delayq"));
        }
        return new Read(null, problem(response, url, value));
    }

    private static Problem problem(HttpResponse<String> response, String url, Map<String, Object> value) {
        int status = response.statusCode();
        if (Problem.isOne(value)) {
            var problem = Problem.of(value, status);
            var isOtherPath = status == 404 && problem.detail().startsWith("Unknown path");
            return isOtherPath ? unknown(status, url + " has no such path") : problem;
        }
        if (status >= 500 || status == 429) { // a proxy before the API
            return new Problem(status, "unavailable", url + " answered " + status, null, null);
        }
        var location = response.headers().firstValue("location").orElse("");
        if (status >= 300 && status < 400 && !location.isEmpty()) {
            // The key is for this address alone, and a redirect may turn POST into GET.
            var there = location.substring(0, Math.min(location.length(), MOST_LOCATION));
            return unknown(status, url + " answered " + status + ", a redirect to '" + there + "', which delayq does not follow");
        }
        return unknown(status, url + " answered " + status + " without a problem of delayq");
    }

    private static Problem unknown(int status, String what) {
        return new Problem(status, "unknown", what + ": is this the URL of its API?", null, null);
    }

    /** The object in an answer, or null. JSON may come without a type, or as plain text; a page of HTML is no answer. */
    @SuppressWarnings("unchecked")
    private static Map<String, Object> parse(HttpResponse<String> response) {
        var type = response.headers().firstValue("content-type").orElse("").toLowerCase(Locale.ROOT);
        if (!type.isEmpty() && !type.contains("json") && !type.startsWith("text/plain")) return null;
        try {
            return Json.read(response.body()) instanceof Map<?, ?> map ? (Map<String, Object>) map : null;
        } catch (IllegalArgumentException error) {
            return null;
        }
    }
}
