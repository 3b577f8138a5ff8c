package io.delayq;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
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

    /** A request. {@code ids} are those of the messages in it, {@code extra} is how long the server may wait before it answers. */
    record Call(String method, String path, Object body, List<String> ids, Duration extra) {
        Call(String method, String path, Object body, List<String> ids) {
            this(method, path, body, ids, Duration.ZERO);
        }
    }

    /** The answer to the last attempt of a call. */
    record Answer(int status, Map<String, Object> value) {}

    /** How long a call may still go on. */
    final class Attempts {
        private final long end = System.nanoTime() + giveUpAfter.toNanos();
        private long pauseMs = 100;

        /** Wait before the next attempt. False if the time is over before that. */
        boolean next(long retryAfterMs) {
            long pause = Math.max(retryAfterMs, pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs / 2));
            pauseMs = Math.min(2 * pauseMs, 5_000);
            if (System.nanoTime() + pause * 1_000_000 > end) return false;
            try {
                Thread.sleep(pause);
                return true;
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
    }

    Answer send(Call call) {
        return send(call, new Attempts());
    }

    Answer send(Call call, Attempts attempts) {
        while (true) {
            long retryAfterMs = 0;
            Problem problem = null;
            IOException lost = null;
            try {
                var response = http.send(request(call), BodyHandlers.ofString(StandardCharsets.UTF_8));
                var value = parse(response.body());
                if (response.statusCode() < 300) return new Answer(response.statusCode(), value);
                problem = Problem.of(value, response.statusCode());
                retryAfterMs = response.headers().firstValue("retry-after").map(Transport::secondsOf).orElse(0L) * 1_000;
            } catch (IOException error) {
                lost = error;
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new DelayqException.Unavailable(null, call.ids(), error);
            }
            if (problem != null && !problem.isRepeated()) throw DelayqException.of(problem, call.ids());
            if (attempts.next(retryAfterMs)) continue;
            if (problem == null) throw new DelayqException.Unavailable(null, call.ids(), lost);
            throw DelayqException.of(problem, call.ids());
        }
    }

    /** One answer for each item, in their order. Items that are answered with 429 or 503 are sent again while there is time. */
    @SuppressWarnings("unchecked")
    <T> List<Map<String, Object>> sendItems(List<T> items, Function<List<T>, Call> call) {
        var attempts = new Attempts();
        var answers = new ArrayList<Map<String, Object>>(Collections.nCopies(items.size(), null));
        List<Integer> places = new ArrayList<>();
        for (int place = 0; place < items.size(); place++) places.add(place);
        do {
            var open = new ArrayList<T>();
            for (int place : places) open.add(items.get(place));
            var results = (List<Map<String, Object>>) send(call.apply(open), attempts).value().get("results");
            var again = new ArrayList<Integer>();
            for (int at = 0; at < results.size(); at++) {
                answers.set(places.get(at), results.get(at));
                var problem = results.get(at).get("problem");
                if (problem != null && Problem.of(problem, 0).isRepeated()) again.add(places.get(at));
            }
            places = again;
        } while (!places.isEmpty() && attempts.next(0));
        return answers;
    }

    private HttpRequest request(Call call) {
        var body = call.body() == null ? BodyPublishers.noBody() : BodyPublishers.ofString(Json.write(call.body()));
        var request = HttpRequest.newBuilder(URI.create(base + call.path())).timeout(timeout.plus(call.extra())).method(call.method(), body);
        request.header("accept", "application/json");
        if (call.body() != null) request.header("content-type", "application/json");
        if (apiKey != null) request.header("authorization", "Bearer " + apiKey);
        return request.build();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> parse(String text) {
        try {
            return Json.read(text) instanceof Map<?, ?> map ? (Map<String, Object>) map : Map.of();
        } catch (IllegalArgumentException error) {
            return Map.of();
        }
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
