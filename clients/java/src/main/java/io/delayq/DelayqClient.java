package io.delayq;

import static io.delayq.Transport.quote;
import static io.delayq.Transport.withQuery;

import io.delayq.Transport.Call;
import java.net.URI;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;

/**
 * A client of delayq's HTTP API. It is safe for threads; one is enough for a process.
 *
 * <pre>{@code
 * var delayq = DelayqClient.of("http://127.0.0.1:8080");
 * var scheduled = delayq.schedule(Message.to("orders.unpaid").text("order 42").in(Duration.ofMinutes(30)));
 * delayq.cancel(scheduled.id());
 * }</pre>
 *
 * Every call is repeated after a lost answer, 429 and 503, until {@link Builder#giveUpAfter} is over. This is safe: a message has its
 * id before the first attempt, and all other calls may be repeated.
 */
public final class DelayqClient {
    private static final int BATCH_MESSAGES = 1_000;
    private static final int BATCH_BYTES = 4 * 1024 * 1024;
    private static final int MOST_IDS = 1_000;
    private static final int MOST_KEYS = 100;

    private final Transport transport;

    private DelayqClient(Transport transport) {
        this.transport = transport;
    }

    /** A client of the API at this URL, without a key. */
    public static DelayqClient of(String url) {
        return builder(url).build();
    }

    public static Builder builder(String url) {
        return new Builder(url);
    }

    /** Options of a client. */
    public static final class Builder {
        private final String url;
        private String apiKey;
        private HttpClient http;
        private Duration timeout = Duration.ofSeconds(10);
        private Duration giveUpAfter = Duration.ofSeconds(30);

        private Builder(String url) {
            var parsed = URI.create(url);
            if (parsed.getHost() == null || !List.of("http", "https").contains(parsed.getScheme())) {
                throw new IllegalArgumentException("The URL of the API begins with http:// or https://; " + url + " does not.");
            }
            if (parsed.getUserInfo() != null) {
                throw new IllegalArgumentException("Give the key by apiKey(), not in the URL.");
            }
            if (parsed.getRawQuery() != null || parsed.getRawFragment() != null) {
                throw new IllegalArgumentException("The URL of the API has no query and no fragment.");
            }
            this.url = url.replaceFirst("/+$", "");
        }

        /** The key of the caller; an API on loopback needs none. */
        public Builder apiKey(String apiKey) {
            if (apiKey != null && !apiKey.matches("[!-~]*")) {
                throw new IllegalArgumentException("The key of the API has characters that no key has.");
            }
            this.apiKey = apiKey == null || apiKey.isEmpty() ? null : apiKey;
            return this;
        }

        /** What sends the requests, for your own proxy, TLS or executor. It follows no redirects, which is the default. */
        public Builder http(HttpClient http) {
            if (http.followRedirects() != HttpClient.Redirect.NEVER) {
                throw new IllegalArgumentException("Give an HttpClient with Redirect.NEVER: a redirect would get the key, too.");
            }
            this.http = http;
            return this;
        }

        /** How long one attempt may take. Default: 10 s. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** How long all attempts of one call may take together. Default: 30 s. */
        public Builder giveUpAfter(Duration limit) {
            this.giveUpAfter = limit;
            return this;
        }

        public DelayqClient build() {
            var client = http != null ? http : HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(timeout).build();
            return new DelayqClient(new Transport(url, apiKey, client, timeout, giveUpAfter));
        }
    }

    /** Schedule one message. */
    public Scheduled schedule(Message message) {
        return scheduleAll(List.of(message)).get(0).get();
    }

    /** Schedule any number of messages; the client splits them. Outcomes have the order of the messages. One that fails stops no other. */
    public List<Scheduled.Outcome> scheduleAll(List<Message> messages) {
        var outcomes = new ArrayList<Scheduled.Outcome>(messages.size());
        for (var batch : split(messages)) outcomes.addAll(scheduleBatch(batch));
        return outcomes;
    }

    private List<Scheduled.Outcome> scheduleBatch(List<Message> batch) {
        var outcomes = new ArrayList<Scheduled.Outcome>(batch.size());
        try {
            var answers = transport.sendItems(batch, open -> {
                var fields = open.stream().map(Message::fields).toList();
                return new Call("POST", "/v1/messages:batch", Map.of("messages", fields), open.stream().map(Message::id).toList());
            });
            for (int at = 0; at < batch.size(); at++) outcomes.add(outcome(answers.get(at), batch.get(at).id()));
        } catch (DelayqException error) {
            if (error.problem() != null && error.problem().status() == 413 && batch.size() > 1) {
                int half = batch.size() / 2;
                outcomes.addAll(scheduleBatch(batch.subList(0, half)));
                outcomes.addAll(scheduleBatch(batch.subList(half, batch.size())));
            } else {
                for (int at = 0; at < batch.size(); at++) outcomes.add(new Scheduled.Outcome(null, error));
            }
        }
        return outcomes;
    }

