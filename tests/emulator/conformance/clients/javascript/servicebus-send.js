"use strict";

const { same, fails } = require("./report");
const { text, client, ids, message, take, using, send, receiver, deleting, left, settle, other, signed } = require("./bus");

// carried sends a message and gives it back as it was received.
async function carried(entity, m) {
  await send(entity, m);
  return receiver(entity, async (r) => (await take(r, 1))[0], deleting);
}

module.exports = {
  "send and receive": async (q) => {
    await send(q("plain"), { messageId: "1", body: { a: 1 } });
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      same({ a: 1 }, m.body, "body");
      same([0, "1"], [m.deliveryCount, `${m.sequenceNumber}`], "delivery count and sequence number");
      same(true, Math.abs(m.enqueuedTimeUtc - Date.now()) < 5000 && m.lockedUntilUtc > Date.now(), "times");
      await r.completeMessage(m);
      same(0, (await r.peekMessages(1)).length, "messages left");
    });
  },
  "every property of a message": async (q) => {
    const sent = {
      messageId: "1", subject: "s", contentType: "application/json", correlationId: "c", to: "t", replyTo: "r", replyToSessionId: "rs",
      sessionId: "one", partitionKey: "one", timeToLive: 300000,
    };
    const m = await carried(q("plain"), { ...sent, body: "" });
    same(sent, Object.fromEntries(Object.keys(sent).map((k) => [k, m[k]])), "properties");
    same(300000, m.expiresAtUtc - m.enqueuedTimeUtc, "time to live");
    same("active", m.state, "state");
  },
  "every type of application property": async (q) => {
    const sent = {
      text: "ä€𝄞", empty: "", yes: true, no: false, zero: 0, small: -1, int: 2147483647, long: 9007199254740991, negative: -9007199254740991,
      double: 0.1, at: new Date(1700000000123), nothing: null,
    };
    const m = await carried(q("plain"), { body: "", applicationProperties: sent });
    const got = { ...m.applicationProperties, at: new Date(m.applicationProperties.at) };
    same(sent, Object.fromEntries(Object.keys(sent).map((k) => [k, got[k]])), "application properties");
  },
  "bodies of data, value and sequence": async (q) => {
    for (const [bodyType, body] of [["data", Buffer.from("x")], ["data", ""], ["value", "text"], ["value", { a: [1, "b"] }], ["value", 7], ["value", null], ["sequence", [[1, "b"], [true]]]]) {
      const m = await carried(q("plain"), { bodyType, body });
      same([bodyType, body], [m._rawAmqpMessage.bodyType, m.body], "body");
    }
  },
  "annotations of a sender": async (q) => {
    const m = await carried(q("plain"), { bodyType: "data", body: "x", messageAnnotations: { "x-mine": "yes" }, header: { priority: 7, durable: true }, footer: { sum: 1 } });
    same(["yes", 7, 1], [m._rawAmqpMessage.messageAnnotations["x-mine"], m._rawAmqpMessage.header.priority, m._rawAmqpMessage.footer.sum], "annotation, priority and footer");
  },
  "a message without an id": async (q) => {
    const m = await carried(q("plain"), { body: "x" });
    same(true, typeof m.messageId === "string" && m.messageId.length > 0, "the service made one up");
  },
  "send a batch": async (q) => {
    await using(client.createSender(q("plain")), async (sender) => {
      const batch = await sender.createMessageBatch();
      for (const id of ["1", "2", "3"]) same(true, batch.tryAddMessage(message(id)), "added");
      await sender.sendMessages(batch);
    });
    await receiver(q("plain"), async (r) => {
      const messages = await take(r, 3);
      same(["1", "2", "3"], ids(messages), "order");
      await settle(r, "complete", messages);
    });
  },
  "a batch takes messages until it is full": async (q) => {
    await using(client.createSender(q("plain")), async (sender) => {
      const batch = await sender.createMessageBatch();
      const body = Buffer.alloc(60 << 10);
      let n = 0;
      while (batch.tryAddMessage({ messageId: `${n}`, body })) n++;
      same(4, n, "messages of 60 KiB in 256 KiB");
      await sender.sendMessages(batch);
      const small = await sender.createMessageBatch({ maxSizeInBytes: 1000 });
      same(false, small.tryAddMessage({ body }), "added to a batch of 1,000 bytes");
      await fails(() => sender.createMessageBatch({ maxSizeInBytes: 1 << 20 }), "make a batch of 1 MiB");
    });
    await left(q("plain"), ["0", "1", "2", "3"]);
  },
  "a batch of several sessions": async (q) => {
    await send(q("sessions"), [message("1", { sessionId: "a" }), message("2", { sessionId: "b" })]);
    await left(q("sessions"), ["1", "2"]);
  },
  "a message too large": async (q) => {
    const e = await fails(() => send(q("plain"), { body: Buffer.alloc(300 << 10) }), "send 300 KiB");
    same("MessageSizeExceeded", e.code, "code");
    await send(q("plain"), message("after"));
    await left(q("plain"), ["after"]);
  },
  "schedule and cancel": async (q) => {
    const sender = client.createSender(q("plain"));
    const [soon, later] = [300, 600000].map((ms) => new Date(Date.now() + ms));
    await sender.scheduleMessages(message("kept"), soon);
    const cancelled = await sender.scheduleMessages([message("cancelled"), message("too")], later);
    same(2, cancelled.length, "numbers");
    await sender.cancelScheduledMessages(cancelled);
    const e = await fails(() => sender.cancelScheduledMessages(cancelled), "cancel them twice");
    same("MessageNotFound", e.code, "code");
    await sender.close();
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      same("kept", m.messageId, "message");
      same(true, m.enqueuedTimeUtc >= new Date(soon - 5), "enqueued when it was scheduled for");
      await r.completeMessage(m);
      same(0, (await r.peekMessages(1)).length, "messages left");
    });
  },
  "a scheduled message is peeked as one": async (q) => {
    const at = new Date(Date.now() + 600000);
    await using(client.createSender(q("plain")), async (sender) => {
      const [number] = await sender.scheduleMessages(message("1"), at);
      await receiver(q("plain"), async (r) => {
        const [m] = await r.peekMessages(1);
        same(["1", "scheduled", at, `${number}`], [m.messageId, m.state, m.scheduledEnqueueTimeUtc, `${m.sequenceNumber}`], "scheduled");
        same(0, (await r.receiveMessages(1, { maxWaitTimeInMs: 300 })).length, "messages received");
      });
    });
  },
  "a message sent with a time to appear at": async (q) => {
    const at = new Date(Date.now() + 2000);
    await send(q("plain"), [message("later", { scheduledEnqueueTimeUtc: at }), message("now")]);
    await receiver(q("plain"), async (r) => same(["now", "later"], ids(await take(r, 2)), "order"), deleting);
  },
  "duplicates are dropped": async (q) => {
    await send(q("unique"), message("1"));
    await send(q("unique"), [message("1"), message("2")]);
    await receiver(q("unique"), async (r) => same(["1", "2"], ids(await take(r, 2)), "messages"), deleting);
    await send(q("unique"), message("1"));
    await left(q("unique"), []);
  },
  "many senders at once": async (q) => {
    const names = [...Array(20).keys()].map((i) => `${i}`);
    await Promise.all(["a", "b", "c"].map((s) => using(client.createSender(q("plain")), async (sender) => {
      for (const n of names) await sender.sendMessages(message(s + n));
    })));
    await receiver(q("plain"), async (r) => {
      const got = ids(await take(r, 60));
      for (const s of ["a", "b", "c"]) same(names.map((n) => s + n), got.filter((id) => id.startsWith(s)), `order of ${s}`);
    }, deleting);
  },
  "a message without a session for a queue of sessions": async (q) => {
    const e = await fails(() => send(q("sessions"), message("1")), "send");
    same(true, /SessionId/.test(e.message), e.message);
    await left(q("sessions"), []);
  },
  "an id that is too long": async (q) => {
    await fails(() => send(q("plain"), { messageId: "x".repeat(129), body: "" }), "send");
    await left(q("plain"), []);
  },
  "an entity that is not there": async () => {
    for (const action of [() => send("nowhere", message("1")), () => receiver("nowhere", (r) => r.receiveMessages(1)), () => receiver("nowhere", (r) => r.peekMessages(1))]) {
      same("MessagingEntityNotFound", (await fails(action, "use it")).code, "code");
    }
  },
  "a queue that takes nothing": async () => {
    same("MessagingEntityDisabled", (await fails(() => send("closed", message("1")), "send")).code, "code");
    same("MessagingEntityDisabled", (await fails(() => receiver("shut", (r) => r.receiveMessages(1)), "receive")).code, "code");
  },
  "a wrong key": async (q) => {
    const wrong = text.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong");
    await other(async (c) => {
      same("UnauthorizedAccess", (await fails(() => c.createSender(q("plain")).sendMessages(message("1")), "send")).code, "code");
      same("UnauthorizedAccess", (await fails(() => c.createReceiver(q("plain")).receiveMessages(1), "receive")).code, "code");
    }, wrong);
    await left(q("plain"), []);
  },
  "a key that may only listen": async (q) => {
    await send(q("plain"), message("1"));
    await other(async (c) => {
      same(["1"], ids(await c.createReceiver(q("plain")).receiveMessages(1)), "received");
      same("UnauthorizedAccess", (await fails(() => c.createSender(q("plain")).sendMessages(message("2")), "send")).code, "code");
    }, text.replace(/SharedAccessKeyName=[^;]*/, "SharedAccessKeyName=listen"));
  },
  "a token that is over": async (q) => {
    await other(async (c) => {
      same("UnauthorizedAccess", (await fails(() => c.createSender(q("plain")).sendMessages(message("1")), "send")).code, "code");
    }, signed(-5));
  },
  "a token that runs out": async (q) => {
    await other(async (c) => {
      const sender = c.createSender(q("plain"));
      await sender.sendMessages(message("1"));
      await new Promise((resolve) => setTimeout(resolve, 7000));
      same("UnauthorizedAccess", (await fails(() => sender.sendMessages(message("2")), "send")).code, "code");
    }, signed(6));
    await left(q("plain"), ["1"]);
  },
};
