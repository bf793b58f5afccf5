// customer_totals: the orders and the paid cents of each customer.
import { createHash } from "node:crypto";
import { createServer } from "node:http";

const declaration = JSON.stringify({
  protocol: 1, name: "customer_totals",
  collections: [{ name: "customer_totals", keyedBy: ["data", "customerId"],
    indexes: [{ keys: [{ field: ["paidCents"], order: -1 }] }] }],
});
const hash = createHash("sha256").update(declaration).digest("hex");

type Event = { id: string; operation: string; type: string; data: { fullDocument?: any } };
type Result = { writes: object[] } | { permanent: string };

function project(event: Event): Result {
  if (event.operation !== "insert") return { writes: [] }; // an event store only grows
  const { customerId, totalCents } = event.data.fullDocument.data ?? {};
  const cents = Number(totalCents?.$numberInt ?? totalCents?.$numberLong); // canonical Extended JSON
  if (!customerId || Number.isNaN(cents)) return { permanent: "the event has no data.customerId or no data.totalCents" };
  const changes: Record<string, [string, number]> = {
    OrderPlaced: ["orders", 1], OrderPaid: ["paidCents", cents], OrderRefunded: ["paidCents", -cents],
  };
  const change = changes[event.type];
  if (!change) return { writes: [] };
  return { writes: [{ write: "update", collection: "customer_totals", id: customerId,
    ops: [{ op: "inc", field: [change[0]], value: change[1] }] }] };
}

createServer(async (request, response) => {
  if (request.method === "GET") return response.end(declaration);
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  const events: Event[] = JSON.parse(Buffer.concat(parts).toString());
  const results = events.map((event) => ({ id: event.id, ...project(event) }));
  response.end(JSON.stringify({ declaration: hash, results }));
}).listen(Number(process.env.PORT ?? 8088), "127.0.0.1");
