package io.delayq;

import java.util.List;

/** A call that did not do what it was to do. */
public class DelayqException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final transient Problem problem;
    private final List<String> ids;

    DelayqException(String message, Problem problem, List<String> ids, Throwable cause) {
        super(message, cause);
        this.problem = problem;
        this.ids = List.copyOf(ids);
    }

    /** What the API answered last; null if it did not answer. */
    public Problem problem() {
        return problem;
    }

    /** The ids of the messages that the call was about. Repeat it with these ids. */
    public List<String> ids() {
        return ids;
    }

    /** The API refused the call. {@link #problem()} says why, and what to do. */
    public static class Refused extends DelayqException {
        private static final long serialVersionUID = 1L;

        Refused(Problem problem, List<String> ids) {
            super(problem.field() == null ? problem.detail() : problem.detail() + " (" + problem.field() + ")", problem, ids, null);
        }
    }

    /** The key is unknown (401) or does not allow the call (403). */
    public static final class NotAllowed extends Refused {
        private static final long serialVersionUID = 1L;

        NotAllowed(Problem problem, List<String> ids) {
            super(problem, ids);
        }
    }

    /** The API gave no final answer in time. The outcome of the last attempt may be unknown: repeat the call. */
    public static final class Unavailable extends DelayqException {
        private static final long serialVersionUID = 1L;

        Unavailable(String message, Problem problem, List<String> ids, Throwable cause) {
            super(message, problem, ids, cause);
        }
    }

    /** Whether the API is away or busy, so that a later call may succeed. */
    boolean isPassing() {
        return this instanceof Unavailable || problem.isPassing();
    }

    static DelayqException of(Problem problem, List<String> ids) {
        return switch (problem.status()) {
            case 401, 403 -> new NotAllowed(problem, ids);
            case 502, 503, 504 -> new Unavailable(problem.detail(), problem, ids, null);
            default -> new Refused(problem, ids);
        };
    }
}