    private static Scheduled.Outcome outcome(Map<String, Object> answer, String id) {
        if (answer.get("problem") == null) {
            return new Scheduled.Outcome(Scheduled.of(answer, Answers.numberOf(answer, "status", 200) == 201), null);
        }
        return new Scheduled.Outcome(null, DelayqException.of(Problem.of(answer.get("problem"), 0), List.of(id)));
    }

    /** How a message stands; empty if delayq does not know the id. */
    public Optional<Found> get(String id) {
        try {
            var call = new Call("GET", "/v1/messages/" + quote(id), null, List.of(id), Answers.messageOf(id));
            return Optional.of(Found.of(transport.send(call)));
        } catch (DelayqException.Refused error) {
            if (error.problem().kind().equals("not-found")) return Optional.empty();
            throw error;
        }
    }

    /** The messages that match, the earliest first. Filters: docs/http.md#search (topic, tags, state, dueFrom, dueTo, key, …). */
    public Stream<Found> search(Map<String, String> filter) {
        return pages("/v1/messages", filter, "messages", Answers.FOUND).map(Found::of);
    }

    /** Dead letters. Filters: docs/http.md#dead-letters (topic, reason, group, from, to, order). */
    public Stream<Map<String, Object>> deadLetters(Map<String, String> filter) {
        return pages("/v1/dead-letters", filter, "deadLetters");
    }

    /** Topics by name. Filters: match, paused. */
    public Stream<Map<String, Object>> topics(Map<String, String> filter) {
        return pages("/v1/topics", filter, "topics");
    }

    /** Consumer groups by topic and name: how many messages each has not acknowledged, and the oldest of them. Filter: match. */
    public Stream<Map<String, Object>> consumers(Map<String, String> filter) {
        return pages("/v1/consumers", filter, "groups");
    }

    /** Who changed what, the newest first. Filters: docs/http.md#audit. */
    public Stream<Map<String, Object>> audit(Map<String, String> filter) {
        return pages("/v1/audit", filter, "entries");
    }

    /**
     * Cancel one message. {@code cancelled}: it is never delivered. {@code inFlight}: it is removed, but it may be or have been
     * delivered. All other results say why there is nothing to cancel: {@code delivered}, {@code dead}, {@code discarded}, {@code notFound}.
     */
    public Result cancel(String id) {
        return cancelAll(List.of(id)).get(0);
    }

    /** Cancel messages by their ids. */
    public List<Result> cancelAll(List<String> ids) {
        return byIds("/v1/messages:cancel", ids);
    }

    /** Cancel all messages of business keys. */
    public List<Result.OfKey> cancelByKeys(List<String> keys) {
        return byKeys("/v1/messages:cancel", keys);
    }

    /** Give a message another due time. It is refused with status 409 if the message may be on its way or has ended. */
    public Scheduled reschedule(String id, Due due) {
        return reschedule(id, due, newCall());
    }

    /**
     * The same with a name of the call: 1 to 64 letters, digits, {@code _} and {@code -}. A repeated call with it gets the first
     * answer, also in another process.
     */
    public Scheduled reschedule(String id, Due due, String call) {
        var body = new LinkedHashMap<>(due.fields());
        body.put("call", call);
        return Scheduled.of(transport.send(new Call("PATCH", "/v1/messages/" + quote(id), body, List.of(id), Answers.MESSAGE)), false);
    }

    /** Deliver a message now. {@code force} also delivers a message that a pause or a limit holds. */
    public Scheduled deliverNow(String id, boolean force) {
        return deliverNow(id, force, newCall());
    }

    /** The same with a name of the call, as {@link #reschedule(String, Due, String)} has it. */
    public Scheduled deliverNow(String id, boolean force, String call) {
        var path = "/v1/messages/" + quote(id) + ":deliverNow";
        var body = Map.of("force", force, "call", call);
        return Scheduled.of(transport.send(new Call("POST", path, body, List.of(id), Answers.MESSAGE)), false);
    }

