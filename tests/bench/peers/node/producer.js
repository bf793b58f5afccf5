// What a team would write by hand: a change stream, its resume token in a file, and one loop that sends all that has arrived.
// The token is saved after each acknowledged batch, so that a restart continues behind it.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { MongoClient } from "mongodb";
import { ServiceBusClient } from "@azure/service-bus";

const { MONGODB_URI, MONGODB_DATABASE, MONGODB_COLLECTION, SERVICE_BUS_CONNECTION_STRING, SERVICE_BUS_TOPIC, TOKEN_FILE } = process.env;
const limit = 5000; // events in memory

let resumeAfter;
try {
  resumeAfter = JSON.parse(readFileSync(TOKEN_FILE, "utf8"));
} catch (e) {
  if (e.code !== "ENOENT") throw e;
}

function save(token) {
  writeFileSync(`${TOKEN_FILE}.new`, JSON.stringify(token));
  renameSync(`${TOKEN_FILE}.new`, TOKEN_FILE);
}

const mongo = await new MongoClient(MONGODB_URI).connect();
const sender = new ServiceBusClient(SERVICE_BUS_CONNECTION_STRING).createSender(SERVICE_BUS_TOPIC);
const stream = mongo
  .db(MONGODB_DATABASE)
  .collection(MONGODB_COLLECTION)
  .watch([{ $match: { operationType: "insert" } }], { resumeAfter, batchSize: 1000 });

let events = [];
let wake = () => {};
let ended;
let space = Promise.resolve();
let spaceIsFree = () => {};

async function read() {
  for (;;) {
    const event = await stream.next();
    events.push(event);
    wake();
    if (events.length >= limit) {
      space = new Promise((resolve) => (spaceIsFree = resolve));
      await space;
    }
  }
}

function message({ fullDocument: d }) {
  return {
    body: d,
    contentType: "application/json",
    messageId: d._id.toHexString(),
    sessionId: d.aggregateId,
    applicationProperties: { version: d.version },
  };
}

async function send(round) {
  let batch = await sender.createMessageBatch();
  let last;
  for (const event of round) {
    const m = message(event);
    if (!batch.tryAddMessage(m)) {
      await sender.sendMessages(batch);
      save(last);
      batch = await sender.createMessageBatch();
      if (!batch.tryAddMessage(m)) throw new Error(`event ${m.messageId} of ${m.sessionId} is too large`);
    }
    last = event._id;
  }
  await sender.sendMessages(batch);
  save(last);
}

read().catch((e) => {
  ended = e;
  wake();
});
for (;;) {
  while (events.length === 0 && !ended) await new Promise((resolve) => (wake = resolve));
  if (ended) throw ended;
  const round = events;
  events = [];
  spaceIsFree();
  await send(round);
}
