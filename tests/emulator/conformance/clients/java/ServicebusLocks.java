import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;

final class ServicebusLocks {
  static void add(Report r) {
    r.add("renew a message's lock", own -> {
      Bus b = new Bus(own);
      b.send("plain", Bus.message("1"));
      b.receive("plain", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        OffsetDateTime before = m.getLockedUntil();
        Thread.sleep(20);
        Report.same(true, q.renewMessageLock(m).isAfter(before), "locked for longer");
        q.complete(m);
      });
    });
    r.add("a message's lock runs out", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1"));
      b.receive("short", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Bus.sleep(Bus.LONGER);
        Bus.fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> q.renewMessageLock(m), "renew");
        Bus.fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> q.complete(m), "complete");
        ServiceBusReceivedMessage again = Bus.take(q);
        Report.same(List.of("1", 1L), List.of(again.getMessageId(), again.getDeliveryCount()), "delivered again");
        q.complete(again);
      });
      b.left("short");
    });
    r.add("a lock outlives its receiver", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1"));
      b.receive("short", Bus::take);
      b.receive("short", q -> {
        Bus.none(q);
        Report.same(1L, Bus.take(q).getDeliveryCount(), "delivery count");
      });
    });
    r.add("a message's lock is renewed by itself", own -> {
      Bus b = new Bus(own);
      b.send("short", Bus.message("1"));
      Bus.with(b.receiver("short"), q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        q.renewMessageLock(m, Duration.ofSeconds(30), e -> System.err.println(e));
        Bus.sleep(Bus.LONGER);
        q.complete(m);
      });
      b.left("short");
    });
    r.add("a session's lock runs out", own -> {
      Bus b = new Bus(own);
      b.send("shortSessions", Bus.of("a", "1"));
      b.session("shortSessions", "a", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Bus.sleep(Bus.LONGER);
        Report.fails(Exception.class, () -> q.complete(m), "complete");
        Bus.fails(ServiceBusFailureReason.SESSION_LOCK_LOST, q::renewSessionLock, "renew");
        Bus.fails(ServiceBusFailureReason.SESSION_LOCK_LOST, () -> q.setSessionState(new byte[] {1}), "set the state");
      });
      b.session("shortSessions", "a", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", 1L), List.of(m.getMessageId(), m.getDeliveryCount()), "delivered again");
        q.complete(m);
      });
    });
    r.add("a session's lock is renewed", own -> {
      Bus b = new Bus(own);
      b.send("shortSessions", Bus.of("a", "1"));
      b.session("shortSessions", "a", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        for (int i = 0; i < 3; i++) {
          Bus.sleep(Bus.LONGER.dividedBy(3));
          Report.same(true, q.renewSessionLock().isAfter(OffsetDateTime.now().plusSeconds(3)), "locked");
        }
        q.complete(m);
      });
    });
    r.add("a session's lock is renewed by itself", own -> {
      Bus b = new Bus(own);
      b.send("shortSessions", Bus.of("a", "1"));
      b.session("shortSessions", "a", Duration.ofSeconds(30), q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Bus.sleep(Bus.LONGER);
        q.complete(m);
      });
    });
    r.add("a session whose holder is gone", own -> {
      Bus b = new Bus(own);
      b.send("shortSessions", Bus.of("a", "1"));
      b.session("shortSessions", "a", Bus::take);
      b.session("shortSessions", "a", q -> { // at once: closing gives the session back
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", 0L), List.of(m.getMessageId(), m.getDeliveryCount()), "no failed delivery");
        q.complete(m);
      });
    });
  }
}