    /** Put dead letters back: they are due now. */
    public List<Result> redrive(List<String> ids) {
        return redrive(ids, newCall());
    }

    /** The same with a name of the call, as {@link #reschedule(String, Due, String)} has it. */
    public List<Result> redrive(List<String> ids, String call) {
        return change("ids", MOST_IDS, "/v1/dead-letters:redrive", ids, Map.of("call", call), Result::of);
    }

    /** Delete dead letters for good. */
    public List<Result> discard(List<String> ids) {
        return byIds("/v1/dead-letters:discard", ids);
    }

    /**
     * Receive messages of a topic as a consumer of a group. No other consumer of the group gets a message before its lease ends. The
     * list is empty if nothing arrived within {@code wait}. The route of the topic must be a stream of delayq's own Redis.
     */
    public List<Leased> receive(String topic, String group, int max, Duration wait, Duration lease) {
        return receive(topic, group, max, wait, lease, Map.of("call", newCall()));
    }

    List<Leased> receive(String topic, String group, int max, Duration wait, Duration lease, Map<String, Object> more) {
        return receive(topic, group, max, wait, lease, more, null);
    }

    /** {@code giveUpAfter} overrides that of the client, unless it is null. */
    List<Leased> receive(
            String topic, String group, int max, Duration wait, Duration lease, Map<String, Object> more, Duration giveUpAfter) {
        var body = new LinkedHashMap<String, Object>(more);
        body.putAll(Map.of("group", group, "max", max, "wait", wait.toMillis() + "ms", "lease", lease.toMillis() + "ms"));
        var call = new Call("POST", verb(topic, "receive"), body, List.of(), wait, Answers.LEASED);
        var answer = giveUpAfter == null ? transport.send(call) : transport.send(call, new Transport.Attempts(giveUpAfter));
        return Answers.listOf(answer, "messages").stream().map(Leased::of).toList();
    }

    /**
     * A consumer of a topic: {@code consumer(topic, group).run(message -> …)} handles messages until {@link DelayqConsumer#stop}, and
     * renews their leases meanwhile.
     */
    public DelayqConsumer consumer(String topic, String group) {
        return new DelayqConsumer(this, topic, group);
    }

    /** Acknowledge messages: the group does not receive them again. The result {@code lost}: another consumer may have the message. */
    public List<Result> ack(String topic, String group, List<Leased> messages) {
        return settle(verb(topic, "ack"), Map.of("group", group, "messages", leases(messages, Map.of())));
    }

    /** Let leases end later; a {@code lease} of zero releases the messages unhandled. */
    public List<Result> extend(String topic, String group, List<Leased> messages, Duration lease) {
        var body = Map.of("group", group, "messages", leases(messages, Map.of()), "lease", lease.toMillis() + "ms");
        return settle(verb(topic, "extend"), body);
    }

    /** Hand messages back: the group receives them again later, each time later than before. */
    public List<Result> handBack(String topic, String group, List<Leased> messages, String reason) {
        return settle(verb(topic, "handBack"), Map.of("group", group, "messages", leases(messages, Map.of("reason", reason))));
    }

    /**
     * Hand back messages that Kafka, RocketMQ, RabbitMQ or a webhook delivered, at most 1,000: each is delivered again, later each
     * time, or after {@code delay} if it is not null. Acknowledge them in their broker then. The state is {@code dead} after too many
     * hand-backs.
     */
    public List<Scheduled.Outcome> handBackDelivered(List<Received> messages, String reason, Duration delay) {
        var answers = transport.sendItems(messages, open -> {
            var fields = open.stream().map(one -> one.handBack(reason, delay)).toList();
            return new Call("POST", "/v1/messages:handBack", Map.of("messages", fields), List.of());
        });
        var outcomes = new ArrayList<Scheduled.Outcome>(messages.size());
        for (int at = 0; at < answers.size(); at++) outcomes.add(outcome(answers.get(at), messages.get(at).id()));
        return outcomes;
    }

    private static List<Map<String, Object>> leases(List<Leased> messages, Map<String, Object> more) {
        return messages.stream()
                .map(one -> {
                    var lease = new LinkedHashMap<String, Object>(more);
                    lease.put("id", one.id());
                    lease.put("lease", one.lease());
                    return (Map<String, Object>) lease;
                })
                .toList();
    }

    private List<Result> settle(String path, Map<String, Object> body) {
        var answers = transport.sendItems((List<?>) body.get("messages"), open -> {
            var part = new LinkedHashMap<>(body);
            part.put("messages", open);
            return new Call("POST", path, part, List.of());
        });
        return answers.stream().map(one -> Result.of(one, "")).toList();
    }

