import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.ArrayList;
import java.util.List;

/** Does with azure-messaging-servicebus what the services do themselves over AMQP; clients_test.go records it. */
final class Record {
  public static void main(String[] args) {
    String topic = System.getenv("SERVICE_BUS_TOPIC"), subscription = System.getenv("SERVICE_BUS_SUBSCRIPTION");
    ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICE_BUS_CONNECTION_STRING"));
    try (ServiceBusSenderClient sender = builder.sender().topicName(topic).buildClient()) {
      ServiceBusMessageBatch batch = sender.createMessageBatch();
      for (String n : List.of("1", "2", "3")) {
        ServiceBusMessage m = new ServiceBusMessage(BinaryData.fromString(n)).setMessageId(n).setSessionId("theirs").setPartitionKey("theirs")
            .setSubject(n).setContentType("application/json");
        m.getApplicationProperties().put("epoch", 1L);
        batch.tryAddMessage(m);
      }
      sender.sendMessages(batch);
    }
    try (ServiceBusSessionReceiverClient all = builder.sessionReceiver().topicName(topic).subscriptionName(subscription).buildClient();
        ServiceBusReceiverClient session = all.acceptNextSession()) {
      List<ServiceBusReceivedMessage> messages = new ArrayList<>();
      while (messages.size() < 3) {
        session.receiveMessages(3 - messages.size()).forEach(messages::add);
      }
      session.complete(messages.get(0));
      session.deadLetter(messages.get(1), new DeadLetterOptions().setDeadLetterReason("why").setDeadLetterErrorDescription("why"));
      session.complete(messages.get(2));
      session.renewSessionLock();
    }
    try (ServiceBusReceiverClient letters = builder.receiver().topicName(topic).subscriptionName(subscription)
        .subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
      letters.peekMessages(1).forEach(m -> {});
    }
    System.exit(0);
  }
}
