import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

final class ServicebusSend {
  /** Sends a message and gives it back as it was received. */
  static ServiceBusReceivedMessage carried(Bus b, ServiceBusMessage m) throws Exception {
    b.send("plain", m);
    List<ServiceBusReceivedMessage> got = new ArrayList<>();
    b.delete("plain", r -> got.addAll(Bus.take(r, 1)));
    return got.get(0);
  }

  /** What a connection with these settings may not do. */
  static void refused(Bus of, String text, boolean receives) throws Exception {
    Bus b = new Bus(of::name, text);
    Bus.fails(ServiceBusFailureReason.UNAUTHORIZED, () -> b.send("plain", Bus.message("1")), "send");
    if (!receives) {
      Bus.fails(ServiceBusFailureReason.UNAUTHORIZED, () -> b.receive("plain", r -> r.peekMessage()), "peek");
    }
  }

  static void add(Report r) {
    r.add("send and receive", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"));
      b.receive("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", 0L, 1L), List.of(m.getBody().toString(), m.getDeliveryCount(), m.getSequenceNumber()), "body, delivery count and sequence number");
        OffsetDateTime now = OffsetDateTime.now();
        Report.same(true, Duration.between(m.getEnqueuedTime(), now).abs().getSeconds() < 5 && m.getLockedUntil().isAfter(now), "times");
        q.complete(m);
        Report.same(null, q.peekMessage(), "message left");
      });
    });
    r.add("every property of a message", own -> {
      ServiceBusReceivedMessage m = carried(new Bus(own), Bus.message("1").setSubject("s").setContentType("text/plain").setCorrelationId("c").setTo("t").setReplyTo("r")
          .setReplyToSessionId("rs").setSessionId("one").setPartitionKey("one").setTimeToLive(Duration.ofMinutes(5)));
      Report.same(List.of("1", "s", "text/plain", "c", "t", "r", "rs", "one", "one", Duration.ofMinutes(5)),
          List.of(m.getMessageId(), m.getSubject(), m.getContentType(), m.getCorrelationId(), m.getTo(), m.getReplyTo(), m.getReplyToSessionId(), m.getSessionId(), m.getPartitionKey(), m.getTimeToLive()), "properties");
      Report.same(Duration.ofMinutes(5), Duration.between(m.getEnqueuedTime(), m.getExpiresAt()), "time to live");
      Report.same(ServiceBusMessageState.ACTIVE, m.getState(), "state");
    });
    r.add("every type of application property", own -> {
      Map<String, Object> sent = new HashMap<>(Map.of("text", "ä€𝄞", "empty", "", "yes", true, "byte", (byte) -1, "short", (short) -300, "int", Integer.MIN_VALUE, "long", Long.MAX_VALUE,
          "double", 0.1, "float", 0.5f, "char", 'ß'));
      sent.put("id", UUID.fromString("00000000-0000-0000-0000-000000000007"));
      sent.put("at", new Date(1700000000123L));
      ServiceBusMessage m = Bus.message("1");
      m.getApplicationProperties().putAll(sent);
      Report.same(sent, carried(new Bus(own), m).getApplicationProperties(), "application properties");
    });
    r.add("bodies of data, value and sequence", own -> {
      Bus b = new Bus(own);
      AmqpMessageBody data = carried(b, new ServiceBusMessage(BinaryData.fromBytes(new byte[] {1, 2}))).getRawAmqpMessage().getBody();
      Report.same(AmqpMessageBodyType.DATA, data.getBodyType(), "type");
      Report.same(true, Arrays.equals(new byte[] {1, 2}, data.getFirstData()), "data");
      for (Object value : List.of("text", 7, Map.of("a", List.of(1, true)))) {
        AmqpMessageBody body = carried(b, new ServiceBusMessage(AmqpMessageBody.fromValue(value))).getRawAmqpMessage().getBody();
        Report.same(List.of(AmqpMessageBodyType.VALUE, value), List.of(body.getBodyType(), body.getValue()), "value");
      }
      AmqpMessageBody sequence = carried(b, new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1, "b", true)))).getRawAmqpMessage().getBody();
      Report.same(List.of(AmqpMessageBodyType.SEQUENCE, List.of(1, "b", true)), List.of(sequence.getBodyType(), sequence.getSequence()), "sequence");
    });
    r.add("annotations of a sender", own -> {
      // This client sends no annotations of its own, and cannot read a footer that it has sent.
      ServiceBusMessage sent = Bus.message("1");
      sent.getRawAmqpMessage().getHeader().setPriority((short) 7).setDurable(true);
      Report.same((short) 7, carried(new Bus(own), sent).getRawAmqpMessage().getHeader().getPriority(), "priority");
    });
    r.add("a message without an id", own -> Report.same(true, carried(new Bus(own), new ServiceBusMessage("x")).getMessageId().length() > 0, "the service made one up"));
    r.add("send a batch", own -> {
      Bus b = new Bus(own);
      try (ServiceBusSenderClient sender = b.sender("plain")) {
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (String id : List.of("1", "2", "3")) {
          Report.same(true, batch.tryAddMessage(Bus.message(id)), "added");
        }
        sender.sendMessages(batch);
      }
      b.receive("plain", q -> {
        List<ServiceBusReceivedMessage> all = Bus.take(q, 3);
        Report.same(List.of("1", "2", "3"), Bus.ids(all), "order");
        all.forEach(q::complete);
      });
    });
    r.add("a batch takes messages until it is full", own -> {
      Bus b = new Bus(own);
      BinaryData body = BinaryData.fromBytes(new byte[60 << 10]);
      try (ServiceBusSenderClient sender = b.sender("plain")) {
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        int n = 0;
        while (batch.tryAddMessage(new ServiceBusMessage(body).setMessageId("" + n))) {
          n++;
        }
        Report.same(4, n, "messages of 60 KiB in 256 KiB");
        sender.sendMessages(batch);
        ServiceBusMessageBatch small = sender.createMessageBatch(new CreateMessageBatchOptions().setMaximumSizeInBytes(1000));
        Report.fails(Exception.class, () -> Report.same(true, small.tryAddMessage(new ServiceBusMessage(body)), "added"), "add to a batch of 1,000 bytes");
        Report.fails(Exception.class, () -> sender.createMessageBatch(new CreateMessageBatchOptions().setMaximumSizeInBytes(1 << 20)), "make a batch of 1 MiB");
      }
      b.left("plain", "0", "1", "2", "3");
    });
    r.add("a batch of several sessions", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"), Bus.of("b", "2"));
      for (String[] x : new String[][] {{"a", "1"}, {"b", "2"}}) {
        b.session("sessions", x[0], q -> Report.same(x[1], Bus.take(q).getMessageId(), "message"));
      }
    });
    r.add("a message too large", own -> {
      Bus b = new Bus(own);
      Report.fails(Exception.class, () -> b.send("plain", new ServiceBusMessage(BinaryData.fromBytes(new byte[300 << 10]))), "send 300 KiB");
      b.send("plain", Bus.message("after"));
      b.left("plain", "after");
    });
    r.add("schedule and cancel", own -> {
      Bus b = new Bus(own);
      OffsetDateTime soon = OffsetDateTime.now().plusNanos(300_000_000);
      try (ServiceBusSenderClient sender = b.sender("plain")) {
        sender.scheduleMessage(Bus.message("kept"), soon);
        List<Long> cancelled = new ArrayList<>();
        sender.scheduleMessages(List.of(Bus.message("cancelled"), Bus.message("too")), OffsetDateTime.now().plusMinutes(10)).forEach(cancelled::add);
        Report.same(2, cancelled.size(), "numbers");
        sender.cancelScheduledMessages(cancelled);
        sender.cancelScheduledMessages(cancelled); // the client takes "not found" for success
      }
      b.receive("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same("kept", m.getMessageId(), "message");
        Report.same(false, m.getEnqueuedTime().isBefore(soon.minusNanos(5_000_000)), "enqueued before it was scheduled for");
        q.complete(m);
        Report.same(null, q.peekMessage(), "message left");
      });
    });
    r.add("a scheduled message is peeked as one", own -> {
      Bus b = new Bus(own);
      try (ServiceBusSenderClient sender = b.sender("plain")) {
        long number = sender.scheduleMessage(Bus.message("1"), OffsetDateTime.now().plusMinutes(10));
        b.receive("plain", q -> {
          ServiceBusReceivedMessage m = q.peekMessage();
          Report.same(List.of("1", ServiceBusMessageState.SCHEDULED, number), List.of(m.getMessageId(), m.getState(), m.getSequenceNumber()), "scheduled");
          Bus.none(q);
        });
      }
    });
    r.add("a message sent with a time to appear at", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("later").setScheduledEnqueueTime(OffsetDateTime.now().plusSeconds(2)), Bus.message("now"));
      b.delete("plain", q -> Report.same(List.of("now", "later"), Bus.ids(Bus.take(q, 2)), "order"));
    });
    r.add("duplicates are dropped", own -> {
      Bus b = new Bus(own);
      b.send("unique", Bus.message("1"));
      b.send("unique", Bus.message("1"), Bus.message("2"));
      b.delete("unique", q -> Report.same(List.of("1", "2"), Bus.ids(Bus.take(q, 2)), "messages"));
      b.send("unique", Bus.message("1"));
      b.left("unique");
    });
    r.add("many senders at once", own -> {
      Bus b = new Bus(own);
      List<Thread> threads = List.of("a", "b", "c").stream().map(name -> new Thread(() -> {
        try (ServiceBusSenderClient sender = b.sender("plain")) {
          for (int i = 0; i < 20; i++) {
            sender.sendMessage(Bus.message(name + i));
          }
        }
      })).collect(Collectors.toList());
      threads.forEach(Thread::start);
      for (Thread t : threads) {
        t.join();
      }
      b.delete("plain", q -> {
        List<String> got = Bus.ids(Bus.take(q, 60));
        for (String name : List.of("a", "b", "c")) {
          Report.same(IntStream.range(0, 20).mapToObj(i -> name + i).collect(Collectors.toList()), got.stream().filter(x -> x.startsWith(name)).collect(Collectors.toList()), "order of " + name);
        }
      });
    });
    r.add("a message without a session for a queue of sessions", own -> {
      Bus b = new Bus(own);
      Report.fails(ServiceBusException.class, () -> b.send("sessions", Bus.message("1")), "send");
    });
    r.add("an id that is too long", own -> {
      Bus b = new Bus(own);
      Report.fails(Exception.class, () -> b.send("plain", Bus.message("x".repeat(129))), "send");
      b.left("plain");
    });
    r.add("an entity that is not there", own -> {
      Bus b = new Bus(kind -> "nowhere");
      Bus.fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> b.send("", Bus.message("1")), "send");
      Bus.fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> b.receive("", q -> q.peekMessage()), "peek");
    });
    r.add("a queue that takes nothing", own -> {
      Bus b = new Bus(kind -> kind);
      Bus.fails(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> b.send("closed", Bus.message("1")), "send");
      Report.fails(Exception.class, () -> b.receive("shut", q -> q.receiveMessages(1, Bus.WAIT).forEach(m -> {})), "receive"); // the client does not say why
    });
    r.add("a wrong key", own -> {
      Bus b = new Bus(own);
      refused(b, Bus.TEXT.replaceAll("SharedAccessKey=[^;]*", "SharedAccessKey=wrong"), false);
      b.left("plain");
    });
    r.add("a key that may only listen", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"));
      String text = Bus.TEXT.replaceAll("SharedAccessKeyName=[^;]*", "SharedAccessKeyName=listen");
      new Bus(own, text).receive("plain", q -> Report.same("1", Bus.take(q).getMessageId(), "message"));
      refused(b, text, true);
    });
    r.add("a token that is over", own -> refused(new Bus(own), Bus.signed(-5), false));
    r.add("a token that runs out", own -> {
      Bus b = new Bus(own, Bus.signed(6));
      try (ServiceBusSenderClient sender = b.sender("plain")) {
        sender.sendMessage(Bus.message("1"));
        Thread.sleep(7000);
        Report.fails(Exception.class, () -> sender.sendMessage(Bus.message("2")), "send");
      }
      new Bus(own).left("plain", "1");
    });
    r.add("transactions", own -> {
      Bus b = new Bus(own);
      try (ServiceBusSenderClient sender = b.sender("plain")) {
        ServiceBusTransactionContext t = sender.createTransaction();
        sender.sendMessage(Bus.message("1"), t);
        sender.rollbackTransaction(t);
      }
      b.left("plain");
    });
  }
}