    /** The name of a call, made before its first attempt. */
    static String newCall() {
        return UUID.randomUUID().toString();
    }

    private static String verb(String topic, String name) {
        return "/v1/topics/" + quote(topic) + ":" + name;
    }

    /** Pause the topics that match. The answer's {@code state} is {@code pausing} until nothing of them can arrive any more. */
    public Map<String, Object> pauseTopics(String match, String reason, Duration wait) {
        var body = new LinkedHashMap<String, Object>(Map.of("match", match));
        if (reason != null) body.put("reason", reason);
        var path = withQuery("/v1/topics:pause", Map.of("wait", wait.toMillis() + "ms"));
        return transport.send(new Call("POST", path, body, List.of(), wait, Answers.CHANGED));
    }

    /** End the pause with this pattern. */
    public Map<String, Object> resumeTopics(String match) {
        return transport.send(new Call("POST", "/v1/topics:resume", Map.of("match", match), List.of(), Answers.CHANGED));
    }

    /** Create or replace a policy. Fields: docs/http.md#policies. */
    public Map<String, Object> putPolicy(String name, Map<String, ?> policy) {
        return transport.send(new Call("PUT", "/v1/policies/" + quote(name), policy, List.of(), Answers.CHANGED));
    }

    /** Remove a policy. */
    public Map<String, Object> deletePolicy(String name) {
        return transport.send(new Call("DELETE", "/v1/policies/" + quote(name), null, List.of(), Answers.CHANGED));
    }

    /** Read any other endpoint, such as {@code /v1/overview}. */
    public Map<String, Object> read(String path, Map<String, String> parameters) {
        return transport.send(new Call("GET", withQuery(path, parameters), null, List.of()));
    }

    private List<Result> byIds(String path, List<String> ids) {
        return change("ids", MOST_IDS, path, ids, Map.of(), Result::of);
    }

    private List<Result.OfKey> byKeys(String path, List<String> keys) {
        return change("keys", MOST_KEYS, path, keys, Map.of(), Result.OfKey::of);
    }

    private interface Reader<R> {
        R read(Map<String, Object> answer, String item);
    }

    private <R> List<R> change(
            String field, int most, String path, List<String> items, Map<String, Object> more, Reader<R> reader) {
        var results = new ArrayList<R>();
        for (int from = 0; from < items.size(); from += most) {
            var part = items.subList(from, Math.min(items.size(), from + most));
            var ids = field.equals("ids");
            Function<List<String>, Call> call = open -> {
                var body = new LinkedHashMap<>(more);
                body.put(field, open);
                return new Call("POST", path, body, ids ? open : List.of());
            };
            var answers = transport.sendItems(part, call);
            for (int at = 0; at < part.size(); at++) results.add(reader.read(answers.get(at), part.get(at)));
        }
        return results;
    }

    private Stream<Map<String, Object>> pages(String path, Map<String, String> filter, String field) {
        return pages(path, filter, field, Answers.list(field));
    }

    private Stream<Map<String, Object>> pages(
            String path, Map<String, String> filter, String field, Predicate<Map<String, Object>> check) {
        Function<String, Map<String, Object>> page = token -> {
            var parameters = new LinkedHashMap<>(filter);
            if (!token.isEmpty()) parameters.put("pageToken", token);
            return transport.send(new Call("GET", withQuery(path, parameters), null, List.of(), check));
        };
        return Stream.iterate(page.apply(""), found -> found != null, found -> {
                    var token = Answers.textOf(found, "nextPageToken", null);
                    return token == null ? null : page.apply(token);
                })
                .flatMap(found -> Answers.listOf(found, field).stream());
    }

    private static List<List<Message>> split(List<Message> messages) {
        var batches = new ArrayList<List<Message>>();
        int begin = 0;
        int bytes = 0;
        for (int at = 0; at < messages.size(); at++) {
            int size = Json.write(messages.get(at).fields()).getBytes(StandardCharsets.UTF_8).length + 1;
            if (at > begin && (at - begin == BATCH_MESSAGES || bytes + size > BATCH_BYTES)) {
                batches.add(messages.subList(begin, at));
                begin = at;
                bytes = 0;
            }
            bytes += size;
        }
        if (begin < messages.size()) batches.add(messages.subList(begin, messages.size()));
        return batches;
    }
}
