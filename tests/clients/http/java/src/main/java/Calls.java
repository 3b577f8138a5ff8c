import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;
import java.util.concurrent.Callable;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import org.apache.hc.client5.http.classic.methods.HttpPost;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.io.entity.StringEntity;
import org.springframework.http.client.HttpComponentsClientHttpRequestFactory;
import org.springframework.http.client.JdkClientHttpRequestFactory;
import org.springframework.http.client.SimpleClientHttpRequestFactory;
import org.springframework.web.client.RestClient;

/** Schedules a message by each client with its defaults, and prints "name status". */
public class Calls {
    static String url;

    static String message(String name) {
        return "{\"topic\": \"any\", \"id\": \"" + name + "\", \"body\": {\"by\": \"" + name + "\"}, \"delayTime\": \"1h\"}";
    }

    static int spring(RestClient client, String name) {
        var request = client.post().uri(url).contentType(org.springframework.http.MediaType.APPLICATION_JSON).body(message(name));
        return request.retrieve().toBodilessEntity().getStatusCode().value();
    }

    static int jdk(HttpClient client, String name) throws Exception {
        var body = HttpRequest.BodyPublishers.ofString(message(name));
        var request = HttpRequest.newBuilder(URI.create(url)).header("content-type", "application/json").POST(body).build();
        return client.send(request, BodyHandlers.ofString()).statusCode();
    }

    public static void main(String[] words) throws Exception {
        url = words[0] + "/v1/messages";
        Map<String, Callable<Integer>> calls = Map.of(
                "jdk", () -> jdk(HttpClient.newHttpClient(), "jdk"),
                "spring-jdk", () -> spring(RestClient.builder().requestFactory(new JdkClientHttpRequestFactory()).build(), "spring-jdk"),
                "spring-simple",
                        () -> spring(RestClient.builder().requestFactory(new SimpleClientHttpRequestFactory()).build(), "spring-simple"),
                "spring-apache",
                        () -> spring(RestClient.builder().requestFactory(new HttpComponentsClientHttpRequestFactory()).build(), "spring-apache"),
                "spring-default", () -> spring(RestClient.create(), "spring-default"),
                "okhttp", () -> {
                    var body = RequestBody.create(message("okhttp"), MediaType.get("application/json"));
                    try (var answer = new OkHttpClient().newCall(new Request.Builder().url(url).post(body).build()).execute()) {
                        return answer.code();
                    }
                },
                "apache", () -> {
                    var post = new HttpPost(url);
                    post.setEntity(new StringEntity(message("apache"), ContentType.APPLICATION_JSON));
                    try (var client = HttpClients.createDefault()) {
                        return client.execute(post, answer -> answer.getCode());
                    }
                });
        for (var call : calls.entrySet()) System.out.println(call.getKey() + " " + call.getValue().call());
        System.exit(0); // OkHttp keeps threads
    }
}
