"use strict";

const { ServiceBusClient, delay } = require("@azure/service-bus");
const { same, fails, run } = require("./report");

const retryOptions = { maxRetries: 0, timeoutInMs: 10000 };
const client = new ServiceBusClient(process.env.SERVICE_BUS_CONNECTION_STRING, { retryOptions });

const ids = (messages) => messages.map((m) => m.messageId);

// take receives exactly n messages.
async function take(receiver, n) {
  const out = [];
  while (out.length < n) {
    const more = await receiver.receiveMessages(n - out.length, { maxWaitTimeInMs: 5000 });
    if (more.length === 0) break;
    out.push(...more);
  }
  same(n, out.length, "messages received");
  return out;
}

async function send(entity, messages) {
  const sender = client.createSender(entity);
  try {
    return await sender.sendMessages(messages);
  } finally {
    await sender.close();
  }
}

// using closes what a scenario opened, so that no lock outlives it.
async function using(resource, action) {
  try {
    return await action(await resource);
  } finally {
    await (await resource).close();
  }
}

const plain = (action, options) => using(client.createReceiver("plain", options), action);

const scenarios = {
  "send and receive": async () => {
    await send("plain", {
      messageId: "1", body: { a: 1 }, subject: "s", contentType: "application/json", correlationId: "c", to: "t", replyTo: "r",
      applicationProperties: { text: "x", number: 1, yes: true },
    });
    await plain(async (r) => {
      const [m] = await take(r, 1);
      same({ a: 1 }, m.body, "body");
      same(["1", "s", "application/json", "c", "t", "r"], [m.messageId, m.subject, m.contentType, m.correlationId, m.to, m.replyTo], "properties");
      same({ text: "x", number: 1, yes: true }, m.applicationProperties, "application properties");
      same(0, m.deliveryCount, "delivery count");
      await r.completeMessage(m);
      same(0, (await r.peekMessages(1)).length, "messages left");
    });
  },
  "send a batch": async () => {
    const sender = client.createSender("plain");
    const batch = await sender.createMessageBatch();
    for (const id of ["1", "2", "3"]) same(true, batch.tryAddMessage({ messageId: id, body: id }), "added");
    await sender.sendMessages(batch);
    await sender.close();
    await plain(async (r) => {
      const messages = await take(r, 3);
      same(["1", "2", "3"], ids(messages), "order");
      for (const m of messages) await r.completeMessage(m);
    });
  },
  "schedule and cancel": async () => {
    const sender = client.createSender("plain");
    const [soon, later] = [300, 600000].map((ms) => new Date(Date.now() + ms));
    await sender.scheduleMessages({ messageId: "kept", body: "" }, soon);
    const cancelled = await sender.scheduleMessages([{ messageId: "cancelled", body: "" }, { messageId: "too", body: "" }], later);
    await sender.cancelScheduledMessages(cancelled);
    const e = await fails(() => sender.cancelScheduledMessages(cancelled), "cancel them twice");
    same("MessageNotFound", e.code, "code");
    await sender.close();
    await plain(async (r) => {
      same(["kept"], ids(await r.peekMessages(5)), "scheduled");
      const [m] = await take(r, 1);
      same("kept", m.messageId, "message");
      same(true, m.enqueuedTimeUtc >= new Date(soon - 5), "enqueued when it was scheduled for");
      await r.completeMessage(m);
    });
  },
  "abandon counts": async () => {
    await send("plain", { messageId: "1", body: "" });
    await plain(async (r) => {
      const [m] = await take(r, 1);
      await r.abandonMessage(m, { why: "later" });
      const [again] = await take(r, 1);
      same([1, "later"], [again.deliveryCount, again.applicationProperties.why], "delivery count and property");
      await r.completeMessage(again);
    });
  },
  "defer and receive deferred": async () => {
    await send("plain", { messageId: "1", body: "" });
    await plain(async (r) => {
      const [m] = await take(r, 1);
      await r.deferMessage(m);
      const [deferred] = await r.receiveDeferredMessages(m.sequenceNumber);
      same("1", deferred.messageId, "message");
      await r.completeMessage(deferred);
      const e = await fails(() => r.receiveDeferredMessages(m.sequenceNumber), "receive it again");
      same("MessageNotFound", e.code, "code");
    });
  },
  "dead-letter and read it": async () => {
    await send("plain", { messageId: "1", body: "" });
    await plain(async (r) => {
      const [m] = await take(r, 1);
      await r.deadLetterMessage(m, { deadLetterReason: "bad", deadLetterErrorDescription: "very" });
    });
    await plain(async (r) => {
      const [m] = await take(r, 1);
      same(["1", "bad", "very"], [m.messageId, m.deadLetterReason, m.deadLetterErrorDescription], "dead letter");
      await r.completeMessage(m);
    }, { subQueueType: "deadLetter" });
  },
  "renew a message's lock": async () => {
    await send("plain", { messageId: "1", body: "" });
    await plain(async (r) => {
      const [m] = await take(r, 1);
      const before = m.lockedUntilUtc;
      await delay(20);
      const until = await r.renewMessageLock(m);
      same(true, until > before, "locked for longer");
      await r.completeMessage(m);
    });
  },
  "receive and delete": async () => {
    await send("plain", [{ messageId: "1", body: "" }, { messageId: "2", body: "" }]);
    await plain(async (r) => {
      same(["1", "2"], ids(await take(r, 2)), "messages");
      same(0, (await r.peekMessages(1)).length, "messages left");
    }, { receiveMode: "receiveAndDelete" });
  },
  "peek takes nothing": async () => {
    await send("plain", [{ messageId: "1", body: "" }, { messageId: "2", body: "" }]);
    await plain(async (r) => {
      same(["1", "2"], ids(await r.peekMessages(5)), "peeked");
      const messages = await take(r, 2);
      same(["1", "2"], ids(messages), "received");
      for (const m of messages) await r.completeMessage(m);
    });
  },
  "a handler receives": async () => {
    await send("plain", [{ messageId: "1", body: "" }, { messageId: "2", body: "" }]);
    await plain(async (r) => {
      const seen = [];
      await new Promise((resolve, reject) => {
        r.subscribe({
          processMessage: async (m) => { if (seen.push(m.messageId) === 2) resolve(); },
          processError: async (x) => reject(x.error),
        });
      });
      same(["1", "2"], seen, "messages");
      await delay(50);
    });
    await plain(async (r) => same(0, (await r.peekMessages(1)).length, "messages left"));
  },
  "accept a named session": async () => {
    await send("sessions", [{ messageId: "1", sessionId: "a", body: "" }, { messageId: "2", sessionId: "b", body: "" }, { messageId: "3", sessionId: "a", body: "" }]);
    for (const [session, want] of [["a", ["1", "3"]], ["b", ["2"]]]) {
      await using(client.acceptSession("sessions", session), async (r) => {
        same(session, r.sessionId, "session");
        const messages = await take(r, want.length);
        same(want, ids(messages), "messages");
        for (const m of messages) await r.completeMessage(m);
      });
    }
  },
  "accept the next session": async () => {
    await send("sessions", { messageId: "1", sessionId: "next", body: "" });
    await using(client.acceptNextSession("sessions"), async (r) => {
      same("next", r.sessionId, "session");
      await r.completeMessage((await take(r, 1))[0]);
    });
  },
  "a session has one holder": async () => {
    await using(client.acceptSession("sessions", "held"), async () => {
      const e = await fails(() => client.acceptSession("sessions", "held"), "accept it twice");
      same("SessionCannotBeLocked", e.code, "code");
    });
  },
  "session state and lock": async () => {
    await using(client.acceptSession("sessions", "state"), async (r) => {
      same(null, await r.getSessionState(), "state at first");
      await r.setSessionState({ step: 2 });
      same({ step: 2 }, await r.getSessionState(), "state");
      const before = r.sessionLockedUntilUtc;
      await delay(20);
      same(true, (await r.renewSessionLock()) > before, "locked for longer");
      await r.setSessionState(null);
      same(null, await r.getSessionState(), "state in the end");
    });
  },
  "deferred and peeked in a session": async () => {
    await send("sessions", { messageId: "1", sessionId: "deferred", body: "" });
    await using(client.acceptSession("sessions", "deferred"), async (r) => {
      const [m] = await take(r, 1);
      await r.deferMessage(m);
      same(["1"], ids(await r.peekMessages(5)), "peeked");
      const [again] = await r.receiveDeferredMessages(m.sequenceNumber);
      await r.completeMessage(again);
      same([], ids(await r.peekMessages(5, { fromSequenceNumber: m.sequenceNumber })), "left");
    });
  },
  "duplicates are dropped": async () => {
    await send("unique", { messageId: "1", body: "" });
    await send("unique", [{ messageId: "1", body: "" }, { messageId: "2", body: "" }]);
    await using(client.createReceiver("unique", { receiveMode: "receiveAndDelete" }), async (r) => {
      same(["1", "2"], ids(await take(r, 2)), "messages");
      same(0, (await r.peekMessages(1)).length, "messages left");
    });
  },
  "rules choose and annotate": async () => {
    const rules = client.createRuleManager("news", "all");
    await rules.createRule("red", { subject: "red" }, { sqlExpression: "SET painted = 'yes'" });
    await rules.createRule("big", { sqlExpression: "size > 10" });
    await rules.deleteRule("$Default");
    const names = [];
    for await (const rule of rules.listRules()) names.push([rule.name, rule.filter.subject ?? rule.filter.sqlExpression]);
    same([["red", "red"], ["big", "size > 10"]], names, "rules");
    await send("news", [
      { messageId: "1", subject: "red", body: "" },
      { messageId: "2", subject: "blue", body: "" },
      { messageId: "3", subject: "blue", body: "", applicationProperties: { size: 11 } },
    ]);
    await using(client.createReceiver("news", "all", { receiveMode: "receiveAndDelete" }), async (r) => {
      const messages = await take(r, 2);
      same(["1", "3"], ids(messages), "messages");
      same("yes", messages[0].applicationProperties.painted, "what the action set");
    });
  },
  "a message too large": async () => {
    const e = await fails(() => send("plain", { body: Buffer.alloc(300 << 10) }), "send 300 KiB");
    same("MessageSizeExceeded", e.code, "code");
    await send("plain", { messageId: "after", body: "" });
    await plain(async (r) => same(["after"], ids(await take(r, 1)), "messages"), { receiveMode: "receiveAndDelete" });
  },
  "an entity that is not there": async () => {
    const e = await fails(() => send("nowhere", { body: "" }), "send");
    same("MessagingEntityNotFound", e.code, "code");
  },
  "a queue without sessions cannot be accepted": async () => {
    const e = await fails(() => client.acceptSession("plain", "x"), "accept");
    same("ServiceBusError", e.name, "error");
  },
};

run("servicebus", scenarios).then(() => client.close());
