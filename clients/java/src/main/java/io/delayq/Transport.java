package io.delayq;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** Sends requests, and repeats those whose answer was lost, or was 429 or 503. */
final class Transport {
    private final String base;
    private final String apiKey;
    private final HttpClient http;
    private final Duration timeout;
    private final Duration giveUpAfter;

    Transport(String base, String apiKey, HttpClient http, Duration timeout, Duration giveUpAfter) {
        this.base = base;
        this.apiKey = apiKey;
        this.http = http;
        this.timeout = timeout;
        this.giveUpAfter = giveUpAfter;
    }

    /**
     * A request. {@code ids} are those of the messages in it, {@code extra} is how long the server may wait before it answers, and
     * {@code check} tells the answers of this call from those of another service.
     */
    record Call(String method, String path, Object body, List<String> ids, Duration extra, Predicate<Map<String, Object>> check) {
        Call(String method, String path, Object body, List<String> ids, Predicate<Map<String, Object>> check) {
            this(method, path, body, ids, Duration.ZERO, check);
        }

        Call(String method, String path, Object body, List<String> ids) {
            this(method, path, body, ids, Answers.ANY);
        }

        Call with(Predicate<Map<String, Object>> another) {
            return new Call(method, path, body, ids, extra, another);
        }
    }

    /** How long a call may still go on. */
    static final class Attempts {
        private final long end;
        private long pauseMs = 100;

        Attempts(Duration limit) {
            end = System.nanoTime() + limit.toNanos();
        }

        /** Wait before the next attempt. False if the time is over before that. */
        boolean next(long retryAfterMs) {
            long pause = Math.max(retryAfterMs, pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs / 2));
            pauseMs = Math.min(2 * pauseMs, 5_000);
            if (System.nanoTime() + pause * 1_000_000 - end > 0) return false;
            try {
                Thread.sleep(pause);
                return true;
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
    }

    Map<String, Object> send(Call call) {
        return send(call, new Attempts(giveUpAfter));
    }

    Map<String, Object> send(Call call, Attempts attempts) {
        while (true) {
            long retryAfterMs = 0;
            Problem problem = null;
            IOException lost = null;
            try {
                var response = exchange(call);
                var read = Answers.read(response, base, call.check());
                if (read.value() != null) return read.value();
                problem = read.problem();
                retryAfterMs = response.headers().firstValue("retry-after").map(Transport::secondsOf).orElse(0L) * 1_000;
                if (!isRepeated(response.statusCode())) throw DelayqException.of(problem, call.ids());
            } catch (IOException error) {
                lost = error;
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new DelayqException.Unavailable("The thread was interrupted before an answer arrived.", null, call.ids(), error);
            }
            if (attempts.next(retryAfterMs)) continue;
            if (problem == null) throw new DelayqException.Unavailable("No answer from " + base + ": " + lost, null, call.ids(), lost);
            throw DelayqException.of(problem, call.ids());
        }
    }

    private static boolean isRepeated(int status) {
        return status == 429 || status == 503;
    }

    /** One answer for each item, in their order. Items that are answered with 429 or 503 are sent again while there is time. */
    <T> List<Map<String, Object>> sendItems(List<T> items, Function<List<T>, Call> call) {
        var attempts = new Attempts(giveUpAfter);
        var answers = new ArrayList<Map<String, Object>>(Collections.nCopies(items.size(), null));
        List<Integer> places = new ArrayList<>();
        for (int place = 0; place < items.size(); place++) places.add(place);
        do {
            var open = new ArrayList<T>();
            for (int place : places) open.add(items.get(place));
            var results = Answers.listOf(send(call.apply(open).with(Answers.results(open.size())), attempts), "results");
            var again = new ArrayList<Integer>();
            for (int at = 0; at < results.size(); at++) {
                answers.set(places.get(at), results.get(at));
                var problem = results.get(at).get("problem");
                if (problem != null && isRepeated(Problem.of(problem, 0).status())) again.add(places.get(at));
            }
            places = again;
        } while (!places.isEmpty() && attempts.next(0));
        return answers;
    }

    /** One attempt, with a limit for all of it: the limit of a HttpRequest ends where the body of the answer begins. */
    private HttpResponse<String> exchange(Call call) throws IOException, InterruptedException {
        var limit = timeout.plus(call.extra());
        var answer = http.sendAsync(request(call), BodyHandlers.ofString(StandardCharsets.UTF_8));
        try {
            return answer.get(limit.toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            throw new HttpTimeoutException("it took longer than " + limit.toMillis() + " ms");
        } catch (ExecutionException error) {
            throw error.getCause() instanceof IOException lost ? lost : new IOException(error.getCause());
        } finally {
            answer.cancel(true); // a call that has ended leaves no request behind
        }
    }

    private HttpRequest request(Call call) {
        var body = call.body() == null ? BodyPublishers.noBody() : BodyPublishers.ofString(Json.write(call.body()));
        var request = HttpRequest.newBuilder(URI.create(base + call.path())).method(call.method(), body);
        request.header("accept", "application/json");
        if (call.body() != null) request.header("content-type", "application/json");
        if (apiKey != null) request.header("authorization", "Bearer " + apiKey);
        return request.build();
    }

    private static Long secondsOf(String header) {
        return header.matches("\\d{1,6}") ? Long.valueOf(header) : 0L;
    }

    /** A part of a path or of a query. */
    static String quote(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** A path with its parameters; those that are null are left out. */
    static String withQuery(String path, Map<String, ?> parameters) {
        var given = new LinkedHashMap<String, Object>(parameters);
        given.values().removeIf(value -> value == null);
        if (given.isEmpty()) return path;
        return given.entrySet().stream()
                .map(one -> quote(one.getKey()) + "=" + quote(String.valueOf(one.getValue())))
                .collect(Collectors.joining("&", path + "?", ""));
    }
}
