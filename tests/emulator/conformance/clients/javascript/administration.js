"use strict";

// Service Bus's administration with @azure/service-bus, which insists on https, and messages behind the same TLS.

const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");
const { same, fails, run } = require("./report");

const connection = process.env.SERVICE_BUS_TLS_CONNECTION_STRING;
const admin = new ServiceBusAdministrationClient(connection, { retryOptions: { maxRetries: 0 } });

async function listed(pages) {
  const names = [];
  for await (const x of pages) names.push(x.name ?? x.subscriptionName);
  return names;
}

const scenarios = {
  "a queue": async () => {
    const made = await admin.createQueue("made", { requiresSession: true, lockDuration: "PT30S", maxDeliveryCount: 3, userMetadata: "mine" });
    same(["made", true, "PT30S", 3, "Active", "Available", false], [made.name, made.requiresSession, made.lockDuration, made.maxDeliveryCount, made.status, made.availabilityStatus, made.enableExpress], "made");
    same("MessageEntityAlreadyExistsError", (await fails(() => admin.createQueue("made"), "create it again")).code, "code");
    const q = await admin.getQueue("made");
    q.maxDeliveryCount = 5;
    same(5, (await admin.updateQueue(q)).maxDeliveryCount, "updated");
    same(true, await admin.queueExists("made"), "exists");
    await admin.deleteQueue("made");
    same(false, await admin.queueExists("made"), "exists after");
    same("MessageEntityNotFoundError", (await fails(() => admin.getQueue("made"), "get it")).code, "code");
  },
  "queues": async () => {
    same(["plain", "sessions", "unique"], await listed(admin.listQueues()), "names");
  },
  "messages of a queue are counted": async () => {
    const client = new ServiceBusClient(connection);
    await client.createSender("plain").sendMessages([{ body: 1 }, { body: 2 }]);
    await client.createSender("plain").scheduleMessages({ body: 3 }, new Date(Date.now() + 600000));
    const counts = await admin.getQueueRuntimeProperties("plain");
    same([2, 1, 0, 3], [counts.activeMessageCount, counts.scheduledMessageCount, counts.deadLetterMessageCount, counts.totalMessageCount], "counts");
    await client.close();
  },
  "a topic, a subscription and its rules": async () => {
    await admin.createTopic("t", { requiresDuplicateDetection: true });
    await admin.createSubscription("t", "s", { lockDuration: "PT30S" });
    await admin.createRule("t", "s", "red", { subject: "red", applicationProperties: { size: 3 } });
    await admin.createRule("t", "s", "big", { sqlExpression: "size > 10" }, { sqlExpression: "SET big = 'yes'" });
    same(["$Default", "red", "big"], await listed(admin.listRules("t", "s")), "rules");
    const rule = await admin.getRule("t", "s", "red");
    same(["red", { size: 3 }], [rule.filter.subject, rule.filter.applicationProperties], "filter");
    same("SET big = 'yes'", (await admin.getRule("t", "s", "big")).action.sqlExpression, "action");
    await admin.deleteRule("t", "s", "$Default");
    same(["s"], await listed(admin.listSubscriptions("t")), "subscriptions");
    same(0, (await admin.getSubscriptionRuntimeProperties("t", "s")).activeMessageCount, "messages");
    same(1, (await admin.getTopicRuntimeProperties("t")).subscriptionCount, "count");
    await admin.deleteTopic("t");
    same(["news"], await listed(admin.listTopics()), "topics");
  },
  "the namespace": async () => {
    same("Standard", (await admin.getNamespaceProperties()).messagingSku, "tier");
  },
};

run("administration", scenarios);
