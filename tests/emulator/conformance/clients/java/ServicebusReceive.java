import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

final class ServicebusReceive {
  static ServiceBusMessage[] numbered(int n) {
    return IntStream.range(0, n).mapToObj(i -> Bus.message("" + i)).toArray(ServiceBusMessage[]::new);
  }

  static List<String> names(int n) {
    return IntStream.range(0, n).mapToObj(i -> "" + i).collect(Collectors.toList());
  }

  static void await(CountDownLatch done) throws InterruptedException {
    Report.same(true, done.await(20, TimeUnit.SECONDS), "handled in time");
  }

  static void add(Report r) {
    r.add("receive and delete", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"));
      b.delete("plain", q -> {
        List<ServiceBusReceivedMessage> all = Bus.take(q, 2);
        Report.same(List.of("1", "2"), Bus.ids(all), "messages");
        Report.fails(Exception.class, () -> q.complete(all.get(0)), "complete one");
      });
      b.left("plain");
    });
    r.add("peek takes nothing", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"));
      b.receive("plain", q -> {
        Report.same(List.of("1", "2"), Bus.ids(q.peekMessages(5)), "peeked");
        List<ServiceBusReceivedMessage> all = Bus.take(q, 2);
        Report.same(List.of("1", "2"), Bus.ids(all), "received");
        Report.same(0L, all.get(0).getDeliveryCount() + all.get(1).getDeliveryCount(), "delivery counts");
      });
      b.left("plain", "1", "2"); // what is locked is peeked too
    });
    r.add("peek from a sequence number", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"), Bus.message("3"), Bus.message("4"));
      b.receive("plain", q -> {
        List<ServiceBusReceivedMessage> first = new ArrayList<>();
        q.peekMessages(2).forEach(first::add);
        Report.same(List.of("1", "2"), Bus.ids(first), "the first two");
        Report.same(List.of("3", "4"), Bus.ids(q.peekMessages(5)), "where the last peek ended");
        Report.same(List.of(), Bus.ids(q.peekMessages(5)), "behind the last");
        Report.same(List.of("2", "3"), Bus.ids(q.peekMessages(2, first.get(1).getSequenceNumber())), "from the second");
      });
    });
    r.add("nothing to receive", own -> {
      Bus b = new Bus(own);
      b.receive("plain", q -> {
        long start = System.nanoTime();
        Bus.none(q);
        Report.same(true, System.nanoTime() - start < 3_000_000_000L, "it came back in time");
        b.send("plain", Bus.message("1"));
        Report.same("1", Bus.take(q).getMessageId(), "the receiver goes on");
      });
    });
    r.add("hundreds of messages in order", own -> {
      Bus b = new Bus(own);
      b.send("plain", numbered(300));
      b.receive("plain", q -> {
        List<String> got = new ArrayList<>();
        while (got.size() < 300) {
          List<ServiceBusReceivedMessage> some = new ArrayList<>();
          q.receiveMessages(70, Duration.ofSeconds(3)).forEach(some::add);
          if (some.isEmpty()) {
            break;
          }
          got.addAll(Bus.ids(some));
          some.forEach(q::complete);
        }
        Report.same(names(300), got, "order");
      });
      b.left("plain");
    });
    r.add("abandon counts", own -> {
      Bus b = new Bus(own);
      ServiceBusMessage sent = Bus.message("1");
      sent.getApplicationProperties().putAll(Map.of("kept", 1, "why", "first"));
      b.send("plain", sent);
      b.receive("plain", q -> {
        q.abandon(Bus.take(q), new AbandonOptions().setPropertiesToModify(Map.of("why", "later")));
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(1L, m.getDeliveryCount(), "delivery count");
        Report.same(Map.of("kept", 1, "why", "later"), m.getApplicationProperties(), "properties");
        q.complete(m);
      });
    });
    r.add("abandoned too often", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1"));
      b.receive("short", q -> {
        for (long n = 0; n < 3; n++) {
          ServiceBusReceivedMessage m = Bus.take(q);
          Report.same(n, m.getDeliveryCount(), "delivery count");
          q.abandon(m);
        }
        Bus.none(q);
      });
      b.dead("short", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same("MaxDeliveryCountExceeded", m.getDeadLetterReason(), "reason");
        Report.same(true, m.getDeadLetterErrorDescription().contains("3 delivery attempts"), m.getDeadLetterErrorDescription());
      });
    });
    r.add("defer and receive deferred", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"));
      b.receive("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        q.defer(m, new DeferOptions().setPropertiesToModify(Map.of("seen", true)));
        Report.same("2", Bus.take(q).getMessageId(), "the next one");
        ServiceBusReceivedMessage again = q.receiveDeferredMessage(m.getSequenceNumber());
        Report.same(List.of("1", ServiceBusMessageState.DEFERRED, true, 0L), List.of(again.getMessageId(), again.getState(), again.getApplicationProperties().get("seen"), again.getDeliveryCount()), "message");
        q.complete(again);
      });
    });
    r.add("a deferred message is settled every way", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"), Bus.message("3"), Bus.message("4"));
      b.receive("plain", q -> {
        List<ServiceBusReceivedMessage> all = Bus.take(q, 4);
        all.forEach(q::defer);
        List<Long> numbers = all.stream().map(ServiceBusReceivedMessage::getSequenceNumber).collect(Collectors.toList());
        List<ServiceBusReceivedMessage> deferred = new ArrayList<>();
        q.receiveDeferredMessageBatch(numbers).forEach(deferred::add);
        Report.same(List.of("1", "2", "3", "4"), Bus.ids(deferred), "deferred");
        q.complete(deferred.get(0));
        q.abandon(deferred.get(1), new AbandonOptions().setPropertiesToModify(Map.of("tried", 1)));
        q.defer(deferred.get(2));
        q.deadLetter(deferred.get(3), new DeadLetterOptions().setDeadLetterReason("bad").setDeadLetterErrorDescription("very"));
        List<ServiceBusReceivedMessage> again = new ArrayList<>();
        q.receiveDeferredMessageBatch(numbers.subList(1, 3)).forEach(again::add);
        Report.same(List.of("2", 1L, 1, "3", 0L), List.of(again.get(0).getMessageId(), again.get(0).getDeliveryCount(), again.get(0).getApplicationProperties().get("tried"),
            again.get(1).getMessageId(), again.get(1).getDeliveryCount()), "what is deferred again");
      });
      b.dead("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("4", "bad", "very"), List.of(m.getMessageId(), m.getDeadLetterReason(), m.getDeadLetterErrorDescription()), "dead letter");
      });
    });
    r.add("a deferred message that is not there", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"));
      b.receive("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        // The client takes "not found" for no messages, and then complains of that.
        Report.fails(Exception.class, () -> q.receiveDeferredMessage(m.getSequenceNumber()), "receive one that is not deferred");
        q.defer(m);
        q.complete(q.receiveDeferredMessage(m.getSequenceNumber()));
        Report.fails(Exception.class, () -> q.receiveDeferredMessage(m.getSequenceNumber()), "receive it again");
      });
    });
    r.add("deferred, received and deleted", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"));
      b.receive("plain", q -> q.defer(Bus.take(q)));
      b.delete("plain", q -> {
        ServiceBusReceivedMessage m = q.peekMessage();
        Report.same(ServiceBusMessageState.DEFERRED, m.getState(), "state");
        Report.same("1", q.receiveDeferredMessage(m.getSequenceNumber()).getMessageId(), "message");
      });
      b.left("plain");
    });
    r.add("dead-letter and read it", own -> {
      Bus b = new Bus(own);
      ServiceBusMessage sent = Bus.message("1");
      sent.getApplicationProperties().put("kept", 1);
      b.send("plain", sent);
      b.receive("plain", q -> q.deadLetter(Bus.take(q), new DeadLetterOptions().setDeadLetterReason("bad").setDeadLetterErrorDescription("very").setPropertiesToModify(Map.of("mine", "too"))));
      b.left("plain");
      b.dead("plain", q -> {
        Report.same(List.of("1"), Bus.ids(q.peekMessages(5)), "peeked");
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", "bad", "very", "too", 1), List.of(m.getMessageId(), m.getDeadLetterReason(), m.getDeadLetterErrorDescription(),
            m.getApplicationProperties().get("mine"), m.getApplicationProperties().get("kept")), "dead letter");
        q.complete(m);
        Report.same(List.of(), Bus.ids(q.peekMessages(5, 1)), "dead letters left");
      });
    });
    r.add("a dead letter is abandoned", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1"));
      b.receive("short", q -> q.deadLetter(Bus.take(q)));
      b.dead("short", q -> {
        for (int i = 0; i < 5; i++) { // more often than a queue lets it
          q.abandon(Bus.take(q));
        }
        q.complete(Bus.take(q));
      });
    });
    r.add("a message expires", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1").setTimeToLive(Duration.ofMillis(200)), Bus.message("2"));
      Thread.sleep(400);
      b.delete("plain", q -> Report.same("2", Bus.take(q).getMessageId(), "message"));
      b.dead("plain", q -> Report.same(null, q.peekMessage(), "dead letter"));
    });
    r.add("an expired message is dead-lettered", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1").setTimeToLive(Duration.ofMillis(200)));
      b.dead("short", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", "TTLExpiredException"), List.of(m.getMessageId(), m.getDeadLetterReason()), "dead letter");
      });
    });
    r.add("a message is settled once", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"));
      b.receive("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        q.complete(m);
        Report.fails(Exception.class, () -> q.complete(m), "complete it again");
      });
    });
    r.add("two receivers share a queue", own -> {
      Bus b = new Bus(own);
      b.send("plain", numbered(40));
      List<List<ServiceBusReceivedMessage>> got = List.of(new ArrayList<>(), new ArrayList<>());
      List<Thread> threads = got.stream().map(mine -> new Thread(() -> {
        try (ServiceBusReceiverClient q = b.receiver("plain").buildClient()) {
          mine.addAll(Bus.take(q, 20));
          mine.forEach(q::complete);
        }
      })).collect(Collectors.toList());
      threads.forEach(Thread::start);
      for (Thread t : threads) {
        t.join();
      }
      List<String> all = new ArrayList<>();
      for (List<ServiceBusReceivedMessage> mine : got) {
        List<Long> order = mine.stream().map(ServiceBusReceivedMessage::getSequenceNumber).collect(Collectors.toList());
        Report.same(order.stream().sorted().collect(Collectors.toList()), order, "order");
        all.addAll(Bus.ids(mine));
      }
      List<String> want = names(40);
      Collections.sort(want);
      Collections.sort(all);
      Report.same(want, all, "each message went to one of them");
      b.left("plain");
    });
    r.add("a handler receives", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"), Bus.message("3"));
      List<String> seen = Collections.synchronizedList(new ArrayList<>());
      CountDownLatch done = new CountDownLatch(3);
      try (ServiceBusProcessorClient p = b.builder().processor().queueName(b.name("plain")).processMessage(c -> {
        seen.add(c.getMessage().getMessageId());
        done.countDown();
      }).processError(e -> seen.add(e.getException().toString())).buildProcessorClient()) {
        p.start();
        await(done);
        Thread.sleep(500); // the last one is completed behind the handler
      }
      Report.same(List.of("1", "2", "3"), seen, "messages");
      b.left("plain");
    });
    r.add("a handler that fails", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1"));
      List<Long> counts = Collections.synchronizedList(new ArrayList<>());
      List<String> errors = Collections.synchronizedList(new ArrayList<>());
      CountDownLatch done = new CountDownLatch(3);
      try (ServiceBusProcessorClient p = b.builder().processor().queueName(b.name("short")).processMessage(c -> {
        counts.add(c.getMessage().getDeliveryCount());
        throw new IllegalStateException("not today");
      }).processError(e -> {
        errors.add(e.getErrorSource() + " " + e.getException().getMessage());
        done.countDown();
      }).buildProcessorClient()) {
        p.start();
        await(done);
        b.dead("short", q -> Report.same("MaxDeliveryCountExceeded", Bus.take(q).getDeadLetterReason(), "reason"));
      }
      Report.same(List.of(0L, 1L, 2L), counts, "deliveries");
      Report.same(Collections.nCopies(3, "USER_CALLBACK not today"), errors, "errors");
    });
    r.add("a handler with messages at once", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"), Bus.message("2"));
      CountDownLatch both = new CountDownLatch(2);
      try (ServiceBusProcessorClient p = b.builder().processor().queueName(b.name("plain")).maxConcurrentCalls(2).processMessage(c -> {
        both.countDown();
        try {
          await(both); // neither ends before the other has begun
        } catch (InterruptedException e) {
          throw new IllegalStateException(e);
        }
      }).processError(e -> {}).buildProcessorClient()) {
        p.start();
        await(both);
        Thread.sleep(500);
      }
      b.left("plain");
    });
    r.add("close while receiving", own -> {
      Bus b = new Bus(own);
      ServiceBusReceiverClient q = b.receiver("plain").buildClient();
      Thread waits = new Thread(() -> swallow(() -> q.receiveMessages(1, Duration.ofSeconds(3)).forEach(m -> {})));
      waits.start();
      Thread.sleep(1000);
      q.close();
      waits.join();
      b.send("plain", Bus.message("1"));
      b.receive("plain", again -> {
        ServiceBusReceivedMessage m = Bus.take(again);
        Report.same(List.of("1", 0L), List.of(m.getMessageId(), m.getDeliveryCount()), "nobody else got it");
      });
    });
    r.add("close the client while receiving", own -> {
      Bus b = new Bus(own);
      ServiceBusProcessorClient p = b.builder().processor().queueName(b.name("plain")).processMessage(c -> {}).processError(e -> {}).buildProcessorClient();
      p.start();
      Thread.sleep(1000);
      p.close();
      b.send("plain", Bus.message("1"));
      b.receive("plain", q -> Report.same("1", Bus.take(q).getMessageId(), "message"));
    });
  }

  /** What a client that is closed under it makes of a call is its own affair. */
  static void swallow(Runnable action) {
    try {
      action.run();
    } catch (RuntimeException e) {
      System.err.println(e);
    }
  }
}
