import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import org.bson.Document;

/**
 * What a team would write with the official session processor: each message is written to the read model and then completed. The
 * guard in the update's filter skips an event that has been applied before. With TUNED=yes a session without messages is released
 * after 50 ms instead of the try timeout of a minute, and messages are prefetched.
 */
public final class Consumer {
  private static final MongoCollection<Document> MODEL = MongoClients.create(System.getenv("MONGODB_URI"))
      .getDatabase(System.getenv("READ_MODEL_DATABASE")).getCollection("timeline");

  public static void main(String[] args) throws Exception {
    var builder = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICE_BUS_CONNECTION_STRING")).sessionProcessor()
        .topicName(System.getenv("SERVICE_BUS_TOPIC")).subscriptionName(System.getenv("SERVICE_BUS_SUBSCRIPTION"))
        .maxConcurrentSessions(64).disableAutoComplete()
        .processMessage(Consumer::process)
        .processError(e -> System.err.println(e.getException()));
    if ("yes".equals(System.getenv("TUNED"))) {
      builder = builder.sessionIdleTimeout(Duration.ofMillis(50)).prefetchCount(20);
    }
    ServiceBusProcessorClient processor = builder.buildProcessorClient();
    processor.start();
    new CountDownLatch(1).await();
  }

  private static void process(ServiceBusReceivedMessageContext context) {
    Document e = Document.parse(context.getMessage().getBody().toString()).get("fullDocument", Document.class);
    long version = ((Number) e.get("version")).longValue();
    try {
      MODEL.updateOne(Filters.and(Filters.eq("_id", e.getString("aggregateId")), Filters.lt("version", version)),
          Updates.combine(Updates.set("version", version), Updates.inc("events", 1),
              Updates.set("last", new Document("type", e.getString("type")).append("occurredAt", e.getString("occurredAt")))),
          new UpdateOptions().upsert(true));
    } catch (MongoWriteException w) {
      if (w.getCode() != 11000) {
        context.abandon();
        return;
      }
      // The document exists, so its version is not lower.
    }
    context.complete();
  }
}
