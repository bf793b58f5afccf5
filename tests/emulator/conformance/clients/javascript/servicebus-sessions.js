"use strict";

const { same, fails } = require("./report");
const { client, ids, message, take, using, send, receiver, session, dead, left, becomes, settle, other } = require("./bus");

const of = (sessionId, ...names) => names.map((id) => message(id, { sessionId }));

module.exports = {
  "accept a named session": async (q) => {
    await send(q("sessions"), [...of("a", "1"), ...of("b", "2"), ...of("a", "3")]);
    for (const [name, want] of [["a", ["1", "3"]], ["b", ["2"]]]) {
      await session(q("sessions"), name, async (r) => {
        same(name, r.sessionId, "session");
        const messages = await take(r, want.length);
        same(want, ids(messages), "messages");
        same([name], [...new Set(messages.map((m) => m.sessionId))], "their session");
        await settle(r, "complete", messages);
      });
    }
  },
  "accept the next session": async (q) => {
    await send(q("sessions"), of("next", "1"));
    await using(client.acceptNextSession(q("sessions")), async (r) => {
      same("next", r.sessionId, "session");
      await settle(r, "complete", await take(r, 1));
    });
  },
  "no session to accept": async (q) => {
    await other(async (c) => {
      same("ServiceTimeout", (await fails(() => c.acceptNextSession(q("sessions")), "accept")).code, "code");
    }, undefined, { maxRetries: 0, timeoutInMs: 2000 });
  },
  "two receivers accept different sessions": async (q) => {
    await send(q("sessions"), [...of("a", "1"), ...of("b", "2")]);
    await using(client.acceptNextSession(q("sessions")), (first) => using(client.acceptNextSession(q("sessions")), async (second) => {
      same(["a", "b"], [first.sessionId, second.sessionId].toSorted(), "sessions");
      for (const r of [first, second]) same([r.sessionId], (await take(r, 1)).map((m) => m.sessionId), "messages");
    }));
  },
  "a session without messages": async (q) => {
    await session(q("sessions"), "empty", async (r) => {
      same([], ids(await r.receiveMessages(1, { maxWaitTimeInMs: 300 })), "messages");
      await send(q("sessions"), of("empty", "1"));
      same(["1"], ids(await take(r, 1)), "what came later");
    });
  },
  "a session has one holder": async (q) => {
    await session(q("sessions"), "held", async () => {
      const e = await fails(() => client.acceptSession(q("sessions"), "held"), "accept it twice");
      same("SessionCannotBeLocked", e.code, "code");
    });
    await session(q("sessions"), "held", async () => {}); // free again
  },
  "session state and lock": async (q) => {
    await session(q("sessions"), "state", async (r) => {
      same(null, await r.getSessionState(), "state at first");
      await r.setSessionState({ step: 2 });
      same({ step: 2 }, await r.getSessionState(), "state");
      same(true, (await r.renewSessionLock()) > new Date(), "locked");
    });
    await session(q("sessions"), "other", async (r) => same(null, await r.getSessionState(), "state of another session"));
    await session(q("sessions"), "state", async (r) => {
      same({ step: 2 }, await r.getSessionState(), "state outlives its holder");
      await r.setSessionState(null);
      same(null, await r.getSessionState(), "state in the end");
    });
  },
  "a session's state is too large": async (q) => {
    await session(q("sessions"), "large", async (r) => {
      await fails(() => r.setSessionState(Buffer.alloc(300 << 10)), "set 300 KiB");
      same(null, await r.getSessionState(), "state");
    });
  },
  "deferred and peeked in a session": async (q) => {
    await send(q("sessions"), [...of("deferred", "1"), ...of("another", "2")]);
    await session(q("sessions"), "deferred", async (r) => {
      const [m] = await take(r, 1);
      await r.deferMessage(m);
      same(["1"], ids(await r.peekMessages(5)), "peeked");
      const [again] = await r.receiveDeferredMessages(m.sequenceNumber);
      await r.completeMessage(again);
      same([], ids(await r.peekMessages(5, { fromSequenceNumber: m.sequenceNumber })), "left");
    });
    await left(q("sessions"), ["2"]); // who has no session sees them all
  },
  "a deferred message of another session": async (q) => {
    await send(q("sessions"), [...of("a", "1"), ...of("b", "2")]);
    const number = await session(q("sessions"), "a", async (r) => {
      const [m] = await take(r, 1);
      await r.deferMessage(m);
      return m.sequenceNumber;
    });
    await session(q("sessions"), "b", async (r) => {
      await fails(() => r.receiveDeferredMessages(number), "receive it");
    });
  },
  "an abandoned message keeps its place": async (q) => {
    await send(q("sessions"), of("a", "1", "2", "3"));
    await session(q("sessions"), "a", async (r) => {
      const [first] = await take(r, 1);
      await r.abandonMessage(first);
      const messages = await take(r, 3);
      same([["1", "2", "3"], [1, 0, 0]], [ids(messages), messages.map((m) => m.deliveryCount)], "order and counts");
      await settle(r, "complete", messages);
    });
  },
  "a dead letter of a session": async (q) => {
    await send(q("sessions"), of("a", "1"));
    await session(q("sessions"), "a", async (r) => settle(r, "deadLetter", await take(r, 1)));
    await receiver(q("sessions"), async (r) => {
      const [m] = await take(r, 1);
      same(["1", "a"], [m.messageId, m.sessionId], "dead letter");
      await r.completeMessage(m);
    }, dead);
  },
  "a handler of a session": async (q) => {
    await send(q("sessions"), of("a", "1", "2", "3"));
    await session(q("sessions"), "a", async (r) => {
      const seen = [];
      await new Promise((resolve, reject) => {
        r.subscribe({
          processMessage: async (m) => { if (seen.push(m.messageId) === 3) resolve(); },
          processError: async (x) => reject(x.error),
        });
      });
      same(["1", "2", "3"], seen, "messages");
      await becomes(q("sessions"), []);
    });
  },
  "a queue without sessions cannot be accepted": async (q) => {
    const e = await fails(() => client.acceptSession(q("plain"), "x"), "accept");
    same("ServiceBusError", e.name, "error");
  },
  "a queue of sessions cannot be received from without": async (q) => {
    await fails(() => receiver(q("sessions"), (r) => r.receiveMessages(1, { maxWaitTimeInMs: 2000 })), "receive");
  },
};
