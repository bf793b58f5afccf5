"use strict";

const { delay } = require("@azure/service-bus");
const { same, fails } = require("./report");
const { ids, message, take, send, receiver, session, left, settle } = require("./bus");

const longer = 6500; // than the lock of a short queue

module.exports = {
  "renew a message's lock": async (q) => {
    await send(q("plain"), message("1"));
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      const before = m.lockedUntilUtc;
      await delay(20);
      const until = await r.renewMessageLock(m);
      same(true, until > before, "locked for longer");
      await r.completeMessage(m);
    });
  },
  "a message's lock runs out": async (q) => {
    await send(q("short"), message("1"));
    await receiver(q("short"), async (r) => {
      const [m] = await take(r, 1);
      await delay(longer);
      same("MessageLockLost", (await fails(() => r.renewMessageLock(m), "renew")).code, "code");
      same("MessageLockLost", (await fails(() => r.completeMessage(m), "complete")).code, "code");
      const [again] = await take(r, 1);
      same(["1", 1], [again.messageId, again.deliveryCount], "delivered again");
      await r.completeMessage(again);
    }, { maxAutoLockRenewalDurationInMs: 0 });
    await left(q("short"), []);
  },
  "a lock outlives its receiver": async (q) => {
    await send(q("short"), message("1"));
    await receiver(q("short"), async (r) => take(r, 1), { maxAutoLockRenewalDurationInMs: 0 });
    await receiver(q("short"), async (r) => {
      same([], ids(await r.receiveMessages(1, { maxWaitTimeInMs: 1000 })), "messages while it is locked");
      const [m] = await take(r, 1);
      same(1, m.deliveryCount, "delivery count");
    });
  },
  "a message's lock is renewed by itself": async (q) => {
    await send(q("short"), message("1"));
    await receiver(q("short"), async (r) => {
      const [m] = await take(r, 1);
      await delay(longer);
      await r.completeMessage(m);
    }, { maxAutoLockRenewalDurationInMs: 30000 });
    await left(q("short"), []);
  },
  "a session's lock runs out": async (q) => {
    await send(q("shortSessions"), message("1", { sessionId: "a" }));
    await session(q("shortSessions"), "a", async (r) => {
      const [m] = await take(r, 1);
      await delay(longer);
      same("SessionLockLost", (await fails(() => r.completeMessage(m), "complete")).code, "code");
      same("SessionLockLost", (await fails(() => r.renewSessionLock(), "renew")).code, "code");
      same("SessionLockLost", (await fails(() => r.setSessionState("x"), "set the state")).code, "code");
    }, { maxAutoLockRenewalDurationInMs: 0 });
    await session(q("shortSessions"), "a", async (r) => {
      const [m] = await take(r, 1);
      same(["1", 1], [m.messageId, m.deliveryCount], "delivered again");
      await r.completeMessage(m);
    });
  },
  "a session's lock is renewed": async (q) => {
    await send(q("shortSessions"), message("1", { sessionId: "a" }));
    await session(q("shortSessions"), "a", async (r) => {
      const [m] = await take(r, 1);
      for (let i = 0; i < 3; i++) {
        await delay(longer / 3);
        same(true, (await r.renewSessionLock()) > new Date(Date.now() + 3000), "locked");
      }
      await r.completeMessage(m);
    }, { maxAutoLockRenewalDurationInMs: 0 });
  },
  "a session's lock is renewed by itself": async (q) => {
    await send(q("shortSessions"), message("1", { sessionId: "a" }));
    await session(q("shortSessions"), "a", async (r) => {
      const [m] = await take(r, 1);
      await delay(longer);
      await r.completeMessage(m);
    }, { maxAutoLockRenewalDurationInMs: 30000 });
  },
  "a session whose holder is gone": async (q) => {
    await send(q("shortSessions"), message("1", { sessionId: "a" }));
    await session(q("shortSessions"), "a", async (r) => take(r, 1));
    await session(q("shortSessions"), "a", async (r) => { // at once: closing gives the session back
      const [m] = await take(r, 1);
      same(["1", 0], [m.messageId, m.deliveryCount], "no failed delivery");
      await settle(r, "complete", [m]);
    });
  },
};
