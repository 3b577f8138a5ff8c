package io.delayq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.Test;

class ReceivedTest {
    private static final byte[] KEY = "0123456789abcdef0123456789abcdef".getBytes(StandardCharsets.UTF_8);
    private static final String SECRET = "whsec_" + Base64.getEncoder().encodeToString(KEY);
    private static final Instant NOW = Instant.ofEpochSecond(1_990_000_000);

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Map<String, String> signed(String body) throws Exception {
        var mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(KEY, "HmacSHA256"));
        var signature = mac.doFinal(bytes("shop~42." + NOW.getEpochSecond() + "." + body));
        var headers = new HashMap<String, String>();
        headers.put("ce-id", "other");
        headers.put("ce-type", "orders%20x");
        headers.put("ce-time", "2033-01-31T08:00:00.000Z");
        headers.put("ce-attempt", "2");
        headers.put("ce-keys", "a%20b+");
        headers.put("delayq-properties", "{\"color\":\"r\\u00f6t\"}");
        headers.put("webhook-id", "shop~42");
        headers.put("webhook-timestamp", String.valueOf(NOW.getEpochSecond()));
        headers.put("webhook-signature", "v1,AAAA v1," + Base64.getEncoder().encodeToString(signature));
        return headers;
    }

    private static Webhook at(Instant now) {
        return new Webhook(List.of("whsec_AAAA", SECRET), Duration.ofMinutes(5), Clock.fixed(now, ZoneOffset.UTC));
    }

    @Test
    void aSignedWebhookIsReadAndEverythingElseIsRefused() throws Exception {
        var headers = signed("{\"order\":42}");
        var message = at(NOW).verify(headers::get, bytes("{\"order\":42}"));
        assertEquals(List.of("shop.42", "orders x", 2, List.of("a", "b+")), List.of(message.id(), message.topic(), message.attempt(), message.keys()));
        assertEquals(Map.of("color", "röt"), message.properties());
        assertEquals(Instant.parse("2033-01-31T08:00:00Z"), message.due());
        assertEquals("{\"order\":42}", message.text());

        assertThrows(Webhook.WrongSignature.class, () -> at(NOW).verify(headers::get, bytes("{\"order\":43}")));
        assertThrows(Webhook.WrongSignature.class, () -> at(NOW.plusSeconds(301)).verify(headers::get, bytes("{\"order\":42}")));
        assertThrows(Webhook.WrongSignature.class, () -> at(NOW).verify(name -> null, bytes("")));
        headers.put("webhook-id", "shop~43");
        assertThrows(Webhook.WrongSignature.class, () -> at(NOW).verify(headers::get, bytes("{\"order\":42}")));
    }

    @Test
    void messagesOfEachBrokerAreReadAlike() {
        var due = "1990000000000";
        var body = bytes("hello");
        var webhook = Map.of(
                "ce-id", "a", "ce-type", "orders", "ce-time", NOW.toString(), "ce-tags", "new", "ce-keys", "k1%20k2", "ce-partitionkey", "o",
                "delayq-properties", "{\"p\":\"1\"}");
        var found = List.of(
                Received.fromKafka(
                        "orders",
                        Map.of("id", "a", "due", due, "attempt", "1", "tags", "new", "keys", "k1 k2", "ordering-key", "o", "p:p", "1"),
                        body),
                Received.fromRabbitMq(
                        "a",
                        "orders",
                        Map.of(
                                "delayq-due", 1_990_000_000_000L, "delayq-attempt", 1, "delayq-tags", "new", "delayq-keys", "k1 k2",
                                "delayq-ordering-key", "o", "p", "1"),
                        body),
                Received.fromRocketMq(
                        "orders", "new", "k1 k2", "o", Map.of("delayq_id", "a", "delayq_due", due, "delayq_attempt", "1", "p", "1"), body),
                Received.fromWebhook(webhook::get, body));
        for (var message : found) {
            var expected = new Received(
                    "a", "orders", NOW, 1, "new", List.of("k1", "k2"), "o", Map.of("p", "1"), message.body(), message.contentType());
            assertEquals(expected, message);
            assertEquals("hello", message.text());
        }
        var rocket = Map.of("delayq_id", "a", "delayq_due", due, "delayq_empty", "[\"e\"]");
        assertEquals(Map.of("e", ""), Received.fromRocketMq("t", null, null, null, rocket, body).properties());
        assertThrows(IllegalArgumentException.class, () -> Received.fromKafka("t", Map.of("due", due), body));
    }
}
