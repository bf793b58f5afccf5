import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

final class ServicebusTopics {
  static List<String> listed(ServiceBusRuleManagerClient rules) {
    List<String> all = new ArrayList<>();
    rules.listRules().forEach(r -> all.add(r.getName() + ": " + (r.getFilter() instanceof CorrelationRuleFilter ? ((CorrelationRuleFilter) r.getFilter()).getLabel()
        : r.getFilter() instanceof TrueRuleFilter ? "true" : ((SqlRuleFilter) r.getFilter()).getSqlExpression())));
    return all;
  }

  static ServiceBusMessage message(String id, String subject, Map<String, Object> properties) {
    ServiceBusMessage m = Bus.message(id).setSubject(subject);
    m.getApplicationProperties().putAll(properties);
    return m;
  }

  static void add(Report r) {
    r.add("a topic and its subscription", own -> {
      Bus b = new Bus(own);
      b.publish(Bus.message("1"));
      b.subscription("all", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same("1", m.getMessageId(), "message");
        q.complete(m);
      });
    });
    r.add("subscriptions get copies of their own", own -> {
      Bus b = new Bus(own);
      b.publish(Bus.message("1"));
      b.subscription("all", q -> q.complete(Bus.take(q)));
      b.subscription("some", q -> {
        ServiceBusReceivedMessage m = Bus.take(q);
        Report.same(List.of("1", 0L), List.of(m.getMessageId(), m.getDeliveryCount()), "message");
        q.deadLetter(m, new DeadLetterOptions().setDeadLetterReason("bad"));
      });
      Bus.with(b.subscription("all").subQueue(SubQueue.DEAD_LETTER_QUEUE), q -> Report.same(null, q.peekMessage(), "dead letter of the other"));
      Bus.with(b.subscription("some").subQueue(SubQueue.DEAD_LETTER_QUEUE), q -> Report.same("1", Bus.take(q).getMessageId(), "dead letter"));
    });
    r.add("a topic cannot be received from", own -> {
      Bus b = new Bus(own);
      Report.fails(Exception.class, () -> b.receive("news", q -> q.receiveMessages(1, Bus.WAIT).forEach(m -> {})), "receive");
      Report.fails(Exception.class, () -> b.subscription("none", q -> q.receiveMessages(1, Bus.WAIT).forEach(m -> {})), "receive from no subscription");
    });
    r.add("rules choose and annotate", own -> {
      Bus b = new Bus(own);
      b.rules(rules -> {
        Report.same(List.of("$Default: true"), listed(rules), "rules at first");
        rules.createRule("red", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("red")).setAction(new SqlRuleAction("SET painted = 'yes'")));
        rules.createRule("big", new CreateRuleOptions(new SqlRuleFilter("size > 10")));
        rules.deleteRule("$Default");
        Report.same(List.of("red: red", "big: size > 10"), listed(rules), "rules");
      });
      b.publish(message("1", "red", Map.of()), message("2", "blue", Map.of()), message("3", "blue", Map.of("size", 11)));
      b.subscription("some", q -> {
        List<ServiceBusReceivedMessage> all = Bus.take(q, 2);
        Report.same(List.of("1", "3"), Bus.ids(all), "messages");
        Report.same("yes", all.get(0).getApplicationProperties().get("painted"), "what the action set");
        Bus.none(q);
      });
      b.subscription("all", q -> Report.same(List.of("1", "2", "3"), Bus.ids(Bus.take(q, 3)), "the other subscription"));
    });
    r.add("a filter of correlation", own -> {
      Bus b = new Bus(own);
      Map<String, Object> properties = Map.of("kind", "a", "n", 3, "yes", true);
      b.rules(rules -> {
        rules.deleteRule("$Default");
        CorrelationRuleFilter f = new CorrelationRuleFilter().setCorrelationId("c");
        f.getProperties().putAll(properties);
        rules.createRule("both", new CreateRuleOptions(f));
      });
      Map<String, Object> other = Map.of("kind", "b", "n", 3, "yes", true);
      b.publish(message("match", "", properties).setCorrelationId("c"), message("other id", "", properties).setCorrelationId("d"), message("no id", "", properties),
          message("other text", "", other).setCorrelationId("c"), message("again", "", properties).setCorrelationId("c"));
      b.subscription("some", q -> Report.same(List.of("match", "again"), Bus.ids(Bus.take(q, 2)), "messages"));
    });
    r.add("filters of SQL", own -> {
      Bus b = new Bus(own);
      b.rules(rules -> {
        rules.deleteRule("$Default");
        rules.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("sys.Label LIKE 'or%' AND (n IN (1, 2) OR n IS NULL) AND NOT EXISTS(skip)")));
      });
      b.publish(message("1", "order", Map.of("n", 1)), message("2", "order", Map.of("n", 3)), message("3", "order", Map.of()),
          message("4", "ordinary", Map.of("n", 2, "skip", true)), message("5", "x", Map.of("n", 1)), message("6", "order", Map.of("n", 2)));
      b.subscription("some", q -> Report.same(List.of("1", "3", "6"), Bus.ids(Bus.take(q, 3)), "messages"));
    });
    r.add("rules that cannot be", own -> {
      Bus b = new Bus(own);
      b.rules(rules -> {
        Report.fails(Exception.class, () -> rules.createRule("bad", new CreateRuleOptions(new SqlRuleFilter("size >"))), "create one that is no SQL");
        Report.fails(Exception.class, () -> rules.createRule("$Default", new CreateRuleOptions(new SqlRuleFilter("1=1"))), "create it again");
        Report.fails(Exception.class, () -> rules.deleteRule("none"), "delete none");
        Report.same(List.of("$Default: true"), listed(rules), "rules");
      });
    });
    r.add("a subscription that nothing matches", own -> {
      Bus b = new Bus(own);
      b.rules(rules -> rules.deleteRule("$Default"));
      b.publish(Bus.message("1")); // is taken all the same
      b.subscription("some", Bus::none);
      b.subscription("all", q -> Report.same("1", Bus.take(q).getMessageId(), "message"));
    });
  }
}
