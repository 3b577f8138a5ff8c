package io.delayq;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;

/** Gives its answers in turn, the last one for ever, and records the requests. */
final class TestServer implements AutoCloseable {
    /** A request as it arrived. */
    record Request(String method, String path, String authorization, String text, Map<String, Object> body) {
        @SuppressWarnings("unchecked")
        List<Map<String, Object>> messages() {
            return (List<Map<String, Object>>) body.get("messages");
        }
    }

    /** An answer; {@code status} 0 closes the connection without one. */
    record Answer(int status, String text, Map<String, String> headers) {
        Answer(int status, String text) {
            this(status, text, Map.of());
        }
    }

    static final Function<Request, Answer> DROPS = request -> new Answer(0, "");
    static final Function<Request, Answer> SCHEDULES = request -> new Answer(200, results(request));

    final List<Request> requests = new CopyOnWriteArrayList<>();
    final String url;
    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    @SafeVarargs
    TestServer(Function<Request, Answer>... answers) throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            var text = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            @SuppressWarnings("unchecked")
            var body = text.isEmpty() ? Map.<String, Object>of() : (Map<String, Object>) Json.read(text);
            var path = exchange.getRequestURI().toString();
            var request = new Request(exchange.getRequestMethod(), path, exchange.getRequestHeaders().getFirst("authorization"), text, body);
            int count;
            synchronized (requests) {
                requests.add(request);
                count = requests.size();
            }
            var answer = answers[Math.min(count, answers.length) - 1].apply(request);
            if (answer.status() != 0) {
                var bytes = answer.text().getBytes(StandardCharsets.UTF_8);
                answer.headers().forEach(exchange.getResponseHeaders()::set);
                exchange.sendResponseHeaders(answer.status(), bytes.length == 0 ? -1 : bytes.length);
                if (bytes.length > 0) exchange.getResponseBody().write(bytes);
            }
            exchange.close();
        });
        server.setExecutor(threads);
        server.start();
        url = "http://127.0.0.1:" + server.getAddress().getPort();
    }

    static String problem(int status, String kind) {
        return "{\"type\":\"urn:delayq:problem:" + kind + "\",\"title\":\"x\",\"status\":" + status + ",\"detail\":\"No.\"}";
    }

    private static String results(Request request) {
        var results = request.messages().stream()
                .map(one -> Map.of("status", 201, "id", one.get("id"), "queue", 0, "state", "scheduled", "dueMs", 1_988_150_400_000L))
                .toList();
        return Json.write(Map.of("results", results));
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
