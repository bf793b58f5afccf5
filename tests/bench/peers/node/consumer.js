// What a team would write by hand: 64 loops, each of which accepts the next session and writes each of its messages to the read
// model. The guard in the update's filter skips an event that has been applied before.
import { BSON, MongoClient } from "mongodb";
import { ServiceBusClient } from "@azure/service-bus";

const { MONGODB_URI, READ_MODEL_DATABASE, SERVICE_BUS_CONNECTION_STRING, SERVICE_BUS_TOPIC, SERVICE_BUS_SUBSCRIPTION } = process.env;
const sessions = 64;
const idle = 50; // ms until a session without messages is released

const mongo = await new MongoClient(MONGODB_URI).connect();
const model = mongo.db(READ_MODEL_DATABASE).collection("timeline");
const client = new ServiceBusClient(SERVICE_BUS_CONNECTION_STRING);

// The client throws this from a callback when its connection breaks; nothing else can be done about it than to start again.
process.on("uncaughtException", (e) => {
  console.error(e);
  process.exit(1);
});

async function apply({ body }) {
  const e = BSON.EJSON.deserialize(body.fullDocument); // a long is an object in the message
  try {
    await model.updateOne(
      { _id: e.aggregateId, version: { $lt: e.version } },
      { $set: { version: e.version, last: { type: e.type, occurredAt: e.occurredAt } }, $inc: { events: 1 } },
      { upsert: true },
    );
  } catch (err) {
    if (err.code !== 11000) throw err; // the document exists, so its version is not lower
  }
}

async function work() {
  for (;;) {
    let session;
    try {
      session = await client.acceptNextSession(SERVICE_BUS_TOPIC, SERVICE_BUS_SUBSCRIPTION);
    } catch (e) {
      if (e.code !== "SessionCannotBeLocked" && e.code !== "ServiceTimeout") console.error(e.message);
      continue;
    }
    try {
      for (;;) {
        const messages = await session.receiveMessages(100, { maxWaitTimeInMs: idle });
        if (messages.length === 0) break;
        for (const m of messages) {
          await apply(m);
          await session.completeMessage(m);
        }
      }
    } catch (e) {
      console.error(e.message); // the messages come again, in order, after the session has been released
    }
    await session.close().catch(() => {});
  }
}

await Promise.all(Array.from({ length: sessions }, work));
