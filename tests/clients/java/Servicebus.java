import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/** Service Bus with azure-messaging-servicebus. */
final class Servicebus {
  static final ServiceBusClientBuilder BUILDER = builder();

  static ServiceBusClientBuilder builder() { // all clients of one share a connection
    return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICE_BUS_CONNECTION_STRING"))
        .retryOptions(new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(10)));
  }

  static void send(String queue, ServiceBusMessage... messages) {
    try (ServiceBusSenderClient sender = BUILDER.sender().queueName(queue).buildClient()) {
      sender.sendMessages(Arrays.asList(messages));
    }
  }

  static ServiceBusMessage message(String id) {
    return new ServiceBusMessage(BinaryData.fromString(id)).setMessageId(id);
  }

  static void plain(Consumer<ServiceBusReceiverClient> f) {
    try (ServiceBusReceiverClient r = BUILDER.receiver().queueName("plain").disableAutoComplete().buildClient()) {
      f.accept(r);
    }
  }

  static void session(String id, Consumer<ServiceBusReceiverClient> f) {
    session(BUILDER, id, f);
  }

  static void session(ServiceBusClientBuilder from, String id, Consumer<ServiceBusReceiverClient> f) {
    try (ServiceBusSessionReceiverClient sessions = from.sessionReceiver().queueName("sessions").disableAutoComplete().buildClient();
        ServiceBusReceiverClient r = id == null ? sessions.acceptNextSession() : sessions.acceptSession(id)) {
      f.accept(r);
    }
  }

  static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient r, int n) {
    List<ServiceBusReceivedMessage> all = new ArrayList<>();
    while (all.size() < n) {
      int before = all.size();
      r.receiveMessages(n - all.size(), Duration.ofSeconds(3)).forEach(all::add);
      if (all.size() == before) {
        break;
      }
    }
    Report.same(n, all.size(), "messages received");
    return all;
  }

  static List<String> ids(Iterable<ServiceBusReceivedMessage> messages) {
    List<String> all = new ArrayList<>();
    messages.forEach(m -> all.add(m.getMessageId()));
    return all;
  }

  public static void main(String[] args) {
    Report r = new Report("servicebus");
    r.add("send and receive", () -> {
      ServiceBusMessage sent = message("1").setSubject("s").setContentType("text/plain").setCorrelationId("c").setTo("t").setReplyTo("r").setTimeToLive(Duration.ofMinutes(5));
      sent.getApplicationProperties().put("number", 1L);
      send("plain", sent);
      plain(q -> {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        Report.same(List.of("1", "1", "s", "text/plain", "c", "t", "r"),
            List.of(m.getBody().toString(), m.getMessageId(), m.getSubject(), m.getContentType(), m.getCorrelationId(), m.getTo(), m.getReplyTo()), "properties");
        Report.same(1L, m.getApplicationProperties().get("number"), "application property");
        Report.same(0L, m.getDeliveryCount(), "delivery count");
        q.complete(m);
      });
    });
    r.add("send a batch", () -> {
      try (ServiceBusSenderClient sender = BUILDER.sender().queueName("plain").buildClient()) {
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (String id : List.of("1", "2", "3")) {
          Report.same(true, batch.tryAddMessage(message(id)), "added");
        }
        sender.sendMessages(batch);
      }
      plain(q -> {
        List<ServiceBusReceivedMessage> all = take(q, 3);
        Report.same(List.of("1", "2", "3"), ids(all), "order");
        all.forEach(q::complete);
      });
    });
    r.add("schedule and cancel", () -> {
      try (ServiceBusSenderClient sender = BUILDER.sender().queueName("plain").buildClient()) {
        long cancelled = sender.scheduleMessage(message("cancelled"), OffsetDateTime.now().plusMinutes(10));
        sender.scheduleMessage(message("kept"), OffsetDateTime.now().plusNanos(300_000_000));
        sender.cancelScheduledMessage(cancelled);
      }
      plain(q -> {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        Report.same("kept", m.getMessageId(), "message");
        q.complete(m);
      });
    });
    r.add("abandon counts", () -> {
      send("plain", message("1"));
      plain(q -> {
        q.abandon(take(q, 1).get(0));
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        Report.same(1L, m.getDeliveryCount(), "delivery count");
        q.complete(m);
      });
    });
    r.add("defer and receive deferred", () -> {
      send("plain", message("1"));
      plain(q -> {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        q.defer(m);
        ServiceBusReceivedMessage again = q.receiveDeferredMessage(m.getSequenceNumber());
        Report.same("1", again.getMessageId(), "message");
        q.complete(again);
        // The client takes "not found" for no messages, and then complains of that.
        Report.fails(ServiceBusException.class, () -> q.receiveDeferredMessage(m.getSequenceNumber()), "receive it again");
      });
    });
    r.add("dead-letter and read it", () -> {
      send("plain", message("1"));
      plain(q -> q.deadLetter(take(q, 1).get(0), new DeadLetterOptions().setDeadLetterReason("bad").setDeadLetterErrorDescription("very")));
      try (ServiceBusReceiverClient q = BUILDER.receiver().queueName("plain").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient()) {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        Report.same(List.of("1", "bad", "very"), List.of(m.getMessageId(), m.getDeadLetterReason(), m.getDeadLetterErrorDescription()), "dead letter");
        q.complete(m);
      }
    });
    r.add("renew a message's lock", () -> {
      send("plain", message("1"));
      plain(q -> {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        OffsetDateTime before = m.getLockedUntil();
        Report.same(false, q.renewMessageLock(m).isBefore(before), "locked for less");
        q.complete(m);
      });
    });
    r.add("receive and delete", () -> {
      send("plain", message("1"), message("2"));
      try (ServiceBusReceiverClient q = BUILDER.receiver().queueName("plain").receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
        Report.same(List.of("1", "2"), ids(take(q, 2)), "messages");
        Report.same(null, q.peekMessage(), "message left");
      }
    });
    r.add("peek takes nothing", () -> {
      send("plain", message("1"), message("2"));
      plain(q -> {
        Report.same(List.of("1", "2"), ids(q.peekMessages(5)), "peeked");
        List<ServiceBusReceivedMessage> all = take(q, 2);
        Report.same(List.of("2"), ids(q.peekMessages(5, all.get(1).getSequenceNumber())), "peeked from a number");
        all.forEach(q::complete);
      });
    });
    r.add("accept a named session", () -> {
      send("sessions", message("1").setSessionId("a"));
      send("sessions", message("2").setSessionId("b"));
      send("sessions", message("3").setSessionId("a"));
      session("a", q -> {
        List<ServiceBusReceivedMessage> all = take(q, 2);
        Report.same(List.of("1", "3"), ids(all), "messages");
        all.forEach(q::complete);
      });
      session("b", q -> q.complete(take(q, 1).get(0)));
    });
    r.add("accept the next session", () -> {
      send("sessions", message("1").setSessionId("next"));
      session(null, q -> {
        Report.same("next", q.getSessionId(), "session");
        q.complete(take(q, 1).get(0));
      });
    });
    r.add("a session has one holder", () -> session("held", q -> Report.same(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED,
        Report.fails(AmqpException.class, () -> session(builder(), "held", ServiceBusReceiverClient::getSessionState), "accept it twice").getErrorCondition(), "condition")));
    r.add("session state and lock", () -> session("state", q -> {
      Report.same(null, q.getSessionState(), "state at first");
      q.setSessionState("step 2".getBytes());
      Report.same("step 2", new String(q.getSessionState()), "state");
      Report.same(true, q.renewSessionLock().isAfter(OffsetDateTime.now()), "locked");
      q.setSessionState(null);
    }));
    r.add("deferred and peeked in a session", () -> {
      send("sessions", message("1").setSessionId("deferred"));
      session("deferred", q -> {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        q.defer(m);
        Report.same(List.of("1"), ids(q.peekMessages(5)), "peeked");
        q.complete(q.receiveDeferredMessage(m.getSequenceNumber()));
      });
    });
    r.add("duplicates are dropped", () -> {
      send("unique", message("1"));
      send("unique", message("1"), message("2"));
      try (ServiceBusReceiverClient q = BUILDER.receiver().queueName("unique").receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
        Report.same(List.of("1", "2"), ids(take(q, 2)), "messages");
        Report.same(null, q.peekMessage(), "message left");
      }
    });
    r.add("a topic and its subscription", () -> {
      try (ServiceBusSenderClient sender = BUILDER.sender().topicName("news").buildClient()) {
        sender.sendMessage(message("1"));
      }
      try (ServiceBusReceiverClient q = BUILDER.receiver().topicName("news").subscriptionName("all").disableAutoComplete().buildClient()) {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        Report.same("1", m.getMessageId(), "message");
        q.complete(m);
      }
    });
    r.add("a message too large", () -> {
      try (ServiceBusSenderClient sender = BUILDER.sender().queueName("plain").buildClient()) {
        Report.fails(Exception.class, () -> sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[300 << 10]))), "send 300 KiB");
      }
      send("plain", message("after"));
      plain(q -> {
        ServiceBusReceivedMessage m = take(q, 1).get(0);
        Report.same("after", m.getMessageId(), "message");
        q.complete(m);
      });
    });
    r.add("an entity that is not there", () -> Report.same(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
        Report.fails(ServiceBusException.class, () -> send("nowhere", message("1")), "send").getReason(), "reason"));
    r.run();
  }
}
