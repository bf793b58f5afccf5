import com.sun.net.httpserver.*;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.*;
import org.json.*;
/** customer_totals: the orders and the paid cents of each customer. */
public class Totals {
  static final byte[] DECLARATION = """
      {"protocol": 1, "name": "customer_totals", "collections": [{"name": "customer_totals",
      "keyedBy": ["data", "customerId"], "indexes": [{"keys": [{"field": ["paidCents"], "order": -1}]}]}]}""".getBytes();
  static JSONObject project(JSONObject event) {
    JSONObject result = new JSONObject().put("id", event.getString("id")), none = result.put("writes", new JSONArray());
    if (!event.getString("operation").equals("insert")) return none; // an event store only grows
    JSONObject data = event.getJSONObject("data").getJSONObject("fullDocument").optJSONObject("data", new JSONObject());
    JSONObject total = data.optJSONObject("totalCents"); // canonical Extended JSON
    String customer = data.optString("customerId");
    if (customer.isEmpty() || total == null)
      return new JSONObject(Map.of("id", event.getString("id"), "permanent", "the event has no data.customerId or no data.totalCents"));
    long cents = Long.parseLong(total.optString("$numberInt", total.optString("$numberLong")));
    var changes = Map.of("OrderPlaced", List.of("orders", 1), "OrderPaid", List.of("paidCents", cents), "OrderRefunded", List.of("paidCents", -cents));
    var change = changes.get(event.getString("type"));
    if (change == null) return none;
    var op = Map.of("op", "inc", "field", List.of(change.get(0)), "value", change.get(1));
    return result.put("writes", List.of(Map.of("write", "update", "collection", "customer_totals", "id", customer, "ops", List.of(op))));
  }
  static void answer(HttpExchange call, byte[] body) throws IOException {
    call.sendResponseHeaders(200, body.length);
    try (call) { call.getResponseBody().write(body); }
  }
  public static void main(String[] args) throws Exception {
    System.setProperty("sun.net.httpserver.nodelay", "true"); // otherwise an answer takes 40 ms
    String hash = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(DECLARATION));
    var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv().getOrDefault("PORT", "8088"))), 0);
    server.createContext("/", call -> answer(call, call.getRequestMethod().equals("GET") ? DECLARATION : new JSONObject()
        .put("declaration", hash).put("results", new JSONArray(new JSONTokener(call.getRequestBody())).toList().stream()
            .map(event -> project(new JSONObject((Map<?, ?>) event))).toList()).toString().getBytes("UTF-8")));
    server.start();
  }
}
