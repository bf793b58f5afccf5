"use strict";

// What the scenarios of Service Bus have in common. Each gets q, which names the entities that are its alone: q("plain") is a
// queue, q("sessions") one that requires sessions, q("short") and q("shortSessions") have locks of five seconds, q("unique")
// detects duplicates, q("news") is a topic with the subscriptions all and some.

const { createHmac } = require("node:crypto");
const Long = require("long");
const { ServiceBusClient, delay } = require("@azure/service-bus");
const { same } = require("./report");

const retryOptions = { maxRetries: 0, timeoutInMs: 10000 };
const text = process.env.SERVICE_BUS_CONNECTION_STRING;
const client = new ServiceBusClient(text, { retryOptions });

const ids = (messages) => messages.map((m) => m.messageId);
const message = (messageId, rest) => ({ messageId, body: messageId, ...rest });

// take receives exactly n messages.
async function take(receiver, n) {
  const out = [];
  while (out.length < n) {
    const more = await receiver.receiveMessages(n - out.length, { maxWaitTimeInMs: 9000 });
    if (more.length === 0) break;
    out.push(...more);
  }
  same(n, out.length, "messages received");
  return out;
}

// using closes what a scenario opened, so that no lock outlives it.
async function using(resource, action) {
  try {
    return await action(await resource);
  } finally {
    await (await resource).close();
  }
}

const send = (entity, messages) => using(client.createSender(entity), (s) => s.sendMessages(messages));
// The client takes the options apart, so it gets copies.
const receiver = (entity, action, options) => using(client.createReceiver(entity, { ...options }), action);
const subscription = (topic, name, action, options) => using(client.createReceiver(topic, name, { ...options }), action);
const session = (entity, id, action, options) => using(client.acceptSession(entity, id, { ...options }), action);
const rules = (topic, name, action) => action(client.createRuleManager(topic, name));

const dead = { subQueueType: "deadLetter" };
const deleting = { receiveMode: "receiveAndDelete" };

// left says what can be peeked from an entity's beginning. Otherwise a peek goes on where another receiver's ended.
const left = (entity, want, options) => receiver(entity, async (r) => {
  same(want, ids(await r.peekMessages(99, { fromSequenceNumber: Long.ZERO })), "messages left");
}, options);

// becomes waits until that is left: what a handler has had is settled behind it.
const becomes = (entity, want, options) => receiver(entity, async (r) => {
  while (JSON.stringify(want) !== JSON.stringify(ids(await r.peekMessages(99, { fromSequenceNumber: Long.ZERO })))) await delay(20);
}, options);

async function settle(r, how, messages) {
  for (const m of messages) await r[`${how}Message`](m);
}

// other makes a client of its own, on a connection of its own.
const other = (action, connection = text, options = retryOptions) => using(new ServiceBusClient(connection, { retryOptions: options }), action);

// signed is a connection string with a shared access signature that is good for so many seconds.
function signed(seconds) {
  const part = Object.fromEntries(text.split(";").filter(Boolean).map((p) => [p.slice(0, p.indexOf("=")), p.slice(p.indexOf("=") + 1)]));
  const resource = encodeURIComponent(part.Endpoint);
  const expires = Math.floor(Date.now() / 1000) + seconds;
  const signature = encodeURIComponent(createHmac("sha256", part.SharedAccessKey).update(`${resource}\n${expires}`).digest("base64"));
  const token = `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expires}&skn=${part.SharedAccessKeyName}`;
  return `Endpoint=${part.Endpoint};SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

module.exports = { text, client, ids, message, take, using, send, receiver, subscription, session, rules, dead, deleting, left, becomes, settle, other, signed };
