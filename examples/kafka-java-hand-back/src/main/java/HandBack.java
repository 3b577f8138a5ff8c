import io.delayq.DelayqClient;
import io.delayq.Received;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumes a Kafka topic. What it cannot handle now, it hands back to delayq, which delivers it to the topic again later. */
public class HandBack {
    public static void main(String[] args) {
        var delayq = DelayqClient.of(System.getenv("DELAYQ_API_URL"));
        var settings = Map.<String, Object>of(
                "bootstrap.servers", System.getenv("KAFKA_SERVERS"),
                "group.id", "mail",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false);
        try (var kafka = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            kafka.subscribe(List.of("orders.overdue"));
            while (true) {
                for (var record : kafka.poll(Duration.ofSeconds(1))) {
                    consume(delayq, record);
                    // Only now: after a failure before this line, Kafka delivers the record again.
                    var partition = new TopicPartition(record.topic(), record.partition());
                    kafka.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
                }
            }
        }
    }

    private static void consume(DelayqClient delayq, ConsumerRecord<byte[], byte[]> record) {
        var headers = new HashMap<String, String>();
        record.headers().forEach(one -> headers.put(one.key(), new String(one.value(), StandardCharsets.UTF_8)));
        var message = Received.fromKafka(record.topic(), headers, record.value());
        try {
            handle(message);
        } catch (IllegalStateException failure) {
            // An exception here ends the program, without a commit. Calling again is safe.
            var next = delayq.handBackDelivered(List.of(message), failure.getMessage(), null).get(0).get();
            System.out.println(message.id() + " handed back as " + next.id() + ": " + failure.getMessage());
            return;
        }
        System.out.println(message.id() + " handled");
    }

    /** Your work: here the mail server is busy when "order 43" arrives for the first time. */
    private static void handle(Received message) {
        if (message.text().equals("order 43") && message.handBacks() == 0) {
            throw new IllegalStateException("the mail server is busy");
        }
    }
}
