package io.delayq;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Clock;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.function.UnaryOperator;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Checks that a webhook request comes from your delayq. */
public final class Webhook {
    private final List<byte[]> keys;
    private final Duration tolerance;
    private final Clock clock;

    /** {@code secrets} are those of the route ({@code whsec_…}): give both while you change them. */
    public Webhook(String... secrets) {
        this(List.of(secrets), Duration.ofMinutes(5), Clock.systemUTC());
    }

    /** {@code tolerance} is how old a signature may be. */
    public Webhook(List<String> secrets, Duration tolerance, Clock clock) {
        this.keys = secrets.stream().map(one -> Base64.getDecoder().decode(one.replaceFirst("^whsec_", ""))).toList();
        this.tolerance = tolerance;
        this.clock = clock;
    }

    /** The request was not signed by this delayq, or it was signed too long ago. Answer it with 401. */
    public static final class WrongSignature extends Exception {
        private static final long serialVersionUID = 1L;

        WrongSignature(String reason) {
            super(reason);
        }
    }

    /** The message of a request. {@code header} gives a header by its name, or null; {@code body} is the body as it arrived. */
    public Received verify(UnaryOperator<String> header, byte[] body) throws WrongSignature {
        var id = header.apply("webhook-id");
        var timestamp = header.apply("webhook-timestamp");
        var signatures = header.apply("webhook-signature");
        if (id == null || timestamp == null || signatures == null || !timestamp.matches("\\d{1,12}")) {
            throw new WrongSignature("the request is not signed");
        }
        boolean signed = keys.stream().map(key -> sign(key, id, timestamp, body)).anyMatch(wanted -> {
            boolean found = false;
            for (var given : signatures.split(" ")) found |= MessageDigest.isEqual(wanted, given.getBytes(StandardCharsets.UTF_8));
            return found;
        });
        if (!signed) throw new WrongSignature("the signature is wrong");
        long age = Math.abs(clock.instant().getEpochSecond() - Long.parseLong(timestamp));
        if (age > tolerance.toSeconds()) throw new WrongSignature("it was signed too long ago: it may be a replay");
        // Only the id, the time and the body are signed: the id of the message is the signed one.
        return Received.fromWebhook(header, body).withId(id.replace('~', '.'));
    }

    private static byte[] sign(byte[] key, String id, String timestamp, byte[] body) {
        try {
            var mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
            return ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(StandardCharsets.UTF_8);
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error); // every Java has HmacSHA256
        }
    }
}
