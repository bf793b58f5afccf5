import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * What the scenarios of Service Bus have in common. Each has a connection and entities that are its alone: "plain" is a queue,
 * "sessions" one that requires sessions, "short" and "shortSessions" have locks of five seconds, "unique" detects duplicates,
 * "news" is a topic with the subscriptions all and some.
 */
final class Bus {
  static final String TEXT = System.getenv("SERVICE_BUS_CONNECTION_STRING");
  static final Duration LONGER = Duration.ofMillis(6500); // than the lock of a short queue
  static final Duration WAIT = Duration.ofSeconds(9);

  interface Action<T> {
    void accept(T t) throws Exception;
  }

  private final UnaryOperator<String> own;
  private final ServiceBusClientBuilder builder; // its clients share a connection

  Bus(UnaryOperator<String> own) {
    this(own, TEXT);
  }

  Bus(UnaryOperator<String> own, String text) {
    this.own = own;
    builder = builder(text, Duration.ofSeconds(10));
  }

  static ServiceBusClientBuilder builder(String text, Duration timeout) {
    return new ServiceBusClientBuilder().connectionString(text).retryOptions(new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(timeout));
  }

  String name(String kind) {
    return own.apply(kind);
  }

  ServiceBusClientBuilder builder() {
    return builder;
  }

  static ServiceBusMessage message(String id) {
    return new ServiceBusMessage(BinaryData.fromString(id)).setMessageId(id);
  }

  static ServiceBusMessage of(String session, String id) {
    return message(id).setSessionId(session);
  }

  ServiceBusSenderClient sender(String queue) {
    return builder.sender().queueName(name(queue)).buildClient();
  }

  void send(String queue, ServiceBusMessage... messages) {
    try (ServiceBusSenderClient sender = sender(queue)) {
      sender.sendMessages(Arrays.asList(messages));
    }
  }

  void publish(ServiceBusMessage... messages) {
    try (ServiceBusSenderClient sender = builder.sender().topicName(name("news")).buildClient()) {
      sender.sendMessages(Arrays.asList(messages));
    }
  }

  /** A receiver that renews no lock by itself. */
  ServiceBusClientBuilder.ServiceBusReceiverClientBuilder receiver(String queue) {
    return builder.receiver().queueName(name(queue)).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO);
  }

  void receive(String queue, Action<ServiceBusReceiverClient> f) throws Exception {
    with(receiver(queue), f);
  }

  void delete(String queue, Action<ServiceBusReceiverClient> f) throws Exception {
    with(builder.receiver().queueName(name(queue)).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE), f);
  }

  void dead(String queue, Action<ServiceBusReceiverClient> f) throws Exception {
    with(receiver(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE), f);
  }

  ServiceBusClientBuilder.ServiceBusReceiverClientBuilder subscription(String subscription) {
    return builder.receiver().topicName(name("news")).subscriptionName(subscription).disableAutoComplete();
  }

  void subscription(String subscription, Action<ServiceBusReceiverClient> f) throws Exception {
    with(subscription(subscription), f);
  }

  static void with(ServiceBusClientBuilder.ServiceBusReceiverClientBuilder b, Action<ServiceBusReceiverClient> f) throws Exception {
    try (ServiceBusReceiverClient r = b.buildClient()) {
      f.accept(r);
    }
  }

  void rules(Action<ServiceBusRuleManagerClient> f) throws Exception {
    try (ServiceBusRuleManagerClient r = builder.ruleManager().topicName(name("news")).subscriptionName("some").buildClient()) {
      f.accept(r);
    }
  }

  /** Accepts a session, the next one without a name. */
  void session(String queue, String id, Action<ServiceBusReceiverClient> f) throws Exception {
    session(queue, id, Duration.ZERO, f);
  }

  void session(String queue, String id, Duration renews, Action<ServiceBusReceiverClient> f) throws Exception {
    try (ServiceBusSessionReceiverClient all = builder.sessionReceiver().queueName(name(queue)).disableAutoComplete().maxAutoLockRenewDuration(renews).buildClient();
        ServiceBusReceiverClient r = id == null ? all.acceptNextSession() : all.acceptSession(id)) {
      f.accept(r);
    }
  }

  /** What can be peeked from an entity's beginning. */
  void left(String queue, String... ids) throws Exception {
    receive(queue, r -> Report.same(List.of(ids), ids(r.peekMessages(99, 1)), "messages left"));
  }

  /** Receives exactly n messages. */
  static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient r, int n) {
    List<ServiceBusReceivedMessage> all = new ArrayList<>();
    while (all.size() < n) {
      int before = all.size();
      r.receiveMessages(n - all.size(), WAIT).forEach(all::add);
      if (all.size() == before) {
        break;
      }
    }
    Report.same(n, all.size(), "messages received");
    return all;
  }

  static ServiceBusReceivedMessage take(ServiceBusReceiverClient r) {
    return take(r, 1).get(0);
  }

  static void none(ServiceBusReceiverClient r) {
    Report.same(List.of(), ids(r.receiveMessages(1, Duration.ofMillis(500))), "messages");
  }

  static List<String> ids(Iterable<ServiceBusReceivedMessage> messages) {
    List<String> all = new ArrayList<>();
    messages.forEach(m -> all.add(m.getMessageId()));
    return all;
  }

  static void fails(ServiceBusFailureReason reason, Report.Scenario action, String what) {
    Report.same(reason, Report.fails(ServiceBusException.class, action, what).getReason(), what);
  }

  /** A connection string with a shared access signature that is good for so many seconds. */
  static String signed(int seconds) throws Exception {
    String resource = URLEncoder.encode(part("Endpoint"), StandardCharsets.UTF_8);
    long expires = System.currentTimeMillis() / 1000 + seconds;
    Mac mac = Mac.getInstance("HmacSHA256");
    mac.init(new SecretKeySpec(part("SharedAccessKey").getBytes(), "HmacSHA256"));
    String signature = URLEncoder.encode(Base64.getEncoder().encodeToString(mac.doFinal((resource + "\n" + expires).getBytes())), StandardCharsets.UTF_8);
    String token = "SharedAccessSignature sr=" + resource + "&sig=" + signature + "&se=" + expires + "&skn=" + part("SharedAccessKeyName");
    return "Endpoint=" + part("Endpoint") + ";SharedAccessSignature=" + token + ";UseDevelopmentEmulator=true";
  }

  private static String part(String name) {
    return Arrays.stream(TEXT.split(";")).filter(p -> p.startsWith(name + "=")).findFirst().get().substring(name.length() + 1);
  }

  static void sleep(Duration d) throws InterruptedException {
    Thread.sleep(d.toMillis());
  }
}
