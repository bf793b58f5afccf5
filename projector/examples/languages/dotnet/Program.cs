// customer_totals: the orders and the paid cents of each customer. The project's tests do not run this program.
using System.Security.Cryptography;
using System.Text;
using System.Text.Json.Nodes;

var declaration = Encoding.UTF8.GetBytes("""
    {"protocol": 1, "name": "customer_totals", "collections": [{"name": "customer_totals",
    "keyedBy": ["data", "customerId"], "indexes": [{"keys": [{"field": ["paidCents"], "order": -1}]}]}]}
    """);
var hash = Convert.ToHexString(SHA256.HashData(declaration)).ToLowerInvariant();
var app = WebApplication.CreateBuilder(args).Build();

app.MapGet("/projection", () => Results.Bytes(declaration, "application/json"));
app.MapPost("/project", async (HttpRequest request) =>
{
    var events = (await JsonNode.ParseAsync(request.Body))!.AsArray();
    var results = new JsonArray(events.Select(e => (JsonNode)Project(e!)).ToArray());
    return Results.Text(new JsonObject { ["declaration"] = hash, ["results"] = results }.ToJsonString(), "application/json");
});
app.Run("http://127.0.0.1:" + (Environment.GetEnvironmentVariable("PORT") ?? "8088"));

static JsonObject Project(JsonNode e)
{
    var result = new JsonObject { ["id"] = (string)e["id"]!, ["writes"] = new JsonArray() };
    if ((string)e["operation"]! != "insert") return result; // an event store only grows
    var data = e["data"]!["fullDocument"]!["data"];
    var (customer, total) = ((string?)data?["customerId"], data?["totalCents"]);
    if (string.IsNullOrEmpty(customer) || total is not JsonObject)
        return new JsonObject { ["id"] = (string)e["id"]!, ["permanent"] = "the event has no data.customerId or no data.totalCents" };
    var cents = long.Parse((string)(total["$numberInt"] ?? total["$numberLong"])!); // canonical Extended JSON
    (string Field, long By)? change = (string)e["type"]! switch
    {
        "OrderPlaced" => ("orders", 1), "OrderPaid" => ("paidCents", cents), "OrderRefunded" => ("paidCents", -cents), _ => null,
    };
    if (change is not { } c) return result;
    var op = new JsonObject { ["op"] = "inc", ["field"] = new JsonArray(c.Field), ["value"] = c.By };
    ((JsonArray)result["writes"]!).Add(new JsonObject { ["write"] = "update", ["collection"] = "customer_totals", ["id"] = customer, ["ops"] = new JsonArray(op) });
    return result;
}
