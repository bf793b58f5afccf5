"use strict";

const { same, fails } = require("./report");
const { client, ids, message, take, using, send, subscription, rules, dead, deleting, settle } = require("./bus");

async function listed(manager) {
  const names = [];
  for await (const rule of manager.listRules()) names.push([rule.name, rule.filter.subject ?? rule.filter.sqlExpression]);
  return names;
}

module.exports = {
  "a topic and its subscription": async (q) => {
    await send(q("news"), message("1"));
    await subscription(q("news"), "all", async (r) => {
      const [m] = await take(r, 1);
      same("1", m.messageId, "message");
      await r.completeMessage(m);
    });
  },
  "subscriptions get copies of their own": async (q) => {
    await send(q("news"), message("1"));
    await subscription(q("news"), "all", async (r) => settle(r, "complete", await take(r, 1)));
    await subscription(q("news"), "some", async (r) => {
      const [m] = await take(r, 1);
      same(["1", 0], [m.messageId, m.deliveryCount], "message");
      await r.deadLetterMessage(m, { deadLetterReason: "bad" });
    });
    await subscription(q("news"), "all", async (r) => same([], ids(await r.peekMessages(1)), "dead letters of the other"), dead);
    await subscription(q("news"), "some", async (r) => same(["1"], ids(await take(r, 1)), "dead letters"), { ...dead, ...deleting });
  },
  "a topic cannot be received from": async (q) => {
    await fails(() => using(client.createReceiver(q("news")), (r) => r.receiveMessages(1)), "receive");
    same("MessagingEntityNotFound", (await fails(() => subscription(q("news"), "none", (r) => r.receiveMessages(1)), "receive from no subscription")).code, "code");
  },
  "rules choose and annotate": async (q) => {
    await rules(q("news"), "some", async (r) => {
      same([["$Default", "1=1"]], await listed(r), "rules at first");
      await r.createRule("red", { subject: "red" }, { sqlExpression: "SET painted = 'yes'" });
      await r.createRule("big", { sqlExpression: "size > 10" });
      await r.deleteRule("$Default");
      same([["red", "red"], ["big", "size > 10"]], await listed(r), "rules");
    });
    await send(q("news"), [
      message("1", { subject: "red" }), message("2", { subject: "blue" }), message("3", { subject: "blue", applicationProperties: { size: 11 } }),
    ]);
    await subscription(q("news"), "some", async (r) => {
      const messages = await take(r, 2);
      same(["1", "3"], ids(messages), "messages");
      same("yes", messages[0].applicationProperties.painted, "what the action set");
      same([], ids(await r.receiveMessages(1, { maxWaitTimeInMs: 200 })), "messages left");
    }, deleting);
    await subscription(q("news"), "all", async (r) => same(["1", "2", "3"], ids(await take(r, 3)), "the other subscription"), deleting);
  },
  "a filter of correlation": async (q) => {
    await rules(q("news"), "some", async (r) => {
      await r.deleteRule("$Default");
      await r.createRule("both", { correlationId: "c", applicationProperties: { kind: "a", n: 3, yes: true } });
    });
    const sent = { correlationId: "c", applicationProperties: { kind: "a", n: 3, yes: true, more: 1 } };
    await send(q("news"), [
      message("match", sent), message("other id", { ...sent, correlationId: "d" }), message("no id", { applicationProperties: sent.applicationProperties }),
      message("other text", { ...sent, applicationProperties: { ...sent.applicationProperties, kind: "b" } }), message("again", sent),
    ]);
    await subscription(q("news"), "some", async (r) => same(["match", "again"], ids(await take(r, 2)), "messages"), deleting);
  },
  "filters of SQL": async (q) => {
    await rules(q("news"), "some", async (r) => {
      await r.deleteRule("$Default");
      await r.createRule("sql", { sqlExpression: "sys.Label LIKE 'or%' AND (n IN (1, 2) OR n IS NULL) AND NOT EXISTS(skip)" });
    });
    const m = (id, subject, applicationProperties) => message(id, { subject, applicationProperties });
    await send(q("news"), [
      m("1", "order", { n: 1 }), m("2", "order", { n: 3 }), m("3", "order", {}), m("4", "ordinary", { n: 2, skip: true }), m("5", "x", { n: 1 }), m("6", "order", { n: 2 }),
    ]);
    await subscription(q("news"), "some", async (r) => same(["1", "3", "6"], ids(await take(r, 3)), "messages"), deleting);
  },
  "rules that cannot be": async (q) => {
    await rules(q("news"), "some", async (r) => {
      await fails(() => r.createRule("bad", { sqlExpression: "size >" }), "create one that is no SQL");
      same("MessagingEntityAlreadyExists", (await fails(() => r.createRule("$Default", { sqlExpression: "1=1" }), "create it again")).code, "code");
      same("MessagingEntityNotFound", (await fails(() => r.deleteRule("none"), "delete none")).code, "code");
      same([["$Default", "1=1"]], await listed(r), "rules");
    });
  },
  "a subscription that nothing matches": async (q) => {
    await rules(q("news"), "some", (r) => r.deleteRule("$Default"));
    await send(q("news"), message("1")); // is taken all the same
    await subscription(q("news"), "some", async (r) => same([], ids(await r.receiveMessages(1, { maxWaitTimeInMs: 300 })), "messages"));
    await subscription(q("news"), "all", async (r) => same(["1"], ids(await take(r, 1)), "messages"), deleting);
  },
};
