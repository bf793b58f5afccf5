import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;

final class ServicebusSessions {
  static void add(Report r) {
    r.add("accept a named session", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"), Bus.of("b", "2"), Bus.of("a", "3"));
      for (String name : List.of("a", "b")) {
        List<String> want = name.equals("a") ? List.of("1", "3") : List.of("2");
        b.session("sessions", name, q -> {
          Report.same(name, q.getSessionId(), "session");
          List<ServiceBusReceivedMessage> all = Bus.take(q, want.size());
          Report.same(want, Bus.ids(all), "messages");
          Report.same(Set.of(name), all.stream().map(ServiceBusReceivedMessage::getSessionId).collect(Collectors.toSet()), "their session");
          all.forEach(q::complete);
        });
      }
    });
    r.add("accept the next session", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("next", "1"));
      b.session("sessions", null, q -> {
        Report.same("next", q.getSessionId(), "session");
        q.complete(Bus.take(q));
      });
    });
    r.add("no session to accept", own -> {
      try (ServiceBusSessionReceiverClient all = Bus.builder(Bus.TEXT, Duration.ofSeconds(2)).sessionReceiver().queueName(own.apply("sessions")).buildClient()) {
        long start = System.nanoTime();
        Report.fails(Exception.class, all::acceptNextSession, "accept");
        Report.same(true, System.nanoTime() - start < 15_000_000_000L, "it came back in time");
      }
    });
    r.add("two receivers accept different sessions", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"), Bus.of("b", "2"));
      b.session("sessions", null, first -> b.session("sessions", null, second -> {
        Report.same(Set.of("a", "b"), Set.of(first.getSessionId(), second.getSessionId()), "sessions");
        for (ServiceBusReceiverClient q : List.of(first, second)) {
          Report.same(q.getSessionId(), Bus.take(q).getSessionId(), "message");
        }
      }));
    });
    r.add("a session without messages", own -> {
      Bus b = new Bus(own);
      b.session("sessions", "empty", q -> {
        Bus.none(q);
        b.send("sessions", Bus.of("empty", "1"));
        Report.same("1", Bus.take(q).getMessageId(), "what came later");
      });
    });
    r.add("a session has one holder", own -> {
      Bus b = new Bus(own);
      b.session("sessions", "held", q -> Report.same(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED,
          Report.fails(AmqpException.class, () -> new Bus(own).session("sessions", "held", ServiceBusReceiverClient::getSessionState), "accept it twice").getErrorCondition(), "condition"));
      b.session("sessions", "held", q -> {}); // free again
    });
    r.add("session state and lock", own -> {
      Bus b = new Bus(own);
      b.session("sessions", "state", q -> {
        Report.same(null, q.getSessionState(), "state at first");
        q.setSessionState("step 2".getBytes());
        Report.same("step 2", new String(q.getSessionState()), "state");
        Report.same(true, q.renewSessionLock().isAfter(OffsetDateTime.now()), "locked");
      });
      b.session("sessions", "other", q -> Report.same(null, q.getSessionState(), "state of another session"));
      b.session("sessions", "state", q -> {
        Report.same("step 2", new String(q.getSessionState()), "state outlives its holder");
        q.setSessionState(null);
        Report.same(null, q.getSessionState(), "state in the end");
      });
    });
    r.add("a session's state is too large", own -> {
      Bus b = new Bus(own);
      b.session("sessions", "large", q -> {
        Report.fails(Exception.class, () -> q.setSessionState(new byte[300 << 10]), "set 300 KiB");
        Report.same(null, q.getSessionState(), "state");
      });
    });
    r.add("deferred and peeked in a session", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("deferred", "1"), Bus.of("another", "2"));
      b.session("sessions", "deferred", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        q.defer(m);
        Report.same(List.of("1"), Bus.ids(q.peekMessages(5)), "peeked");
        q.complete(q.receiveDeferredMessage(m.getSequenceNumber()));
        Report.same(List.of(), Bus.ids(q.peekMessages(5, 1)), "left");
      });
    });
    r.add("a deferred message of another session", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"), Bus.of("b", "2"));
      List<Long> numbers = new ArrayList<>();
      b.session("sessions", "a", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        q.defer(m);
        numbers.add(m.getSequenceNumber());
      });
      b.session("sessions", "b", q -> Report.fails(Exception.class, () -> q.receiveDeferredMessage(numbers.get(0)), "receive it"));
    });
    r.add("an abandoned message keeps its place", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"), Bus.of("a", "2"), Bus.of("a", "3"));
      b.session("sessions", "a", q -> {
        q.abandon(Bus.take(q));
        List<ServiceBusReceivedMessage> all = Bus.take(q, 3);
        Report.same(List.of("1", "2", "3"), Bus.ids(all), "order");
        Report.same(List.of(1L, 0L, 0L), all.stream().map(ServiceBusReceivedMessage::getDeliveryCount).collect(Collectors.toList()), "counts");
        all.forEach(q::complete);
      });
    });
    r.add("a dead letter of a session", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"));
      b.session("sessions", "a", q -> q.deadLetter(Bus.take(q)));
      b.dead("sessions", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", "a"), List.of(m.getMessageId(), m.getSessionId()), "dead letter");
        q.complete(m);
      });
    });
    r.add("a handler of a session", own -> {
      Bus b = new Bus(own);
      b.send("sessions", Bus.of("a", "1"), Bus.of("a", "2"), Bus.of("a", "3"));
      List<String> seen = Collections.synchronizedList(new ArrayList<>());
      CountDownLatch done = new CountDownLatch(3);
      try (ServiceBusProcessorClient p = b.builder().sessionProcessor().queueName(b.name("sessions")).maxConcurrentSessions(1).processMessage(c -> {
        seen.add(c.getMessage().getMessageId());
        done.countDown();
      }).processError(e -> {}).buildProcessorClient()) {
        p.start();
        ServicebusReceive.await(done);
        Thread.sleep(500);
      }
      Report.same(List.of("1", "2", "3"), seen, "messages");
    });
    r.add("a queue without sessions cannot be accepted", own -> {
      Bus b = new Bus(own);
      Report.fails(Exception.class, () -> b.session("plain", "x", q -> {}), "accept");
    });
    r.add("a queue of sessions cannot be received from without", own -> {
      Bus b = new Bus(own);
      Report.fails(Exception.class, () -> b.receive("sessions", q -> q.receiveMessages(1, Duration.ofSeconds(2)).forEach(m -> {})), "receive");
    });
  }
}
