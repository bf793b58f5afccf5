import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.format.Json;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * What a team would write around Debezium's engine: its change events go to Service Bus with the official client, in batches of any
 * sessions, and each is marked as processed when its batch has been acknowledged. With TUNED=yes the engine asks more often, and
 * saves its offsets every second instead of every minute.
 */
public final class Producer {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final ServiceBusSenderClient SENDER = new ServiceBusClientBuilder()
      .connectionString(System.getenv("SERVICE_BUS_CONNECTION_STRING")).sender().topicName(System.getenv("SERVICE_BUS_TOPIC")).buildClient();

  public static void main(String[] args) throws Exception {
    String database = System.getenv("MONGODB_DATABASE");
    Properties p = new Properties();
    p.setProperty("name", "peer");
    p.setProperty("connector.class", "io.debezium.connector.mongodb.MongoDbConnector");
    p.setProperty("mongodb.connection.string", System.getenv("MONGODB_URI"));
    p.setProperty("topic.prefix", "peer");
    p.setProperty("database.include.list", database);
    p.setProperty("collection.include.list", database + "." + System.getenv("MONGODB_COLLECTION"));
    p.setProperty("snapshot.mode", "no_data");
    p.setProperty("skipped.operations", "u,d,t");
    p.setProperty("tombstones.on.delete", "false");
    p.setProperty("key.converter.schemas.enable", "false");
    p.setProperty("value.converter.schemas.enable", "false");
    p.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
    p.setProperty("offset.storage.file.filename", System.getenv("TOKEN_FILE"));
    if ("yes".equals(System.getenv("TUNED"))) {
      p.setProperty("poll.interval.ms", "10");
      p.setProperty("max.batch.size", "4096");
      p.setProperty("max.queue.size", "16384");
      p.setProperty("offset.flush.interval.ms", "1000");
      p.setProperty("capture.scope", "collection");
      p.setProperty("capture.target", database + "." + System.getenv("MONGODB_COLLECTION"));
    }
    DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(p).notifying(Producer::send)
        .using((success, message, error) -> {
          if (!success) {
            System.err.println(message + ": " + error);
            Runtime.getRuntime().halt(1);
          }
        }).build();
    ExecutorService running = Executors.newSingleThreadExecutor();
    running.execute(engine);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      try {
        engine.close(); // saves the offsets
        running.shutdown();
        running.awaitTermination(20, TimeUnit.SECONDS);
      } catch (Exception e) {
        System.err.println(e);
      }
    }));
  }

  private static void send(List<ChangeEvent<String, String>> events, RecordCommitter<ChangeEvent<String, String>> committer)
      throws InterruptedException {
    try {
      ServiceBusMessageBatch batch = SENDER.createMessageBatch();
      int first = 0;
      for (int n = 0; n < events.size(); n++) {
        ServiceBusMessage m = message(events.get(n));
        if (m == null || batch.tryAddMessage(m)) {
          continue;
        }
        SENDER.sendMessages(batch);
        for (; first < n; first++) {
          committer.markProcessed(events.get(first));
        }
        batch = SENDER.createMessageBatch();
        if (!batch.tryAddMessage(m)) {
          throw new IllegalStateException("event " + m.getMessageId() + " is too large");
        }
      }
      if (batch.getCount() > 0) {
        SENDER.sendMessages(batch);
      }
      for (; first < events.size(); first++) {
        committer.markProcessed(events.get(first));
      }
      committer.markBatchFinished();
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The message of an event; null if the event has no document, as heartbeats do. */
  private static ServiceBusMessage message(ChangeEvent<String, String> event) throws java.io.IOException {
    if (event.value() == null) {
      return null;
    }
    String after = JSON.readTree(event.value()).path("after").asText(null);
    if (after == null) {
      return null;
    }
    JsonNode document = JSON.readTree(after);
    JsonNode version = document.path("version"); // a long, in Extended JSON
    ServiceBusMessage m = new ServiceBusMessage(after).setContentType("application/json")
        .setMessageId(document.path("_id").path("$oid").asText()).setSessionId(document.path("aggregateId").asText());
    m.getApplicationProperties().put("version", version.has("$numberLong") ? version.path("$numberLong").asLong() : version.asLong());
    return m;
  }
}
