import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import java.util.*;
import java.util.concurrent.*;

/**
 * HOST:PORT TOPIC PARTITIONS ROUNDS: creates a topic, at once writes to each partition without retries and asks for their ends, deletes
 * it, and sees it gone; again and again. Prints the number of rounds.
 */
public class Window {
  public static void main(String[] a) throws Exception {
    int partitions = Integer.parseInt(a[2]), rounds = Integer.parseInt(a[3]);
    Map<String, Object> p = new HashMap<>(Map.of("bootstrap.servers", a[0], "retries", 0, "enable.idempotence", false, "request.timeout.ms", 20000,
        "delivery.timeout.ms", 30000, "max.block.ms", 20000, "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer", "org.apache.kafka.common.serialization.StringSerializer"));
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", a[0], "retries", 0, "default.api.timeout.ms", 20000, "request.timeout.ms", 20000))) {
      for (int round = 0; round < rounds; round++) {
        admin.createTopics(List.of(new NewTopic(a[1], partitions, (short) 1))).all().get();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        // A new one each time: what an old one knows of the name is its own affair.
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
          for (int i = 0; i < partitions; i++) sent.add(producer.send(new ProducerRecord<>(a[1], i, "k", "v" + round)));
          for (Future<RecordMetadata> one : sent) if (one.get().offset() != 0) throw new Exception("round " + round + ": offset " + one.get().offset());
        }
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (int i = 0; i < partitions; i++) ends.put(new TopicPartition(a[1], i), OffsetSpec.latest());
        for (var end : admin.listOffsets(ends).all().get().entrySet()) if (end.getValue().offset() != 1) throw new Exception("round " + round + ": end " + end);
        admin.deleteTopics(List.of(a[1])).all().get();
        if (admin.listTopics().names().get().contains(a[1])) throw new Exception("round " + round + ": still listed");
        try {
          admin.describeTopics(List.of(a[1])).allTopicNames().get();
          throw new Exception("round " + round + ": still described");
        } catch (ExecutionException e) {
          if (!(e.getCause() instanceof UnknownTopicOrPartitionException)) throw e;
        }
      }
    }
    System.out.println(rounds);
  }
}
