package io.delayq;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * A consumer of one topic, as one of a group.
 *
 * <pre>{@code
 * var consumer = delayq.consumer("orders.paid", "mail").concurrency(8);
 * consumer.run(message -> send(message.text()));
 * }</pre>
 *
 * A message is acknowledged when its handler returns, and handed back if it throws. Its lease is renewed while the handler runs, up to
 * {@link #maxLease}. Messages of one ordering key are handled one after another. Warnings, such as of a lost acknowledgement, go to
 * the {@link System.Logger} {@code io.delayq}.
 */
public final class DelayqConsumer implements AutoCloseable {
    /** Handles a message. */
    @FunctionalInterface
    public interface Handler {
        void handle(Leased message) throws Exception;
    }

    private static final System.Logger LOG = System.getLogger("io.delayq");
    private static final int MOST_HANDLERS = 500;
    private static final Duration LONGEST_LEASE = Duration.ofHours(12);
    /** How long one call waits for messages. */
    private static final Duration WAIT = Duration.ofSeconds(20);
    /** Pauses while the API is away. */
    private static final long FIRST_PAUSE_MS = 500;
    private static final long LONGEST_PAUSE_MS = 5_000;
    /** How long the end of the loop looks for messages that an interrupted call leased. */
    private static final Duration LONGEST_LOOK = Duration.ofSeconds(5);
    private static final int MOST_REASON = 200;

    /** A message whose lease this consumer has. */
    private static final class Held {
        final Leased message;
        final long since = System.nanoTime();
        boolean isRunning;
        /** The lease is lost or too old, so that it is not renewed. */
        boolean isLost;
        /** It was handled, and is to be acknowledged. */
        boolean isDone;

        Held(Leased message) {
            this.message = message;
        }
    }

    private final DelayqClient client;
    private final String topic;
    private final String group;
    private int concurrency = 8;
    private Duration lease = Duration.ofSeconds(30);
    private Duration maxLease;
    private final Map<String, Object> more = new LinkedHashMap<>();

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    /** In the order of their arrival. */
    private final Set<Held> held = new LinkedHashSet<>();
    private final List<Held> done = new ArrayList<>();
    private int running;
    private boolean isAcknowledging;
    private boolean isStopped;
    private boolean isInRun;
    private boolean wasInterrupted;
    /** The thread whose call waits for messages, or null. */
    private Thread receiving;

    DelayqConsumer(DelayqClient client, String topic, String group) {
        this.client = client;
        this.topic = topic;
        this.group = group;
    }

    /** How many handlers run at the same time, at most 500. Default: 8. */
    public DelayqConsumer concurrency(int handlers) {
        if (handlers < 1 || handlers > MOST_HANDLERS) throw new IllegalArgumentException("concurrency is from 1 to " + MOST_HANDLERS + ".");
        this.concurrency = handlers;
        return this;
    }

    /** How long a lease lasts, from 1 s. While a handler runs, the lease is renewed after each third of it. Default: 30 s. */
    public DelayqConsumer lease(Duration lease) {
        this.lease = lease;
        return this;
    }

    /** How long the lease of one message is renewed, at most 12 h. Default: 1 h. */
    public DelayqConsumer maxLease(Duration maxLease) {
        this.maxLease = maxLease;
        return this;
    }

    /** Where a new group begins: {@code beginning}, {@code end} or a time. */
    public DelayqConsumer start(String start) {
        more.put("start", start);
        return this;
    }

    /** The filter of the group: only messages with one of these tags. */
    public DelayqConsumer tags(String... tags) {
        more.put("tags", List.of(tags));
        return this;
    }

    /** End the loop, from any thread. The handlers that run may finish. */
    public void stop() {
        locked(() -> {
            isStopped = true;
            if (receiving != null) receiving.interrupt();
            changed.signalAll();
            return null;
        });
    }

    /** Stop, and wait until {@link #run} has ended: for a shutdown hook. A handler calls {@link #stop} instead. */
    @Override
    public void close() {
        stop();
        locked(() -> {
            while (isInRun) changed.awaitUninterruptibly();
            return null;
        });
    }

    /**
     * Call the handler with each message, until {@link #stop}, or until this thread is interrupted. Then wait for the handlers that
     * run. While the API is away or busy, the loop tries again; it throws {@link DelayqException.Refused} if the API refuses to give
     * messages. A consumer runs once.
     */
    public void run(Handler handler) {
        var longest = maxLease != null ? maxLease : lease.compareTo(Duration.ofHours(1)) > 0 ? lease : Duration.ofHours(1);
        if (lease.toMillis() < 1 || longest.compareTo(lease) < 0 || longest.compareTo(LONGEST_LEASE) > 0) {
            throw new IllegalArgumentException("maxLease is at least the lease, and at most 12 h.");
        }
        var handlers = Executors.newFixedThreadPool(concurrency, threads("delayq-handler-"));
        var renewing = Executors.newSingleThreadScheduledExecutor(threads("delayq-renewal-"));
        locked(() -> isInRun = true);
        try {
            long third = Math.max(1, lease.toNanos() / 3);
            renewing.scheduleAtFixedRate(() -> renew(longest, handler, handlers), third, third, TimeUnit.NANOSECONDS);
            receiveAll(handler, handlers);
        } finally {
            end(handlers, renewing);
        }
    }

    private void end(ExecutorService handlers, ScheduledExecutorService renewing) {
        var left = locked(() -> {
            isStopped = true;
            var begun = held.stream().filter(one -> !one.isRunning).toList();
            begun.forEach(held::remove);
            return begun.stream().map(one -> one.message).toList();
        });
        if (!left.isEmpty()) settle(left, () -> client.extend(topic, group, left, Duration.ZERO));
        handlers.shutdown();
        await(handlers);
        renewing.shutdownNow();
        await(renewing);
        var unacknowledged = messagesOf(takeDone());
        if (!unacknowledged.isEmpty()) settle(unacknowledged, () -> client.ack(topic, group, unacknowledged));
        locked(() -> {
            isInRun = false;
            changed.signalAll();
            return null;
        });
        if (locked(() -> wasInterrupted)) Thread.currentThread().interrupt();
    }

    private void await(ExecutorService threads) {
        while (true) {
            try {
                if (threads.awaitTermination(1, TimeUnit.DAYS)) return;
            } catch (InterruptedException error) {
                locked(() -> wasInterrupted = true);
            }
        }
    }

    /** Receive messages until the loop is stopped, or the API refuses the call. */
    private void receiveAll(Handler handler, ExecutorService handlers) {
        long pauseMs = FIRST_PAUSE_MS;
        var call = DelayqClient.newCall();
        while (true) {
            int room = awaitRoom();
            if (room == 0) return;
            try {
                var messages = receive(room, call);
                add(messages);
                start(handler, handlers);
                pauseMs = FIRST_PAUSE_MS;
                call = DelayqClient.newCall();
            } catch (DelayqException error) {
                if (locked(() -> isStopped)) {
                    addInterrupted(room, call);
                    return;
                }
                if (!error.isPassing()) throw error;
                LOG.log(System.Logger.Level.WARNING, "Cannot receive messages of " + topic + ", trying again: " + error.getMessage());
                pause(pauseMs);
                pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
            }
        }
    }

    /** Wait until there is work for more messages, and return for how many; 0 if the loop is stopped. */
    private int awaitRoom() {
        return locked(() -> {
            while (!isStopped) {
                // Messages behind others of their ordering keys do not count as work.
                int room = Math.min(concurrency - running, 2 * concurrency - held.size());
                if (room > 0) return room;
                try {
                    changed.await();
                } catch (InterruptedException error) {
                    isStopped = wasInterrupted = true;
                }
            }
            return 0;
        });
    }

    private List<Leased> receive(int most, String call) {
        locked(() -> receiving = isStopped ? null : Thread.currentThread());
        try {
            return locked(() -> isStopped) ? List.of() : client.receive(topic, group, most, WAIT, lease, named(call));
        } finally {
            locked(() -> {
                receiving = null;
                if (Thread.interrupted() && !isStopped) isStopped = wasInterrupted = true;
                return null;
            });
        }
    }

    /** Add what the interrupted call leased, to give it back: a repeated call gets the same messages. */
    private void addInterrupted(int most, String call) {
        try {
            add(client.receive(topic, group, most, Duration.ZERO, lease, named(call), LONGEST_LOOK));
        } catch (DelayqException error) {
            // Their leases end, and the group receives them again.
        }
    }

    private Map<String, Object> named(String call) {
        var fields = new LinkedHashMap<>(more);
        fields.put("call", call);
        return fields;
    }

    private void pause(long ms) {
        locked(() -> {
            try {
                long left = TimeUnit.MILLISECONDS.toNanos(ms);
                while (!isStopped && left > 0) left = changed.awaitNanos(left);
            } catch (InterruptedException error) {
                isStopped = wasInterrupted = true;
            }
            return null;
        });
    }

    private void add(List<Leased> messages) {
        locked(() -> messages.stream().map(one -> held.add(new Held(one))).toList());
    }

    /** Start handlers: messages of one ordering key run one after another, in their order. */
    private void start(Handler handler, ExecutorService handlers) {
        locked(() -> {
            var keys = new HashSet<String>();
            for (var one : held) {
                if (one.isDone) continue;
                var key = one.message.orderingKey();
                boolean isBehind = !key.isEmpty() && !keys.add(key);
                if (one.isRunning || isBehind || isStopped || running == concurrency) continue;
                one.isRunning = true;
                running++;
                handlers.execute(() -> {
                    try {
                        handle(handler, one);
                    } finally {
                        locked(() -> --running);
                        start(handler, handlers);
                    }
                });
            }
            changed.signalAll(); // there may be room for more
            return null;
        });
    }

    private void handle(Handler handler, Held one) {
        Throwable failure = null;
        try {
            handler.handle(one.message);
        } catch (Throwable error) { // also an Error: the message is handed back, and the loop goes on
            failure = error;
            if (error instanceof Error) LOG.log(System.Logger.Level.ERROR, "The handler of message " + one.message.id() + " failed", error);
        }
        Thread.interrupted(); // whatever the handler left: the calls that follow are not interrupted
        var reason = failure == null ? null : reasonOf(failure);
        locked(() -> {
            one.isDone = true;
            return reason == null ? done.add(one) : held.remove(one);
        });
        if (reason == null) acknowledge();
        else settle(List.of(one.message), () -> client.handBack(topic, group, List.of(one.message), reason));
    }

    /** Acknowledge what is done. Handlers that end during the call leave their messages to the one that made it. */
    private void acknowledge() {
        if (locked(() -> isAcknowledging || !(isAcknowledging = true))) return;
        for (var taken = takeDone(); !taken.isEmpty(); taken = takeDone()) {
            var handled = taken;
            var messages = messagesOf(handled);
            try {
                var results = client.ack(topic, group, messages);
                settle(messages, () -> results.stream().filter(one -> !isFailed(one)).toList());
                var failed = new ArrayList<Held>();
                for (int at = 0; at < results.size(); at++) if (isFailed(results.get(at))) failed.add(handled.get(at));
                if (failed.isEmpty()) continue;
                keep(failed, results.stream().filter(DelayqConsumer::isFailed).findFirst().get().problem().detail());
                return;
            } catch (DelayqException error) {
                if (error.isPassing()) {
                    keep(handled, error.getMessage());
                    return;
                }
                settle(messages, () -> {
                    throw error;
                });
            }
        }
    }

    private static boolean isFailed(Result result) {
        return result.problem() != null && result.problem().isPassing();
    }

    /** Keep messages that could not be acknowledged: their leases are renewed until the API is back. */
    private void keep(List<Held> messages, String why) {
        LOG.log(System.Logger.Level.WARNING, "Cannot acknowledge messages of " + topic + ", trying again: " + why);
        locked(() -> held.addAll(messages) && done.addAll(0, messages) && (isAcknowledging = false));
    }

    private List<Held> takeDone() {
        return locked(() -> {
            var taken = List.copyOf(done);
            done.clear();
            taken.forEach(held::remove);
            isAcknowledging = !taken.isEmpty();
            return taken;
        });
    }

    private static List<Leased> messagesOf(List<Held> some) {
        return some.stream().map(one -> one.message).toList();
    }

    /** Whether the lease is lost, or its group was deleted. */
    private static boolean isLost(Result result) {
        return result.result().equals("lost") || result.result().equals("notFound");
    }

    /** Acknowledge or hand back messages. What is lost is logged; other messages are handled all the same. */
    private void settle(List<Leased> messages, Supplier<List<Result>> call) {
        try {
            for (var result : call.get()) {
                if (isLost(result)) {
                    warn(result.id(), "was not settled, because its lease was lost before; it may be received again");
                } else if (result.problem() != null) {
                    warn(result.id(), "could not be settled, and is received again: " + result.problem().detail());
                }
            }
        } catch (RuntimeException error) {
            var ids = messages.stream().map(Leased::id).collect(Collectors.joining(", "));
            warn(ids, "could not be settled, and is received again: " + error.getMessage());
        }
    }

    private static void warn(String id, String what) {
        LOG.log(System.Logger.Level.WARNING, "Message " + id + " " + what);
    }

    /** Renew the leases of all messages together. */
    private void renew(Duration longest, Handler handler, ExecutorService handlers) {
        try {
            var renewed = locked(() -> {
                long now = System.nanoTime();
                for (var one : List.copyOf(held)) {
                    if (now - one.since >= longest.toNanos()) {
                        lose(one, "is not renewed any more, because maxLease (" + longest + ") is over");
                    }
                }
                return held.stream().filter(one -> !one.isLost && now - one.since + lease.toNanos() <= longest.toNanos()).toList();
            });
            if (renewed.isEmpty()) return;
            var results = client.extend(topic, group, messagesOf(renewed), lease);
            locked(() -> {
                for (int at = 0; at < results.size(); at++) {
                    if (isLost(results.get(at))) lose(renewed.get(at), "was lost, and it may be received again");
                }
                return null;
            });
            if (Thread.currentThread().isInterrupted()) return;
            acknowledge(); // what could not be acknowledged while the API was away
            start(handler, handlers); // messages that are gone may have been in the way of others
        } catch (RuntimeException error) { // an exception would end the renewals
            if (Thread.currentThread().isInterrupted()) return; // the loop has ended
            LOG.log(System.Logger.Level.WARNING, "Cannot renew the leases of messages of " + topic + ": " + error.getMessage());
        }
    }

    /** Renew the lease of a message no more, unless the message was settled meanwhile. */
    private void lose(Held one, String why) {
        if (one.isLost || !held.contains(one)) return;
        one.isLost = true;
        LOG.log(System.Logger.Level.WARNING, "The lease of message " + one.message.id() + " " + why);
        if (!one.isRunning) held.remove(one);
    }

    private <T> T locked(Supplier<T> action) {
        lock.lock();
        try {
            return action.get();
        } finally {
            lock.unlock();
        }
    }

    private static ThreadFactory threads(String name) {
        var count = new AtomicInteger();
        return work -> {
            var thread = new Thread(work, name + count.incrementAndGet());
            thread.setDaemon(true); // run() waits for them
            return thread;
        };
    }

    /** The reason of a hand-back, as one line. */
    private static String reasonOf(Throwable failure) {
        String text;
        try {
            text = failure.toString();
        } catch (Throwable error) {
            text = failure.getClass().getName();
        }
        var line = String.join(" ", String.valueOf(text).strip().split("\\s+"));
        return line.codePoints()
                .limit(MOST_REASON)
                .map(one -> one >= Character.MIN_SURROGATE && one <= Character.MAX_SURROGATE ? 0xFFFD : one)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }
}
