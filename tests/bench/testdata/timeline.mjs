// timeline, the projection of the package projection, as a program in JavaScript. It exits with its
// standard input.
import { createHash } from "node:crypto";
import { createServer } from "node:http";

const declaration = JSON.stringify({
  protocol: 1, name: "timeline", oneDocument: true, collections: [{ name: "timeline" }],
});
const hash = createHash("sha256").update(declaration).digest("hex");

function project(event) {
  if (event.operation !== "insert") return [];
  const { type = event.type, occurredAt } = event.data.fullDocument;
  return [{ write: "update", collection: "timeline", id: event.subject, ops: [
    { op: "inc", field: ["events"], value: 1 }, { op: "inc", field: ["types", type], value: 1 },
    { op: "set", field: ["lastType"], value: type },
    { op: "setOnInsert", field: ["firstOccurredAt"], value: occurredAt },
    { op: "set", field: ["lastOccurredAt"], value: occurredAt }] }];
}

createServer(async (request, response) => {
  if (request.method === "GET") return response.end(declaration);
  const parts = [];
  for await (const part of request) parts.push(part);
  const results = JSON.parse(Buffer.concat(parts)).map((event) => ({ id: event.id, writes: project(event) }));
  response.end(JSON.stringify({ declaration: hash, results }));
}).listen(0, "127.0.0.1", function () { console.log(`http://127.0.0.1:${this.address().port}`); });

process.stdin.on("end", () => process.exit()).resume();
